#include "kernels/host/pool.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <exception>
#include <fstream>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace offsim::kernels {

namespace {

std::vector<int> allowed_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    for (int core = 0; core < CPU_SETSIZE; ++core) {
      if (CPU_ISSET(core, &set)) {
        cores.push_back(core);
      }
    }
  }
  return cores;
}

// Cores' worth of time that the cgroup grants; 0: no bound.
double quota() {
  double most = 0, period = 0;
  if (std::ifstream v2("/sys/fs/cgroup/cpu.max"); v2 >> most >> period && period > 0) {
    return most / period;  // "max 100000" does not read as a number
  }
  std::ifstream v1("/sys/fs/cgroup/cpu/cpu.cfs_quota_us");
  std::ifstream v1_period("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
  if (v1 >> most && v1_period >> period && most > 0 && period > 0) {
    return most / period;
  }
  return 0;
}

}  // namespace

int usable_cores() {
  const int allowed = std::max(1, static_cast<int>(allowed_cores().size()));
  const double granted = quota();
  return granted > 0 ? std::clamp(static_cast<int>(std::lround(granted)), 1, allowed) : allowed;
}

std::vector<int> thread_counts(int most) {
  std::vector<int> counts;
  for (int threads = 1; threads < most; threads *= 2) {
    counts.push_back(threads);
  }
  counts.push_back(most);
  return counts;
}

std::vector<double> on_cores(int calls, const std::function<double()>& sample) {
  cpu_set_t before;
  CPU_ZERO(&before);
  const bool known = sched_getaffinity(0, sizeof before, &before) == 0;
  const auto back = [&](const cpu_set_t* set) {
    sched_setaffinity(0, sizeof *set, set);  // where it is refused, the kernel's choice is as good
  };
  const std::unique_ptr<const cpu_set_t, decltype(back)> restored(known ? &before : nullptr, back);
  const std::vector<int> cores = allowed_cores();
  std::vector<double> samples;
  for (std::size_t i = 0, count = static_cast<std::size_t>(calls); i < count; ++i) {
    if (known && !cores.empty()) {
      cpu_set_t one;
      CPU_ZERO(&one);
      CPU_SET(cores[i * cores.size() / count], &one);
      sched_setaffinity(0, sizeof one, &one);
    }
    samples.push_back(sample());
  }
  return samples;
}

struct Pool::Shared {
  std::mutex mutex;
  std::condition_variable work, done;
  const std::function<void(int)>* body = nullptr;
  int threads = 0;        // of the current run
  int left = 0;           // that have not finished it
  std::int64_t runs = 0;  // begun so far
  bool stop = false;
  std::exception_ptr error;
  std::vector<std::thread> workers;

  void loop(int index) {
    std::int64_t seen = 0;
    std::unique_lock lock(mutex);
    while (true) {
      work.wait(lock, [&] { return stop || (runs != seen && index < threads); });
      if (stop) {
        return;
      }
      seen = runs;
      lock.unlock();
      std::exception_ptr thrown;
      try {
        (*body)(index);
      } catch (...) {
        thrown = std::current_exception();
      }
      lock.lock();
      error = error ? error : thrown;
      if (--left == 0) {
        done.notify_one();
      }
    }
  }
};

Pool::Pool(int threads, Placed placed) : shared_(std::make_unique<Shared>()) {
  const std::vector<int> cores = allowed_cores();
  for (int i = 0; i < std::max(1, threads); ++i) {
    shared_->workers.emplace_back([shared = shared_.get(), i] { shared->loop(i); });
    if (!cores.empty() && placed == Placed::kACoreEach) {
      cpu_set_t set;
      CPU_ZERO(&set);
      CPU_SET(cores[static_cast<std::size_t>(i) % cores.size()], &set);
      // Where it is refused the thread runs where the kernel likes: slower at worst.
      pthread_setaffinity_np(shared_->workers.back().native_handle(), sizeof set, &set);
    }
  }
}

Pool::~Pool() {
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->stop = true;
  }
  shared_->work.notify_all();
  for (std::thread& worker : shared_->workers) {
    worker.join();
  }
}

int Pool::size() const { return static_cast<int>(shared_->workers.size()); }

void Pool::run(int threads, const std::function<void(int)>& body) {
  std::unique_lock lock(shared_->mutex);
  shared_->body = &body;
  shared_->threads = std::clamp(threads, 1, size());
  shared_->left = shared_->threads;
  shared_->error = nullptr;
  ++shared_->runs;
  shared_->work.notify_all();
  shared_->done.wait(lock, [&] { return shared_->left == 0; });
  if (shared_->error) {
    std::rethrow_exception(shared_->error);
  }
}

Part part_of(std::int64_t elements, int index, int threads) {
  constexpr std::int64_t kLine = 64;  // elements: a line at least, whatever their size
  const std::int64_t lines = (elements + kLine - 1) / kLine;
  const auto edge = [&](std::int64_t i) { return std::min(elements, lines * i / threads * kLine); };
  return {edge(index), edge(index + 1)};
}

}  // namespace offsim::kernels
