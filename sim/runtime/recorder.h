// A CUDA-like runtime that writes down what is asked of it: plans read like the training loop they
// model.
//
// Every call appends to a Program, in issue order. Nothing is timed here and nothing is computed;
// the memory calls round as the real allocators do (PyTorch's caching allocators): 512 B on the
// GPU, the next power of two for pinned memory of PyTorch.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <unordered_map>

#include "sim/runtime/program.h"

namespace offsim::runtime {

// How allocators round; from the machine's framework.
struct Rounding {
  std::int64_t gpu = 512;
  bool pinned_power_of_two = true;
};

class Recorder {
 public:
  explicit Recorder(Rounding rounding, Half half = Half::kBf16);

  Lane stream(std::string_view name);
  Lane worker(std::string_view name);
  Lane io_queue(std::string_view name);
  // Interned by name: a name means one Work in a program, which is asserted.
  WorkId work(const model::Work& work);

  void launch(WorkId work, Lane stream = kCompute);
  void launch(const model::Work& work, Lane stream = kCompute) { launch(this->work(work), stream); }
  // Work that a size decides, made once for each: a loop launches it thousands of times.
  using WorkOfSize = model::Work (*)(std::int64_t size);
  void launch(WorkOfSize make, std::int64_t size, Lane stream = kCompute);

  struct CopyOptions {
    bool blocking = false;
    std::int64_t pieces = 1;
    std::optional<Buffer> into = {};
    Mover mover = Mover::kEngine;
  };
  void copy_h2d(Lane stream, Space from, Bytes bytes, std::string_view what, CopyOptions options);
  void copy_h2d(Lane stream, Space from, Bytes bytes, std::string_view what) {
    copy_h2d(stream, from, bytes, what, CopyOptions{});
  }
  void copy_d2h(Lane stream, Space to, Bytes bytes, std::string_view what, CopyOptions options);
  void copy_d2h(Lane stream, Space to, Bytes bytes, std::string_view what) {
    copy_d2h(stream, to, bytes, what, CopyOptions{});
  }

  // A blocking copy that changes the type (PyTorch's Copy.cu): the numbers cross as they are at the
  // source, or as they will be at the destination on the GPU, through a new pageable temporary, and
  // a CPU kernel casts. One that does not block is a GPU cast and a plain copy: say those.
  struct Conversion {
    std::int64_t elements;
    std::int64_t from_bytes, to_bytes;  // 2 (16 bits) or 4 (fp32)
  };
  void convert_d2h(Lane stream, Conversion numbers, std::string_view what);
  void convert_h2d(Lane stream, Conversion numbers, std::string_view what);

  // Direct I/O of the drive; `in_flight` bytes at a time.
  void read(Lane queue, Bytes bytes, Bytes in_flight, std::string_view what, bool to_gpu = false);
  void write(Lane queue, Bytes bytes, Bytes in_flight, std::string_view what, bool to_gpu = false);

  // Of tensors of `whole` bytes in all, with NCCL.
  void all_gather(Lane stream, Bytes whole, int ranks, std::string_view what);
  void reduce_scatter(Lane stream, Bytes whole, int ranks, std::string_view what);

  struct CpuOptions {
    Lane thread = kHost;
    std::int64_t calls = 1;
    std::int32_t threads = 0;  // 0: all cores
    std::optional<Buffer> into = {};
  };
  void cpu(std::string_view kernel, std::int64_t elements, std::string_view what,
           CpuOptions options);
  void cpu(std::string_view kernel, std::int64_t elements, std::string_view what) {
    cpu(kernel, elements, what, CpuOptions{});
  }
  void host_busy(HostTask task, std::int64_t count, std::string_view what);

  Event record(Lane lane);
  void wait(Lane lane, Event event);
  void sync(Event event) { wait(kHost, event); }
  void sync(Lane stream) { wait(kHost, record(stream)); }
  void sync_device();
  // The host reads a result of the compute stream (.item(), a Python test): it waits for all that
  // was issued there.
  void read_result() { sync(kCompute); }

  Buffer allocate(Space space, Bytes bytes, std::string_view tag, Lane issuer = kHost);
  Buffer allocate_exact(Space space, Bytes bytes, std::string_view tag, Lane issuer = kHost);
  void free(Buffer buffer, Lane issuer = kHost);
  void free_after(Buffer buffer, Lane used_by, Lane issuer = kHost);
  Bytes size(Buffer buffer) const;

  void phase(Phase phase);
  void end_step();

  Program finish() &&;

 private:
  Text text(std::string_view words) { return Text{program_.texts.intern(words)}; }
  void copy(const Copy& call);
  void io(const Io& call);
  void collective(const Collective& call);

  Rounding rounding_;
  Program program_;
  std::unordered_map<std::string, WorkId> works_;
  std::unordered_map<WorkOfSize, std::unordered_map<std::int64_t, WorkId>> sized_works_;
  std::vector<std::int64_t> sizes_;  // by Buffer; -1 once freed
};

}  // namespace offsim::runtime
