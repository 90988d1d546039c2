#include "sim/logs/words.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <string>

namespace offsim::logs {

namespace {

constexpr std::size_t kLongestNumber = 40;

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

std::size_t find_word(std::string_view line, std::string_view key) {
  for (std::size_t at = line.find(key); at != std::string_view::npos; at = line.find(key, at + 1)) {
    const std::size_t end = at + key.size();
    if ((at == 0 || !is_word(line[at - 1])) && (end == line.size() || !is_word(line[end]))) {
      return at;
    }
  }
  return std::string_view::npos;
}

std::optional<Number> leading_number(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" :='\""), text.size()));
  std::string digits;
  std::size_t end = 0;
  for (; end < text.size() && digits.size() < kLongestNumber; ++end) {
    const char c = text[end];
    const bool exponent =
        (c == '-' || c == '+') && end > 0 && (text[end - 1] == 'e' || text[end - 1] == 'E');
    const bool grouped = c == ',' && end + 1 < text.size() && is_digit(text[end + 1]);
    const bool begins = (c == 'e' || c == 'E') && end > 0 && end + 1 < text.size() &&
                        (is_digit(text[end + 1]) || text[end + 1] == '-' || text[end + 1] == '+');
    if (grouped) {
      continue;
    }
    if (!is_digit(c) && c != '.' && !begins && !exponent) {
      break;
    }
    digits += c;
  }
  if (digits.empty() || !is_digit(digits.front())) {
    return std::nullopt;
  }
  double value = 0;
  const auto [stopped, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || stopped != digits.data() + digits.size() || !std::isfinite(value)) {
    return std::nullopt;
  }
  return Number{value, text.substr(end)};
}

std::optional<Number> number_after(std::string_view line, std::string_view key) {
  const std::size_t at = find_word(line, key);
  return at == std::string_view::npos ? std::nullopt : leading_number(line.substr(at + key.size()));
}

std::optional<Fraction> fraction(std::string_view line, std::string_view unit) {
  const std::string between = std::string(unit) + " / ";
  const std::size_t at = line.find(between);
  if (at == std::string_view::npos) {
    return std::nullopt;
  }
  std::size_t from = at;
  while (from > 0 && (is_digit(line[from - 1]) || line[from - 1] == '.')) {
    --from;
  }
  const auto part = leading_number(line.substr(from, at - from));
  const auto whole = leading_number(line.substr(at + between.size()));
  if (!part || !whole || !whole->rest.starts_with(unit)) {
    return std::nullopt;
  }
  return Fraction{part->value, whole->value, whole->rest.substr(unit.size())};
}

std::string_view bus_id(std::string_view line) {
  constexpr std::string_view kShape = "xxxxxxxx:xx:xx.x";
  for (std::size_t at = 0; at + kShape.size() <= line.size(); ++at) {
    const std::string_view part = line.substr(at, kShape.size());
    const bool fits = std::equal(part.begin(), part.end(), kShape.begin(), [](char c, char shape) {
      return shape == 'x' ? std::isxdigit(static_cast<unsigned char>(c)) != 0 : c == shape;
    });
    if (fits) {
      return part;
    }
  }
  return {};
}

std::string_view trimmed(std::string_view text) {
  const std::size_t from = std::min(text.find_first_not_of(" \t"), text.size());
  text.remove_prefix(from);
  text.remove_suffix(text.size() - std::min(text.find_last_not_of(" \t") + 1, text.size()));
  return text;
}

}  // namespace offsim::logs
