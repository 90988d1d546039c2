#include "sim/base/error.h"

#include <fmt/format.h>

#include "sim/base/text.h"

namespace offsim {

namespace {

// A message is one line of bounded length, and none of its parts pushes out another.
constexpr std::size_t kLongestPath = 150;
constexpr std::size_t kLongestWrong = 300;
constexpr std::size_t kLongestExpected = 500;

std::string message(const Place& place, const std::string& wrong, const std::string& expected) {
  std::string out = Place{printable(place.file, kLongestPath), place.line, place.column}.text();
  if (!out.empty()) {
    out += ": ";
  }
  out += printable(wrong, kLongestWrong);
  if (!expected.empty()) {
    out += "; " + printable(expected, kLongestExpected);
  }
  return out;
}

}  // namespace

std::string Place::text() const {
  if (line == 0) {
    return file;
  }
  return fmt::format("{}:{}:{}", file, line, column);
}

InputError::InputError(const Place& place, const std::string& wrong, const std::string& expected)
    : std::runtime_error(message(place, wrong, expected)),
      place_(place),
      wrong_(wrong),
      expected_(expected) {}

InputError InputError::at(const Place& place) const {
  return place_.file.empty() ? InputError(place, wrong_, expected_) : *this;
}

void assertion_failed(const char* condition, const char* reason, const char* file, int line) {
  throw InternalError(fmt::format("{}:{}: {} does not hold: {}", file, line, condition, reason));
}

}  // namespace offsim
