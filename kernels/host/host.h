// What the host is, and blocks of its memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace offsim::kernels {

std::int64_t page_bytes();
// Of all L3 caches together; 32 MiB where the system does not say.
std::int64_t l3_bytes();
// A working set that comes from DRAM: twice the L3 caches, 1 GiB at most.
std::int64_t uncached_bytes();
// What a new program may take: MemAvailable, less where a cgroup leaves less.
std::int64_t available_bytes();
// "always", "madvise", "never": when new memory gets huge pages; "unknown".
std::string huge_pages();

// New private memory of whole pages, none of them there yet. Throws std::runtime_error when the
// system refuses it.
class Mapping {
 public:
  explicit Mapping(std::int64_t bytes);
  ~Mapping();
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&&) = delete;

  std::byte* data() const { return data_; }
  std::int64_t bytes() const { return bytes_; }
  // Asks for huge pages; whether the system takes the advice.
  bool advise_huge() const;

 private:
  std::byte* data_ = nullptr;
  std::int64_t bytes_ = 0;
};

}  // namespace offsim::kernels
