#include "kernels/replay/program.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "kernels/records.h"

namespace offsim::kernels {

namespace {

using nlohmann::json;

constexpr std::size_t kLongestLine = 4 << 20;          // bytes
constexpr std::int64_t kMost = 1'000'000'000'000'000;  // of any number
constexpr std::int64_t kMostIds = 10'000'000;          // events, buffers, calls, works
constexpr std::int64_t kMostRepeats = 10'000'000;      // launches, pieces, calls in one

// What is wrong, and where in the line: at a byte, or at a key.
struct Mistake {
  std::string what;
  std::string key{};
  std::size_t byte = 1;  // from 1
};

// A key that is there twice, in a list of kernels, has no certain place.
std::size_t column_of(const std::string& line, const Mistake& mistake) {
  const std::string quoted = '"' + mistake.key + "\":";
  const std::size_t at = line.find(quoted);
  const bool certain = at != std::string::npos && at == line.rfind(quoted);
  return mistake.key.empty() || !certain ? mistake.byte : at + 1;
}

// Others' text in a message: its beginning, without control characters.
std::string shown(std::string text) {
  text.resize(std::min<std::size_t>(text.size(), 40));
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < 32 || c > 126; }, '?');
  return text;
}
// What is nested, maybe deep, by its kind.
std::string shown(const json& value) {
  return value.is_structured() ? value.type_name() : shown(value.dump());
}

// A JSON object whose keys must all be asked for.
class Fields {
 public:
  Fields(const json& object, std::string who) : object_(object), who_(std::move(who)) {
    if (!object.is_object()) {
      throw Mistake{who_ + " is no JSON object"};
    }
  }

  bool has(const char* key) const { return object_.contains(key); }
  const json& get(const char* key) {
    const auto found = object_.find(key);
    if (found == object_.end()) {
      throw Mistake{who_ + " has no '" + key + "'"};
    }
    ++asked_;
    return *found;
  }
  std::int64_t number(const char* key, std::int64_t least = 0, std::int64_t most = kMost) {
    return number(get(key), key, least, most);
  }
  bool flag(const char* key) {
    const json& value = get(key);
    if (!value.is_boolean()) {
      throw Mistake{"'" + std::string(key) + "' of " + who_ + " is neither true nor false", key};
    }
    return value.get<bool>();
  }
  std::string text(const char* key) {
    const json& value = get(key);
    if (!value.is_string()) {
      throw Mistake{"'" + std::string(key) + "' of " + who_ + " is no text", key};
    }
    return value.get<std::string>();
  }
  // Index into `names`.
  template <std::size_t N>
  std::size_t choice(const char* key, const std::array<std::string_view, N>& names) {
    const std::string given = text(key);
    const auto found = std::find(names.begin(), names.end(), given);
    if (found == names.end()) {
      throw Mistake{"'" + std::string(key) + "' of " + who_ + " is '" + shown(given) + "'", key};
    }
    return static_cast<std::size_t>(found - names.begin());
  }
  std::optional<std::uint32_t> id_or_null(const char* key, std::int64_t below) {
    const json& value = get(key);
    if (value.is_null()) {
      return std::nullopt;
    }
    return static_cast<std::uint32_t>(number(value, key, 0, below - 1));
  }
  std::uint32_t id(const char* key, std::size_t below) {
    return static_cast<std::uint32_t>(number(key, 0, static_cast<std::int64_t>(below) - 1));
  }
  void finish() const {
    if (object_.size() != asked_) {
      throw Mistake{who_ + " has a key too many"};
    }
  }

 private:
  std::int64_t number(const json& value, const char* key, std::int64_t least,
                      std::int64_t most) const {
    const bool whole = value.is_number_integer();
    const bool large = value.is_number_unsigned() &&
                       value.get<std::uint64_t>() > static_cast<std::uint64_t>(kMost);
    const std::int64_t n = whole && !large ? value.get<std::int64_t>() : -1;
    if (!whole || large || n < least || n > most) {
      throw Mistake{"'" + std::string(key) + "' of " + who_ + " is " + shown(value) +
                        "; expected a whole number, " + std::to_string(least) + " to " +
                        std::to_string(most),
                    key};
    }
    return n;
  }

  const json& object_;
  std::string who_;
  std::size_t asked_ = 0;
};

constexpr std::array<std::string_view, 4> kLaneKinds{"host", "stream", "worker", "io"};
constexpr std::array<std::string_view, 4> kSpaces{"gpu", "pinned", "pageable", "nvme"};
constexpr std::array<std::string_view, 4> kPhases{"setup", "forward", "backward", "optimizer"};
constexpr std::array<std::string_view, 3> kTypes{"bf16", "fp16", "fp32"};
constexpr std::array<std::string_view, 15> kCalls{
    "launch",      "copy",     "cpu",  "read",  "write",    "host",       "record",        "wait",
    "synchronize", "allocate", "free", "phase", "end_step", "all_gather", "reduce_scatter"};

class Reader {
 public:
  Program read(std::istream& in, const std::string& name) {
    std::string line;
    for (std::int64_t number = 1; next_line(in, line); ++number) {
      try {
        take(line);
      } catch (const Mistake& mistake) {
        throw UserError(name + ":" + std::to_string(number) + ":" +
                        std::to_string(column_of(line, mistake)) + ": " + mistake.what);
      }
    }
    if (has_header_ && program_.lanes.empty()) {
      throw UserError(name + ": has no lane");
    }
    if (!has_header_ || ended_ != program_.steps || ended_ == 0 ||
        program_.calls.back().kind != Call::Kind::kEndStep) {
      throw UserError(name + ": is not whole: it has " + std::to_string(ended_) + " of " +
                      std::to_string(program_.steps) + " steps");
    }
    char digits[17];
    std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(hash_));
    program_.hash = digits;
    return std::move(program_);
  }

 private:
  enum class BufferState : std::uint8_t { kUnknown, kLive, kFreed };

  bool next_line(std::istream& in, std::string& line) {
    line.clear();
    for (int c = in.get(); c != std::istream::traits_type::eof(); c = in.get()) {
      hash_ = (hash_ ^ static_cast<unsigned char>(c)) * 0x100000001b3;
      if (c == '\n') {
        return true;
      }
      if (line.size() <= kLongestLine) {  // take() refuses it
        line += static_cast<char>(c);
      }
    }
    return !line.empty();
  }

  static json parsed(const std::string& line) {
    try {
      return json::parse(line);
    } catch (const json::exception& error) {  // of a number beyond all numbers without a place
      const auto* const place = dynamic_cast<const json::parse_error*>(&error);
      throw Mistake{"is no JSON object", "", place != nullptr ? place->byte : 1};
    }
  }

  void take(const std::string& line) {
    if (line.size() > kLongestLine) {
      throw Mistake{"the line is longer than 4 MiB"};
    }
    const json object = parsed(line);
    if (!has_header_) {
      take_header(Fields(object, "the header"));
    } else if (object.contains("lane") && object.contains("kind")) {
      take_lane(Fields(object, "a lane"));
    } else if (object.contains("work") && object.contains("kernels")) {
      take_work(Fields(object, "a work"));
    } else {
      take_call(object);
    }
  }

  void take_header(Fields fields) {
    if (const std::string schema = fields.text("schema"); schema != "offsim.program/1") {
      throw Mistake{"the schema is '" + schema.substr(0, 40) + "'; expected offsim.program/1"};
    }
    program_.steps = fields.number("steps", 1, 1'000'000);
    events_.resize(static_cast<std::size_t>(fields.number("events", 0, kMostIds)));
    buffers_.resize(static_cast<std::size_t>(fields.number("buffers", 0, kMostIds)));
    fields.finish();
    program_.event_lanes.resize(events_.size());
    program_.buffers = static_cast<std::uint32_t>(buffers_.size());
    has_header_ = true;
  }

  void take_lane(Fields fields) {
    Lane lane;
    lane.name = fields.text("lane");
    lane.kind = static_cast<LaneKind>(fields.choice("kind", kLaneKinds));
    fields.finish();
    const bool first = program_.lanes.empty();
    if (first != (lane.kind == LaneKind::kHost)) {
      throw Mistake{"the first lane, and no other, is the host"};
    }
    if (!program_.calls.empty() || !program_.works.empty() || program_.lanes.size() >= 256 ||
        std::any_of(program_.lanes.begin(), program_.lanes.end(),
                    [&](const Lane& other) { return other.name == lane.name; })) {
      throw Mistake{"a lane comes before works and calls, once, and there are 256 at most"};
    }
    program_.lanes.push_back(std::move(lane));
  }

  void take_work(Fields fields) {
    if (!program_.calls.empty() ||
        fields.number("work") != static_cast<std::int64_t>(program_.works.size()) ||
        static_cast<std::int64_t>(program_.works.size()) >= kMostIds) {
      throw Mistake{"works are numbered in order and come before the calls"};
    }
    Work work;
    work.name = fields.text("name");
    const json& kernels = fields.get("kernels");
    fields.finish();
    if (!kernels.is_array()) {
      throw Mistake{"'kernels' is no list"};
    }
    for (const json& kernel : kernels) {
      work.kernels.push_back(kernel_of(Fields(kernel, "a kernel")));
    }
    program_.works.push_back(std::move(work));
  }

  static Kernel kernel_of(Fields fields) {
    Kernel kernel;
    kernel.count = fields.number("count", 0, kMostRepeats);
    if (fields.has("gemm")) {
      Fields of(fields.get("gemm"), "gemm");
      kernel.kind = Kernel::Kind::kGemm;
      kernel.m = of.number("m", 1);
      kernel.n = of.number("n", 1);
      kernel.k = of.number("k", 1);
      kernel.type = static_cast<Kernel::Type>(of.choice("type", kTypes));
      of.finish();
    } else if (fields.has("attention")) {
      Fields of(fields.get("attention"), "attention");
      kernel.kind = Kernel::Kind::kAttention;
      kernel.batch = of.number("batch", 1);
      kernel.heads = of.number("heads", 1);
      kernel.kv_heads = of.number("kv_heads", 1, kernel.heads);
      kernel.sequence = of.number("sequence", 1);
      kernel.head_dim = of.number("head_dim", 1);
      kernel.value_dim = of.number("value_dim", 1);
      of.flag("causal");
      kernel.backward = of.flag("backward");
      kernel.type = static_cast<Kernel::Type>(of.choice("type", kTypes));
      if (kernel.type == Kernel::Type::kFp32) {
        throw Mistake{"attention in fp32 is not replayed", "type"};
      }
      of.finish();
    } else if (fields.has("elementwise")) {
      Fields of(fields.get("elementwise"), "elementwise");
      kernel.bytes = of.number("bytes");
      kernel.indexed = of.number("indexed");
      of.finish();
    } else {
      Fields of(fields.get("adam"), "adam");
      kernel.kind = Kernel::Kind::kAdam;
      kernel.elements = of.number("elements");
      kernel.type = static_cast<Kernel::Type>(of.choice("type", kTypes));
      of.finish();
    }
    fields.finish();
    return kernel;
  }

  std::uint32_t lane(Fields& fields, const char* key, std::initializer_list<LaneKind> kinds) {
    return lane_named(fields.text(key), key, kinds);
  }

  std::uint32_t lane_named(const std::string& name, const char* key,
                           std::initializer_list<LaneKind> kinds) {
    const auto found = std::find_if(program_.lanes.begin(), program_.lanes.end(),
                                    [&](const Lane& known) { return known.name == name; });
    if (found == program_.lanes.end()) {
      throw Mistake{"there is no lane '" + shown(name) + "'", key};
    }
    if (std::find(kinds.begin(), kinds.end(), found->kind) == kinds.end()) {
      throw Mistake{"lane '" + shown(name) + "' is of the wrong kind", key};
    }
    return static_cast<std::uint32_t>(found - program_.lanes.begin());
  }
  std::uint32_t any_lane(Fields& fields, const char* key) {
    return lane(fields, key,
                {LaneKind::kHost, LaneKind::kStream, LaneKind::kWorker, LaneKind::kIo});
  }

  std::optional<std::uint32_t> destination(Fields& fields) {
    const auto into = fields.id_or_null("into", static_cast<std::int64_t>(buffers_.size()));
    if (into &&
        (buffers_[*into].state != BufferState::kLive || buffers_[*into].space != Tier::kPageable)) {
      throw Mistake{"'into' is no pageable buffer that is there", "into"};
    }
    return into;
  }

  void take_call(const json& object) {
    Fields fields(object, "a call");
    const std::size_t name = fields.choice("call", kCalls);
    if (name > static_cast<std::size_t>(Call::Kind::kEndStep)) {
      throw Mistake{"collectives of several GPUs are not replayed"};
    }
    Call call;
    call.kind = static_cast<Call::Kind>(name);
    read_call(fields, call);
    fields.finish();
    if (static_cast<std::int64_t>(program_.calls.size()) >= kMostIds) {
      throw Mistake{"there are too many calls"};
    }
    program_.calls.push_back(std::move(call));
  }

  void read_call(Fields& fields, Call& call) {
    switch (call.kind) {
      case Call::Kind::kLaunch:
        call.lane = lane(fields, "stream", {LaneKind::kStream});
        call.id = fields.id("work", program_.works.size());
        return;
      case Call::Kind::kCopy:
        return read_copy(fields, call);
      case Call::Kind::kCpu:
        call.lane = lane(fields, "thread", {LaneKind::kHost, LaneKind::kWorker});
        call.elements = fields.number("elements");
        call.times = fields.number("calls", 0, kMostRepeats);
        call.threads = static_cast<std::int32_t>(fields.number("threads", 0, 100'000));
        call.into = destination(fields);
        call.what = fields.text("kernel");
        fields.text("what");
        return;
      case Call::Kind::kRead:
      case Call::Kind::kWrite:
        call.lane = lane(fields, "queue", {LaneKind::kIo});
        call.bytes = fields.number("bytes");
        call.in_flight = fields.number("in_flight", 1);
        if (fields.flag("gpu_direct")) {
          throw Mistake{"GPUDirect is not replayed"};
        }
        fields.text("what");
        return;
      case Call::Kind::kHost:
        call.what = fields.text("task");
        call.times = fields.number("count", 0, kMostRepeats);
        fields.text("what");
        return;
      case Call::Kind::kRecord:
      case Call::Kind::kWait:
        return read_event(fields, call);
      case Call::Kind::kAllocate:
      case Call::Kind::kFree:
        return read_buffer(fields, call);
      case Call::Kind::kPhase:
        call.phase = static_cast<Phase>(fields.choice("phase", kPhases));
        return;
      case Call::Kind::kEndStep:
        ++ended_;
        return;
      case Call::Kind::kSynchronize:
        return;
    }
  }

  void read_copy(Fields& fields, Call& call) {
    call.lane = lane(fields, "stream", {LaneKind::kStream});
    call.from = static_cast<Tier>(fields.choice("from", kSpaces));
    call.to = static_cast<Tier>(fields.choice("to", kSpaces));
    call.bytes = fields.number("bytes", 1);
    call.times = fields.number("pieces", 1, kMostRepeats);
    call.blocking = fields.flag("blocking");
    call.into = destination(fields);
    fields.text("what");
    if ((call.from == Tier::kGpu) == (call.to == Tier::kGpu) || call.from == Tier::kNvme ||
        call.to == Tier::kNvme) {
      throw Mistake{"a copy goes between the GPU and host memory"};
    }
    if (fields.text("mover") != "engine") {
      throw Mistake{"copies through a coherent link are not replayed"};
    }
  }

  void read_event(Fields& fields, Call& call) {
    call.lane = any_lane(fields, "lane");
    call.id = fields.id("event", events_.size());
    if (call.kind == Call::Kind::kRecord) {
      if (events_[call.id]) {
        throw Mistake{"event " + std::to_string(call.id) + " is recorded twice"};
      }
      events_[call.id] = true;
      program_.event_lanes[call.id] = call.lane;
    } else if (!events_[call.id]) {
      throw Mistake{"event " + std::to_string(call.id) +
                    " is waited for before it is recorded: the program would wait for ever"};
    }
  }

  std::int64_t& held(Tier space) {
    switch (space) {
      case Tier::kGpu:
        return held_.gpu;
      case Tier::kPinned:
        return held_.pinned;
      case Tier::kPageable:
        return held_.pageable;
      case Tier::kNvme:
        break;
    }
    return held_.nvme;
  }

  void read_buffer(Fields& fields, Call& call) {
    call.lane = any_lane(fields, "issuer");
    call.id = fields.id("buffer", buffers_.size());
    BufferInfo& buffer = buffers_[call.id];
    if (call.kind == Call::Kind::kAllocate) {
      call.from = static_cast<Tier>(fields.choice("space", kSpaces));
      call.bytes = fields.number("bytes");
      fields.text("tag");
      if (buffer.state != BufferState::kUnknown) {
        throw Mistake{"buffer " + std::to_string(call.id) + " is allocated twice"};
      }
      buffer = {BufferState::kLive, call.from, call.bytes};
      held(call.from) += call.bytes;
      if (held(call.from) > 1000 * kMost) {
        throw Mistake{"more is allocated than any machine has"};
      }
      program_.peak = {std::max(program_.peak.gpu, held_.gpu),
                       std::max(program_.peak.pinned, held_.pinned),
                       std::max(program_.peak.pageable, held_.pageable),
                       std::max(program_.peak.nvme, held_.nvme)};
      return;
    }
    if (const json& user = fields.get("used_by"); !user.is_null()) {
      if (!user.is_string()) {
        throw Mistake{"'used_by' is neither a lane nor null"};
      }
      call.used_by =
          lane_named(user.get<std::string>(), "used_by",
                     {LaneKind::kHost, LaneKind::kStream, LaneKind::kWorker, LaneKind::kIo});
    }
    if (buffer.state != BufferState::kLive) {
      throw Mistake{"buffer " + std::to_string(call.id) + " is freed and is not there"};
    }
    buffer.state = BufferState::kFreed;
    call.from = buffer.space;
    call.bytes = buffer.bytes;
    held(buffer.space) -= buffer.bytes;
  }

  struct BufferInfo {
    BufferState state = BufferState::kUnknown;
    Tier space = Tier::kGpu;
    std::int64_t bytes = 0;
  };

  Program program_;
  std::uint64_t hash_ = 0xcbf29ce484222325;
  bool has_header_ = false;
  std::vector<bool> events_;  // recorded
  std::vector<BufferInfo> buffers_;
  Held held_;
  std::int64_t ended_ = 0;
};

}  // namespace

Program read_program(std::istream& in, const std::string& name) { return Reader().read(in, name); }

}  // namespace offsim::kernels
