#include "kernels/replay/host_work.h"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <stdexcept>
#include <string_view>

#include "kernels/host/cpu_kernels.h"
#include "kernels/host/host.h"
#include "kernels/host/pool.h"
#include "kernels/records.h"
#include "kernels/replay/host_limits.h"
#include "kernels/storage/engine.h"
#include "kernels/storage/scratch_file.h"

namespace offsim::kernels {

namespace {

constexpr std::int64_t kMi = 1 << 20;
constexpr std::int64_t kLine = 64;
// Buffers that lie a power of two apart share sets of the caches and banks of DRAM.
constexpr std::int64_t kSkew = 89 * 4096 + 17 * kLine;
constexpr std::int64_t kFileLimit = 8192 * kMi;
constexpr std::int64_t kIoBlock = kMi;  // of one request to the drive, at most
constexpr int kMostInFlight = 64;

// Mapped memory, full of small positive numbers: as fp32 or bf16, none of them tiny, infinite or
// wrong under a square root, whatever kernel goes over them.
class Arena {
 public:
  Arena(std::int64_t bytes, bool wide, Pool& pool) : mapping_(bytes) {
    pool.run(pool.size(), [&](int index) {
      const Part part = part_of(bytes / 4, index, pool.size());
      auto state = static_cast<std::uint32_t>(index) * 2654435761U + 1;
      for (std::int64_t i = part.begin; i < part.end; ++i) {
        state = state * 1664525U + 1013904223U;
        // fp32 from 2^-14 to 2^-6; bf16 likewise, twice.
        const std::uint32_t high = 0x3880U + (state >> 22U);
        const std::uint32_t low = wide ? state & 0xffffU : 0x3880U + ((state >> 6U) & 0x3ffU);
        const std::uint32_t word = (high << 16U) | low;
        std::memcpy(data() + i * 4, &word, sizeof word);
      }
    });
  }

  std::byte* data() const { return mapping_.data(); }
  std::int64_t bytes() const { return mapping_.bytes(); }

 private:
  Mapping mapping_;
};

// A thread's way through an arena, a piece after the other.
class Walk {
 public:
  Walk(const Arena& arena, std::int64_t from) : arena_(&arena), at_(from / kLine * kLine) {}
  std::byte* next(std::int64_t bytes) {
    const std::int64_t size = (bytes + kLine - 1) / kLine * kLine;
    if (at_ + size > arena_->bytes()) {
      at_ = 0;
    }
    std::byte* const out = arena_->data() + at_;
    at_ += size + kSkew;
    return out;
  }

 private:
  const Arena* arena_;
  std::int64_t at_;
};

// Cores of which a lane of few threads gets the last, so that lanes stay off each other.
class CoresForLane {
 public:
  CoresForLane(int threads, int cores) {
    changed_ = threads < cores && sched_getaffinity(0, sizeof before_, &before_) == 0;
    if (!changed_) {
      return;
    }
    cpu_set_t last;
    CPU_ZERO(&last);
    int left = threads;
    for (int core = CPU_SETSIZE - 1; core >= 0 && left > 0; --core) {
      if (CPU_ISSET(core, &before_)) {
        CPU_SET(core, &last);
        --left;
      }
    }
    sched_setaffinity(0, sizeof last, &last);  // refused: threads share cores, slower at worst
  }
  ~CoresForLane() {
    if (changed_) {
      sched_setaffinity(0, sizeof before_, &before_);
    }
  }
  CoresForLane(const CoresForLane&) = delete;
  CoresForLane& operator=(const CoresForLane&) = delete;

 private:
  cpu_set_t before_{};
  bool changed_ = false;
};

// A queue of I/O on the file that stands for the drive's: blocks of its own memory, so many in
// flight at a time.
class IoQueue {
 public:
  IoQueue(int descriptor, std::int64_t file_bytes, std::int64_t place, Pool& pool)
      : engine_(make_io_engine(descriptor, kMostInFlight)),
        memory_(kMostInFlight * kIoBlock, true, pool),
        file_bytes_(file_bytes),
        read_at_(place),
        write_at_(place) {}

  void transfer(bool write, std::int64_t bytes, std::int64_t in_flight) {
    const std::int64_t block = std::clamp(in_flight / kPage * kPage, kPage, kIoBlock);
    const auto depth =
        static_cast<int>(std::clamp<std::int64_t>(in_flight / block, 1, kMostInFlight));
    std::int64_t& at = write ? write_at_ : read_at_;
    int begun = 0, under_way = 0;
    for (std::int64_t left = bytes; left > 0; left -= block) {
      int slot = begun++;
      if (under_way == depth) {
        slot = engine_->wait();
        --under_way;
      }
      const std::int64_t size = std::min(block, (left + kPage - 1) / kPage * kPage);
      at = at + size > file_bytes_ ? 0 : at;
      engine_->submit({write, memory_.data() + slot * kIoBlock, at, size, slot});
      at += size;
      ++under_way;
    }
    for (; under_way > 0; --under_way) {
      engine_->wait();
    }
  }

 private:
  static constexpr std::int64_t kPage = 4096;

  std::unique_ptr<IoEngine> engine_;
  Arena memory_;
  std::int64_t file_bytes_;
  std::int64_t read_at_, write_at_;
};

// What a lane needs for its work.
struct LaneWork {
  std::unique_ptr<Pool> pool;
  std::vector<Walk> walks;  // fp32, bf16
  std::unique_ptr<IoQueue> io;
};

class RealHostWork final : public HostWork {
 public:
  explicit RealHostWork(std::string file) : file_(std::move(file)) {}

  void prepare(const Program& program) override {
    held_ = program.peak.pageable;
    Pool all;
    cores_ = all.size();
    copies_.emplace(arena_bytes(std::min(held_, most_pageable(program))), true, all);
    std::set<std::uint32_t> computing, queues;
    std::map<std::uint32_t, int> threads;
    for (const Call& call : program.calls) {
      if (call.kind == Call::Kind::kCpu) {
        passes_.try_emplace(call.what, passes_of(call.what));
        computing.insert(call.lane);
        int& most = threads[call.lane];
        most = std::max(most, call.threads > 0 ? std::min(call.threads, cores_) : cores_);
      }
      if (call.kind == Call::Kind::kRead || call.kind == Call::Kind::kWrite) {
        queues.insert(call.lane);
      }
    }
    lanes_.resize(program.lanes.size());
    if (!computing.empty()) {
      wide_.emplace(arena_bytes(held_ + program.peak.pinned), true, all);
      narrow_.emplace(arena_bytes((held_ + program.peak.pinned) / 2), false, all);
    }
    std::int64_t place = 0;
    for (const std::uint32_t lane : computing) {
      const CoresForLane cores(lane == 0 ? cores_ : threads[lane], cores_);
      // As PyTorch's threads: the host's lane is busy, too.
      lanes_[lane].pool = std::make_unique<Pool>(threads[lane], Pool::Placed::kByTheKernel);
      lanes_[lane].walks = {Walk(*wide_, place), Walk(*narrow_, place % narrow_->bytes())};
      place = (place + wide_->bytes() / 4) % wide_->bytes();
    }
    if (!queues.empty()) {
      prepare_drive(program, queues, all);
    }
  }

  void compute(const Call& call, std::byte* into, std::int64_t into_bytes) override {
    const Passes& passes = passes_.at(call.what);
    const std::int64_t times = std::max<std::int64_t>(1, call.times);
    std::byte* const end = into + into_bytes;
    for (std::int64_t time = 0; time < times; ++time) {
      const std::int64_t elements = call.elements / times + (time < call.elements % times ? 1 : 0);
      for (const std::string& kernel : passes.kernels) {
        into = run(call, find_cpu_kernel(kernel), elements, passes.single_core, into, end);
      }
    }
  }

  void transfer(const Call& call) override {
    lanes_[call.lane].io->transfer(call.kind == Call::Kind::kWrite, call.bytes, call.in_flight);
  }

  std::byte* pageable(std::int64_t bytes) override {
    if (copies_at_ + bytes > copies_->bytes()) {
      copies_at_ = 0;
    }
    std::byte* const at = copies_->data() + copies_at_;
    copies_at_ += (bytes + kLine - 1) / kLine * kLine;
    return at;
  }
  std::int64_t pageable_bytes() const override { return copies_->bytes(); }

  std::vector<MemoryUse> memory() const override {
    std::vector<MemoryUse> uses{
        {"pageable", copies_->bytes() + (wide_ ? wide_->bytes() + narrow_->bytes() : 0), held_}};
    if (drive_) {
      uses.push_back({"drive", drive_bytes_, drive_held_});
    }
    return uses;
  }

 private:
  // Of copies that go to and from pageable memory in all: no arena need be larger.
  static std::int64_t most_pageable(const Program& program) {
    std::int64_t bytes = 0;
    for (const Call& call : program.calls) {
      if (call.kind == Call::Kind::kCopy &&
          (call.from == Tier::kPageable || call.to == Tier::kPageable)) {
        bytes += std::min(call.bytes, arena_limit());
        bytes = std::min(bytes, arena_limit());
      }
    }
    return bytes;
  }

  void prepare_drive(const Program& program, const std::set<std::uint32_t>& queues, Pool& all) {
    if (file_.empty()) {
      throw std::runtime_error("the program reads and writes a drive: --file PATH says where");
    }
    drive_held_ = program.peak.nvme;
    drive_bytes_ = scratch_bytes(file_, 0, std::clamp(drive_held_, 256 * kMi, kFileLimit));
    drive_ = std::make_unique<ScratchFile>(file_);
    IoQueue(drive_->descriptor(), drive_bytes_, 0, all)
        .transfer(true, drive_bytes_, kMostInFlight * kIoBlock);
    std::int64_t place = 0;
    for (const std::uint32_t lane : queues) {
      lanes_[lane].io = std::make_unique<IoQueue>(drive_->descriptor(), drive_bytes_, place, all);
      place = (place + drive_bytes_ / 8 / kMi * kMi) % drive_bytes_;
    }
  }

  // One pass; what of `into` is left is written first. Returns where it ends.
  std::byte* run(const Call& call, const CpuKernel& kernel, std::int64_t elements, bool single_core,
                 std::byte* into, const std::byte* end) {
    LaneWork& lane = lanes_[call.lane];
    const int threads = single_core ? 1 : (call.threads > 0 ? call.threads : cores_);
    // Four operands with skews, and one more that a walk may leave out at the arena's end.
    const std::int64_t largest =
        std::min((wide_->bytes() / 5 - kSkew) / 4, (narrow_->bytes() / 5 - kSkew) / 2) / kLine *
        kLine;
    for (std::int64_t done = 0; done < elements;) {
      std::int64_t piece = std::min(elements - done, largest);
      CpuBuffers buffers;
      const std::int64_t room = into == nullptr ? 0 : end - into;
      if (kernel.out > 0 && room >= kernel.out) {
        piece = std::min(piece, room / kernel.out);
        buffers.out = into;
        into += piece * kernel.out;
      } else {
        buffers.out = operand(lane, kernel.out, piece);
      }
      buffers.in = operand(lane, kernel.in, piece);
      buffers.m = operand(lane, kernel.m, piece);
      buffers.v = operand(lane, kernel.v, piece);
      run_cpu_kernel(kernel, buffers, piece, *lane.pool, threads);
      done += piece;
    }
    return into;
  }

  static std::byte* operand(LaneWork& lane, int width, std::int64_t elements) {
    return width == 0 ? nullptr : lane.walks[width == 4 ? 0 : 1].next(width * elements);
  }

  std::string file_;
  int cores_ = 1;
  std::int64_t held_ = 0, drive_held_ = 0, drive_bytes_ = 0;
  std::map<std::string, Passes> passes_;
  std::optional<Arena> copies_, wide_, narrow_;
  std::int64_t copies_at_ = 0;
  std::unique_ptr<ScratchFile> drive_;
  std::vector<LaneWork> lanes_;
};

}  // namespace

Passes passes_of(const std::string& kernel) {
  const auto ends = [&](std::string_view end) {
    return kernel.size() >= end.size() &&
           kernel.compare(kernel.size() - end.size(), end.size(), end) == 0;
  };
  const std::string type = ends("_bf16") ? "_bf16" : "_f32";
  if (kernel == "adam_deepspeed_f32" || kernel == "adam_torch_fused_f32") {
    return {{"adam_f32"}};
  }
  if (kernel == "adam_deepspeed_bf16") {
    return {{"adam_mixed"}};
  }
  if (kernel == "adam_torch_fused_bf16") {
    return {{"adam_bf16"}};
  }
  if (kernel == "adam_torch_loop" + type) {
    // mul_ (decay); lerp_; mul_, addcmul_; sqrt and a division, each into a temporary; add_; and
    // addcdiv_, which reads three and writes one, as two of ours
    return {{"mul" + type, "add" + type, "mul" + type, "add" + type, "copy" + type, "copy" + type,
             "mul" + type, "add" + type, "isfinite" + type}};
  }
  if (kernel == "isinf_any" + type) {
    return {{"copy" + type, "isfinite" + type}};  // through a temporary
  }
  for (const CpuKernel& known : cpu_kernels()) {
    if (known.name == kernel) {
      return {{kernel}, kernel.rfind("norm", 0) == 0};
    }
  }
  throw UserError("there is no CPU kernel '" + kernel.substr(0, 60) + "' to replay");
}

std::int64_t arena_bytes(std::int64_t held) {
  const std::int64_t most = std::min(arena_limit(), available_bytes() / 4);  // four at most
  return std::max(16 * kMi, std::min(held, most) / kMi * kMi);
}

std::unique_ptr<HostWork> make_host_work(const std::string& file) {
  return std::make_unique<RealHostWork>(file);
}

}  // namespace offsim::kernels
