#include "sim/cli/output.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "sim/base/error.h"

namespace offsim::cli {

namespace fs = std::filesystem;

namespace {

constexpr int kNarrowest = 60;  // columns; below, tables would be hard to read
constexpr int kWidest = 160;

[[noreturn]] void cannot_write(const std::string& path) {
  throw InputError({path, 0, 0}, "cannot be written",
                   "expected a file in a folder that exists and allows it");
}

void write_stream(const std::string& path, const Destination& destination) {
  std::ofstream file(path, std::ios::binary);
  if (file) {
    destination.write(file);
    file.flush();
  }
  if (!file) {
    cannot_write(destination.path);
  }
}

void write_file(const Destination& destination) {
  std::error_code failed;
  // A link stays a link: the file that it names is replaced.
  const fs::path real = fs::weakly_canonical(destination.path, failed);
  if (failed || fs::is_directory(real, failed)) {
    cannot_write(destination.path);
  }
  if (fs::exists(real, failed) && !fs::is_regular_file(real, failed)) {
    write_stream(real.string(), destination);  // /dev/null, a pipe: nothing to rename
    return;
  }
  const std::string temporary = fmt::format("{}.{}.part", real.string(), ::getpid());
  try {
    write_stream(temporary, destination);
    fs::rename(temporary, real, failed);
    if (failed) {
      cannot_write(destination.path);
    }
  } catch (...) {
    fs::remove(temporary, failed);
    throw;
  }
}

}  // namespace

Terminal terminal_of_process() {
  Terminal terminal;
  const char* const no_colour = std::getenv("NO_COLOR");
  terminal.style.colour = ::isatty(STDOUT_FILENO) != 0 && (no_colour == nullptr || *no_colour == 0);
  if (winsize size{}; ::isatty(STDOUT_FILENO) != 0 &&
                      ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    terminal.style.width = std::clamp<int>(size.ws_col, kNarrowest, kWidest);
  }
  terminal.progress = ::isatty(STDERR_FILENO) != 0;
  return terminal;
}

bool write_all(const std::vector<Destination>& destinations, std::ostream& out) {
  for (std::size_t i = 0; i < destinations.size(); ++i) {
    for (std::size_t j = i + 1; j < destinations.size(); ++j) {
      if (!destinations[i].path.empty() && destinations[i].path == destinations[j].path) {
        throw InputError({"command line", 0, 0},
                         fmt::format("{} and {} both write to '{}'", destinations[i].flag,
                                     destinations[j].flag, destinations[i].path),
                         "expected a path for each");
      }
    }
  }
  const Destination* to_out = nullptr;
  for (const Destination& destination : destinations) {
    if (destination.path == "-") {
      to_out = &destination;
    } else if (!destination.path.empty()) {
      write_file(destination);
    }
  }
  if (to_out != nullptr) {
    to_out->write(out);
  }
  return to_out != nullptr;
}

}  // namespace offsim::cli
