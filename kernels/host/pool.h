// Threads that wait for work, one pinned to each core that this process may use; or placed by the
// kernel, where other threads want these cores, too: a pinned thread would wait for a time slice of
// the one that has its core (4 ms on Linux), and with it all others.
//
// Work is split by its caller, statically: what a core touches first is what it works on later, so
// pages lie on its memory node. A run costs a wake-up and a wait, a few microseconds.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace offsim::kernels {

// Cores that this process may use: its affinity mask, and no more than its cgroup's CPU quota.
int usable_cores();

// 1, 2, 4 ... and `most`.
std::vector<int> thread_counts(int most);

// What `sample` gives, called on `calls` of the cores that this process may use, evenly spread.
//
// What one thread does takes up to 1.8 times as long on some cores as on others, and which ones
// changes from second to second: the hardware thread beside it is busy, with another machine's
// work, say. (One H200 machine of 16 virtual cores on 2026-12-01, from one core to the next: memory
// given back at 19 or 33 GB/s, pageable copies at 6.8 or 8.5 GB/s up and 10.9 or 14.5 down.) A
// thread that the kernel moves about sees the mean; a median of such samples is one or the other by
// chance.
std::vector<double> on_cores(int calls, const std::function<double()>& sample);

class Pool {
 public:
  enum class Placed { kACoreEach, kByTheKernel };
  explicit Pool(int threads = usable_cores(),  // more than there are cores share them
                Placed placed = Placed::kACoreEach);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  int size() const;
  // body(i) once for each i below `threads`, each on a thread of its own at the same time; the
  // caller waits. What a body throws is thrown here, the first of them. Requires: 1 <= threads <=
  // size(), called from one thread at a time and not from a body.
  void run(int threads, const std::function<void(int)>& body);

 private:
  struct Shared;
  std::unique_ptr<Shared> shared_;
};

// The part of `elements` that thread `index` of `threads` works on: equal parts in whole cache
// lines, so that no two threads write to one.
struct Part {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};
Part part_of(std::int64_t elements, int index, int threads);

}  // namespace offsim::kernels
