// What is measured on a real machine, bench by bench: nothing of sim/ is known here.
//
// A bench measures one thing over a grid and gives points: at which coordinates, the median of the
// samples (or mean), how far they lie apart. All of them are written as JSON lines (schema
// offsim.measured/1), which `offsim calibrate` makes a machine file from:
//
//   {"record":"env","schema":"offsim.measured/1","date":"2026-11-30T18:00:00Z","quick":false,
//    "host":{...},"gpu":{...} or null}
//   {"record":"point","bench":"copy","at":{"direction":"h2d","memory":"pinned","bytes":1048576},
//    "value":2.1e-5,"unit":"s","spread":0.01,"samples":9}
//   {"record":"skipped","bench":"gemm","reason":"no GPU: ..."}
//   {"record":"end","seconds":57.1,"benches":{"copy":2.3,...}}
//
// Units: s, B, B/s, 1/s (elements) and 1 (a ratio). Spread: half the distance between the first and
// the third quartile, over the value. "benches": how long each took. A run that was interrupted has
// no "end".
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace offsim::kernels {

enum class Group : std::uint8_t { kGpu, kLink, kHost, kStorage };
std::string_view name_of(Group group);

// Where a value was measured: {{"m", 4096}, {"type", "bf16"}}.
using Coordinate = std::variant<std::int64_t, std::string>;
using At = std::vector<std::pair<std::string, Coordinate>>;

enum class Unit : std::uint8_t { kSeconds, kBytes, kBytesPerSecond, kElementsPerSecond, kRatio };
std::string_view name_of(Unit unit);

struct Options {
  bool quick = false;           // fewer sizes and repetitions: under a minute in all
  std::string file;             // that storage benches write, read and remove; empty: none
  std::int64_t file_bytes = 0;  // at most so large
};

// A median (or mean), and half the distance of the quartiles over it. Requires: a sample.
struct Summary {
  double value = 0;
  double spread = 0;
};
Summary median_of(std::vector<double> samples);
Summary mean_of(std::vector<double> samples);

// What a bench is given: what was asked, and where its points go.
class Run {
 public:
  using Sink = std::function<void(const At& at, const Summary& summary, Unit unit, int samples)>;
  Run(const Options& options, Sink sink) : options_(options), sink_(std::move(sink)) {}

  bool quick() const { return options_.quick; }
  const Options& options() const { return options_; }
  // One point of the bench: the samples' median. Samples are in `unit`.
  void point(At at, std::vector<double> samples, Unit unit = Unit::kSeconds) const;
  // The mean of samples that are of two kinds by their nature, such as those of on_cores().
  void mean_point(At at, std::vector<double> samples) const;

 private:
  const Options& options_;
  Sink sink_;
};

struct Bench {
  std::string_view name;  // "copy": what it is called in the records
  Group group;
  std::string_view sentence;  // for people: "pinned and pageable copies by size"
  // Why it cannot run on this machine; nothing when it can.
  std::function<std::optional<std::string>(const Options&)> unavailable;
  std::function<void(const Run&)> run;
};

// In the order in which they run. Those of the GPU are there also where the program was built
// without CUDA: they say so.
std::vector<Bench> host_benches();
std::vector<Bench> storage_benches();
std::vector<Bench> gpu_benches();
std::vector<Bench> all_benches();

// The machine in words and numbers, a JSON object each; "null" without a GPU.
std::string describe_host();
std::string describe_gpu();

// A clock for what the host waits for.
double now();  // seconds, monotonic

// Seconds of `body`, after `warm` runs that are not counted; at least `least` samples, more while
// they take less than `budget` seconds in all, at most `most`.
struct Repeat {
  int warm = 1;
  int least = 5;
  int most = 25;
  double budget = 0.2;
};
std::vector<double> time_host(const std::function<void()>& body, const Repeat& repeat = {});

}  // namespace offsim::kernels
