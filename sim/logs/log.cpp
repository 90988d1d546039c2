#include "sim/logs/log.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <istream>
#include <optional>

#include "sim/base/error.h"
#include "sim/base/units.h"
#include "sim/logs/words.h"

namespace offsim::logs {

namespace {

constexpr double kMilli = 1e-3;
constexpr double kMebi = static_cast<double>(kMiB);
constexpr double kGibi = static_cast<double>(kGiB);

// What no run has: less than a microsecond or more than four months of a step, as many samples or
// tokens, a petabyte, megawatts.
struct Range {
  double least, most;
};
constexpr Range kTime{0, 1e7}, kStepTime{1e-6, 1e7}, kRate{1e-7, 1e9}, kBytes{0, 1e15},
    kShare{0, 1}, kWatts{0, 1e6}, kLanes{0, 64}, kCount{0, 1e9};

struct Title {
  std::string_view name, unit;
  Range range;
};
// By What.
constexpr std::array<Title, kWhats> kTitles{{{"forward", "s", kTime},
                                             {"forward_micro", "s", kTime},
                                             {"backward", "s", kTime},
                                             {"backward_micro", "s", kTime},
                                             {"optimizer", "s", kTime},
                                             {"optimizer_micro", "s", kTime},
                                             {"optimizer_part", "s", kTime},
                                             {"step", "s", kStepTime},
                                             {"step_mean", "s", kStepTime},
                                             {"samples_per_s", "1/s", kRate},
                                             {"samples_per_s_mean", "1/s", kRate},
                                             {"tokens_per_s_per_gpu", "1/s", kRate},
                                             {"gpu_peak", "bytes", kBytes},
                                             {"gpu_reserved", "bytes", kBytes},
                                             {"gpu_used", "bytes", kBytes},
                                             {"gpu_total", "bytes", kBytes},
                                             {"gpu_busy", "share", kShare},
                                             {"power", "W", kWatts},
                                             {"power_limit", "W", kWatts},
                                             {"link_width", "lanes", kLanes},
                                             {"link_width_most", "lanes", kLanes},
                                             {"link_generation", "", kCount},
                                             {"link_generation_most", "", kCount},
                                             {"host_used", "bytes", kBytes},
                                             {"host_share", "share", kShare},
                                             {"skipped_steps", "", kCount}}};

// A figure behind a word of its own.
struct Key {
  std::string_view word;
  What what;
  double scale;
};

constexpr std::array kTimers{
    Key{"fwd", What::kForward, kMilli},
    Key{"forward", What::kForward, kMilli},
    Key{"fwd_microstep", What::kForwardMicro, kMilli},
    Key{"forward_microstep", What::kForwardMicro, kMilli},
    Key{"bwd", What::kBackward, kMilli},
    Key{"backward", What::kBackward, kMilli},
    Key{"bwd_microstep", What::kBackwardMicro, kMilli},
    Key{"backward_microstep", What::kBackwardMicro, kMilli},
    Key{"step", What::kOptimizer, kMilli},
    Key{"step_microstep", What::kOptimizerMicro, kMilli},
    Key{"optimizer_gradients", What::kOptimizerPart, kMilli},
    Key{"optimizer_step", What::kOptimizerPart, kMilli},
    Key{"optimizer_allgather", What::kOptimizerPart, kMilli},
};

constexpr std::array kFigures{
    Key{"CurrSamplesPerSec", What::kSamples, 1},
    Key{"MaxMemAllocated", What::kGpuPeak, kGibi},
    Key{"Max_MA", What::kGpuPeak, kGibi},
    Key{"Max_CA", What::kGpuReserved, kGibi},
    Key{"peak_memory_alloc", What::kGpuPeak, kGibi},
    Key{"peak_memory_reserved", What::kGpuReserved, kGibi},
    Key{"train_samples_per_second", What::kSamplesMean, 1},
    Key{"tokens_per_second_per_gpu", What::kTokens, 1},
    Key{"tokens_per_gpu_per_second", What::kTokens, 1},
    Key{"elapsed time per iteration (ms)", What::kStep, kMilli},
};
constexpr std::array<std::string_view, 5> kStepTimes{"step time", "step_time", "time_per_step",
                                                     "step_time_s", "iteration time"};
// Lines of a training run without a figure of use.
constexpr std::array<std::string_view, 7> kOther{
    "skipped=",    "'loss':",        "train_loss",
    "bwd_inner",   "backward_inner", "RunningAvgSamplesPerSec",
    "MemAllocated"};
// Progress bars of other things.
constexpr std::array<std::string_view, 9> kOtherBars{"shards",     "Map",      "Filter",
                                                     "okeniz",     "Download", "Fetching",
                                                     "Generating", "Loading",  "examples"};

class Reader {
 public:
  explicit Reader(std::string name) { log_.name = std::move(name); }

  void take(std::string_view line, int number, bool cut) {
    if (trimmed(line).empty()) {
      return;
    }
    ++log_.lines;
    number_ = number;
    known_ = false;
    timers(line);
    figures(line);
    step_time(line);
    progress(line);
    host_memory(line);
    smi_gpu(line);
    smi_table(line);
    smi_query(line);
    const auto in_line = [&](std::string_view word) {
      return line.find(word) != std::string_view::npos;
    };
    known_ = known_ || std::ranges::any_of(kOther, in_line);
    ++(known_ ? log_.known : log_.unknown);
    log_.too_long += cut ? 1 : 0;
  }

  Log finish() && { return std::move(log_); }

 private:
  void add(What what, double value) {
    known_ = true;
    const auto [least, most] = kTitles[static_cast<std::size_t>(what)].range;
    if (value != 0 && !(value >= least && value <= most)) {
      ++log_.absurd;
      return;
    }
    if (log_.observations.size() == kMostObservations) {
      throw InputError({log_.name, number_, 0}, "a figure too many",
                       fmt::format("expected a log of at most {} figures: some hundred steps will "
                                   "do",
                                   kMostObservations));
    }
    log_.observations.push_back({what, value, number_, of_gpu(what) ? gpu_ : -1});
  }

  // Rates of zero say that nothing was measured yet.
  void add_inverse(What what, double rate) {
    known_ = true;
    if (rate > 0) {
      add(what, 1 / rate);  // at worst without end, which is out of range
    }
  }

  // "time (ms) | fwd: 1.2 | bwd: 3.4": parts between bars, each a word and a number.
  // DeepSpeed's, behind its "time (ms)": what stands in columns elsewhere may be anything.
  void timers(std::string_view line) {
    if (line.substr(0, line.find('|')).find("time (ms)") == std::string_view::npos) {
      return;
    }
    for (std::size_t at = line.find('|'); at != std::string_view::npos;) {
      const std::size_t end = std::min(line.find('|', at + 1), line.size());
      const std::string_view part = trimmed(line.substr(at + 1, end - at - 1));
      const std::size_t colon = part.find(':');
      at = end == line.size() ? std::string_view::npos : end;
      if (colon == std::string_view::npos) {
        continue;
      }
      const auto key = std::ranges::find(kTimers, trimmed(part.substr(0, colon)), &Key::word);
      const auto number = leading_number(part.substr(colon + 1));
      if (key != kTimers.end() && number) {
        add(key->what, number->value * key->scale);
      }
    }
  }

  void figures(std::string_view line) {
    for (const Key& key : kFigures) {
      if (const auto number = number_after(line, key.word)) {
        add(key.what, number->value * key.scale);
      }
    }
    if (const auto number = number_after(line, "train_steps_per_second")) {
      add_inverse(What::kStepMean, number->value);
    }
    // torchtitan's; "tps" alone may be anything
    if (const auto number = number_after(line, "tps");
        number && find_word(line, "step") != std::string_view::npos) {
      add(What::kTokens, number->value);
    }
    if (line.find("OVERFLOW!") != std::string_view::npos &&
        line.find("kipping step") != std::string_view::npos) {
      add(What::kSkipped, 1);
    }
  }

  void step_time(std::string_view line) {
    for (const std::string_view word : kStepTimes) {
      if (const auto number = number_after(line, word)) {
        const bool milli = trimmed(number->rest).starts_with("ms");
        add(What::kStep, number->value * (milli ? kMilli : 1));
        return;
      }
    }
  }

  // tqdm: "12/100 [00:34<04:12, 2.87s/it]", or it/s where they are fast.
  void progress(std::string_view line) {
    const std::size_t bracket = line.rfind('[');
    if (bracket == std::string_view::npos || line.find('<', bracket) == std::string_view::npos ||
        std::ranges::any_of(kOtherBars, [&](std::string_view word) {
          return line.substr(0, bracket).find(word) != std::string_view::npos;
        })) {
      return;
    }
    for (std::string_view rest = line.substr(bracket); !rest.empty();) {
      const std::size_t comma = rest.find(", ");
      if (comma == std::string_view::npos) {
        return;
      }
      rest.remove_prefix(comma + 2);
      const auto number = leading_number(rest);
      if (number && number->rest.starts_with("s/it")) {
        add(What::kStep, number->value);
      } else if (number && number->rest.starts_with("it/s")) {
        add_inverse(What::kStep, number->value);
      }
    }
  }

  void host_memory(std::string_view line) {
    const std::size_t at = line.find("CPU Virtual Memory");
    if (at == std::string_view::npos) {
      return;
    }
    const std::string_view rest = line.substr(at);
    if (const auto used = number_after(rest, "used")) {
      add(What::kHostUsed, used->value * kGibi);
    }
    if (const auto share = number_after(rest, "percent")) {
      add(What::kHostShare, share->value / 100);
    }
  }

  // The lines below are of this one.
  void smi_gpu(std::string_view line) {
    const std::string_view bus = bus_id(line);
    const std::string_view start = trimmed(line);
    if (bus.empty() || (!start.starts_with('|') && !start.starts_with("GPU "))) {
      return;
    }
    known_ = true;
    const auto found = std::ranges::find(buses_, bus);
    gpu_ = static_cast<int>(found - buses_.begin());
    if (found == buses_.end()) {
      buses_.emplace_back(bus);
      log_.gpus.emplace_back(bus);
    }
    if (const auto number = leading_number(start.substr(1)); number && start.starts_with('|')) {
      log_.gpus[static_cast<std::size_t>(gpu_)] = fmt::format("{:.0f}", number->value);
    }
  }

  void smi_table(std::string_view line) {
    if (const auto power = fraction(line, "W")) {
      add(What::kPower, power->part);
      add(What::kPowerLimit, power->whole);
    }
    if (const auto memory = fraction(line, "MiB")) {
      add(What::kGpuUsed, memory->part * kMebi);
      add(What::kGpuTotal, memory->whole * kMebi);
      const auto busy = leading_number(memory->rest.substr(
          std::min(memory->rest.find_first_of("0123456789"), memory->rest.size())));
      if (busy && busy->rest.starts_with("%")) {
        add(What::kGpuBusy, busy->value / 100);
      }
    }
  }

  // "Link Width" and "PCIe Generation" are headings of "Max : 16x" and "Current : 8x"; or all of it
  // is on one line.
  void smi_query(std::string_view line) {
    const bool width = line.find("Link Width") != std::string_view::npos;
    const bool generation = line.find("PCIe Generation") != std::string_view::npos;
    if (width || generation) {
      heading_ = width ? Heading::kWidth : Heading::kGeneration;
      known_ = true;
    } else if (line.find(':') == std::string_view::npos) {
      heading_ = Heading::kNone;
    }
    if (heading_ == Heading::kNone || line.find("Device") != std::string_view::npos ||
        line.find("Host") != std::string_view::npos) {
      return;
    }
    const bool of_width = heading_ == Heading::kWidth;
    if (const auto now = number_after(line, "Current")) {
      add(of_width ? What::kLinkWidth : What::kLinkGeneration, now->value);
    }
    if (const auto most = number_after(line, "Max")) {
      add(of_width ? What::kLinkWidthMost : What::kLinkGenerationMost, most->value);
    }
  }

  enum class Heading : std::uint8_t { kNone, kWidth, kGeneration };

  Log log_;
  int number_ = 0;
  bool known_ = false;
  Heading heading_ = Heading::kNone;
  std::vector<std::string> buses_;  // by GPU
  int gpu_ = -1;
};

// Colours and bold of a terminal: "\x1b[32m".
void drop_colours(std::string& line) {
  std::size_t to = 0;
  for (std::size_t at = 0; at < line.size(); ++at) {
    if (line[at] == '\x1b') {
      const std::size_t end = line.find('m', at);
      at = end == std::string::npos ? line.size() : end;
      continue;
    }
    line[to++] = line[at] == '\t' ? ' ' : line[at];
  }
  line.resize(to);
}

}  // namespace

std::string_view name_of(What what) { return kTitles[static_cast<std::size_t>(what)].name; }
bool of_gpu(What what) {
  switch (what) {
    case What::kGpuUsed:
    case What::kGpuTotal:
    case What::kGpuBusy:
    case What::kPower:
    case What::kPowerLimit:
      return true;
    default:
      return of_link(what);
  }
}

bool of_link(What what) {
  return what == What::kLinkWidth || what == What::kLinkWidthMost ||
         what == What::kLinkGeneration || what == What::kLinkGenerationMost;
}

std::string_view unit_of(What what) { return kTitles[static_cast<std::size_t>(what)].unit; }

std::vector<double> Log::values(What what) const {
  std::vector<double> out;
  for (const Observation& seen : observations) {
    if (seen.what == what) {
      out.push_back(seen.value);
    }
  }
  return out;
}

Log read_log(std::istream& in, const std::string& name) {
  Reader reader(name);
  std::string line;
  int number = 1;
  bool cut = false;
  std::size_t bytes = 0;
  const auto end_line = [&] {
    drop_colours(line);
    reader.take(line, number, cut);
    line.clear();
    cut = false;
  };
  std::array<char, 65536> block{};
  while (in.read(block.data(), block.size()) || in.gcount() > 0) {
    const auto got = static_cast<std::size_t>(in.gcount());
    bytes += got;
    if (bytes > kLongestLog) {
      throw InputError({name, 0, 0}, "is larger than 64 MiB",
                       "expected the log of some hundred steps");
    }
    for (const char c : std::string_view(block.data(), got)) {
      if (c == '\n' || c == '\r') {
        end_line();
        number += c == '\n' ? 1 : 0;
      } else if (line.size() < kLongestLine) {
        line += c;
      } else {
        cut = true;
      }
    }
  }
  end_line();
  Log log = std::move(reader).finish();
  if (log.known == 0) {
    throw InputError(
        {name, 0, 0}, fmt::format("none of its {} lines is of a kind that offsim reads", log.lines),
        "expected such as 'time (ms) | fwd: 12.3 | bwd: 45.6 | step: 78.9', "
        "'CurrSamplesPerSec=1.2', '2.87s/it', 'step time: 1.23 s', nvidia-smi's table");
  }
  return log;
}

}  // namespace offsim::logs
