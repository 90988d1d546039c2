#include "sim/calibrate/records.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <sstream>

#include "sim/base/record_lines.h"

namespace offsim::calibrate {

namespace {

constexpr std::string_view kSchema = "offsim.measured/1";
constexpr std::size_t kMostPoints = 1000;  // of a bench: fits compare them with each other
constexpr std::int64_t kMost = 1'000'000'000'000'000'000;

// A key whose value may be of a kind that later versions add.
void ignore(View& map, std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys) {
    map.get(key);
  }
}

Environment read_environment(View record) {
  Environment e;
  e.date = record.text("date");
  if (e.date.size() != 20 || e.date.find_first_not_of("0123456789-:TZ") != std::string::npos) {
    throw InputError(record.place_of("date"), "the date is no date",
                     "expected one such as 2026-11-30T18:00:00Z");
  }
  e.quick = record.boolean("quick");
  View host = record.map("host");
  e.cpu = host.text("cpu");
  e.isa = host.text("isa");
  e.cores = host.integer("cores", 1, 10'000);
  e.nodes = host.integer("nodes", 1, 1'000, 1);
  e.memory_bytes = host.integer("memory_bytes", 1, kMost);
  // Where a container may have less than the machine has.
  e.memory_bytes =
      std::min(e.memory_bytes, host.integer("memory_limit_bytes", 1, kMost, e.memory_bytes));
  if (const Node& gpu = record.need("gpu"); gpu.kind == Node::Kind::kMap) {
    View map(gpu, "gpu");
    e.gpu = map.text("name");
    e.driver = map.text("driver", "");
    e.gpus = map.integer("count", 1, 64, 1);
    e.gpu_memory = map.integer("memory_bytes", 1, kMost);
    e.multiprocessors = map.integer("multiprocessors", 1, 10'000);
  }
  return e;
}

Point read_point(View record) {
  static constexpr std::array<std::string_view, 5> kUnits{"s", "B", "B/s", "1/s", "1"};
  Point p;
  p.bench = record.text("bench");
  View at = record.map("at");
  for (const std::string& key : at.keys()) {
    const Node& value = at.need(key);
    if (value.quoted) {
      p.words[key] = value.scalar;
    } else {
      p.numbers[key] = to_number(value, key);
    }
  }
  p.value = record.number("value");
  p.spread = record.number("spread");
  p.unit = record.text("unit");
  if (std::ranges::find(kUnits, p.unit) == kUnits.end()) {
    throw InputError(record.place_of("unit"), fmt::format("the unit is '{}'", p.unit),
                     "expected one of s, B, B/s, 1/s, 1");
  }
  ignore(record, {"samples"});
  record.finish();
  return p;
}

}  // namespace

double Point::number(std::string_view key) const {
  const auto found = numbers.find(key);
  return found == numbers.end() ? 0 : found->second;
}

const std::string& Point::word(std::string_view key) const {
  static const std::string kNone;
  const auto found = words.find(key);
  return found == words.end() ? kNone : found->second;
}

std::string Point::where() const {
  std::string out;
  for (const auto& [key, number] : numbers) {
    out += fmt::format("{}{} {}", out.empty() ? "" : ", ", key, number);
  }
  for (const auto& [key, word] : words) {
    out += fmt::format("{}{} {}", out.empty() ? "" : ", ", key, word);
  }
  return out;
}

std::vector<Point> Records::of(std::string_view bench, const Words& words) const {
  std::vector<Point> found;
  std::ranges::copy_if(points, std::back_inserter(found), [&](const Point& p) {
    return p.bench == bench && std::ranges::all_of(words, [&](const auto& word) {
             return p.word(word.first) == word.second;
           });
  });
  return found;
}

Records parse_records(const std::string& text, const std::string& file) {
  Records records;
  std::set<std::pair<std::string, std::string>> seen;
  std::map<std::string, std::size_t> counts;
  const auto take = [&](const std::string& kind, View& record) {
    if (kind == "env") {
      records.environment = read_environment(record);
    } else if (kind == "point") {
      Point point = read_point(record);
      // A difference of two times may come out as nothing: it says nothing.
      if (!seen.emplace(point.bench, point.where()).second || ++counts[point.bench] > kMostPoints) {
        throw InputError(
            record.place(), fmt::format("'{}' is measured here again", point.bench),
            fmt::format("expected each point once, at most {} of a bench", kMostPoints));
      }
      if (point.value > 0) {
        records.points.push_back(std::move(point));
      }
    } else if (kind == "skipped") {
      records.skipped.push_back({record.text("bench"), record.text("reason")});
      if (records.skipped.size() > kMostPoints) {
        throw InputError(record.place(), "there are too many of these", "expected one a bench");
      }
    } else {
      throw InputError(record.place_of("record"), fmt::format("there is no record '{}'", kind),
                       "expected env, point, skipped or end");
    }
  };
  std::istringstream in(text);
  read_record_lines(in, file, kSchema, take);
  return records;
}

}  // namespace offsim::calibrate
