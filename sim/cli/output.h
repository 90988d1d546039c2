// Where a command's answer goes: the terminal's manners, and files that are whole or not there.
#pragma once

#include <chrono>
#include <functional>
#include <iosfwd>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/report/text.h"

namespace offsim::cli {

struct Terminal {
  report::TextStyle style;
  bool progress = false;  // stderr is one: a long run may say how far it is
};

// The manners of this process: colour and the terminal's width when stdout is one, and no colour
// where NO_COLOR is set.
Terminal terminal_of_process();

// One line on a terminal's stderr, once something has taken over a second; gone when it is over.
class ProgressLine {
 public:
  ProgressLine(const Terminal& terminal, std::ostream& err);
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void show(std::string_view what, std::size_t done, std::size_t all);

 private:
  bool asked_;
  std::ostream& err_;
  std::chrono::steady_clock::time_point next_;  // not before: a terminal is slow
  bool said_ = false;
};

// Throws InputError when what was written to `out`, which is stdout, did not arrive.
void require_written(std::ostream& out);

// What a command writes beside its text. A path "-" means stdout, which then holds nothing else.
struct Destination {
  std::string flag;  // "--json"
  std::string path;  // empty: not asked for
  std::function<void(std::ostream&)> write;
};

// What is to be written: flags with their paths; an empty path is not asked for. Throws InputError
// when two name the same file or one cannot be opened for writing. Leaves nothing behind, so that
// it may be asked before hours of work.
using Outputs = std::vector<std::pair<std::string, std::string>>;
void require_writable(const Outputs& outputs);

// Writes each file under a temporary name beside it and renames them when all are whole. Returns
// whether one of them went to `out`. Throws InputError as above, and when one does not arrive; then
// no file has changed.
bool write_all(const std::vector<Destination>& destinations, std::ostream& out);

}  // namespace offsim::cli
