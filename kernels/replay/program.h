// A recorded program as it is read from its JSON lines (schema offsim.program/1).
//
// A lane is an order: the host thread, a stream, a worker thread or a queue of I/O; an event is
// the point that a lane has reached. All is issued by the host thread in the order of the calls.
// The reader refuses what no recorder writes in a line "FILE:LINE:COLUMN: what": unknown or missing
// keys, numbers out of range, lanes of the wrong kind, buffers that are not there, and a wait for
// an event that was not recorded before it. Without those no program can wait for ever, since the
// first call that is not done waits only for earlier ones.
#pragma once

#include <cstdint>
#include <istream>
#include <optional>
#include <string>
#include <vector>

namespace offsim::kernels {

enum class LaneKind : std::uint8_t { kHost, kStream, kWorker, kIo };
enum class Tier : std::uint8_t { kGpu, kPinned, kPageable, kNvme };
enum class Phase : std::uint8_t { kSetup, kForward, kBackward, kOptimizer };

struct Lane {
  std::string name;
  LaneKind kind = LaneKind::kHost;
};

// One launch, `count` times.
struct Kernel {
  enum class Kind : std::uint8_t { kGemm, kAttention, kElementwise, kAdam };
  enum class Type : std::uint8_t { kBf16, kFp16, kFp32 };
  Kind kind = Kind::kElementwise;
  Type type = Type::kBf16;
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t batch = 0, heads = 0, kv_heads = 0, sequence = 0, head_dim = 0, value_dim = 0;
  bool backward = false;
  std::int64_t bytes = 0, indexed = 0;  // of elementwise: read plus written; computed addresses
  std::int64_t elements = 0;            // of adam
  std::int64_t count = 1;
};

struct Work {
  std::string name;
  std::vector<Kernel> kernels;
};

struct Call {
  enum class Kind : std::uint8_t {
    kLaunch,
    kCopy,
    kCpu,
    kRead,
    kWrite,
    kHost,
    kRecord,
    kWait,
    kSynchronize,
    kAllocate,
    kFree,
    kPhase,
    kEndStep
  };
  Kind kind = Kind::kEndStep;
  std::uint32_t lane = 0;  // stream, thread, queue or issuer
  std::uint32_t id = 0;    // work, event or buffer
  Tier from = Tier::kGpu;  // of a copy; of an allocation where it is
  Tier to = Tier::kGpu;    // of a copy
  Phase phase = Phase::kSetup;
  bool blocking = false;
  std::int32_t threads = 0;  // 0: all cores
  std::int64_t bytes = 0;    // of a copy, a request, an allocation
  std::int64_t times = 1;    // pieces of a copy, calls of a CPU kernel, count of a host task
  std::int64_t elements = 0;
  std::int64_t in_flight = 0;
  std::optional<std::uint32_t> into;     // a pageable buffer
  std::optional<std::uint32_t> used_by;  // a lane
  std::string what;                      // the CPU kernel or the host task
};

// By space.
struct Held {
  std::int64_t gpu = 0, pinned = 0, pageable = 0, nvme = 0;
};

struct Program {
  std::int64_t steps = 0;
  std::uint32_t buffers = 0;
  std::vector<Lane> lanes;  // the first is the host
  std::vector<Work> works;
  std::vector<Call> calls;
  std::vector<std::uint32_t> event_lanes;  // by event: the lane that it is recorded on
  Held peak;                               // allocated at a time
  std::string hash;                        // FNV-1a of its text: 64 bits, hexadecimal
};

// Throws UserError "NAME:LINE:COLUMN: what".
Program read_program(std::istream& in, const std::string& name);

}  // namespace offsim::kernels
