#include "sim/base/error.h"

#include <fmt/format.h>

namespace offsim {

namespace {

// A message is one line whatever the input held: control characters are shown as '?', and very long
// ones are cut.
std::string one_line(const std::string& text) {
  constexpr std::size_t kLongest = 600;
  std::string out;
  for (const char c : text.substr(0, kLongest)) {
    out += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  }
  if (text.size() > kLongest) {
    out += " ...";
  }
  return out;
}

std::string message(const Place& place, const std::string& wrong, const std::string& expected) {
  std::string out = place.text();
  if (!out.empty()) {
    out += ": ";
  }
  out += wrong;
  if (!expected.empty()) {
    out += "; " + expected;
  }
  return one_line(out);
}

}  // namespace

std::string Place::text() const {
  if (line == 0) {
    return file;
  }
  return fmt::format("{}:{}:{}", file, line, column);
}

InputError::InputError(const Place& place, const std::string& wrong, const std::string& expected)
    : std::runtime_error(message(place, wrong, expected)), place_(place) {}

void assertion_failed(const char* condition, const char* reason, const char* file, int line) {
  throw InternalError(fmt::format("{}:{}: {} does not hold: {}", file, line, condition, reason));
}

}  // namespace offsim
