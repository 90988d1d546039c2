// Is a text said in the language asked for, and does the table of texts have all of them and no
// more? What the commands print is asked in tests/cli/language_test.cpp.
#include "sim/base/language.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <regex>
#include <set>

#include "sim/base/config.h"

namespace offsim::language_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class Chinese : public testing::Test {
 protected:
  void SetUp() override { set_language(Language::kChinese); }
  void TearDown() override { set_language(Language::kEnglish); }
};

TEST(English, IsSaidAsItIs) {
  EXPECT_EQ(tr("does not fit"), "does not fit");
  EXPECT_EQ(tr("nobody says this"), "nobody says this");
  EXPECT_EQ(tr_format("{} needs {} of {}", "host", 1, 2), "host needs 1 of 2");
  EXPECT_EQ(tr_sentence("x.y has no effect: there is one GPU"),
            "x.y has no effect: there is one GPU");
  EXPECT_THAT(untranslated(), IsEmpty());
}

TEST_F(Chinese, IsSaidByTheTable) {
  EXPECT_EQ(tr("does not fit"), "放不下");
  EXPECT_EQ(tr_format("{} tokens take {} steps and {} hours", 10, 2, 3),
            "10 token 需要 2 步，3 小时");
  EXPECT_THAT(untranslated(), IsEmpty());
}

TEST_F(Chinese, NumbersOfGapsReorderThem) {
  EXPECT_EQ(tr_format("{} as {}, {} of the model, {} executed", "1", "6ND", "2", "3"),
            "按 6ND 计 1，按模型计 2，实际执行 3");
  EXPECT_EQ(tr_sentence("2 of the 8 GPUs of host, with all of its host"),
            "使用 host 的 8 个 GPU 中的 2 个，主机全部归其使用");
}

// A gap of a sentence that was formatted elsewhere may be a sentence, too.
TEST_F(Chinese, SentencesAreKnownByTheirFormat) {
  EXPECT_EQ(tr_sentence("ratel.is_mp has no effect: there is one sub-group"),
            "ratel.is_mp 无效果：只有一个 sub-group");
  EXPECT_EQ(tr_sentence("coherent-offload.gradients has no effect: gradients"),
            "coherent-offload.gradients 无效果：gradients");
  EXPECT_EQ(tr_sentence("expected fp32, bf16-mixed or bf16"), "应为 fp32、bf16-mixed 或 bf16");
  EXPECT_EQ(tr_sentence("first o_proj backward"), "首个 o_proj 反向");
  EXPECT_EQ(tr_sentence("dense layer backward"), "稠密层反向");
}

TEST_F(Chinese, WhatIsMissingStaysEnglishAndIsNoted) {
  EXPECT_EQ(tr("nobody says this"), "nobody says this");
  EXPECT_EQ(tr_sentence("nor that"), "nor that");
  EXPECT_THAT(untranslated(), ElementsAre("nobody says this", "nor that"));
  set_language(Language::kChinese);
  EXPECT_THAT(untranslated(), IsEmpty());
}

// They match many entries, each in many ways.
TEST_F(Chinese, LongTextsOfAUserAreSoonGivenUp) {
  std::string text;
  for (int i = 0; i < 200; ++i) {
    text += "X (X) over x; x: ";
  }
  EXPECT_EQ(tr_value(text + "words of theirs"), text + "words of theirs");
}

TEST_F(Chinese, NoBlankStandsBetweenWideCharacters) {
  EXPECT_EQ(tr_format("{} beside other plans", "甲"), "甲与其他方案对比");
  EXPECT_EQ(tr_format("{} beside other plans", "a.json"), "a.json 与其他方案对比");
  EXPECT_EQ(tr_format("{} beside other plans", "模型 甲/z.json"), "模型 甲/z.json 与其他方案对比")
      << "a name stays as it is";
  set_language(Language::kEnglish);
  EXPECT_EQ(tr_format("{} {}", "主机", "需要"), "主机 需要");
}

// The gaps of a text by number, each with its format.
std::map<std::string, std::string> gaps_of(const std::string& text) {
  std::map<std::string, std::string> gaps;
  const std::regex gap("\\{([0-9]*)(:[^{}]*)?\\}");
  std::size_t next = 0;
  for (std::sregex_iterator it(text.begin(), text.end(), gap), end; it != end; ++it) {
    const std::string number =
        (*it)[1].matched && (*it)[1].length() > 0 ? (*it)[1].str() : std::to_string(next++);
    EXPECT_TRUE(gaps.emplace(number, (*it)[2].str()).second) << text;
  }
  return gaps;
}

TEST(Table, TranslationsHaveTheGapsOfTheEnglish) {
  for (const auto& [english, other] : translations(Language::kChinese)) {
    EXPECT_EQ(gaps_of(english), gaps_of(other)) << english;
    EXPECT_FALSE(other.empty()) << english;
  }
}

// A text of a source file, adjacent literals joined, with the calls that it stands in.
struct Literal {
  std::string text;
  std::vector<std::string> calls;  // "tr_format", "warnings.push_back"; the innermost last
  int argument = 0;                // of the innermost
  std::string file;
  int line = 0;
};

// Reads C++ as far as texts and brackets go.
class Source {
 public:
  Source(std::string text, std::string file) : text_(std::move(text)), file_(std::move(file)) {}

  std::vector<Literal> literals() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (text_.compare(at_, 2, "//") == 0) {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (text_.compare(at_, 2, "R\"") == 0) {
        at_ = text_.find(")\"", at_) + 2;
      } else if (c == '\'' && at_ > 0 && std::isalnum(static_cast<unsigned char>(text_[at_ - 1]))) {
        ++at_;  // 10'000
      } else if (c == '"' || c == '\'') {
        read_quoted(c);
        continue;
      } else {
        bracket(c);
        ++at_;
      }
      if (std::isspace(static_cast<unsigned char>(c)) == 0 && c != '/') {
        joined_ = false;
      }
    }
    return std::move(found_);
  }

 private:
  void read_quoted(char quote) {
    std::string out;
    for (++at_; at_ < text_.size() && text_[at_] != quote; ++at_) {
      if (text_[at_] == '\\') {
        ++at_;
        out += text_[at_] == 'n' ? '\n' : text_[at_];
      } else {
        out += text_[at_];
      }
    }
    ++at_;
    if (quote == '\'') {
      joined_ = false;
    } else if (joined_) {
      found_.back().text += out;
    } else {
      Literal literal{out, {}, arguments_.empty() ? 0 : arguments_.back(), file_, 0};
      literal.calls = calls_;
      literal.line = static_cast<int>(1 + std::count(text_.begin(), text_.begin() + at_, '\n'));
      found_.push_back(std::move(literal));
      joined_ = true;
    }
  }

  void bracket(char c) {
    if (c == '(' || c == '{' || c == '[') {
      std::size_t from = at_;
      const auto in_name = [](char n) {
        return std::isalnum(static_cast<unsigned char>(n)) != 0 || n == '_' || n == '.' || n == ':';
      };
      while (from > 0 && in_name(text_[from - 1])) {
        --from;
      }
      calls_.push_back(c == '(' ? text_.substr(from, at_ - from) : "");
      arguments_.push_back(0);
    } else if ((c == ')' || c == '}' || c == ']') && !calls_.empty()) {
      calls_.pop_back();
      arguments_.pop_back();
    } else if (c == ',' && !arguments_.empty()) {
      ++arguments_.back();
    }
  }

  std::string text_, file_;
  std::vector<Literal> found_;
  std::vector<std::string> calls_;
  std::vector<int> arguments_;
  std::size_t at_ = 0;
  bool joined_ = false;
};

std::vector<Literal> literals_of_sources() {
  std::vector<Literal> all;
  const std::filesystem::path root(OFFSIM_SOURCE_DIR);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root / "sim")) {
    const std::string ending = entry.path().extension().string();
    if (ending == ".cpp" || ending == ".h") {
      const std::string file = std::filesystem::relative(entry.path(), root).string();
      std::vector<Literal> of_file = Source(read_file(entry.path().string()), file).literals();
      all.insert(all.end(), of_file.begin(), of_file.end());
    }
  }
  return all;
}

TEST(Sources, LiteralsAreReadWithTheirCalls) {
  const std::string code =
      "// \"no\"\nf(a, g(\"one \"\n  \"two\"), h{\"3\"}); c = '\"'; n = 1'000; tr(x ? \"y\" : "
      "\"\\\"\");";
  std::vector<std::string> seen;
  for (const Literal& literal : Source(code, "").literals()) {
    seen.push_back(literal.text + "<" + (literal.calls.empty() ? "" : literal.calls.back()) + "<" +
                   std::to_string(literal.calls.size()));
  }
  EXPECT_THAT(seen, ElementsAre("one two<g<2", "3<<2", "y<tr<1", "\"<tr<1"));
}

bool is_call_of(const std::string& call, std::initializer_list<const char*> names) {
  return std::ranges::any_of(names, [&call](const std::string name) {
    return call == name || call.ends_with("." + name) || call.ends_with(":" + name);
  });
}

bool of_other_command(const Literal& literal) {
  return literal.file == "sim/report/replay.cpp" || literal.file == "sim/report/diagnosis.cpp" ||
         literal.file == "sim/report/alternatives.cpp";
}

// What is translated where it is printed, and made there.
bool is_looked_up(const Literal& literal) {
  return !literal.calls.empty() && literal.argument == 0 && !of_other_command(literal) &&
         !literal.file.starts_with("sim/base/") &&
         is_call_of(literal.calls.back(), {"tr", "tr_format", "tr_sentence", "labelled"});
}

// Sentences, made where the data are, that three commands print: warnings, and what plans refuse.
bool is_said_of_a_job(const Literal& literal) {
  const auto within = [&literal](std::initializer_list<const char*> names) {
    return std::ranges::any_of(
        literal.calls, [names](const std::string& call) { return is_call_of(call, names); });
  };
  const bool of_question = literal.file == "sim/plans/job.cpp" ||  // refused before there is a job
                           literal.file == "sim/plans/registry.cpp";
  const bool of_plans =
      literal.file.starts_with("sim/plans/") || literal.file == "sim/study/predict.cpp";
  if (literal.text.size() < 3 || literal.text.find(' ') == std::string::npos || of_question ||
      of_other_command(literal)) {
    return false;
  }
  return within({"warnings.push_back", "warnings.emplace_back", "shape.notes.push_back"}) ||
         (of_plans && within({"lines.push_back", "warn_without_effect", "useless", "refuse",
                              "refuse_experts", "refuse_adapters", "refuse_activation_offload",
                              "require_precision", "InputError"})) ||
         (literal.file.starts_with("sim/import/") && within({"warn", "no_effect", "all_alike"}));
}

// Works with names in words, "layer forward"; those of modules are composed: "o_proj forward".
bool is_work(const Literal& literal) {
  static const std::regex kWork("[a-z ]+ (forward|backward|recompute)(, .*)?");
  return (literal.file.starts_with("sim/model/") || literal.file.starts_with("sim/plans/")) &&
         !literal.text.starts_with(' ') && std::regex_match(literal.text, kWork);
}

TEST(Table, HasEveryTextOfTheSources) {
  std::set<std::string> known;
  for (const auto& [english, other] : translations(Language::kChinese)) {
    EXPECT_TRUE(known.insert(english).second) << english;
  }
  std::size_t looked_up = 0, said = 0;
  for (const Literal& literal : literals_of_sources()) {
    const bool of_a_job = is_said_of_a_job(literal);
    looked_up += is_looked_up(literal) ? 1 : 0;
    said += of_a_job ? 1 : 0;
    if (is_looked_up(literal) || of_a_job || is_work(literal)) {
      EXPECT_TRUE(known.contains(literal.text))
          << literal.file << ":" << literal.line << ": \"" << literal.text << "\"";
    }
  }
  EXPECT_GT(looked_up, 100U);
  EXPECT_GT(said, 80U);
}

// A text of the sources; one up to its " (sizes)", or around its gap; or two that are joined.
TEST(Table, HasNoTextThatIsInNoSource) {
  std::set<std::string> texts;
  for (const Literal& literal : literals_of_sources()) {
    texts.insert(literal.text);
    texts.insert(literal.text.substr(0, literal.text.find(" (")));
  }
  const auto joined = [&texts](const std::string& text) {
    for (std::size_t at = text.find(' '); at < text.size(); at = text.find(' ', at + 1)) {
      if (texts.contains(text.substr(0, at + 1)) && texts.contains(text.substr(at + 1))) {
        return true;
      }
    }
    return false;
  };
  for (const auto& [english, other] : translations(Language::kChinese)) {
    const std::string around = std::regex_replace(english, std::regex("^\\{\\}|\\{\\}$"), "");
    EXPECT_TRUE(texts.contains(english) || texts.contains(around) || joined(english)) << english;
  }
}

}  // namespace
}  // namespace offsim::language_test
