// The program that touches the machine: measures it, and replays a recorded step on it.
//
// Exit code 0: done. 2: a mistake of who asks, or an output that cannot be written. 1: what the
// machine has not or refuses. Both say so in one line on standard error.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "kernels/measure.h"
#include "kernels/records.h"
#include "kernels/replay/replay.h"

namespace {

using namespace offsim::kernels;

// "a,b" in its parts, the empty ones too: what is wrong with them is said by who takes them.
std::vector<std::string> parts_of(const std::string& list) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  for (std::size_t comma = 0; comma != std::string::npos; begin = comma + 1) {
    comma = list.find(',', begin);
    parts.push_back(list.substr(begin, comma - begin));
  }
  return parts;
}

// CLI11's words on one line.
std::string in_one_line(const CLI::ParseError& error) {
  std::string words = error.what();
  std::replace(words.begin(), words.end(), '\n', ' ');
  return "command line: " + words + "; offsim-kernels --help shows what is expected";
}

int run(int argc, char** argv) {
  CLI::App app{"Measures a machine, and replays a recorded training step on it.", "offsim-kernels"};
  app.require_subcommand(1);

  MeasureOptions measure_options;
  std::string only, busy;
  CLI::App* measure_command = app.add_subcommand(
      "measure", "Write what this machine does as JSON lines to standard output");
  measure_command->add_option("--only", only,
                              "Groups (gpu, link, host, storage) or benches, separated by commas");
  measure_command->add_flag("--quick", measure_options.bench.quick, "Fewer sizes and repetitions");
  measure_command->add_option("--file", measure_options.bench.file,
                              "A file that does not exist, on the drive to be measured");
  measure_command->add_option("--file-bytes", measure_options.bench.file_bytes, "At most so large");
  measure_command->add_flag("--list", measure_options.list, "Name the benches and stop");

  ReplayOptions replay_options;
  CLI::App* replay_command = app.add_subcommand(
      "replay", "Execute a program (offsim.program/1) and write when each call ran");
  replay_command->add_option("program", replay_options.program, "File of JSON lines")->required();
  replay_command->add_option("--steps", replay_options.steps,
                             "Report the median of so many steps, the program's last ones");
  replay_command->add_option("--file", replay_options.file,
                             "A file that does not exist, on the drive to be used");
  replay_command->add_option("--busy", busy,
                             "Seconds of a host task: TASK=SECONDS, separated by commas");
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    throw UserError(in_one_line(error));
  }
  for (const CLI::App* command : {measure_command, replay_command}) {
    for (const CLI::Option* option : command->get_options()) {
      if (option->count() > 0 && option->as<std::string>().empty()) {
        throw UserError("command line: " + option->get_name() + " is empty");
      }
    }
  }
  if (measure_command->parsed()) {
    measure_options.only = only.empty() ? std::vector<std::string>{} : parts_of(only);
    measure(measure_options);
  } else {
    replay_options.busy = busy.empty() ? std::vector<std::string>{} : parts_of(busy);
    replay(replay_options);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const UserError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
