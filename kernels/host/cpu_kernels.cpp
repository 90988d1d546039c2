#include "kernels/host/cpu_kernels.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <stdexcept>

#include "kernels/host/cpu_loops.h"

namespace offsim::kernels {

namespace {

constexpr std::int64_t kGrain = 32768;  // elements that are worth a thread

const CpuLoop* loops_of(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx512) {
    return avx512_loops();
  }
  if (isa == Isa::kAvx2) {
    return avx2_loops();
  }
#endif
  (void)isa;
  return generic_loops();
}

const CpuLoop& loop_of(const CpuKernel& kernel, Isa isa) {
  const CpuLoop* loops = loops_of(isa);
  const CpuLoop* found = std::find_if(loops, loops + kCpuLoops, [&](const CpuLoop& loop) {
    return loop.kernel.name == kernel.name;
  });
  if (found == loops + kCpuLoops) {
    throw std::runtime_error("no CPU kernel is called " + std::string(kernel.name));
  }
  return *found;
}

// What the parts add up to.
double joined(const CpuKernel& kernel, const std::vector<double>& parts) {
  return kernel.name.substr(0, 8) == "isfinite" ? *std::max_element(parts.begin(), parts.end())
                                                : std::accumulate(parts.begin(), parts.end(), 0.0);
}

}  // namespace

std::string_view name_of(Isa isa) {
  static constexpr std::array<std::string_view, 3> kNames{"generic", "avx2", "avx512"};
  return kNames[static_cast<std::size_t>(isa)];
}

std::vector<Isa> usable_isas() {
  std::vector<Isa> isas{Isa::kGeneric};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    isas.push_back(Isa::kAvx2);
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
      isas.push_back(Isa::kAvx512);
    }
  }
#endif
  return isas;
}

Isa best_isa() { return usable_isas().back(); }

const std::vector<CpuKernel>& cpu_kernels() {
  static const std::vector<CpuKernel> kernels = [] {
    std::vector<CpuKernel> all;
    std::for_each_n(generic_loops(), kCpuLoops,
                    [&](const CpuLoop& loop) { all.push_back(loop.kernel); });
    return all;
  }();
  return kernels;
}

const CpuKernel& find_cpu_kernel(std::string_view name) {
  for (const CpuKernel& kernel : cpu_kernels()) {
    if (kernel.name == name) {
      return kernel;
    }
  }
  throw std::runtime_error("no CPU kernel is called " + std::string(name));
}

double run_cpu_kernel(const CpuKernel& kernel, const CpuBuffers& buffers, std::int64_t elements,
                      Pool& pool, int threads, const CpuArguments& arguments) {
  const auto pass = loop_of(kernel, best_isa()).pass;
  const std::int64_t worth = (elements + kGrain - 1) / kGrain;
  const int used =
      static_cast<int>(std::clamp<std::int64_t>(worth, 1, std::min(threads, pool.size())));
  if (used == 1) {
    return pass(buffers, {0, elements}, arguments);
  }
  std::vector<double> parts(static_cast<std::size_t>(used));
  pool.run(used, [&](int i) {
    parts[static_cast<std::size_t>(i)] = pass(buffers, part_of(elements, i, used), arguments);
  });
  return joined(kernel, parts);
}

double run_cpu_kernel(const CpuKernel& kernel, const CpuBuffers& buffers, std::int64_t elements,
                      Isa isa, const CpuArguments& arguments) {
  return loop_of(kernel, isa).pass(buffers, {0, elements}, arguments);
}

}  // namespace offsim::kernels
