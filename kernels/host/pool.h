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
