// What a machine did, point by point: the JSON lines that offsim-kernels measure writes (schema
// offsim.measured/1, in kernels/bench.h).
//
// Errors: InputError with the file's place for what is no such record, another schema, a unit that
// is not known, a negative value, or an end that is missing (the run was interrupted). Points of
// zero, differences of times that noise made equal, are left out.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/error.h"

namespace offsim::calibrate {

// A value: seconds, bytes, bytes or elements a second, or a ratio. Spread: half the distance of the
// samples' quartiles, over the median.
struct Point {
  std::string bench;
  std::map<std::string, double, std::less<>> numbers;     // {"m": 4096}
  std::map<std::string, std::string, std::less<>> words;  // {"type": "bf16"}
  double value = 0;
  std::string unit;
  double spread = 0;

  double number(std::string_view key) const;            // 0 where there is none
  const std::string& word(std::string_view key) const;  // empty where there is none
  std::string where() const;                            // "m 4096, type bf16"
};

struct Environment {
  std::string date;  // "2026-11-30T18:00:00Z"
  bool quick = false;
  std::string cpu, isa;
  std::int64_t cores = 0, nodes = 1, memory_bytes = 0;
  // Of the GPU; the name is empty where there is none.
  std::string gpu, driver;
  std::int64_t gpus = 0, gpu_memory = 0, multiprocessors = 0;

  std::string day() const { return date.substr(0, 10); }
};

struct Skipped {
  std::string bench, reason;
};

struct Records {
  Environment environment;
  std::vector<Point> points;
  std::vector<Skipped> skipped;

  // The points of one bench whose words are these, in the order of the file.
  using Words = std::vector<std::pair<std::string_view, std::string_view>>;
  std::vector<Point> of(std::string_view bench, const Words& words = {}) const;
};

Records parse_records(const std::string& text, const std::string& file);

}  // namespace offsim::calibrate
