#include "sim/plans/ratel_planner.h"

#include <algorithm>
#include <numeric>

#include "sim/base/error.h"

namespace offsim::plans {

namespace {

constexpr BytesPerSecond kCheckpointRate(18.0 * kGiB), kKeptRate(20.0 * kGiB);  // of utils.py

double saved_a_byte(const SwapCandidate& candidate) {
  SIM_ASSERT(candidate.bytes > Bytes(0), "a product puts something out");
  return candidate.saved.value / static_cast<double>(candidate.bytes.value);
}

}  // namespace

Seconds predicted_iteration(const SwapProfile& p, Bytes kept, Seconds saved) {
  const Bytes swapped = kept + p.checkpoints;
  const Bytes spilled = std::max(Bytes(0), swapped - p.host_room);
  const Seconds forward =
      std::max({p.forward, swapped / p.to_host, p.weights / p.to_gpu,
                p.weights / p.read + (spilled > Bytes(0) ? spilled / p.write : Seconds(0))});
  const Seconds backward =
      std::max({p.backward - saved, (swapped + p.weights) / p.to_gpu, 2 * p.weights / p.to_host,
                (7 * p.weights + spilled) / p.read + 7 * p.weights / p.write});
  return forward + backward;
}

std::vector<std::size_t> convex_swap(const SwapProfile& profile,
                                     const std::vector<SwapCandidate>& candidates) {
  std::vector<std::size_t> order(candidates.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::ranges::greater{},
                           [&](std::size_t i) { return saved_a_byte(candidates[i]); });
  const Bytes room = profile.host_room + profile.drive_room - profile.checkpoints;
  Bytes kept;
  Seconds saved, best = predicted_iteration(profile, kept, saved);
  std::vector<std::size_t> chosen;
  for (const std::size_t i : order) {
    kept += candidates[i].bytes;
    saved += candidates[i].saved;
    const Seconds time = predicted_iteration(profile, kept, saved);
    if (kept > room || time >= best) {
      break;
    }
    best = time;
    chosen.push_back(i);
  }
  return chosen;
}

std::vector<std::size_t> ordered_swap(const SwapProfile& profile, double swap_ratio,
                                      const std::vector<SwapCandidate>& candidates) {
  const Seconds most = profile.forward * swap_ratio - profile.checkpoints / kCheckpointRate;
  const Bytes room = profile.host_room - profile.checkpoints;
  Bytes kept;
  std::vector<std::size_t> chosen;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    kept += candidates[i].bytes;
    if (kept > room || kept / kKeptRate > most) {
      break;
    }
    chosen.push_back(i);
  }
  return chosen;
}

}  // namespace offsim::plans
