// A user's mistake, with the place where it was made.
//
// Loaders and plan checks throw InputError; main() catches it, prints what() on one line and exits
// with code 2. Format: "file:line:column: what is wrong; what was expected". Line and column are
// one-based and left out when unknown. SIM_ASSERT is for mistakes of ours: always on, prints the
// reason and aborts through an exception that exits with code 1.
#pragma once

#include <stdexcept>
#include <string>

namespace offsim {

// Where a value came from: a file (or "command line") and, when known, its one-based line and
// column, counted in bytes.
struct Place {
  std::string file;
  int line = 0;
  int column = 0;

  std::string text() const;
  friend bool operator==(const Place&, const Place&) = default;
};

class InputError : public std::runtime_error {
 public:
  // Requires: `wrong` and `expected` are phrases without a final full stop; `expected` may be
  // empty.
  InputError(const Place& place, const std::string& wrong, const std::string& expected = "");
  const Place& place() const { return place_; }
  const std::string& wrong() const { return wrong_; }
  const std::string& expected() const { return expected_; }
  // The same, said to be at `place` if it has no place of its own.
  InputError at(const Place& place) const;

 private:
  Place place_;
  std::string wrong_, expected_;
};

// An invariant of ours that did not hold: a bug, never a user's mistake.
class InternalError : public std::logic_error {
  using std::logic_error::logic_error;
};

[[noreturn]] void assertion_failed(const char* condition, const char* reason, const char* file,
                                   int line);

}  // namespace offsim

#define SIM_ASSERT(condition, reason)                                     \
  do {                                                                    \
    if (!(condition)) {                                                   \
      ::offsim::assertion_failed(#condition, reason, __FILE__, __LINE__); \
    }                                                                     \
  } while (false)
