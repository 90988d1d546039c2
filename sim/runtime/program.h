// What a training system asks of the machine, call by call, in the order in which its host thread
// asks: no seconds in it.
//
// A *lane* is an order: the host thread, a GPU stream, or a worker thread. Work on one lane is done
// in the order of its calls. A launch or a copy costs the host a moment and then runs on its
// stream; work on the host thread keeps the host busy; work on a worker is handed over by the host
// and runs beside it. An *event* is the point that a lane has reached; a lane that waits for it
// does nothing further before that point is done. A host that waits blocks: it issues nothing
// meanwhile. A *buffer* is memory from its allocate to its free; both take effect when the issuing
// lane reaches them, except that a free with `used_by` waits until that lane has done what was
// issued to it so far (PyTorch's record_stream).
//
// Texts of calls are numbers: the program has their words.
//
// Written as JSON lines (schema offsim.program/1, write_program) it can be priced on another
// machine or executed for real.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "sim/base/units.h"
#include "sim/engine/interner.h"
#include "sim/model/work.h"

namespace offsim::runtime {

enum class Lane : std::uint32_t {};
enum class Event : std::uint32_t {};
enum class Buffer : std::uint32_t {};
enum class WorkId : std::uint32_t {};
enum class Text : std::uint32_t {};

inline constexpr Lane kHost{0};
inline constexpr Lane kCompute{1};  // the default stream

enum class LaneKind : std::uint8_t { kHostThread, kStream, kWorker, kIoQueue };
enum class Space : std::uint8_t { kGpu, kPinned, kPageable, kNvme };
enum class Phase : std::uint8_t { kSetup, kForward, kBackward, kOptimizer };

// A work's kernels on a stream, one after the other.
struct Launch {
  Lane stream;
  WorkId work;
};

// Who moves a transfer's bytes: a copy engine that the host asks; a kernel of the stream, which
// reaches through a coherent link (launch it beside); or the driver, page by page as the GPU faults
// on memory that migrates, a piece a fault. The last two are no call of the host.
enum class Mover : std::uint8_t { kEngine, kKernel, kFault };

// One transfer between the GPU and host memory. A blocking one keeps the host until everything
// issued to its stream so far, and the copy, is done; a pageable one always does (PyTorch's
// Copy.cu). `pieces` copies of equal size in a row, one call each.
struct Copy {
  Lane stream;
  Space from;
  Space to;
  Mover mover;
  bool blocking;
  std::int64_t bytes;  // in all
  std::int64_t pieces;
  std::optional<Buffer> into;  // pageable and written for the first time: the driver, one thread,
                               // faults its pages in
  Text what;                   // "weights", "gradients": for labels
};

// A CPU kernel over `elements` numbers in `calls` equal calls, one after the other, on a thread.
struct CpuWork {
  Lane thread;
  Text kernel;            // a name of the framework's table: "adam_deepspeed_f32"
  std::int64_t elements;  // in all
  std::int64_t calls;
  std::int32_t threads;        // 0: all cores
  Text what;                   // "Adam", "clip", "refresh": for labels
  std::optional<Buffer> into;  // written for the first time by this kernel when its pages are fresh
};

// One request to the drive on an asynchronous I/O handle: requests of a handle are done in order,
// one at a time; the host submits and goes on. Direct I/O: no page cache. `in_flight` bytes are
// under way at a time (threads x queue depth x block). `to_gpu`: GPUDirect, the bytes skip host
// memory.
struct Io {
  Lane queue;
  bool write;
  bool to_gpu;
  std::int64_t bytes;
  std::int64_t in_flight;
  Text what;
};

// All ranks together, one process and one GPU each: from a part of every rank to the whole on each
// (all-gather), or from a whole on each to the sum's parts (reduce-scatter). Every rank sends and
// receives bytes x (ranks - 1) / ranks.
struct Collective {
  enum class Kind : std::uint8_t { kAllGather, kReduceScatter };
  Lane stream;
  Kind kind;
  std::int64_t bytes;  // of the whole
  std::int32_t ranks;
  Text what;
};

// The host thread is busy in Python and launches nothing: an optimizer goes through its tensors, a
// checkpointed layer's hooks are set up, a system's hooks on modules and gradients run.
enum class HostTask : std::uint8_t {
  kOptimizerTensor,       // an optimizer goes through its tensors
  kOptimizerObject,       // step() of an optimizer that has one tensor
  kDistributedOperation,  // an operation on a DTensor, beside what it does
  kCheckpoint,            // a checkpointed layer
  kModuleHook,            // DeepSpeed's stage 3 at a module's border, since 0.18
  kModuleHookEarly,       // the same in earlier versions
  kGradientHook,          // DeepSpeed's hook on a gradient
  kStepTensor,            // DeepSpeed's step, a parameter: its norm, its views
  kUnshardTensor,         // FSDP2's hooks before a module, a parameter
  kReduceTensor           // its hook after a backward, a parameter
};
std::string_view task_name(HostTask task);  // "optimizer_tensor", as programs write it
struct HostBusy {
  HostTask task;
  Text what;
  std::int64_t count;
};

struct Record {
  Lane lane;
  Event event;
};
struct Wait {
  Lane lane;
  Event event;
};
struct SyncDevice {};  // the host waits for every stream

struct Allocate {
  Lane issuer;
  Buffer buffer;
  Text tag;
  Space space;
  std::int64_t bytes;         // as the allocator rounds them
  std::int64_t rounding = 0;  // of these: what nobody asked for, of pinned memory
};
struct Free {
  Lane issuer;
  Buffer buffer;
  std::optional<Lane> used_by;
};

struct EnterPhase {
  Phase phase;
};
struct EndStep {};  // everything issued so far belongs to the step that ends here

using Call = std::variant<Launch, Copy, CpuWork, Io, Collective, HostBusy, Record, Wait, SyncDevice,
                          Allocate, Free, EnterPhase, EndStep>;

struct LaneInfo {
  std::string name;
  LaneKind kind;
};

// What kernels of 16-bit operands compute in.
enum class Half : std::uint8_t { kBf16, kFp16 };

struct Program {
  Half half = Half::kBf16;
  std::vector<LaneInfo> lanes;     // by Lane; the first two are the host and the compute stream
  std::vector<model::Work> works;  // by WorkId
  std::vector<Call> calls;
  engine::Interner texts;  // by Text
  std::uint32_t events = 0;
  std::uint32_t buffers = 0;
  std::int64_t steps = 0;  // EndStep calls

  std::string_view text(Text t) const { return texts.text(static_cast<std::size_t>(t)); }
};

// One JSON object a line: a header with the schema, the lanes, the works, then the calls.
void write_program(const Program& program, std::ostream& out);
// FNV-1a of those bytes, 64 bits in hexadecimal digits. Who executes them computes the same and
// writes it in its records.
std::string program_hash(const Program& program);

}  // namespace offsim::runtime
