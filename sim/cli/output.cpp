#include "sim/cli/output.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <ostream>

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

// A file that is whole under a temporary name, and takes its own when all others are whole too.
struct Pending {
  const Destination* destination;
  fs::path temporary, real;
};

// A link stays a link: the file that it names is replaced.
fs::path real_path(const std::string& path) {
  std::error_code failed;
  fs::path real = fs::weakly_canonical(path, failed);
  if (failed || fs::is_directory(real, failed)) {
    cannot_write(path);
  }
  return real;
}

fs::path temporary_beside(const fs::path& real) {
  return fmt::format("{}.{}.part", real.string(), ::getpid());
}

bool is_file(const std::string& path) {
  std::error_code failed;
  const fs::file_status status = fs::status(path, failed);
  return !fs::exists(status) || fs::is_regular_file(status) || fs::is_directory(status);
}

void write_files(const std::vector<const Destination*>& destinations) {
  std::vector<Pending> pending;
  std::error_code failed;
  try {
    for (const Destination* d : destinations) {
      if (!is_file(d->path)) {
        write_stream(d->path, *d);  // /dev/null, a pipe: nothing to rename
        continue;
      }
      const fs::path real = real_path(d->path);
      pending.push_back({d, temporary_beside(real), real});
      write_stream(pending.back().temporary.string(), *d);
    }
    for (const Pending& p : pending) {
      fs::rename(p.temporary, p.real, failed);
      if (failed) {
        cannot_write(p.destination->path);
      }
    }
  } catch (...) {
    for (const Pending& p : pending) {
      fs::remove(p.temporary, failed);
    }
    throw;
  }
}

// Two names of one file would leave only what is written last.
bool same_file(const std::string& a, const std::string& b) {
  std::error_code failed;
  return a == b || (a != "-" && b != "-" &&
                    fs::weakly_canonical(fs::absolute(a, failed), failed) ==
                        fs::weakly_canonical(fs::absolute(b, failed), failed));
}

}  // namespace

ProgressLine::ProgressLine(const Terminal& terminal, std::ostream& err)
    : asked_(terminal.progress),
      err_(err),
      next_(std::chrono::steady_clock::now() + std::chrono::seconds(1)) {}

ProgressLine::~ProgressLine() {
  if (said_) {
    err_ << "\r\033[K" << std::flush;
  }
}

void ProgressLine::show(std::string_view what, std::size_t done, std::size_t all) {
  if (const auto now = std::chrono::steady_clock::now(); asked_ && now > next_) {
    err_ << fmt::format("\r{}{} of {}", what, done, all) << std::flush;
    next_ = now + std::chrono::milliseconds(100);
    said_ = true;
  }
}

void require_written(std::ostream& out) {
  if (!out.flush()) {
    throw InputError({"stdout"}, "cannot be written", "expected room for the answer");
  }
}

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

void require_writable(const Outputs& outputs) {
  for (auto one = outputs.begin(); one != outputs.end(); ++one) {
    const auto& [flag, path] = *one;
    if (path.empty()) {
      continue;
    }
    for (auto other = outputs.begin(); other != one; ++other) {
      if (!other->second.empty() && same_file(other->second, path)) {
        throw InputError({"command line", 0, 0},
                         fmt::format("{} and {} both write to '{}'", other->first, flag, path),
                         "expected a path for each");
      }
    }
    if (path == "-") {
      continue;
    }
    if (!is_file(path)) {  // opening a pipe would wait for who reads it
      if (::access(path.c_str(), W_OK) != 0) {
        cannot_write(path);
      }
      continue;
    }
    const fs::path temporary = temporary_beside(real_path(path));
    const bool opens = std::ofstream(temporary).is_open();
    std::error_code ignored;
    fs::remove(temporary, ignored);
    if (!opens) {
      cannot_write(path);
    }
  }
}

bool write_all(const std::vector<Destination>& destinations, std::ostream& out) {
  Outputs outputs;
  for (const Destination& d : destinations) {
    outputs.emplace_back(d.flag, d.path);
  }
  require_writable(outputs);
  const Destination* to_out = nullptr;
  std::vector<const Destination*> files;
  for (const Destination& d : destinations) {
    if (d.path == "-") {
      to_out = &d;
    } else if (!d.path.empty()) {
      files.push_back(&d);
    }
  }
  write_files(files);
  if (to_out != nullptr) {
    to_out->write(out);
    require_written(out);
  }
  return to_out != nullptr;
}

}  // namespace offsim::cli
