// Reads what the replayer wrote.
#include <fmt/format.h>

#include <cmath>
#include <istream>
#include <nlohmann/json.hpp>

#include "sim/base/text.h"
#include "sim/study/replay.h"

namespace offsim::study {

namespace {

using nlohmann::json;

constexpr std::size_t kLongestRecord = 1 << 20;  // bytes
constexpr std::size_t kMostRecords = 20'000'000;
constexpr double kLongestRun = 1e6;  // seconds

// For a message; what is nested, maybe deep, by its kind.
std::string shown(const json& value) {
  return value.is_structured() ? value.type_name() : printable(value.dump().substr(0, 40));
}

class RecordReader {
 public:
  RecordReader(const std::string& name, const runtime::Program& program)
      : name_(name), program_(program) {}

  MeasuredReplay read(std::istream& in) {
    std::string line;
    while (std::getline(in, line)) {
      ++line_;
      if (line.size() > kLongestRecord || static_cast<std::size_t>(line_) > kMostRecords) {
        refuse("the file is too large", "expected records of a replay");
      }
      const json record = json::parse(line, nullptr, false);
      if (!record.is_object() || ended_) {
        refuse(ended_ ? "there is a line after the end" : "is no JSON object",
               "expected a record of a replay");
      }
      take(record);
    }
    if (!ended_ || out_.steps.empty() || !has_step()) {
      throw InputError({name_, 0, 0}, "the records are not whole",
                       "expected an env, steps, the reported one and an end");
    }
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(const std::string& wrong, const std::string& expected) const {
    throw InputError({name_, line_, 1}, wrong, expected);
  }

  bool has_step() const {
    return out_.reported >= out_.first && out_.reported - out_.first < out_.steps.size();
  }

  const json& field(const json& record, const char* key) const {
    const auto found = record.find(key);
    if (found == record.end()) {
      refuse(fmt::format("the record has no '{}'", key), "expected a record of a replay");
    }
    return *found;
  }
  std::string text(const json& record, const char* key) const {
    const json& value = field(record, key);
    if (!value.is_string()) {
      refuse(fmt::format("'{}' is no text", key), "expected a record of a replay");
    }
    return printable(value.get<std::string>());
  }
  double seconds(const json& record, const char* key, double least) const {
    const json& value = field(record, key);
    const double number = value.is_number() ? value.get<double>() : NAN;
    if (!(number >= least && number <= kLongestRun)) {
      refuse(fmt::format("'{}' is {}", key, shown(value)), "expected seconds");
    }
    return number;
  }
  std::int64_t whole(const json& record, const char* key, std::int64_t most) const {
    const json& value = field(record, key);
    if (!value.is_number_unsigned() ||
        value.get<std::uint64_t>() > static_cast<std::uint64_t>(most)) {
      refuse(fmt::format("'{}' is {}", key, shown(value)),
             fmt::format("expected a whole number up to {}", most));
    }
    return value.get<std::int64_t>();
  }

  void take(const json& record) {
    const std::string kind = text(record, "record");
    if ((kind == "env") != (line_ == 1)) {
      refuse(fmt::format("'{}' is record {}", kind, line_), "expected env first, and once");
    }
    if (kind == "env") {
      take_env(record);
    } else if (kind == "memory") {
      out_.memory.push_back({text(record, "pool"), Bytes(whole(record, "bytes", kMostBytes)),
                             Bytes(whole(record, "held", kMostBytes))});
    } else if (kind == "step") {
      take_step(record);
    } else if (kind == "reported") {
      out_.reported = static_cast<std::size_t>(whole(record, "index", program_.steps - 1));
    } else if (kind == "call") {
      take_call(record);
    } else if (kind == "end") {
      ended_ = true;
    } else {
      refuse(fmt::format("there is no record '{}'", kind),
             "expected env, memory, step, reported, call or end");
    }
  }

  void take_env(const json& record) {
    if (const std::string schema = text(record, "schema"); schema != "offsim.replay/1") {
      refuse(fmt::format("the schema is '{}'", schema), "expected offsim.replay/1");
    }
    out_.has_hash = record.contains("program_hash");
    if (out_.has_hash && text(record, "program_hash") != runtime::program_hash(program_)) {
      refuse("recorded from another program",
             "expected the records of what --save writes for this model, plan and options");
    }
    const json& gpu = field(record, "gpu");
    if (gpu.is_object() && gpu.contains("name") && gpu["name"].is_string()) {
      out_.gpu = printable(gpu["name"].get<std::string>());
    }
  }

  void take_step(const json& record) {
    const auto at = static_cast<std::size_t>(whole(record, "index", program_.steps - 1));
    if (at == 0 || (!out_.steps.empty() && at != out_.first + out_.steps.size())) {
      refuse(fmt::format("step {} is out of order", at),
             "expected steps in a row, after the first");
    }
    if (out_.steps.empty()) {
      out_.first = at;
    }
    out_.steps.push_back(seconds(record, "seconds", 1e-12));
  }

  void take_call(const json& record) {
    ReplaySpan span;
    span.call = static_cast<std::uint32_t>(
        whole(record, "call", static_cast<std::int64_t>(program_.calls.size()) - 1));
    const std::string lane = text(record, "lane");
    while (span.lane < program_.lanes.size() && program_.lanes[span.lane].name != lane) {
      ++span.lane;
    }
    if (span.lane == program_.lanes.size()) {
      refuse(fmt::format("the program has no lane '{}'", lane),
             "expected the records of the same program");
    }
    span.begin = seconds(record, "begin", -kLongestRun);
    span.end = seconds(record, "end", span.begin);
    out_.spans.push_back(span);
  }

  static constexpr std::int64_t kMostBytes = 1'000'000'000'000'000'000;

  std::string name_;
  const runtime::Program& program_;
  MeasuredReplay out_;
  int line_ = 0;
  bool ended_ = false;
};

}  // namespace

double MeasuredReplay::step() const { return steps[reported - first]; }

MeasuredReplay read_replay(std::istream& in, const std::string& name,
                           const runtime::Program& program) {
  return RecordReader(name, program).read(in);
}

}  // namespace offsim::study
