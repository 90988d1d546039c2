// What is asked on the command line, as a scenario: predict and compare share all code with files.
//
// And the way back: the command that asks a job again, for the line "Next: ...".
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/units.h"
#include "sim/study/catalog.h"
#include "sim/study/scenario.h"

namespace offsim::cli {

inline const Place kCommandLine{"command line", 0, 0};  // of what is given there

struct WorkFlags {
  std::optional<std::string> micro_batch, micro_batch_limit, sequence, accumulation, checkpointing,
      precision, gpus, loader_workers, loader_bandwidth, lora_rank, lora_targets, base,
      activation_offload;
  bool phase_sync = false;
  std::vector<std::string> set;  // plan.knob=value
};

// The catalog of the folder, or the one in the program.
study::Catalog open_catalog(const std::optional<std::string>& folder);

// `machines` and `plans` are separated by commas. Throws InputError for an empty name, an unknown
// plan, and a --set that is malformed or names a plan that does not run.
study::Scenario scenario_of(const std::string& model, const std::string& machines,
                            const std::string& plans, const WorkFlags& flags);

// The names of `list`, which `flag` took. Throws InputError for an empty one.
std::vector<study::Given> names_of(const std::string& flag, const std::string& list);

// Of a scenario that has one. Throws InputError for several; `expected` says what else to do.
study::Case only_case(const study::Catalog& catalog, const study::Scenario& scenario,
                      std::string_view command, std::string expected);

// Nothing when the flag is not given. --tokens are at least 1.
std::optional<double> tokens_of(const std::optional<std::string>& flag);
std::optional<UsdPerHour> price_of(const std::optional<std::string>& flag);

// Words as a POSIX shell reads them back.
std::string shell_line(const std::vector<std::string>& words);

// How the user named things, where that differs from what a job knows of itself.
struct Named {
  std::string model, hardware;
  std::optional<std::string> catalog;
};

// "offsim predict --model ...", ready for a shell, with every setting that is not a default.
std::string predict_command(const Named& named, const plans::Job& job);
// "offsim compare --model ... --plans all" for the same work. Options of plans are left out.
std::string compare_command(const Named& named, const plans::Job& job);
// `command` with the largest micro-batch that fits in place of the job's, or with 1 where looking
// for it would take too long.
std::string with_largest(std::string command, const plans::Job& job);

}  // namespace offsim::cli
