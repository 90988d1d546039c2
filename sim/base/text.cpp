#include "sim/base/text.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

namespace offsim {

std::size_t utf8_length(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
  };
  const unsigned lead = byte(at);
  const std::size_t length = lead < 0x80                   ? 1
                             : lead >= 0xc2 && lead < 0xe0 ? 2
                             : (lead & 0xf0U) == 0xe0      ? 3
                             : lead >= 0xf0 && lead < 0xf5 ? 4
                                                           : 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(at + i) & 0xc0U) != 0x80) {
      return 0;
    }
  }
  // Overlong forms, surrogates, and characters above U+10FFFF.
  const unsigned second = byte(at + 1);
  const bool bad = (lead == 0xe0 && second < 0xa0) || (lead == 0xed && second >= 0xa0) ||
                   (lead == 0xf0 && second < 0x90) || (lead == 0xf4 && second >= 0x90);
  return length > 1 && bad ? 0 : length;
}

bool is_control(std::string_view text, std::size_t at, std::size_t length) {
  const auto lead = static_cast<unsigned char>(text[at]);
  return length == 1 ? lead < 0x20 || lead == 0x7f
                     : lead == 0xc2 && static_cast<unsigned char>(text[at + 1]) < 0xa0;
}

bool is_wide(std::string_view character) {
  // Unicode's East_Asian_Width W and F, neighbouring blocks as one.
  static constexpr std::array<std::pair<std::uint32_t, std::uint32_t>, 13> kWide{
      {{0x1100, 0x115f},
       {0x2e80, 0x303e},
       {0x3041, 0x4dbf},
       {0x4e00, 0xa4cf},
       {0xa960, 0xa97f},
       {0xac00, 0xd7a3},
       {0xf900, 0xfaff},
       {0xfe10, 0xfe1f},
       {0xfe30, 0xfe6f},
       {0xff01, 0xff60},
       {0xffe0, 0xffe6},
       {0x1f300, 0x1faff},
       {0x20000, 0x3fffd}}};
  if (character.size() < 3) {
    return false;
  }
  std::uint32_t code =
      static_cast<unsigned char>(character[0]) & (character.size() == 3 ? 15U : 7U);
  for (const char c : character.substr(1)) {
    code = code << 6U | (static_cast<unsigned char>(c) & 0x3fU);
  }
  return std::ranges::any_of(
      kWide, [code](const auto& block) { return block.first <= code && code <= block.second; });
}

std::size_t display_width(std::string_view text) {
  std::size_t width = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = std::max<std::size_t>(1, utf8_length(text, at));
    const std::string_view character = text.substr(at, length);
    width += character == "\u2060" ? 0 : is_wide(character) ? 2 : 1;
    at += length;
  }
  return width;
}

std::string padded(std::string_view text, std::size_t width) {
  const std::size_t used = display_width(text);
  return std::string(text) + std::string(width > used ? width - used : 0, ' ');
}

std::string printable(std::string_view text, std::size_t longest) {
  constexpr std::string_view kLeftOut = " ... ";
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = utf8_length(text, at);
    if (length == 0 || is_control(text, at, length)) {
      out += '?';
    } else {
      out += text.substr(at, length);
    }
    at += length == 0 ? 1 : length;
  }
  if (out.size() <= longest) {
    return out;
  }
  const auto inside_character = [&](std::size_t at) {
    return (static_cast<unsigned char>(out[at]) & 0xc0U) == 0x80;
  };
  std::size_t begin = longest * 2 / 3;
  std::size_t end = out.size() - (longest - begin - kLeftOut.size());
  while (inside_character(begin)) {
    --begin;
  }
  while (inside_character(end)) {
    ++end;
  }
  return out.replace(begin, end - begin, kLeftOut);
}

std::string double_quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
    }
    out += c;
  }
  return out + "\"";
}

}  // namespace offsim
