#include "sim/cli/replay.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <ostream>
#include <set>
#include <sstream>

#include "sim/base/quantity.h"
#include "sim/cli/kernels_program.h"
#include "sim/report/replay.h"
#include "sim/runtime/price.h"
#include "sim/study/replay.h"

namespace offsim::cli {

namespace fs = std::filesystem;

namespace {

constexpr std::uintmax_t kMostRecordBytes = std::uintmax_t{256} << 20;

// {"--busy", "optimizer_tensor=9e-06,..."}: what the host spins for, of the tasks that there are.
std::vector<std::string> busy_flag(const machine::Framework& framework,
                                   const runtime::Program& program) {
  std::set<runtime::HostTask> tasks;
  for (const runtime::Call& call : program.calls) {
    if (const auto* const busy = std::get_if<runtime::HostBusy>(&call)) {
      tasks.insert(busy->task);
    }
  }
  std::string list;
  for (const runtime::HostTask task : tasks) {
    list += fmt::format("{}{}={:g}", list.empty() ? "" : ",", runtime::task_name(task),
                        runtime::host_task(framework, task).value.value);
  }
  return list.empty() ? std::vector<std::string>{} : std::vector<std::string>{"--busy", list};
}

std::vector<std::string> replay_words(const ReplayOptions& options, const plans::Job& job,
                                      const runtime::Program& program, const std::string& path) {
  std::vector<std::string> words{"replay", path};
  for (const std::string& word : busy_flag(job.machine.framework, program)) {
    words.push_back(word);
  }
  const bool drive = std::ranges::any_of(program.calls, [](const runtime::Call& call) {
    return std::holds_alternative<runtime::Io>(call);
  });
  if (options.file || (drive && !options.save.empty())) {
    words.insert(words.end(), {"--file", options.file.value_or("FILE")});
  }
  return words;
}

// A file in memory that ends with this process and its child, however they end.
class MemoryFile {
 public:
  MemoryFile() : number_(::memfd_create("offsim-program", 0)) {
    if (number_ < 0) {
      throw InputError({"the program"}, "cannot be written", "expected memory for it");
    }
  }
  ~MemoryFile() { ::close(number_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  std::string path() const { return fmt::format("/proc/self/fd/{}", number_); }

 private:
  int number_;
};

// Executes the program here.
study::MeasuredReplay execute(const ReplayOptions& options, const plans::Job& job,
                              const runtime::Program& program, std::ostream& err) {
  const std::string kernels = find_kernels(options.kernels);
  const MemoryFile file;
  {
    std::ofstream to(file.path(), std::ios::binary);
    runtime::write_program(program, to);
    if (!to.flush()) {
      throw InputError({file.path(), 0, 0}, "cannot be written", "expected room for the program");
    }
  }
  std::istringstream in(run_kernels(kernels, replay_words(options, job, program, file.path()),
                                    "replaying", options.terminal, err));
  return study::read_replay(in, "offsim-kernels", program);
}

study::MeasuredReplay measure(const ReplayOptions& options, const plans::Job& job,
                              const runtime::Program& program, std::ostream& err) {
  if (!options.measured) {
    return execute(options, job, program, err);
  }
  require_file(*options.measured);
  if (fs::file_size(*options.measured) > kMostRecordBytes) {
    throw InputError({*options.measured, 0, 0}, "is larger than 256 MiB",
                     "expected records of a replay");
  }
  std::ifstream in(*options.measured, std::ios::binary);
  return study::read_replay(in, *options.measured, program);
}

void refuse_mixed(const ReplayOptions& options) {
  const auto refuse = [](const char* flag, const char* other) {
    throw InputError({"command line", 0, 0}, fmt::format("{} has no effect beside {}", flag, other),
                     "expected one of them");
  };
  for (const char* const other : {"--save", "--measured"}) {
    const bool given =
        other == std::string("--save") ? !options.save.empty() : options.measured.has_value();
    if (given && options.kernels) {
      refuse("--kernels", other);
    }
  }
  if (!options.save.empty()) {
    if (options.measured) {
      refuse("--measured", "--save");
    }
    if (!options.json.empty() || !options.trace.empty()) {
      refuse(options.json.empty() ? "--trace" : "--json", "--save");
    }
  }
  if (options.measured && options.file) {
    refuse("--file", "--measured");
  }
}

plans::Job job_of(const ReplayOptions& options) {
  const study::Catalog catalog = open_catalog(options.catalog);
  const study::Scenario scenario =
      scenario_of(options.model, options.hardware, options.plan, options.work);
  plans::Job job = only_case(catalog, scenario, "replay", "expected a command for each").job;
  if (job.workload.gpus > 1) {
    throw InputError({"command line: --gpus", 0, 0}, "several GPUs are not replayed",
                     "expected one");
  }
  if (options.layers) {
    const Place place{"command line: --layers", 0, 0};
    study::keep_layers(job, std::llround(parse_count(*options.layers, place)), place);
    job.plan->check(job);
  }
  return study::replay_job(catalog, std::move(job), options.hardware);
}

}  // namespace

int run_replay(const ReplayOptions& options, std::ostream& out, std::ostream& err) {
  refuse_mixed(options);
  const plans::Job job = job_of(options);
  const study::Run run = study::simulate_replay(job);
  const Named named{options.model, options.hardware, options.catalog};
  const report::TextStyle& style = options.terminal.style;
  if (!options.save.empty()) {
    const bool data =
        write_all({{"--save", options.save,
                    [&](std::ostream& to) { runtime::write_program(run.program, to); }}},
                  out);
    if (!data) {
      std::vector<std::string> words = replay_words(options, job, run.program, options.save);
      words.insert(words.begin(), "offsim-kernels");
      out << report::next_text(shell_line(words) + " > records.jsonl", style);
    }
    return 0;
  }
  const study::MeasuredReplay measured = measure(options, job, run.program, err);
  const std::vector<study::ReplaySpan> predicted = study::predicted_spans(run, measured.reported);
  const study::ReplayComparison comparison = study::compare_replay(
      run.program, measured, predicted, study::predicted_step(run, measured.reported));
  const bool data_on_out =
      write_all({{"--json", options.json,
                  [&](std::ostream& to) { to << report::replay_json(job, measured, comparison); }},
                 {"--trace", options.trace,
                  [&](std::ostream& to) {
                    report::write_replay_trace(to, job, run.program, measured.spans, predicted);
                  }}},
                out);
  if (!data_on_out) {
    out << report::replay_text(job, measured, comparison, style)
        << report::next_text(predict_command(named, job), style);
  }
  return 0;
}

}  // namespace offsim::cli
