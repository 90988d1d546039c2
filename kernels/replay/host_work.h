// What a replay asks of the host beside issuing: CPU kernels, the drive, memory.
//
// CPU kernels are those of kernels/host under their frameworks' names. A framework's kernel of one
// core (norm) has one thread here; its for-loop AdamW and its search for infinities go through
// memory as often as it does, in passes of ours. They walk through arenas of random numbers, so
// that their data is cold as in a step, in pieces where a call is larger than an arena.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kernels/replay/device.h"
#include "kernels/replay/program.h"

namespace offsim::kernels {

// What is run in the place of a framework's kernel: ours, one after the other.
struct Passes {
  std::vector<std::string> kernels;
  bool single_core = false;
};
// Throws UserError for a name that is no framework's.
Passes passes_of(const std::string& kernel);

class HostWork {
 public:
  virtual ~HostWork() = default;

  // Once, before all others.
  virtual void prepare(const Program& program) = 0;
  // A call of the CPU or of the drive on its lane. `into`: where the kernel writes, or nothing.
  virtual void compute(const Call& call, std::byte* into, std::int64_t into_bytes) = 0;
  virtual void transfer(const Call& call) = 0;
  // Pageable memory that a copy reads or writes; at most pageable_bytes() of it. By one thread.
  virtual std::byte* pageable(std::int64_t bytes) = 0;
  virtual std::int64_t pageable_bytes() const = 0;
  virtual std::vector<MemoryUse> memory() const = 0;
};

// `file`: of the drive, made here and gone when the work ends; needed where a program has I/O.
std::unique_ptr<HostWork> make_host_work(const std::string& file);

}  // namespace offsim::kernels
