#include "kernels/host/host.h"

#include <sys/mman.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "kernels/bench.h"
#include "kernels/host/cpu_kernels.h"
#include "kernels/host/pool.h"

namespace offsim::kernels {

namespace {

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::optional<std::int64_t> number_in(const std::string& path) {
  std::ifstream file(path);
  std::int64_t value = 0;
  if (file >> value) {
    return value;
  }
  return std::nullopt;  // no such file, or "max"
}

// A line of /proc/meminfo ("MemTotal"), in bytes.
std::int64_t meminfo(const std::string& name) {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    if (line.compare(0, name.size() + 1, name + ":") == 0) {
      return std::stoll(line.substr(name.size() + 1)) * 1024;
    }
  }
  return 0;
}

// What the process's cgroup may take. Version 1 says "no bound" by a number near 2^63.
std::optional<std::int64_t> cgroup_limit() {
  for (const char* path :
       {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    if (const auto limit = number_in(path); limit && *limit < (std::int64_t{1} << 60)) {
      return limit;
    }
  }
  return std::nullopt;
}

std::int64_t cgroup_used() {
  for (const char* path :
       {"/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/memory/memory.usage_in_bytes"}) {
    if (const auto used = number_in(path)) {
      return *used;
    }
  }
  return 0;
}

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  std::string part;
  for (std::string line; std::getline(file, line);) {
    const auto colon = line.find(": ");
    if (colon == std::string::npos) {
      continue;
    }
    if (line.compare(0, 10, "model name") == 0) {
      return line.substr(colon + 2);
    }
    if (line.compare(0, 8, "CPU part") == 0) {
      part = line.substr(colon + 2);
    }
  }
  utsname system{};
  uname(&system);
  return std::string(system.machine) + (part.empty() ? "" : " part " + part);
}

int count_nodes() {
  int nodes = 0;
  while (access(("/sys/devices/system/node/node" + std::to_string(nodes)).c_str(), F_OK) == 0) {
    ++nodes;
  }
  return std::max(nodes, 1);
}

// "32768K".
std::int64_t size_of(const std::string& text) {
  std::istringstream stream(text);
  std::int64_t value = 0;
  char unit = ' ';
  stream >> value >> unit;
  return unit == 'K' ? value << 10 : unit == 'M' ? value << 20 : value;
}

}  // namespace

std::int64_t page_bytes() { return sysconf(_SC_PAGESIZE); }

std::int64_t l3_bytes() {
  std::int64_t sum = 0;
  std::set<std::string> seen;  // each cache is listed at each of its cores
  for (long core = 0; core < sysconf(_SC_NPROCESSORS_CONF); ++core) {
    const std::string cache =
        "/sys/devices/system/cpu/cpu" + std::to_string(core) + "/cache/index3/";
    const std::string shared = first_line(cache + "shared_cpu_list");
    if (!shared.empty() && seen.insert(shared).second) {
      sum += size_of(first_line(cache + "size"));
    }
  }
  return sum > 0 ? sum : std::int64_t{32} << 20;
}

std::int64_t uncached_bytes() { return std::min(2 * l3_bytes(), std::int64_t{1} << 30); }

std::int64_t available_bytes() {
  const std::int64_t available = meminfo("MemAvailable");
  const auto limit = cgroup_limit();
  return limit ? std::clamp<std::int64_t>(*limit - cgroup_used(), 0, available) : available;
}

std::string huge_pages() {
  const std::string line = first_line("/sys/kernel/mm/transparent_hugepage/enabled");
  const auto open = line.find('['), close = line.find(']');
  return open < close && close != std::string::npos ? line.substr(open + 1, close - open - 1)
                                                    : "unknown";
}

Mapping::Mapping(std::int64_t bytes)
    : bytes_((bytes + page_bytes() - 1) / page_bytes() * page_bytes()) {
  void* at = mmap(nullptr, static_cast<std::size_t>(bytes_), PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) {
    throw std::runtime_error(std::to_string(bytes_) +
                             " B of memory are refused: " + std::strerror(errno));
  }
  data_ = static_cast<std::byte*>(at);
}

Mapping::Mapping(Mapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}

Mapping::~Mapping() {
  if (data_ != nullptr) {
    munmap(data_, static_cast<std::size_t>(bytes_));
  }
}

bool Mapping::advise_huge() const {
  return madvise(data_, static_cast<std::size_t>(bytes_), MADV_HUGEPAGE) == 0;
}

// "memory_bytes": a small virtual machine may be given more while it runs, and then only its
// cgroup's limit says how much: the larger of both, and "memory_from" which. A limit below what the
// machine has is written too.
std::string describe_host() {
  utsname system{};
  uname(&system);
  const std::int64_t total = meminfo("MemTotal");
  const auto limit = cgroup_limit();
  const bool from_limit = limit && *limit > total;
  nlohmann::ordered_json out{{"cpu", cpu_name()},
                             {"cores", usable_cores()},
                             {"memory_bytes", from_limit ? *limit : total},
                             {"memory_from", from_limit ? "cgroup limit" : "MemTotal"},
                             {"nodes", count_nodes()},
                             {"kernel", system.release},
                             {"isa", name_of(best_isa())},
                             {"l3_bytes", l3_bytes()},
                             {"page_bytes", page_bytes()},
                             {"huge_pages", huge_pages()}};
  if (limit && !from_limit) {
    out["memory_limit_bytes"] = *limit;
  }
  return out.dump();
}

}  // namespace offsim::kernels
