#include "sim/base/hjson.h"

#include <cctype>

#include "sim/base/tree.h"

namespace offsim {

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// As JSON writes numbers: no sign but a minus, no leading zero.
bool is_number(std::string_view text) {
  std::size_t at = text.starts_with('-') ? 1 : 0;
  const auto digits = [&] {
    const std::size_t first = at;
    while (at < text.size() && is_digit(text[at])) {
      ++at;
    }
    return at - first;
  };
  const std::size_t first = at;
  const std::size_t whole = digits();
  if (whole == 0 || (whole > 1 && text[first] == '0')) {
    return false;
  }
  if (at < text.size() && text[at] == '.') {
    ++at;
    if (digits() == 0) {
      return false;
    }
  }
  if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    ++at;
    if (at < text.size() && (text[at] == '+' || text[at] == '-')) {
      ++at;
    }
    if (digits() == 0) {
      return false;
    }
  }
  return at == text.size();
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) {
    text.remove_suffix(1);
  }
  return text;
}

std::string utf8(std::uint32_t code) {
  std::string out;
  const auto byte = [&](std::uint32_t b) { out += static_cast<char>(b); };
  if (code < 0x80) {
    byte(code);
  } else if (code < 0x800) {
    byte(0xc0 | code >> 6);
    byte(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    byte(0xe0 | code >> 12);
    byte(0x80 | (code >> 6 & 0x3f));
    byte(0x80 | (code & 0x3f));
  } else {
    byte(0xf0 | code >> 18);
    byte(0x80 | (code >> 12 & 0x3f));
    byte(0x80 | (code >> 6 & 0x3f));
    byte(0x80 | (code & 0x3f));
  }
  return out;
}

class Hjson {
 public:
  Hjson(const std::string& text, const std::string& file)
      : text_(text), file_(file), lines_(text, file) {}

  Node read() {
    skip();
    if (done()) {
      throw InputError({file_}, "nothing is in this file", "expected a map of keys and values");
    }
    if (text_[at_] == '{' || text_[at_] == '[') {
      value();
      skip();
      if (!done()) {
        refuse("the map has ended before this", "expected nothing after its closing bracket");
      }
    } else {
      tree_.begin(Node::Kind::kMap, here());
      members('\0', here());
    }
    return tree_.take();
  }

 private:
  bool done() const { return at_ >= text_.size(); }
  bool ahead(std::string_view what) const { return text_.compare(at_, what.size(), what) == 0; }
  const Place& here() { return lines_.at(at_); }
  [[noreturn]] void refuse(const std::string& wrong, const std::string& expected) {
    throw InputError(here(), "not JSON or Hjson: " + wrong, expected);
  }

  void skip() {
    while (!done()) {
      if (ahead("/*")) {
        const std::size_t end = text_.find("*/", at_ + 2);
        if (end == std::string::npos) {
          refuse("this comment has no end", "expected */");
        }
        at_ = end + 2;
      } else if (ahead("//") || text_[at_] == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n') {
        ++at_;
      } else {
        return;
      }
    }
  }

  // One comma, which may be left out.
  void separator() {
    skip();
    if (!done() && text_[at_] == ',') {
      ++at_;
      skip();
    }
  }

  void value() {
    const Place place = here();
    switch (text_[at_]) {
      case '{':
        tree_.begin(Node::Kind::kMap, place);
        ++at_;
        members('}', place);
        return;
      case '[':
        tree_.begin(Node::Kind::kList, place);
        ++at_;
        items(place);
        return;
      case '"':
      case '\'':
        tree_.scalar(place, ahead("'''") ? several_lines() : quoted(), true);
        return;
      default:
        bare(place);
    }
  }

  // `close`: '}', or none where the whole file is the map.
  void members(char close, const Place& opened) {
    for (skip();; separator()) {
      if (done()) {
        if (close != '\0') {
          throw InputError(opened, "not JSON or Hjson: this { is not closed", "expected its }");
        }
        break;
      }
      if (text_[at_] == close) {
        ++at_;
        break;
      }
      key();
      skip();
      if (done() || text_[at_] != ':') {
        refuse("a key has no value", "expected a colon and a value");
      }
      ++at_;
      skip();
      if (done()) {
        refuse("the file ends here", "expected a value");
      }
      value();
    }
    tree_.end();
  }

  void items(const Place& opened) {
    for (skip();; separator()) {
      if (done()) {
        throw InputError(opened, "not JSON or Hjson: this [ is not closed", "expected its ]");
      }
      if (text_[at_] == ']') {
        ++at_;
        break;
      }
      value();
    }
    tree_.end();
  }

  void key() {
    const Place place = here();
    if (text_[at_] == '"' || text_[at_] == '\'') {
      tree_.scalar(place, quoted(), true);
      return;
    }
    const std::size_t end = std::min(text_.find_first_of(" \t\n,:[]{}\"'#", at_), text_.size());
    if (end == at_) {
      refuse(fmt::format("'{}' begins no key", text_.substr(at_, 1)), "expected a key or }");
    }
    tree_.scalar(place, text_.substr(at_, end - at_), false);
    at_ = end;
  }

  std::uint32_t four_hex_digits() {
    std::uint32_t code = 0;
    for (int i = 0; i < 4; ++i, ++at_) {
      const char c = done() ? '\0' : text_[at_];
      if (std::isxdigit(static_cast<unsigned char>(c)) == 0) {
        refuse("an escape \\u has no four digits", "expected \\u and four hexadecimal digits");
      }
      const std::uint32_t digit = is_digit(c) ? static_cast<std::uint32_t>(c - '0')
                                              : static_cast<std::uint32_t>((c | 0x20) - 'a' + 10);
      code = code * 16 + digit;
    }
    return code;
  }

  // After the backslash.
  std::string escape() {
    static constexpr std::string_view kNames = "\"'\\/bfnrt", kMeanings = "\"'\\/\b\f\n\r\t";
    const char c = done() ? '\0' : text_[at_];
    if (const std::size_t found = kNames.find(c); found != std::string_view::npos) {
      ++at_;
      return std::string(1, kMeanings[found]);
    }
    if (c != 'u') {
      refuse("this escape is unknown", "expected one of JSON's");
    }
    ++at_;
    std::uint32_t code = four_hex_digits();
    if (code >= 0xd800 && code < 0xdc00 && ahead("\\u")) {
      at_ += 2;
      const std::uint32_t low = four_hex_digits();
      code = low >= 0xdc00 && low < 0xe000 ? 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00)
                                           : 0xd800;
    }
    if (code >= 0xd800 && code < 0xe000) {
      refuse("half of a pair of escapes is no character", "expected both halves");
    }
    return utf8(code);
  }

  std::string quoted() {
    const Place opened = here();
    const char quote = text_[at_++];
    std::string out;
    while (!done() && text_[at_] != quote && text_[at_] != '\n') {
      if (text_[at_] == '\\') {
        ++at_;
        out += escape();
      } else {
        out += text_[at_++];
      }
    }
    if (done() || text_[at_] != quote) {
      throw InputError(opened, "not JSON or Hjson: this text has no closing quote",
                       fmt::format("expected {} at its end", quote));
    }
    ++at_;
    return out;
  }

  std::string several_lines() {
    const std::size_t first = at_ + 3, end = text_.find("'''", first);
    if (end == std::string::npos) {
      refuse("this text has no closing quotes", "expected ''' at its end");
    }
    at_ = end + 3;
    return text_.substr(first, end - first);
  }

  // A number, true, false, null; or a text to the end of the line.
  void bare(const Place& place) {
    const std::size_t line_end = std::min(text_.find('\n', at_), text_.size());
    const std::string_view line(text_.data() + at_, line_end - at_);
    const std::size_t comment = std::min(line.find("//"), line.find("/*"));
    const std::string_view word =
        trimmed(line.substr(0, std::min(line.find_first_of(",}]#"), comment)));
    if (word.empty()) {
      refuse(fmt::format("'{}' is no value", line.substr(0, 1)), "expected a value");
    }
    if (word == "null") {
      tree_.null(place);
    } else if (word == "true" || word == "false" || is_number(word)) {
      tree_.scalar(place, std::string(word), false);
    } else {
      refuse_bare(word, line);
      tree_.scalar(place, std::string(trimmed(line)), true);
      at_ = line_end;
      return;
    }
    at_ += word.size();
  }

  void refuse_bare(std::string_view word, std::string_view line) {
    for (const auto& [python, json] :
         {std::pair("True", "true"), std::pair("False", "false"), std::pair("None", "null")}) {
      if (word == python) {
        refuse(fmt::format("{} is Python's", word),
               fmt::format("expected {}: a Python dict has to be converted", json));
      }
    }
    if (line.find_first_of("]}") != std::string_view::npos) {
      refuse(fmt::format("'{}' is neither a number nor a text in quotes", printable(word, 60)),
             "expected a value in place of a placeholder, or quotes");
    }
  }

  const std::string& text_;
  const std::string& file_;
  LineCounter lines_;
  TreeBuilder tree_;
  std::size_t at_ = 0;
};

}  // namespace

Node parse_hjson(const std::string& text, const std::string& file) {
  const std::string plain = plain_text(text, file);
  return Hjson(plain, file).read();
}

}  // namespace offsim
