#include "kernels/replay/host_work.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string_view>

#include "kernels/host/cpu_kernels.h"
#include "kernels/host/pool.h"
#include "kernels/replay/host_limits.h"

namespace offsim::kernels {

namespace {

constexpr std::int64_t kMi = 1 << 20;
constexpr std::int64_t kLine = 64;
constexpr std::int64_t kFileLimit = 8192 * kMi;
constexpr std::int64_t kIoBlock = kMi;  // of one request to the drive, at most
constexpr int kMostIoThreads = 32;

[[noreturn]] void system_failed(const std::string& what) {
  throw std::runtime_error(what + ": " + std::strerror(errno));
}

// Mapped memory, full of small positive numbers: as fp32 or bf16, none of them tiny, infinite or
// wrong under a square root, whatever kernel goes over them.
class Arena {
 public:
  Arena() = default;
  Arena(std::int64_t bytes, bool wide, Pool& pool) : bytes_(bytes) {
    void* const at = mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) {
      system_failed("mapping " + std::to_string(bytes / kMi) + " MiB");
    }
    data_ = static_cast<std::byte*>(at);
    pool.run(pool.size(), [&](int index) {
      const Part part = part_of(bytes / 4, index, pool.size());
      auto state = static_cast<std::uint32_t>(index) * 2654435761U + 1;
      for (std::int64_t i = part.begin; i < part.end; ++i) {
        state = state * 1664525U + 1013904223U;
        // fp32 from 2^-14 to 2^-6; bf16 likewise, twice.
        const std::uint32_t high = 0x3880U + (state >> 22U);
        const std::uint32_t low = wide ? state & 0xffffU : 0x3880U + ((state >> 6U) & 0x3ffU);
        const std::uint32_t word = (high << 16U) | low;
        std::memcpy(data_ + i * 4, &word, sizeof word);
      }
    });
  }
  ~Arena() {
    if (data_ != nullptr) {
      munmap(data_, static_cast<std::size_t>(bytes_));
    }
  }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  Arena(Arena&& other) noexcept { *this = std::move(other); }
  Arena& operator=(Arena&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  std::byte* data() const { return data_; }
  std::int64_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::int64_t bytes_ = 0;
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
    at_ += size;
    return out;
  }

 private:
  const Arena* arena_;
  std::int64_t at_;
};

// What is run in the place of a framework's kernel: ours, one after the other.
struct Passes {
  std::vector<std::string> kernels;
  bool single_core = false;
};

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
    // decay, moments (mul and add each), root into a temporary, two divisions, update: 76 of the
    // 80 B an element
    return {{"mul" + type, "mul" + type, "add" + type, "mul" + type, "add" + type, "copy" + type,
             "mul" + type, "mul" + type, "add" + type}};
  }
  if (kernel == "isinf_any" + type) {
    return {{"copy" + type, "isfinite" + type}};  // through a temporary
  }
  for (const CpuKernel& known : cpu_kernels()) {
    if (known.name == kernel) {
      return {{kernel}, kernel.rfind("norm", 0) == 0};
    }
  }
  throw std::runtime_error("there is no CPU kernel '" + kernel.substr(0, 60) + "' to replay");
}

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

// The file that stands for the drive's: written through once, and without a name from then on.
class DriveFile {
 public:
  DriveFile(const std::string& path, std::int64_t bytes, Pool& pool) : bytes_(bytes) {
    handle_ = open(path.c_str(), O_CREAT | O_EXCL | O_RDWR | O_DIRECT | O_CLOEXEC, 0600);
    if (handle_ < 0) {
      system_failed("--file " + path);
    }
    unlink(path.c_str());
    const Arena block(8 * kMi, true, pool);
    for (std::int64_t at = 0; at < bytes_; at += block.bytes()) {
      move(true, block.data(), block.bytes(), at);
    }
  }
  ~DriveFile() { close(handle_); }
  DriveFile(const DriveFile&) = delete;
  DriveFile& operator=(const DriveFile&) = delete;

  std::int64_t bytes() const { return bytes_; }
  // Requires: memory, bytes and place are multiples of 4 KiB.
  void move(bool write, std::byte* data, std::int64_t bytes, std::int64_t at) const {
    while (bytes > 0) {
      const auto size = static_cast<std::size_t>(bytes);
      const ssize_t done =
          write ? pwrite(handle_, data, size, at) : pread(handle_, data, size, at);
      if (done <= 0 && errno != EINTR) {
        system_failed(write ? "writing to the drive" : "reading from the drive");
      }
      const std::int64_t moved = std::max<ssize_t>(done, 0);
      data += moved;
      at += moved;
      bytes -= moved;
    }
  }

 private:
  int handle_ = -1;
  std::int64_t bytes_;
};

// What a lane needs for its work.
struct LaneWork {
  std::unique_ptr<Pool> pool;
  std::vector<Walk> walks;           // fp32, bf16
  std::vector<Arena> buffers;        // of I/O
  std::int64_t at_read = 0, at_write = 0;  // in the file
};

class RealHostWork final : public HostWork {
 public:
  explicit RealHostWork(std::string file) : file_(std::move(file)) {}

  void prepare(const Program& program) override {
    held_ = program.peak.pageable;
    Pool all;
    cores_ = all.size();
    copies_ = Arena(arena_bytes(std::min(held_, most_pageable(program))), true, all);
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
      wide_ = Arena(arena_bytes(held_ + program.peak.pinned), true, all);
      narrow_ = Arena(arena_bytes((held_ + program.peak.pinned) / 2), false, all);
    }
    std::int64_t place = 0;
    for (const std::uint32_t lane : computing) {
      const CoresForLane cores(lane == 0 ? cores_ : threads[lane], cores_);
      lanes_[lane].pool = std::make_unique<Pool>(threads[lane]);
      lanes_[lane].walks = {Walk(wide_, place), Walk(narrow_, place % narrow_.bytes())};
      place = (place + wide_.bytes() / 4) % wide_.bytes();
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
      const std::int64_t elements =
          call.elements / times + (time < call.elements % times ? 1 : 0);
      for (const std::string& kernel : passes.kernels) {
        into = run(call, find_cpu_kernel(kernel), elements, passes.single_core, into, end);
      }
    }
  }

  void transfer(const Call& call) override {
    LaneWork& lane = lanes_[call.lane];
    const bool write = call.kind == Call::Kind::kWrite;
    std::int64_t& at = write ? lane.at_write : lane.at_read;
    const std::int64_t block = block_of(call.in_flight);
    const int threads = static_cast<int>(
        std::clamp<std::int64_t>(call.in_flight / block, 1, lane.pool->size()));
    const std::int64_t blocks = (call.bytes + block - 1) / block;
    const std::int64_t first = at;
    std::atomic<std::int64_t> next{0};
    lane.pool->run(threads, [&](int index) {
      std::byte* const memory = lane.buffers[static_cast<std::size_t>(index)].data();
      for (std::int64_t i = next++; i < blocks; i = next++) {
        const std::int64_t bytes = std::min(block, (call.bytes - i * block + 4095) / 4096 * 4096);
        file_at(write, memory, bytes, (first + i * block) % (drive_->bytes() / block * block));
      }
    });
    at = (first + blocks * block) % drive_->bytes() / block * block;
  }

  std::byte* pageable(std::int64_t bytes) override {
    if (copies_at_ + bytes > copies_.bytes()) {
      copies_at_ = 0;
    }
    std::byte* const at = copies_.data() + copies_at_;
    copies_at_ += (bytes + kLine - 1) / kLine * kLine;
    return at;
  }
  std::int64_t pageable_bytes() const override { return copies_.bytes(); }

  std::vector<MemoryUse> memory() const override {
    std::vector<MemoryUse> uses{
        {"pageable", copies_.bytes() + wide_.bytes() + narrow_.bytes(), held_}};
    if (drive_) {
      uses.push_back({"drive", drive_->bytes(), drive_held_});
    }
    return uses;
  }

 private:
  // Of copies that go to and from pageable memory in all: no arena need be larger.
  static std::int64_t most_pageable(const Program& program) {
    std::int64_t bytes = 0;
    for (const Call& call : program.calls) {
      if (call.kind == Call::Kind::kCopy &&
          (call.from == Space::kPageable || call.to == Space::kPageable)) {
        bytes += std::min(call.bytes, arena_limit());
        bytes = std::min(bytes, arena_limit());
      }
    }
    return bytes;
  }

  static std::int64_t block_of(std::int64_t in_flight) {
    return std::clamp<std::int64_t>(in_flight / 8 / 4096 * 4096, 4096, kIoBlock);
  }

  void file_at(bool write, std::byte* memory, std::int64_t bytes, std::int64_t at) const {
    drive_->move(write, memory, bytes, at);
  }

  void prepare_drive(const Program& program, const std::set<std::uint32_t>& queues, Pool& all) {
    if (file_.empty()) {
      throw std::runtime_error("the program reads and writes a drive: --file PATH says where");
    }
    drive_held_ = program.peak.nvme;
    const std::int64_t wanted = std::clamp(drive_held_, 256 * kMi, kFileLimit);
    drive_ = std::make_unique<DriveFile>(file_, wanted / (8 * kMi) * 8 * kMi, all);
    std::int64_t place = 0;
    for (const std::uint32_t lane : queues) {
      lanes_[lane].pool = std::make_unique<Pool>(kMostIoThreads);
      for (int i = 0; i < kMostIoThreads; ++i) {
        lanes_[lane].buffers.emplace_back(kIoBlock, true, all);
      }
      lanes_[lane].at_read = place;
      lanes_[lane].at_write = (place + drive_->bytes() / 2) % drive_->bytes() / kMi * kMi;
      place += drive_->bytes() / 8 / kMi * kMi;
    }
  }

  // One pass; what of `into` is left is written first. Returns where it ends.
  std::byte* run(const Call& call, const CpuKernel& kernel, std::int64_t elements,
                 bool single_core, std::byte* into, const std::byte* end) {
    LaneWork& lane = lanes_[call.lane];
    const int wanted = single_core ? 1 : (call.threads > 0 ? call.threads : cores_);
    const int threads = std::min(wanted, lane.pool->size());
    const std::int64_t largest = std::min(wide_.bytes() / 16, narrow_.bytes() / 8) / kLine * kLine;
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
  std::int64_t held_ = 0, drive_held_ = 0;
  std::map<std::string, Passes> passes_;
  Arena copies_, wide_, narrow_;
  std::int64_t copies_at_ = 0;
  std::unique_ptr<DriveFile> drive_;
  std::vector<LaneWork> lanes_;
};

}  // namespace

std::int64_t arena_bytes(std::int64_t held) {
  std::int64_t free = arena_limit();
  std::ifstream meminfo("/proc/meminfo");
  std::string key, unit;
  for (std::int64_t value = 0; meminfo >> key >> value; std::getline(meminfo, unit)) {
    if (key == "MemAvailable:") {
      free = value * 1024 / 4;  // there are four arenas at most
    }
  }
  return std::max(16 * kMi, std::min({held, arena_limit(), free}) / kMi * kMi);
}

std::unique_ptr<HostWork> make_host_work(const std::string& file) {
  return std::make_unique<RealHostWork>(file);
}

}  // namespace offsim::kernels
