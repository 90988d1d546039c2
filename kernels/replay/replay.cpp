#include "kernels/replay/replay.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "kernels/bench.h"

namespace offsim::kernels {

namespace {

using Json = nlohmann::ordered_json;

constexpr double kLongestTask = 100;  // seconds

void write(std::ostream& out, const Json& record) { out << record.dump() << "\n"; }

std::string utc_time() {
  const std::time_t time = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&time, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
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
      throw std::runtime_error("--busy " + text + ": expected TASK=SECONDS");
    }
    out[text.substr(0, equals)] = seconds;
  }
  return out;
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

int replay(const ReplayOptions& options) {
  const std::map<std::string, double> busy = busy_seconds(options.busy);
  if (std::error_code none; !std::filesystem::is_regular_file(options.program, none)) {
    throw std::runtime_error(options.program + ": is no file");  // a pipe may never end
  }
  std::ifstream file(options.program, std::ios::binary);
  if (!file) {
    throw std::runtime_error(options.program + ": cannot be read");
  }
  const Program program = read_program(file, options.program);
  if (options.steps < 1 || options.steps >= program.steps) {
    throw std::runtime_error("--steps " + std::to_string(options.steps) + ": the program has " +
                             std::to_string(program.steps) + " steps, the first is never one");
  }
  const std::unique_ptr<Device> device = make_cuda_device();
  const std::unique_ptr<HostWork> host = make_host_work(options.file);
  write(std::cout, {{"record", "env"},
                    {"schema", "offsim.replay/1"},
                    {"date", utc_time()},
                    {"program", options.program},
                    {"host", Json::parse(describe_host())},
                    {"gpu", Json::parse(describe_gpu())}});
  const Execution execution = execute(program, *device, *host, busy);
  for (const std::vector<MemoryUse>& uses : {device->memory(), host->memory()}) {
    for (const MemoryUse& use : uses) {
      write(std::cout,
            {{"record", "memory"}, {"pool", use.pool}, {"bytes", use.bytes}, {"held", use.held}});
    }
  }
  write_execution(program, execution, options.steps, std::cout);
  std::cout.flush();
  return std::cout ? 0 : 1;
}

}  // namespace offsim::kernels
