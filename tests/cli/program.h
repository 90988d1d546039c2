// Runs the program as a person does: arguments in, exit code and both outputs out.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace offsim::cli {

struct Outcome {
  int code = -1;  // -1: killed, by a signal or since it took too long
  std::string out, err;
};

// `arguments` are separated by blanks; '' is an empty one. Runs in `folder`, without a terminal.
Outcome offsim(const std::string& arguments, const std::filesystem::path& folder = ".");
// A line for a POSIX shell, with offsim on its PATH.
Outcome shell(const std::string& line, const std::filesystem::path& folder = ".");

// A command line, and a part of the one line that refuses it.
struct Refusal {
  std::string arguments;
  std::string says;
};
// Each exits with 2 and one line that says so, and prints nothing else.
void expect_refused(const std::vector<Refusal>& cases, const std::filesystem::path& folder);

// What a terminal of 100 columns shows of a line for a shell.
std::string on_terminal(const std::string& line, int columns = 100);

// A new folder, removed with its files at the end.
class Folder {
 public:
  Folder();
  ~Folder();
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  void write(const std::string& name, const std::string& text) const;
  std::string read(const std::string& name) const;
  std::vector<std::string> names() const;  // sorted

 private:
  std::filesystem::path path_;
};

std::vector<std::string> lines_of(const std::string& text);

}  // namespace offsim::cli
