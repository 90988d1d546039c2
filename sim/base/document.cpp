// From text to a tree of Nodes: YAML and JSON.
#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "sim/base/config.h"
#include "sim/base/record_lines.h"
#include "sim/base/text.h"
#include "sim/base/tree.h"

namespace offsim {

namespace {

// ---- YAML

// Whether the quoted text that begins at `at` ends: yaml-cpp takes the end of the file for a
// closing quote when a line break comes before it.
bool quote_closes(const std::string& text, std::size_t at) {
  const char quote = text[at];
  for (++at; at < text.size(); ++at) {
    if (quote == '"' && text[at] == '\\') {
      ++at;
    } else if (text[at] == quote) {
      if (quote == '"' || at + 1 == text.size() || text[at + 1] != quote) {
        return true;
      }
      ++at;  // '' is a quote inside a single-quoted text
    }
  }
  return false;
}

class YamlEvents : public YAML::EventHandler {
 public:
  YamlEvents(const std::string& text, const std::string& file, TreeBuilder& tree)
      : text_(text), file_(file), tree_(tree) {}

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ > 1) {
      throw InputError(at(mark), "the document has ended before this",
                       "expected one document in a file, the keys of a map in one column");
    }
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    refuse_anchor(mark, anchor);
    tree_.null(at(mark));
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    throw InputError(at(mark), "aliases (*name) are not accepted",
                     "expected the value written out");
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    refuse_anchor(mark, anchor);
    refuse_tag(mark, tag);
    const auto first = static_cast<std::size_t>(mark.pos);
    if ((text_[first] == '"' || text_[first] == '\'') && !quote_closes(text_, first)) {
      throw InputError(at(mark), "this text has no closing quote",
                       fmt::format("expected {} at its end", text_[first]));
    }
    tree_.scalar(at(mark), value, tag == "!");
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    refuse_anchor(mark, anchor);
    refuse_tag(mark, tag);
    tree_.begin(Node::Kind::kList, at(mark));
  }
  void OnSequenceEnd() override { tree_.end(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    refuse_anchor(mark, anchor);
    refuse_tag(mark, tag);
    tree_.begin(Node::Kind::kMap, at(mark));
  }
  void OnMapEnd() override { tree_.end(); }

  Place at(const YAML::Mark& mark) const {
    return mark.is_null() ? Place{file_} : Place{file_, mark.line + 1, mark.column + 1};
  }

 private:
  void refuse_anchor(const YAML::Mark& mark, YAML::anchor_t anchor) const {
    if (anchor != YAML::NullAnchor) {
      throw InputError(at(mark), "anchors (&name) are not accepted",
                       "expected the value written out");
    }
  }
  void refuse_tag(const YAML::Mark& mark, const std::string& tag) const {
    // yaml-cpp itself says "?" of plain nodes, "!" of quoted text and "" of the rest.
    const bool own = tag == "?" || tag == "!" || tag.empty();
    if (!own || text_[static_cast<std::size_t>(mark.pos)] == '!') {
      throw InputError(at(mark), fmt::format("tags ({}) are not accepted", tag),
                       "expected a plain value");
    }
  }

  const std::string& text_;
  const std::string& file_;
  TreeBuilder& tree_;
  int documents_ = 0;
};

// yaml-cpp calls a tab before a key an "illegal map value", which helps nobody.
bool indented_by_tab(const std::string& text, int zero_based_line) {
  std::istringstream in(text);
  std::string line;
  for (int i = 0; i <= zero_based_line && std::getline(in, line); ++i) {
  }
  const std::size_t indentation = std::min(line.find_first_not_of(" \t"), line.size());
  return line.find('\t') < indentation;
}

Node parse_yaml(const std::string& text, const std::string& file) {
  TreeBuilder tree;
  YamlEvents events(text, file, tree);
  try {
    std::istringstream in(text);
    YAML::Parser parser(in);
    if (!parser.HandleNextDocument(events)) {
      throw InputError({file}, "nothing is in this file", "expected a map of keys and values");
    }
    while (parser.HandleNextDocument(events)) {
    }
  } catch (const YAML::Exception& error) {
    throw InputError(events.at(error.mark), fmt::format("not YAML: {}", error.msg),
                     indented_by_tab(text, error.mark.line)
                         ? "expected spaces, not a tab, at the start of a line"
                         : "expected YAML; does a text need quotes, or a bracket its end?");
  }
  return tree.take();
}

// ---- JSON

// Takes every event and keeps none: nlohmann's parser is used as a strict check that says where it
// stopped.
struct JsonCheck : nlohmann::json_sax<nlohmann::json> {
  std::size_t stopped = 0;  // bytes read up to the error
  std::string wrong;
  std::string expected = "expected a JSON value";

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override { return true; }
  bool key(string_t&) override { return true; }
  bool end_object() override { return true; }
  bool start_array(std::size_t) override { return true; }
  bool end_array() override { return true; }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::json::exception& error) override {
    stopped = position;
    // "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error while parsing
    // value - invalid literal; last read: 'x'; expected ..." without what the place says already.
    wrong = error.what();
    const std::size_t detail = wrong.find("syntax error");
    wrong.erase(0, detail != std::string::npos ? detail : wrong.find("] ") + 2);
    const std::size_t read = wrong.find("; last read: ");
    const std::size_t hint = wrong.rfind("; expected");
    if (hint != std::string::npos && (read == std::string::npos || hint > read)) {
      expected = wrong.substr(hint + 2);
      wrong.erase(hint);
    }
    wrong.erase(std::min(read, wrong.size()));
    return false;
  }
};

// Requires: `text` is valid JSON, so that tokens can be taken one by one without a grammar.
Node read_valid_json(const std::string& text, const std::string& file, int line) {
  TreeBuilder tree;
  LineCounter lines(text, file, line);
  for (std::size_t at = 0; at < text.size(); ++at) {
    const std::size_t first = at;
    switch (text[at]) {
      case ' ':
      case '\t':
      case '\n':
      case ',':
      case ':':
        break;
      case '{':
        tree.begin(Node::Kind::kMap, lines.at(first));
        break;
      case '[':
        tree.begin(Node::Kind::kList, lines.at(first));
        break;
      case '}':
      case ']':
        tree.end();
        break;
      case '"': {
        bool escapes = false;
        for (++at; text[at] != '"'; ++at) {
          if (text[at] == '\\') {
            escapes = true;
            ++at;
          }
        }
        const std::string token = text.substr(first, at + 1 - first);
        tree.scalar(lines.at(first),
                    escapes ? nlohmann::json::parse(token).get<std::string>()
                            : token.substr(1, token.size() - 2),
                    true);
        break;
      }
      default: {
        at = std::min(text.find_first_of(" \t\n,]}", first), text.size()) - 1;
        std::string token = text.substr(first, at + 1 - first);
        if (token == "null") {
          tree.null(lines.at(first));
        } else {
          tree.scalar(lines.at(first), std::move(token), false);
        }
      }
    }
  }
  return tree.take();
}

// `line`: of the text's beginning in the file.
Node parse_json(const std::string& text, const std::string& file, int line = 1) {
  if (text.find_first_not_of(" \t\n") == std::string::npos) {
    throw InputError({file}, "nothing is in this file", "expected a map of keys and values");
  }
  JsonCheck check;
  if (!nlohmann::json::sax_parse(text, &check)) {
    const std::size_t last_read = check.stopped == 0 ? 0 : check.stopped - 1;
    throw InputError(LineCounter(text, file, line).at(last_read),
                     fmt::format("not JSON: {}", check.wrong), check.expected);
  }
  return read_valid_json(text, file, line);
}

}  // namespace

std::string plain_text(const std::string& text, const std::string& file, int line) {
  std::string out;
  out.reserve(text.size());
  constexpr std::string_view kMark = "\xef\xbb\xbf";
  const std::size_t begin = text.starts_with(kMark) ? kMark.size() : 0;
  if (std::string_view(text).substr(begin).starts_with(kMark) && begin > 0) {
    throw InputError(LineCounter(text, file, line).at(begin), "a second byte order mark is here",
                     "expected one at most");  // the JSON parser would pass over it
  }
  for (std::size_t at = begin; at < text.size();) {
    const std::size_t length = utf8_length(text, at);
    const auto byte = static_cast<unsigned char>(text[at]);
    const bool line_end = byte == '\r' && at + 1 < text.size() && text[at + 1] == '\n';
    const bool blank = byte == '\n' || byte == '\t' || line_end;
    if (length == 0 || (is_control(text, at, length) && !blank)) {
      throw InputError(
          LineCounter(text, file, line).at(at), fmt::format("byte 0x{:02x} is not text", byte),
          length == 0 ? "expected UTF-8" : "expected UTF-8 without control characters");
    }
    if (!line_end) {
      out.append(text, at, length);
    }
    at += length;
  }
  return out;
}

const Node* Node::find(std::string_view key) const {
  const auto found = std::ranges::find(keys, key);
  return found == keys.end() ? nullptr : &items[static_cast<std::size_t>(found - keys.begin())];
}

void require_file(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::none) {
    throw InputError({path}, fmt::format("cannot be looked at ({})", error.message()),
                     "expected a file that this user may read");
  }
  if (!fs::exists(status)) {
    throw InputError({path}, "no such file", "expected the path of a file");
  }
  if (!fs::is_regular_file(status)) {
    throw InputError({path},
                     fs::is_directory(status) ? "this is a folder" : "this is a device or a pipe",
                     "expected a file");
  }
}

std::string read_file(const std::string& path) {
  namespace fs = std::filesystem;
  require_file(path);
  std::error_code error;
  const std::uintmax_t size = fs::file_size(path, error);
  if (error) {
    throw InputError({path}, "cannot be read", error.message());
  }
  if (size > static_cast<std::uintmax_t>(kLargestFile)) {
    throw InputError({path}, fmt::format("{} bytes are too many", size),
                     fmt::format("expected at most {} MiB", kLargestFile / kMiB));
  }
  std::string text(static_cast<std::size_t>(size), '\0');
  std::ifstream in(path, std::ios::binary);
  if (!in || (size > 0 && !in.read(text.data(), static_cast<std::streamsize>(size)))) {
    throw InputError({path}, "cannot be read", "expected a file that this user may read");
  }
  return text;
}

Node parse_document(const std::string& text, const std::string& file, Syntax syntax) {
  const std::string plain = plain_text(text, file);
  return syntax == Syntax::kJson ? parse_json(plain, file) : parse_yaml(plain, file);
}

Node parse_json_line(const std::string& text, const std::string& file, int line) {
  return parse_json(plain_text(text, file, line), file, line);
}

Node load_document(const std::string& path) {
  return parse_document(read_file(path), path,
                        path.ends_with(".json") ? Syntax::kJson : Syntax::kYaml);
}

}  // namespace offsim
