// Numbers in a line that was not written for us.
#pragma once

#include <optional>
#include <string_view>

namespace offsim::logs {

// Where `key` begins as a word of its own, npos when it does not.
std::size_t find_word(std::string_view line, std::string_view key);

// The number at the start of `text` behind blanks, ':', '=' and quotes: "1,234.5", "2e-05". Finite
// and not negative.
struct Number {
  double value;
  std::string_view rest;  // of the text behind it
};
std::optional<Number> leading_number(std::string_view text);

// The number behind `key`, a word of its own.
std::optional<Number> number_after(std::string_view line, std::string_view key);

// "123<unit> / 456<unit>" anywhere in the line; and what stands behind.
struct Fraction {
  double part, whole;
  std::string_view rest;
};
std::optional<Fraction> fraction(std::string_view line, std::string_view unit);

// A GPU's place on the bus, "00000000:2A:00.0", anywhere in the line; empty without one.
std::string_view bus_id(std::string_view line);

std::string_view trimmed(std::string_view text);

}  // namespace offsim::logs
