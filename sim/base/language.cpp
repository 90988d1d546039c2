#include "sim/base/language.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "sim/base/config.h"
#include "sim/base/embedded.h"
#include "sim/base/text.h"

namespace offsim {

namespace {

// "{} needs {:.0f}" as its gaps' numbers and the text before, between and after them.
struct Pattern {
  std::vector<std::string> literals;  // one more than gaps
  std::vector<std::size_t> gaps;
  std::size_t letters = 0;  // of the literals

  explicit Pattern(std::string_view format) : literals{""} {
    for (std::size_t at = 0; at < format.size(); ++at) {
      if (format.substr(at, 2) == "{{" || format.substr(at, 2) == "}}") {
        ++at;  // a brace that is one
      } else if (format[at] == '{') {
        const std::size_t end = format.find('}', at);
        SIM_ASSERT(end != std::string_view::npos, "a format closes its gaps");
        const std::string_view inside = format.substr(at + 1, end - at - 1);
        const bool numbered = !inside.empty() && inside.front() != ':';
        gaps.push_back(numbered ? static_cast<std::size_t>(inside.front() - '0') : gaps.size());
        literals.emplace_back();
        at = end;
        continue;
      }
      literals.back() += format[at];
      ++letters;
    }
  }

  // What stands in the gaps of `text`; each reaches as far as the next literal.
  std::optional<std::vector<std::string>> match(std::string_view text) const {
    if (!text.starts_with(literals.front())) {
      return std::nullopt;
    }
    std::vector<std::string> found;
    text.remove_prefix(literals.front().size());
    for (std::size_t i = 1; i < literals.size(); ++i) {
      const bool last = i + 1 == literals.size();
      const std::size_t end = last && literals[i].empty() ? text.size()
                              : last                      ? text.rfind(literals[i])
                                                          : text.find(literals[i]);
      if (end == std::string_view::npos || (last && end + literals[i].size() != text.size())) {
        return std::nullopt;
      }
      found.emplace_back(text.substr(0, end));
      text.remove_prefix(end + literals[i].size());
    }
    return text.empty() ? std::optional(found) : std::nullopt;
  }

  std::string filled(const std::vector<std::string>& with) const {
    std::string out = literals.front();
    for (std::size_t i = 0; i < gaps.size(); ++i) {
      out += with.at(gaps[i]) + literals[i + 1];
    }
    return out;
  }
};

// One word, or words with digits or capitals: "gradients", "8.00 MiB", "PCIe 5.0 x16".
bool is_name(std::string_view text) {
  const auto is_word = [](std::string_view word) {
    return word.size() > 1 &&
           std::ranges::all_of(word, [](char c) { return c >= 'a' && c <= 'z'; });
  };
  bool any = false;
  const bool one = text.find(' ') == std::string_view::npos;
  for (std::size_t at = 0; at < text.size() && !one;) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    any = any || is_word(text.substr(at, end - at));
    at = end + 1;
  }
  return !any;
}

constexpr char kEdge = '\x1e';  // a blank of a translation beside a gap: no text has it

std::string with_edges(std::string text) {
  for (std::size_t at = 0; at < text.size(); ++at) {
    const bool before = at + 1 < text.size() && text[at + 1] == '{';
    const bool after = at > 0 && text[at - 1] == '}';
    if (text[at] == ' ' && (before || after)) {
      text[at] = kEdge;
    }
  }
  return text;
}

// A blank between letters or digits and a wide character; none between two of these.
std::string without_edges(std::string_view text) {
  std::string out;
  bool wide = false;  // the character before
  for (std::size_t at = 0; at < text.size();) {
    const auto character = [text](std::size_t from) {
      return text.substr(from, std::max<std::size_t>(1, utf8_length(text, from)));
    };
    const std::string_view here = character(at);
    at += here.size();
    if (here.front() != kEdge) {
      wide = is_wide(here);
      out += here;
    } else if (!wide || at == text.size() || !is_wide(character(at))) {
      out += ' ';
    }
  }
  return out;
}

struct Translator {
  std::map<std::string, std::string, std::less<>> texts;  // none: English
  std::vector<std::pair<Pattern, Pattern>> sentences;     // the most literal first
  std::set<std::string, std::less<>> missing;

  const std::string* find(std::string_view english) const {
    const auto found = texts.find(english);
    return found == texts.end() ? nullptr : &found->second;
  }

  // By the first entry whose gaps are names or can be said, too; `deep` entries may be in each
  // other, which bounds the search in texts of the user's.
  std::optional<std::string> sentence(std::string_view english, int deep = kMostNested) const {
    if (const std::string* const text = find(english)) {
      return *text;
    }
    const auto said = [&](std::string& gap) { return fill(gap, deep - 1); };
    for (const auto& [from, to] : sentences) {
      auto gaps = deep > 0 ? from.match(english) : std::nullopt;
      if (gaps && std::ranges::all_of(*gaps, said)) {
        return without_edges(to.filled(*gaps));
      }
    }
    return std::nullopt;
  }

  bool fill(std::string& gap, int deep = kMostNested) const {
    if (is_name(gap)) {
      return true;
    }
    const std::optional<std::string> said = sentence(gap, deep);
    gap = said.value_or(gap);
    return said.has_value();
  }

 private:
  static constexpr int kMostNested = 4;
};

Translator& translator() {
  static Translator one;
  return one;
}

std::string_view table_of(Language language) {
  return language == Language::kChinese ? "sim/base/zh.yaml" : "";
}

}  // namespace

std::vector<std::pair<std::string, std::string>> translations(Language language) {
  std::vector<std::pair<std::string, std::string>> out;
  for (const EmbeddedFile& file : embedded_files()) {
    if (file.path == table_of(language)) {
      const std::string path(file.path);
      const Node table = parse_document(std::string(file.text), path, Syntax::kYaml);
      for (std::size_t i = 0; i < table.keys.size(); ++i) {
        out.emplace_back(table.keys[i], to_text(table.items[i], "a translation"));
      }
    }
  }
  return out;
}

void set_language(Language language) {
  Translator made;
  for (auto& [english, chosen] : translations(language)) {
    std::string other = with_edges(std::move(chosen));
    if (Pattern from(english); !from.gaps.empty()) {
      made.sentences.emplace_back(std::move(from), Pattern(other));
    }
    made.texts.emplace(std::move(english), std::move(other));
  }
  std::ranges::stable_sort(made.sentences, std::ranges::greater{},
                           [](const auto& sentence) { return sentence.first.letters; });
  translator() = std::move(made);
}

std::string with_edges_filled(std::string_view text) { return without_edges(text); }

std::string tr(std::string_view english) {
  Translator& to = translator();
  if (const std::string* const text = to.find(english)) {
    return *text;
  }
  if (!to.texts.empty()) {
    to.missing.emplace(english);
  }
  return std::string(english);
}

std::string tr_sentence(std::string_view english) {
  Translator& to = translator();
  if (std::optional<std::string> text = to.sentence(english)) {
    return *text;
  }
  if (!to.texts.empty()) {
    to.missing.emplace(english);
  }
  return std::string(english);
}

std::string tr_value(std::string_view english) {
  std::string text(english);
  translator().fill(text);
  return text;
}

std::vector<std::string> untranslated() {
  const auto& missing = translator().missing;
  return {missing.begin(), missing.end()};
}

}  // namespace offsim
