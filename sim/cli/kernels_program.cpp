#include "sim/cli/kernels_program.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <utility>

#include "sim/base/text.h"
#include "sim/cli/question.h"

namespace offsim::cli {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostOutput = std::size_t{256} << 20;
constexpr std::size_t kLongestWords = 300;  // of what it said when it failed

constexpr int kLook = 50;                    // milliseconds between looks at the child
constexpr std::size_t kInPipes = 128 << 10;  // bytes that both can hold

[[noreturn]] void failed(const std::string& what) {
  throw InputError({"offsim-kernels"}, what, "expected it to run on this machine");
}

// Both ends of a pipe; ours is closed in the child.
class Pipe {
 public:
  Pipe() {
    if (::pipe2(ends_.data(), O_CLOEXEC) != 0) {
      failed(fmt::format("no pipe to it: {}", std::strerror(errno)));
    }
  }
  ~Pipe() {
    close(0);
    close(1);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  int end(std::size_t i) const { return ends_[i]; }
  void close(std::size_t i) {
    if (ends_[i] >= 0) {
      ::close(std::exchange(ends_[i], -1));
    }
  }

 private:
  std::array<int, 2> ends_{-1, -1};
};

// Its exit code where it cannot be executed.
constexpr int kNoProgram = 127;

// The child ends with this process, however that ends.
pid_t spawn(const std::string& program, const std::vector<std::string>& arguments, const Pipe& out,
            const Pipe& err) {
  std::vector<std::string> words{program};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) {
    argv.push_back(word.data());
  }
  argv.push_back(nullptr);
  const pid_t child = ::fork();
  if (child < 0) {
    failed(fmt::format("no process for it: {}", std::strerror(errno)));
  }
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int nothing = ::open("/dev/null", O_RDONLY);
    ::dup2(nothing, STDIN_FILENO);
    ::dup2(out.end(1), STDOUT_FILENO);
    ::dup2(err.end(1), STDERR_FILENO);
    ::execv(argv.front(), argv.data());
    ::_exit(kNoProgram);
  }
  return child;
}

// Standard error line by line: progress is shown, the rest is kept.
class Listener {
 public:
  Listener(std::string verb, const Terminal& terminal, std::ostream& err)
      : verb_(std::move(verb)), shown_(terminal, err) {}

  std::size_t taken() const { return taken_; }
  void take(std::string_view bytes) {
    taken_ += bytes.size();
    for (const char c : bytes) {
      if (c == '\n') {
        line();
      } else if (line_.size() < 4096) {
        line_ += c;
      }
    }
  }
  std::string words() {
    line();
    return printable(words_, kLongestWords);
  }

 private:
  void line() {
    std::istringstream in(line_);
    std::string word, name;
    std::size_t done = 0, total = 0;
    if (in >> word >> done >> total >> name && word == "progress") {
      shown_.show(fmt::format("\033[K{} {}: ", verb_, printable(name, 40)), done + 1, total);
    } else if (!line_.empty()) {
      words_ = line_;  // the last one says why
    }
    line_.clear();
  }

  std::string verb_;
  ProgressLine shown_;
  std::string line_, words_;
  std::size_t taken_ = 0;
};

// Whether it has; it can still be waited for.
bool has_ended(pid_t child) {
  siginfo_t info{};
  return ::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid == child;
}

// Takes both until both are closed or, since a process that the child left behind may hold them
// open, until the child has ended and what it wrote is read.
std::string listen(Pipe& out, Pipe& err, Listener& listener, pid_t child) {
  std::string text;
  std::array<pollfd, 2> waiting{{{out.end(0), POLLIN, 0}, {err.end(0), POLLIN, 0}}};
  std::array<char, 65536> buffer;
  std::size_t after_end = 0;
  while ((waiting[0].fd >= 0 || waiting[1].fd >= 0) && after_end <= kInPipes) {
    const bool ended = has_ended(child);
    const int ready = ::poll(waiting.data(), waiting.size(), ended ? 0 : kLook);
    if ((ready < 0 && errno != EINTR) || (ready == 0 && ended)) {
      break;
    }
    if (ready <= 0) {
      continue;
    }
    for (std::size_t i = 0; i < waiting.size(); ++i) {
      if (waiting[i].fd < 0 || waiting[i].revents == 0) {
        continue;
      }
      const ssize_t got = ::read(waiting[i].fd, buffer.data(), buffer.size());
      if (got <= 0) {
        waiting[i].fd = -1;  // poll passes over it
        continue;
      }
      after_end += ended ? static_cast<std::size_t>(got) : 0;
      if (i == 1) {
        listener.take({buffer.data(), static_cast<std::size_t>(got)});
      } else {
        text.append(buffer.data(), static_cast<std::size_t>(got));
      }
    }
    if (text.size() + listener.taken() > kMostOutput) {
      ::kill(child, SIGKILL);
      break;
    }
  }
  return text;
}

}  // namespace

std::string find_kernels(const std::optional<std::string>& asked) {
  if (asked) {
    return asked->find('/') == std::string::npos ? "./" + *asked : *asked;
  }
  std::error_code ignored;
  const fs::path self = fs::read_symlink("/proc/self/exe", ignored);
  const fs::path beside = self.parent_path() / "offsim-kernels";
  if (self.empty() || !fs::exists(beside, ignored)) {
    throw InputError(kCommandLine, "offsim-kernels is not beside this program",
                     "expected --kernels PATH; ./dev build makes it");
  }
  return beside.string();
}

std::string run_kernels(const std::string& program, const std::vector<std::string>& arguments,
                        const std::string& verb, const Terminal& terminal, std::ostream& err_out) {
  Pipe out;
  Pipe err;
  const pid_t child = spawn(program, arguments, out, err);
  out.close(1);
  err.close(1);
  Listener listener(verb, terminal, err_out);
  std::string text = listen(out, err, listener, child);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  const std::string words = listener.words();
  if (text.size() + listener.taken() > kMostOutput) {
    failed("it wrote more than 256 MiB");
  }
  if (WIFSIGNALED(status)) {
    failed(fmt::format("signal {} ended it", WTERMSIG(status)));
  }
  if (WEXITSTATUS(status) == kNoProgram && words.empty()) {
    failed(fmt::format("'{}' does not start", printable(program)));
  }
  if (WEXITSTATUS(status) != 0) {
    if (words.empty()) {
      failed(fmt::format("it stopped with code {}", WEXITSTATUS(status)));
    }
    throw InputError({"offsim-kernels"}, words);
  }
  return text;
}

}  // namespace offsim::cli
