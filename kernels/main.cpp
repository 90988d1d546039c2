// The program that touches the machine: measures it, and replays a recorded step on it.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "kernels/measure.h"
#include "kernels/replay/replay.h"

int main(int argc, char** argv) {
  using namespace offsim::kernels;
  CLI::App app{"Measures a machine, and replays a recorded training step on it."};
  app.require_subcommand(1);

  MeasureOptions measure_options;
  CLI::App* measure_command = app.add_subcommand(
      "measure", "Write what this machine does as JSON lines to standard output");
  measure_command
      ->add_option("--only", measure_options.only,
                   "Groups (gpu, link, host, storage) or benches, separated by commas")
      ->delimiter(',');
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
  replay_command
      ->add_option("--busy", replay_options.busy,
                   "Seconds of a host task: TASK=SECONDS, separated by commas")
      ->delimiter(',');

  CLI11_PARSE(app, argc, argv);
  try {
    return measure_command->parsed() ? measure(measure_options) : replay(replay_options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
