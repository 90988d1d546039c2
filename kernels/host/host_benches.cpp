// The benches of the host: memory's rate, pages, CPU kernels of ours and of PyTorch.
#include <algorithm>
#include <array>
#include <cstring>
#include <random>

#include "kernels/bench.h"
#include "kernels/host/cpu_kernels.h"
#include "kernels/host/host.h"
#include "kernels/host/page_benches.h"
#include "kernels/host/pool.h"
#include "kernels/host/torch_kernels.h"

namespace offsim::kernels {

namespace {

constexpr std::int64_t kMi = std::int64_t{1} << 20;

// Buffers for every kernel, filled once: each pair of bytes is a bf16 number between a half and one
// and each four are an fp32 number; those of m and v are positive.
class Arena {
 public:
  Arena(std::int64_t bytes_each, Pool& pool)
      : bytes_each_(bytes_each),
        out_(bytes_each),
        in_(bytes_each + kSkew),
        m_(bytes_each + 2 * kSkew),
        v_(bytes_each + 3 * kSkew) {
    std::vector<std::uint16_t> block(static_cast<std::size_t>(kMi) + 8);  // none of the powers of 2
    std::mt19937 random(11);
    for (const bool positive : {false, true}) {
      for (std::uint16_t& bits : block) {
        const auto drawn = static_cast<std::uint16_t>(random());
        bits = static_cast<std::uint16_t>(0x3f00U | (drawn & (positive ? 0x7fU : 0x807fU)));
      }
      for (const Mapping* to : positive ? std::array{&m_, &v_} : std::array{&out_, &in_}) {
        fill(*to, block, pool);
      }
    }
  }
  std::int64_t bytes_each() const { return bytes_each_; }

  // The buffers of tensor `index` of a list of them. Requires: they end within bytes_each().
  CpuBuffers tensor(const CpuKernel& kernel, std::int64_t elements, std::int64_t index) const {
    const auto at = [&](const Mapping& mapping, int skews, int width) {
      return mapping.data() + skews * kSkew + index * elements * width;
    };
    return {at(out_, 0, kernel.out), at(in_, 1, kernel.in), at(m_, 2, kernel.m),
            at(v_, 3, kernel.v)};
  }

 private:
  // Pages lie where the threads that use them are: the split of run_cpu_kernel over the whole.
  static void fill(const Mapping& to, const std::vector<std::uint16_t>& block, Pool& pool) {
    const auto step = static_cast<std::int64_t>(block.size() * sizeof block[0]);
    pool.run(pool.size(), [&](int i) {
      const Part part = part_of(to.bytes(), i, pool.size());
      for (std::int64_t at = part.begin; at < part.end; at += step) {
        std::memcpy(to.data() + at, block.data(),
                    static_cast<std::size_t>(std::min(step, part.end - at)));
      }
    });
  }

  // Buffers that lie a power of two apart share sets of the caches and banks of DRAM: four streams
  // of Adam then took two to three times as long. Those of a framework lie anywhere.
  static constexpr std::int64_t kSkew = 89 * 4096 + 17 * 64;

  std::int64_t bytes_each_;
  Mapping out_, in_, m_, v_;
};

// An arena for tensors of so many elements, and so large that a pass over it misses the caches.
Arena arena_for(std::int64_t elements, Pool& pool) {
  const std::int64_t wanted = std::max(elements * 4, uncached_bytes());
  return {std::min(wanted, available_bytes() / 8), pool};
}

// Seconds of one pass over `elements`: of a list of tensors that is larger than the caches,
// one after the other, and the list's time over their number.
std::vector<double> seconds(const CpuKernel& kernel, std::int64_t elements, int threads,
                            const Arena& arena, Pool& pool, const Repeat& repeat) {
  const std::int64_t width = std::max({kernel.out, kernel.in, kernel.m, kernel.v});
  const std::int64_t touched = elements * (kernel.out + kernel.in + kernel.m + kernel.v);
  const std::int64_t wanted = (uncached_bytes() + touched - 1) / touched;
  const std::int64_t tensors = std::min(wanted, arena.bytes_each() / (elements * width));
  CpuArguments arguments;
  auto samples = time_host(
      [&] {
        for (std::int64_t i = 0; i < tensors; ++i) {
          run_cpu_kernel(kernel, arena.tensor(kernel, elements, i), elements, pool, threads,
                         arguments);
        }
        ++arguments.adam.step;
      },
      repeat);
  for (double& sample : samples) {
    sample /= static_cast<double>(tensors);
  }
  return samples;
}

void stream(const Run& run) {
  Pool pool;
  const Arena arena = arena_for(run.quick() ? 16 * kMi : 64 * kMi, pool);
  const std::int64_t elements = arena.bytes_each() / 4;
  for (const char* what : {"mul", "add", "copy", "triad"}) {
    const CpuKernel& kernel = find_cpu_kernel(std::string(what) + "_f32");
    check_cpu_kernel(kernel, best_isa(), 1003);
    for (const int threads : thread_counts(pool.size())) {
      auto samples = seconds(kernel, elements, threads, arena, pool,
                             run.quick() ? Repeat{1, 2, 15, 0.05} : Repeat{1, 5, 15, 0.15});
      for (double& sample : samples) {
        sample = static_cast<double>(kernel.moved) * static_cast<double>(elements) / sample;
      }
      run.point({{"what", what}, {"threads", threads}}, samples, Unit::kBytesPerSecond);
    }
  }
}

// On threads that the kernel places, as PyTorch's and a replay's are.
void cpu_kernel(const Run& run) {
  Pool pool(usable_cores(), Pool::Placed::kByTheKernel);
  std::vector<std::int64_t> sizes{4096, kMi, 16 * kMi};
  if (!run.quick()) {
    sizes.insert(sizes.end(), {64 * kMi, 256 * kMi});
  }
  const Arena arena = arena_for(sizes.back(), pool);
  for (const CpuKernel& kernel : cpu_kernels()) {  // in the order that keeps the data valid
    if (kernel.name == "triad_f32") {
      continue;  // of no training step
    }
    check_cpu_kernel(kernel, best_isa(), 1003);
    const std::int64_t width = std::max({kernel.out, kernel.in, kernel.m, kernel.v});
    for (const std::int64_t elements : sizes) {
      std::vector<int> threads{pool.size()};
      for (const char* by_threads :
           {"adam_f32", "adam_mixed", "mul_f32", "norm_f32", "norm_bf16"}) {
        if (kernel.name == by_threads && elements == 16 * kMi) {
          threads = thread_counts(pool.size());
        }
      }
      // The large ones miss the caches the first time too.
      const Repeat repeat = run.quick() ? Repeat{elements > kMi ? 0 : 1, 2, 15, 0.03}
                                        : Repeat{elements > kMi ? 0 : 1, 3, 15, 0.1};
      for (const int count : threads) {
        if (elements * width > arena.bytes_each()) {
          continue;
        }
        At at{{"kernel", std::string(kernel.name)}, {"elements", elements}, {"threads", count}};
        if (count == 1) {
          run.mean_point(std::move(at), on_cores(run.quick() ? 4 : 8, [&] {
                           Pool alone(1, Pool::Placed::kByTheKernel);  // on this core, as its maker
                           return seconds(kernel, elements, 1, arena, alone, {0, 1, 1, 0}).front();
                         }));
        } else {
          run.point(std::move(at), seconds(kernel, elements, count, arena, pool, repeat));
        }
      }
    }
  }
}

}  // namespace

std::vector<Bench> host_benches() {
  return {
      {"stream",
       Group::kHost,
       "memory's rate by threads: mul and add in place, copy, triad",
       {},
       stream},
      {"page_touch",
       Group::kHost,
       "writing new and old memory, by threads and kind of page",
       {},
       page_touch},
      {"page_release", Group::kHost, "giving memory back", {}, page_release},
      {"map_threshold",
       Group::kHost,
       "the size from which malloc gets new pages each time",
       {},
       map_threshold},
      {"cpu_kernel",
       Group::kHost,
       "Adam, casts, norms on the CPU, by size and threads",
       {},
       cpu_kernel},
      {"torch_cpu_kernel", Group::kHost, "the same by PyTorch", torch_cpu_unavailable,
       torch_cpu_kernel},
  };
}

}  // namespace offsim::kernels
