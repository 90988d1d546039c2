// Does offsim-kernels say what is wrong in one line, with exit code 2, before it measures anything?
#include <gtest/gtest.h>

#include "tests/cli/program.h"

namespace offsim::cli::kernels_program_test {
namespace {

using testing::HasSubstr;

constexpr const char* kDriveProgram =
    R"({"schema":"offsim.program/1","steps":2,"events":0,"buffers":0}
{"lane":"host","kind":"host"}
{"lane":"compute","kind":"stream"}
{"lane":"drive","kind":"io"}
{"call":"end_step"}
)";
constexpr const char* kDriveRead =
    R"({"call":"read","queue":"drive","bytes":1,"in_flight":1,"gpu_direct":false,"what":"x"})";

TEST(OffsimKernels, AMistakeIsOneLine) {
  const Folder folder;
  const std::string end = "{\"call\":\"end_step\"}\n";
  folder.write("p.jsonl", kDriveProgram + end);
  folder.write("drive.jsonl", kDriveProgram + std::string(kDriveRead) + "\n" + end);
  folder.write("bad.jsonl", kDriveProgram + std::string(R"({"call":"jump"})") + "\n" + end);
  folder.write("text.jsonl", "steps: 2\n");
  const std::vector<std::pair<std::string, std::string>> mistakes = {
      {"", "command line: A subcommand is required; offsim-kernels --help"},
      {"measure --colour", "command line: The following argument was not expected: --colour"},
      {"measure --file-bytes many", "many"},
      {"measure --only hots", "command line: --only hots: no such group or bench; see --list"},
      {"measure --only ''", "command line: --only is empty"},
      {"measure --only ,gpu", "command line: --only has an empty name"},
      {"measure --only gpu,", "--only has an empty name"},
      {"measure --only gpu,,host", "--only has an empty name"},
      {"measure --file .", ".: exists, and is left alone"},
      {"measure --file none/file", "none/file: its folder: No such file or directory"},
      {"measure --file ''", "--file is empty"},
      {"measure --file f --file-bytes 5", "f: may have 5 B; expected 64 MiB or more"},
      {"replay", "command line: program is required"},
      {"replay none.jsonl", "none.jsonl: is no file; expected what offsim replay --save wrote"},
      {"replay .", ".: is no file"},
      {"replay text.jsonl", "text.jsonl:1:1: is no JSON object"},
      {"replay bad.jsonl", "bad.jsonl:6:2: 'call' of a call is 'jump'"},
      {"replay p.jsonl --steps 2", "--steps 2: the program has 2 steps"},
      {"replay p.jsonl --steps 1 --busy hook", "--busy 'hook'; expected TASK=SECONDS"},
      {"replay p.jsonl --steps 1 --busy a=1,", "--busy ''; expected TASK=SECONDS"},
      {"replay p.jsonl --steps 1 --file .", ".: exists, and is left alone"},
      {"replay drive.jsonl --steps 1", "--file PATH says where"},
  };
  for (const auto& [arguments, message] : mistakes) {
    SCOPED_TRACE(arguments);
    const Outcome done = shell("offsim-kernels " + arguments, folder.path());
    EXPECT_EQ(done.code, 2);
    EXPECT_EQ(done.out, "");
    EXPECT_THAT(done.err, HasSubstr(message));
    EXPECT_EQ(lines_of(done.err).size(), 1U) << done.err;
  }
  EXPECT_EQ(folder.names().size(), 4U);
}

TEST(OffsimKernels, RecordsThatCannotBeWrittenEndItAtOnce) {
  const Outcome full = shell("offsim-kernels measure --quick --only host > /dev/full");
  EXPECT_EQ(full.code, 2);
  EXPECT_EQ(full.err, "the records cannot be written: No space left on device\n");
}

}  // namespace
}  // namespace offsim::cli::kernels_program_test
