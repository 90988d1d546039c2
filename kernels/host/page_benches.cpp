#include "kernels/host/page_benches.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>

#include "kernels/host/host.h"
#include "kernels/host/pool.h"

namespace offsim::kernels {

namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

void write_all(const Mapping& mapping, Pool& pool, int threads, int value) {
  pool.run(threads, [&](int i) {
    const Part part = part_of(mapping.bytes(), i, threads);
    std::memset(mapping.data() + part.begin, value,
                static_cast<std::size_t>(part.end - part.begin));
  });
}

std::vector<std::int64_t> sizes(bool quick) {
  std::vector<std::int64_t> all{256 * kMiB};
  if (!quick) {
    all = {64 * kMiB, 256 * kMiB};
  }
  std::erase_if(all, [most = available_bytes() / 4](std::int64_t bytes) { return bytes > most; });
  return all;
}

// Three samples in a second, or as many as it allows; more where they are short.
bool enough(std::size_t samples, double begin) {
  const double spent = now() - begin;
  return samples > 0 && (spent > 1 || (samples >= 3 && spent > 0.2) || samples == 9);
}

long faults() {
  rusage used{};
  if (getrusage(RUSAGE_THREAD, &used) != 0) {
    throw std::runtime_error("getrusage is refused");
  }
  return used.ru_minflt;
}

// Whether a block of so many bytes gets new pages at each malloc, in a loop of malloc, write and
// free that has run for a while. Only its begin is written: that is new when the block is.
bool gets_fresh_pages(std::int64_t bytes) {
  constexpr int kRounds = 4;
  const auto round = [&] {
    const std::unique_ptr<void, decltype(&std::free)> block(
        std::malloc(static_cast<std::size_t>(bytes)), &std::free);
    if (!block) {
      throw std::runtime_error("malloc refuses " + std::to_string(bytes) + " B");
    }
    // Through a volatile pointer, or the compiler would leave the pair out.
    volatile char* at = static_cast<char*>(block.get());
    for (std::int64_t i = 0; i < std::min(bytes, kMiB / 4); i += page_bytes()) {
      at[i] = 1;
    }
  };
  for (int i = 0; i < kRounds; ++i) {
    round();
  }
  const long before = faults();
  for (int i = 0; i < kRounds; ++i) {
    round();
  }
  return faults() - before >= kRounds;  // a page or more each time, huge ones too
}

}  // namespace

void page_touch(const Run& run) {
  Pool pool;
  for (const std::int64_t bytes : sizes(run.quick())) {
    for (const int threads : thread_counts(pool.size())) {
      for (const int huge : {0, 1}) {
        std::vector<double> fresh, warm;
        bool taken = true;
        const double begin = now();
        while (!enough(fresh.size(), begin)) {
          const Mapping mapping(bytes);
          taken = huge == 0 || (huge_pages() != "never" && mapping.advise_huge());
          if (!taken) {
            break;
          }
          const double start = now();
          write_all(mapping, pool, threads, 0x5a);
          const double middle = now();
          write_all(mapping, pool, threads, 0x3c);
          fresh.push_back(middle - start);
          warm.push_back(now() - middle);
        }
        if (taken) {
          const auto at = [&](const char* state) {
            return At{{"threads", threads}, {"bytes", bytes}, {"state", state}, {"huge", huge}};
          };
          run.point(at("fresh"), fresh);
          run.point(at("warm"), warm);
        }
      }
    }
  }
}

void page_release(const Run& run) {
  constexpr int kCalls = 16;
  Pool pool;
  for (const std::int64_t bytes : sizes(run.quick())) {
    run.mean_point({{"bytes", bytes}}, on_cores(kCalls, [&] {
                     auto mapping = std::make_unique<Mapping>(bytes);
                     write_all(*mapping, pool, pool.size(), 0x5a);
                     const double start = now();
                     mapping.reset();
                     return now() - start;
                   }));
  }
}

void map_threshold(const Run& run) {
  std::int64_t below = page_bytes(), above = 256 * kMiB;
  if (gets_fresh_pages(below) || !gets_fresh_pages(above)) {
    throw std::runtime_error("no size from which malloc gets new pages: 4 KiB to 256 MiB tried");
  }
  while (above - below > page_bytes()) {
    const std::int64_t middle = (below + above) / 2 / page_bytes() * page_bytes();
    (gets_fresh_pages(middle) ? above : below) = middle;
  }
  run.point({}, {static_cast<double>(above)}, Unit::kBytes);
}

}  // namespace offsim::kernels
