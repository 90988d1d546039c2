// Text that others wrote, as a terminal may show it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace offsim {

// The bytes of the UTF-8 character that begins at `at`, or 0 when what is there is not UTF-8.
std::size_t utf8_length(std::string_view text, std::size_t at);

// Whether the `length` bytes at `at` are a control character: below U+0020, or U+007F to U+009F.
// Requires: they are one character of UTF-8.
bool is_control(std::string_view text, std::size_t at, std::size_t length);

// Columns that a terminal gives it: two to wide East Asian characters and full-width punctuation,
// none to a word joiner (U+2060), one to all others, bytes that are not UTF-8 among them. Left out:
// other characters without a width, such as combining accents, and those whose width is the
// terminal's choice.
std::size_t display_width(std::string_view text);
bool is_wide(std::string_view character);  // Requires: it is one, of UTF-8

// With as many blanks behind it as make it at least so wide.
std::string padded(std::string_view text, std::size_t width);

// On one line, whatever the text held: control characters and bytes that are not UTF-8 are shown as
// '?'. What is longer than `longest` bytes loses its middle: "aaaaaaaa ... aaaa".
std::string printable(std::string_view text, std::size_t longest = std::string_view::npos);

// As a text of JSON or YAML: in double quotes, quotes and backslashes escaped. Requires: no control
// characters.
std::string double_quoted(std::string_view text);

}  // namespace offsim
