// How records leave this program, and how it refuses.
#pragma once

#include <iosfwd>
#include <stdexcept>
#include <string>

namespace offsim::kernels {

// A mistake of who asks, or an output that cannot be written, in one line: the program exits with
// 2. What else is thrown is the machine's, which has not what is needed or refuses it: 1.
class UserError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A line is whole or absent: a reader sees an interrupted run by its missing end. Throws UserError
// where it cannot be written.
void write_line(const std::string& line, std::ostream& out);

std::string utc_now();  // "2026-11-30T18:00:00Z"

}  // namespace offsim::kernels
