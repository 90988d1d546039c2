#include "tests/cli/program.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>
#include <thread>

namespace offsim::cli {

namespace fs = std::filesystem;

namespace {

// Far beyond what any of these commands needs, also under sanitizers on a busy machine.
constexpr std::chrono::seconds kPatience{150};

std::string read_all(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

[[noreturn]] void become(const std::vector<std::string>& words, const fs::path& folder,
                         const fs::path& out, const fs::path& err) {
  const int to_out = ::open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  const int to_err = ::open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  ::dup2(::open("/dev/null", O_RDONLY), STDIN_FILENO);
  ::dup2(to_out, STDOUT_FILENO);
  ::dup2(to_err, STDERR_FILENO);
  std::vector<char*> argv;
  for (const std::string& word : words) {
    argv.push_back(const_cast<char*>(word.c_str()));
  }
  argv.push_back(nullptr);
  if (::chdir(folder.c_str()) == 0) {
    ::execv(argv[0], argv.data());
  }
  ::_exit(127);
}

int wait_for(pid_t child) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  int status = 0;
  while (::waitpid(child, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > deadline) {
      ::kill(child, SIGKILL);
      ::waitpid(child, &status, 0);
      return -1;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

Outcome run(const std::vector<std::string>& words, const fs::path& folder) {
  const Folder outputs;
  const fs::path out = outputs.path() / "out", err = outputs.path() / "err";
  const pid_t child = ::fork();
  if (child == 0) {
    become(words, folder, out, err);
  }
  const int code = wait_for(child);
  return {code, read_all(out), read_all(err)};
}

std::string with_program(const std::string& line) {
  return "PATH='" + fs::path(OFFSIM_BINARY).parent_path().string() + "':$PATH; " + line;
}

}  // namespace

Outcome offsim(const std::string& arguments, const fs::path& folder) {
  std::vector<std::string> words{OFFSIM_BINARY};
  std::istringstream in(arguments);
  for (std::string word; in >> word;) {
    words.push_back(word == "''" ? "" : word);
  }
  return run(words, folder);
}

Outcome shell(const std::string& line, const fs::path& folder) {
  return run({"/bin/sh", "-c", with_program(line)}, folder);
}

std::string on_terminal(const std::string& line, int columns) {
  const std::string with_path = with_program(line);
  winsize size{};
  size.ws_col = static_cast<unsigned short>(columns);
  int terminal = -1;
  const pid_t child = ::forkpty(&terminal, nullptr, nullptr, &size);
  if (child == 0) {
    ::execl("/bin/sh", "sh", "-c", with_path.c_str(), nullptr);
    ::_exit(127);
  }
  std::string shown;
  std::array<char, 4096> block{};
  for (ssize_t n = 0; (n = ::read(terminal, block.data(), block.size())) > 0;) {
    shown.append(block.data(), static_cast<std::size_t>(n));
  }
  ::close(terminal);
  wait_for(child);
  return shown;
}

Folder::Folder() {
  std::string name = (fs::temp_directory_path() / "offsim-test-XXXXXX").string();
  path_ = ::mkdtemp(name.data());
}
Folder::~Folder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

void Folder::write(const std::string& name, const std::string& text) const {
  fs::create_directories((path_ / name).parent_path());
  std::ofstream(path_ / name, std::ios::binary) << text;
}
std::string Folder::read(const std::string& name) const { return read_all(path_ / name); }

std::vector<std::string> Folder::names() const {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(path_)) {
    names.push_back(entry.path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

void expect_refused(const std::vector<Refusal>& cases, const std::filesystem::path& folder) {
  for (const Refusal& refusal : cases) {
    SCOPED_TRACE("offsim " + refusal.arguments);
    const Outcome outcome = offsim(refusal.arguments, folder);
    EXPECT_EQ(outcome.code, 2);
    EXPECT_EQ(outcome.out, "");
    EXPECT_THAT(outcome.err, testing::HasSubstr(refusal.says));
    EXPECT_EQ(lines_of(outcome.err).size(), 1u) << outcome.err;
    EXPECT_TRUE(outcome.err.ends_with('\n'));
    EXPECT_LT(outcome.err.size(), 1000u);
  }
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    lines.push_back(line);
  }
  return lines;
}

}  // namespace offsim::cli
