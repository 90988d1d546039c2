// Reads what the replayer wrote.
#include <fmt/format.h>

#include "sim/base/record_lines.h"
#include "sim/study/replay.h"

namespace offsim::study {

namespace {

constexpr double kLongestRun = 1e6;  // seconds
constexpr std::int64_t kMostReplayBytes = 1'000'000'000'000'000'000;

class RecordReader {
 public:
  explicit RecordReader(const runtime::Program& program) : program_(program) {}

  void take(const std::string& kind, View& record) {
    if (kind == "env") {
      take_env(record);
    } else if (kind == "memory") {
      const std::string pool = record.text("pool");
      const std::int64_t used = record.integer("bytes", 0, kMostReplayBytes);
      out_.memory.push_back(
          {pool, Bytes(used), Bytes(record.integer("held", 0, kMostReplayBytes))});
    } else if (kind == "step") {
      take_step(record);
    } else if (kind == "reported") {
      out_.reported = step_of(record);
    } else if (kind == "call") {
      take_call(record);
    } else {
      throw InputError(record.place_of("record"), fmt::format("there is no record '{}'", kind),
                       "expected env, memory, step, reported, call or end");
    }
  }

  MeasuredReplay finish(const std::string& file) && {
    if (out_.steps.empty() || out_.reported < out_.first ||
        out_.reported - out_.first >= out_.steps.size()) {
      throw InputError({file}, "the records have no reported step",
                       "expected steps and which of them is reported");
    }
    return std::move(out_);
  }

 private:
  std::size_t step_of(View& record) const {
    return static_cast<std::size_t>(record.integer("index", 0, program_.steps - 1));
  }

  // What the reader of machine files has no use for: a time before the step began.
  static double seconds(View& record, const char* key, double least) {
    Node node = record.need(key);
    const bool negative = !node.quoted && node.scalar.starts_with('-');
    node.scalar.erase(0, negative ? 1 : 0);
    const double value = (negative ? -1 : 1) * to_number(node, key);
    if (value < least || value > kLongestRun) {
      throw InputError(node.place, fmt::format("{} is {:g}", key, value),
                       fmt::format("expected seconds from {:g} to {:g}", least, kLongestRun));
    }
    return value;
  }

  void take_env(View& record) {
    out_.has_hash = record.has("program_hash");
    if (out_.has_hash && record.text("program_hash") != runtime::program_hash(program_)) {
      throw InputError(record.place_of("program_hash"), "recorded from another program",
                       "expected the records of what --save writes for this model, plan and "
                       "options");
    }
    if (const Node& gpu = record.need("gpu"); gpu.kind == Node::Kind::kMap) {
      out_.gpu = View(gpu, "gpu").text("name", "");
    }
  }

  void take_step(View& record) {
    const std::size_t at = step_of(record);
    if (at == 0 || (!out_.steps.empty() && at != out_.first + out_.steps.size())) {
      throw InputError(record.place_of("index"), fmt::format("step {} is out of order", at),
                       "expected steps in a row, after the first");
    }
    if (out_.steps.empty()) {
      out_.first = at;
    }
    out_.steps.push_back(seconds(record, "seconds", 1e-12));
  }

  void take_call(View& record) {
    ReplaySpan span;
    span.call = static_cast<std::uint32_t>(
        record.integer("call", 0, static_cast<std::int64_t>(program_.calls.size()) - 1));
    const std::string lane = record.text("lane");
    while (span.lane < program_.lanes.size() && program_.lanes[span.lane].name != lane) {
      ++span.lane;
    }
    if (span.lane == program_.lanes.size()) {
      throw InputError(record.place_of("lane"), fmt::format("the program has no lane '{}'", lane),
                       "expected the records of the same program");
    }
    span.begin = seconds(record, "begin", -kLongestRun);
    span.end = seconds(record, "end", span.begin);
    out_.spans.push_back(span);
  }

  const runtime::Program& program_;
  MeasuredReplay out_;
};

}  // namespace

double MeasuredReplay::step() const { return steps[reported - first]; }

MeasuredReplay read_replay(std::istream& in, const std::string& name,
                           const runtime::Program& program) {
  RecordReader reader(program);
  read_record_lines(in, name, "offsim.replay/1",
                    [&](const std::string& kind, View& record) { reader.take(kind, record); });
  return std::move(reader).finish(name);
}

}  // namespace offsim::study
