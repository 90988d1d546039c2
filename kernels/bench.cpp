#include "kernels/bench.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <numeric>
#include <optional>
#include <stdexcept>

namespace offsim::kernels {

std::string_view name_of(Group group) {
  static constexpr std::array<std::string_view, 4> kNames{"gpu", "link", "host", "storage"};
  return kNames[static_cast<std::size_t>(group)];
}

std::string_view name_of(Unit unit) {
  static constexpr std::array<std::string_view, 5> kNames{"s", "B", "B/s", "1/s", "1"};
  return kNames[static_cast<std::size_t>(unit)];
}

namespace {

// Of `value`, or of the samples' median.
Summary summarize(std::vector<double> samples, std::optional<double> value) {
  if (samples.empty()) {
    throw std::logic_error("a point without samples");
  }
  std::sort(samples.begin(), samples.end());
  // Linear between the samples, as the usual quantile.
  const auto quantile = [&](double q) {
    const double at = q * static_cast<double>(samples.size() - 1);
    const auto below = static_cast<std::size_t>(at);
    const std::size_t above = std::min(below + 1, samples.size() - 1);
    return samples[below] + (at - static_cast<double>(below)) * (samples[above] - samples[below]);
  };
  const double middle = value.value_or(quantile(0.5));
  const double half = (quantile(0.75) - quantile(0.25)) / 2;
  return {middle, middle > 0 ? half / middle : 0};
}

}  // namespace

Summary median_of(std::vector<double> samples) { return summarize(std::move(samples), {}); }

Summary mean_of(std::vector<double> samples) {
  const double sum = std::accumulate(samples.begin(), samples.end(), 0.0);
  const double mean = samples.empty() ? 0 : sum / static_cast<double>(samples.size());
  return summarize(std::move(samples), mean);
}

void Run::point(At at, std::vector<double> samples, Unit unit) const {
  const int count = static_cast<int>(samples.size());
  sink_(at, median_of(std::move(samples)), unit, count);
}

void Run::mean_point(At at, std::vector<double> samples) const {
  const int count = static_cast<int>(samples.size());
  sink_(at, mean_of(std::move(samples)), Unit::kSeconds, count);
}

std::vector<Bench> all_benches() {
  std::vector<Bench> all = gpu_benches();  // the GPU and its link first: the machine is cool
  for (const auto& more : {host_benches(), storage_benches()}) {
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::vector<double> time_host(const std::function<void()>& body, const Repeat& repeat) {
  for (int i = 0; i < repeat.warm; ++i) {
    body();
  }
  std::vector<double> samples;
  const double begin = now();
  while (static_cast<int>(samples.size()) < repeat.least ||
         (static_cast<int>(samples.size()) < repeat.most && now() - begin < repeat.budget)) {
    const double start = now();
    body();
    samples.push_back(now() - start);
  }
  return samples;
}

}  // namespace offsim::kernels
