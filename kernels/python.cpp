#include "kernels/python.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace offsim::kernels {

namespace {

class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {
    if (value < 0) {
      throw std::runtime_error(std::string("cannot start python3: ") + std::strerror(errno));
    }
  }
  ~Descriptor() { reset(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return value_; }
  void reset() {
    if (value_ >= 0) {
      close(value_);
    }
    value_ = -1;
  }

 private:
  int value_;
};

// The process, which is killed with all of its group unless it was waited for.
class Child {
 public:
  explicit Child(pid_t pid) : pid_(pid) {}
  ~Child() { kill_and_wait(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  void kill_and_wait() {
    if (pid_ > 0) {
      kill(-pid_, SIGKILL);
      kill(pid_, SIGKILL);
      wait();
    }
  }
  int wait() {
    int status = 0;
    while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
    return status;
  }

 private:
  pid_t pid_;
};

// What Python prints last says what was wrong: "ModuleNotFoundError: No module named 'torch'".
std::string last_line(int file) {
  std::array<char, 4096> text{};
  const off_t size = lseek(file, 0, SEEK_END);
  const off_t from = std::max<off_t>(0, size - static_cast<off_t>(text.size()));
  const ssize_t read = pread(file, text.data(), text.size(), from);
  std::string all(text.data(), read > 0 ? static_cast<std::size_t>(read) : 0);
  all.erase(all.find_last_not_of("\n ") + 1);
  return all.substr(all.find_last_of('\n') + 1);
}

pid_t start(const std::vector<std::string>& arguments, int input, int output, int errors) {
  std::vector<std::string> words{"python3", "-"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) {
    argv.push_back(word.data());
  }
  argv.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) {  // only calls that are safe in a copy of a program with threads
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setpgid(0, 0);
    if (getppid() != parent || dup2(input, 0) < 0 || dup2(output, 1) < 0 || dup2(errors, 2) < 0) {
      _exit(126);
    }
    execvp("python3", argv.data());
    _exit(127);
  }
  if (pid < 0) {
    throw std::runtime_error(std::string("cannot start python3: ") + std::strerror(errno));
  }
  return pid;
}

// Hands over whole lines until the other end is closed. Returns whether it was, before `deadline`.
bool read_lines(int file, double deadline,
                const std::function<void(const std::string& line)>& line) {
  std::string text;
  std::array<char, 4096> more{};
  while (true) {
    const double left = deadline - now();
    if (left <= 0) {
      return false;
    }
    pollfd wait{file, POLLIN, 0};
    if (poll(&wait, 1, static_cast<int>(left * 1000) + 1) <= 0) {
      continue;
    }
    const ssize_t got = read(file, more.data(), more.size());
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got <= 0) {
      return true;
    }
    text.append(more.data(), static_cast<std::size_t>(got));
    for (auto end = text.find('\n'); end != std::string::npos; end = text.find('\n')) {
      line(text.substr(0, end));
      text.erase(0, end + 1);
    }
  }
}

Unit unit_of(const std::string& name) {
  for (const Unit unit : {Unit::kSeconds, Unit::kBytes, Unit::kBytesPerSecond,
                          Unit::kElementsPerSecond, Unit::kRatio}) {
    if (name == name_of(unit)) {
      return unit;
    }
  }
  throw std::runtime_error("the script's unit '" + name + "' is none of ours");
}

}  // namespace

std::optional<std::string> python_lacks(std::string_view module) {
  static constexpr std::string_view kScript = R"(import importlib.util, sys
if importlib.util.find_spec(sys.argv[1]) is None:
    sys.exit(sys.argv[1] + " is not installed")
)";
  try {
    run_python(kScript, {std::string(module)}, 30, [](const std::string&) {});
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return std::nullopt;
}

void run_python(std::string_view script, const std::vector<std::string>& arguments, double limit,
                const std::function<void(const std::string& line)>& line) {
  // In memory, not in a file or a pipe that Python would have to read while we read its output.
  const Descriptor input(memfd_create("script", MFD_CLOEXEC));
  const Descriptor errors(memfd_create("errors", MFD_CLOEXEC));
  if (write(input.get(), script.data(), script.size()) != static_cast<ssize_t>(script.size()) ||
      lseek(input.get(), 0, SEEK_SET) != 0) {
    throw std::runtime_error("cannot start python3: no memory for its script");
  }
  std::array<int, 2> ends{-1, -1};
  const int made = pipe2(ends.data(), O_CLOEXEC);
  const Descriptor output(made == 0 ? ends[0] : -1);
  Descriptor theirs(ends[1]);
  Child child(start(arguments, input.get(), theirs.get(), errors.get()));
  theirs.reset();
  if (!read_lines(output.get(), now() + limit, line)) {
    throw std::runtime_error("python3 took longer than " + std::to_string(static_cast<int>(limit)) +
                             " s and was stopped");
  }
  const int status = child.wait();
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    const std::string reason = last_line(errors.get());
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127 && reason.empty()) {
      throw std::runtime_error("there is no python3");
    }
    throw std::runtime_error("python3: " + (reason.empty() ? "it failed" : reason));
  }
}

void python_points(const Run& run, std::string_view script,
                   const std::vector<std::string>& arguments, double limit) {
  run_python(script, arguments, limit, [&](const std::string& text) {
    const auto json = nlohmann::ordered_json::parse(text);
    At at;
    for (const auto& [name, value] : json.at("at").items()) {
      if (value.is_string()) {
        at.emplace_back(name, value.get<std::string>());
      } else {
        at.emplace_back(name, value.get<std::int64_t>());
      }
    }
    run.point(std::move(at), json.at("samples").get<std::vector<double>>(),
              unit_of(json.value("unit", "s")));
  });
}

}  // namespace offsim::kernels
