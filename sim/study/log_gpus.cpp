#include "sim/study/log_gpus.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <tuple>

namespace offsim::study {

namespace {

using logs::What;

double most_of(const logs::Log& log, What what, int gpu) {
  double most = 0;
  for (const logs::Observation& seen : log.observations) {
    most = seen.what == what && seen.gpu == gpu ? std::max(most, seen.value) : most;
  }
  return most;
}

// Of 1: lanes, then the generation; 1 where nothing is said.
std::tuple<double, double> link_share(const logs::Log& log, int gpu) {
  const auto share = [&](What now, What best) {
    const double most = most_of(log, best, gpu);
    const double has = most_of(log, now, gpu);
    return most > 0 && has > 0 ? has / most : 1;
  };
  return {share(What::kLinkWidth, What::kLinkWidthMost),
          share(What::kLinkGeneration, What::kLinkGenerationMost)};
}

}  // namespace

OneGpu one_gpu(logs::Log log, std::size_t gpus_of_job) {
  if (log.gpus.size() < 2) {
    return {std::move(log), ""};
  }
  std::vector<int> gpus(log.gpus.size());
  std::iota(gpus.begin(), gpus.end(), 0);
  const auto used = [&](int gpu) { return most_of(log, What::kGpuUsed, gpu); };
  std::ranges::stable_sort(gpus, std::ranges::greater{}, used);
  const int fullest = gpus.front();
  if (used(fullest) > 0) {
    gpus.resize(std::min(gpus.size(), gpus_of_job));
  }
  const int narrowest =
      *std::ranges::min_element(gpus, {}, [&](int gpu) { return link_share(log, gpu); });
  const auto name = [&](int gpu) { return log.gpus[static_cast<std::size_t>(gpu)]; };
  std::string said = fmt::format(
      "the log has {} GPUs, and the job {}: memory, power and load are the fullest one's, GPU {}",
      log.gpus.size(), gpus_of_job, name(fullest));
  if (narrowest != fullest) {
    said += fmt::format("; the link is the narrowest of the job's, GPU {}'s", name(narrowest));
  }
  std::erase_if(log.observations, [&](const logs::Observation& seen) {
    return seen.gpu >= 0 && seen.gpu != (logs::of_link(seen.what) ? narrowest : fullest);
  });
  return {std::move(log), std::move(said)};
}

}  // namespace offsim::study
