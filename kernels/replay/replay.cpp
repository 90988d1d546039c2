#include "kernels/replay/replay.h"

#include <malloc.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "kernels/bench.h"
#include "kernels/records.h"
#include "kernels/storage/scratch_file.h"

namespace offsim::kernels {

namespace {

using Json = nlohmann::ordered_json;

constexpr double kLongestTask = 100;  // seconds

void write(std::ostream& out, const Json& record) { write_line(record.dump(), out); }

// glibc, as a process that has freed large blocks has set it: larger ones are mapped afresh.
// Smaller ones come from one heap that keeps its pages, as predictions assume. In processes of
// PyTorch 13 to 100 % of them were given back and faulted in again, by what happened to lie at the
// heap's end (hardware/measured/raw/h200-heap-2026-11-30.jsonl); left alone, ours gives all back.
// Before the first thread, which would get a heap of its own.
void keep_heap() {
  constexpr int kMapThreshold = 32 << 20;
  mallopt(M_MMAP_THRESHOLD, kMapThreshold);
  mallopt(M_TRIM_THRESHOLD, -1);
  mallopt(M_ARENA_MAX, 1);
}

Program load(const std::string& path) {
  // A pipe may never end.
  if (std::error_code none; !std::filesystem::is_regular_file(path, none)) {
    throw UserError(path + ": is no file; expected what offsim replay --save wrote");
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    throw UserError(path + ": cannot be read");
  }
  return read_program(file, path);
}

// Before minutes are spent on all else.
void require_usable_drive(const ReplayOptions& options, const Program& program) {
  const bool drive = std::any_of(program.calls.begin(), program.calls.end(), [](const Call& call) {
    return call.kind == Call::Kind::kRead || call.kind == Call::Kind::kWrite;
  });
  if (drive && options.file.empty()) {
    throw UserError("the program reads and writes a drive: --file PATH says where");
  }
  if (!options.file.empty()) {
    if (const auto reason = scratch_refused(options.file)) {
      throw UserError(*reason);
    }
  }
}

}  // namespace

std::map<std::string, double> busy_seconds(const std::vector<std::string>& given) {
  std::map<std::string, double> out;
  for (const std::string& text : given) {
    const std::size_t equals = text.find('=');
    double seconds = -1;
    if (equals != std::string::npos && equals > 0) {
      const char* const end = text.data() + text.size();
      const auto [stop, error] = std::from_chars(text.data() + equals + 1, end, seconds);
      seconds = error == std::errc() && stop == end ? seconds : -1;
    }
    if (!(seconds >= 0 && seconds <= kLongestTask)) {
      throw UserError("command line: --busy '" + text + "'; expected TASK=SECONDS");
    }
    out[text.substr(0, equals)] = seconds;
  }
  return out;
}

void write_environment(const Program& program, const std::string& name, std::ostream& out) {
  write(out, {{"record", "env"},
              {"schema", "offsim.replay/1"},
              {"date", utc_now()},
              {"program", name},
              {"program_hash", program.hash},
              {"host", Json::parse(describe_host())},
              {"gpu", Json::parse(describe_gpu())}});
}

void write_execution(const Program& program, const Execution& execution, int steps,
                     std::ostream& out) {
  struct Step {
    std::size_t index;
    double seconds;
  };
  const std::vector<double>& ends = execution.step_ends;
  std::vector<Step> measured;
  for (std::size_t i = ends.size() - static_cast<std::size_t>(steps); i < ends.size(); ++i) {
    measured.push_back({i, ends[i] - ends[i - 1]});
    write(out, {{"record", "step"}, {"index", i}, {"seconds", measured.back().seconds}});
  }
  std::sort(measured.begin(), measured.end(),
            [](const Step& a, const Step& b) { return a.seconds < b.seconds; });
  const std::size_t reported = measured[(measured.size() - 1) / 2].index;
  write(out, {{"record", "reported"}, {"index", reported}});
  const double begin = ends[reported - 1], end = ends[reported];
  std::vector<Span> spans;
  std::copy_if(execution.spans.begin(), execution.spans.end(), std::back_inserter(spans),
               [&](const Span& span) { return span.end >= begin && span.begin <= end; });
  std::stable_sort(spans.begin(), spans.end(),
                   [](const Span& a, const Span& b) { return a.call < b.call; });
  for (const Span& span : spans) {
    write(out, {{"record", "call"},
                {"call", span.call},
                {"lane", program.lanes[span.lane].name},
                {"begin", span.begin - begin},
                {"end", span.end - begin}});
  }
  write(out, {{"record", "end"}});
}

void replay(const ReplayOptions& options) {
  keep_heap();
  const std::map<std::string, double> busy = busy_seconds(options.busy);
  const Program program = load(options.program);
  if (options.steps < 1 || options.steps >= program.steps) {
    throw UserError("command line: --steps " + std::to_string(options.steps) +
                    ": the program has " + std::to_string(program.steps) +
                    " steps, of which the first is never reported");
  }
  require_usable_drive(options, program);
  const std::unique_ptr<Device> device = make_cuda_device();
  const std::unique_ptr<HostWork> host = make_host_work(options.file);
  write_environment(program, options.program, std::cout);
  const auto progress = [&](std::int64_t issued, const char* what) {
    if (issued < program.steps) {
      std::fprintf(stderr, "progress %lld %lld %s\n", static_cast<long long>(issued),
                   static_cast<long long>(program.steps), what);
    }
  };
  progress(0, "memory");
  const Execution execution = execute(program, *device, *host, busy,
                                      [&](std::int64_t issued) { progress(issued, "steps"); });
  for (const std::vector<MemoryUse>& uses : {device->memory(), host->memory()}) {
    for (const MemoryUse& use : uses) {
      write(std::cout,
            {{"record", "memory"}, {"pool", use.pool}, {"bytes", use.bytes}, {"held", use.held}});
    }
  }
  write_execution(program, execution, options.steps, std::cout);
}

}  // namespace offsim::kernels
