// The host: memory, pages, CPU kernels, and drives.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>

#include "sim/base/text.h"
#include "sim/calibrate/figures.h"
#include "sim/machine/cost.h"

namespace offsim::calibrate {

namespace {

constexpr double kSmallKernel = 16.0 * kMiB;  // elements with which threads are compared

// Our kernels that do what a kernel of the framework does, on as many bytes.
std::string ours(std::string_view kernel) {
  static const std::map<std::string_view, std::string_view> kSame{
      {"adam_deepspeed_f32", "adam_f32"},
      {"adam_deepspeed_bf16", "adam_mixed"},
      {"adam_torch_fused_f32", "adam_f32"},
      {"adam_torch_fused_bf16", "adam_bf16"}};
  const auto same = kSame.find(kernel);
  if (same != kSame.end()) {
    return std::string(same->second);
  }
  // A for-loop Adam and isinf run as many kernels with temporaries: PyTorch's own, or none.
  return kernel.starts_with("adam") || kernel.starts_with("isinf") ? "" : std::string(kernel);
}

double cores(const Records& records) { return static_cast<double>(records.environment.cores); }

// Elements a second by elements, with so many threads.
Points speeds(const Records& records, std::string_view bench, std::string_view kernel,
              double threads) {
  Points out;
  for (const Point& p : records.of(bench, {{"kernel", kernel}})) {
    if (p.number("threads") == threads) {
      out.emplace_back(p.number("elements"), p.number("elements") / p.value);
    }
  }
  std::ranges::sort(out);
  return out;
}

// Nothing where the bench has no such points.
std::optional<std::string> kernel_curve(Figures& figures, const std::string& figure,
                                        const std::string& bench, const std::string& kernel,
                                        double threads) {
  std::vector<std::pair<std::string, std::string>> curve;
  for (const auto& [elements, rate] : speeds(figures.records, bench, kernel, threads)) {
    curve.emplace_back(fmt::format("{:.0f}", elements), elements_text(rate));
  }
  if (curve.empty()) {
    return std::nullopt;
  }
  const double spread = largest_spread(figures.records.of(bench, {{"kernel", kernel}}));
  return figures.curve(figure, curve, {bench, kernel + " by elements", spread, {}});
}

// PyTorch's kernels where they were measured, else ours; then ours beside them, for a replay.
void add_kernels(Figures& figures, const machine::Framework& framework, Section& host) {
  const double all = cores(figures.records);
  const bool both = !figures.records.of("torch_cpu_kernel").empty();
  Section kernels, standins;
  for (const std::string& name : machine::cpu_kernel_names()) {
    const auto add_ours = [&](const std::string& section, Section& to) {
      const double threads = framework.kernels.at(name).single_core ? 1 : all;
      if (const auto curve =
              kernel_curve(figures, section + name, "cpu_kernel", ours(name), threads)) {
        to.add(name, *curve);
      }
    };
    // PyTorch was told of all cores: a kernel of one core uses one all the same.
    if (const auto curve =
            kernel_curve(figures, "host.kernels." + name, "torch_cpu_kernel", name, all)) {
      kernels.add(name, *curve);
    } else {
      add_ours("host.kernels.", kernels);
    }
    if (both) {
      add_ours("host.standins.", standins);
    }
  }
  if (!kernels.empty()) {
    host.add("kernels", kernels);
  }
  if (!standins.empty()) {
    host.add("standins", standins);
  }
}

void add_threads(Figures& figures, Section& host) {
  Section threads;
  for (const auto& [key, kernel] : {std::pair{"adam", "adam_f32"}, {"stream", "mul_f32"}}) {
    std::map<double, double> speed;  // of the size nearest to the one that is compared
    std::map<double, double> away;
    for (const Point& p : figures.records.of("cpu_kernel", {{"kernel", kernel}})) {
      const double t = p.number("threads");
      const double distance = std::abs(std::log(p.number("elements") / kSmallKernel));
      if (!away.contains(t) || distance < away[t]) {
        away[t] = distance;
        speed[t] = p.number("elements") / p.value;
      }
    }
    if (speed.empty()) {
      continue;
    }
    std::vector<std::pair<std::string, std::string>> curve;
    for (const auto& [t, rate] : rising({speed.begin(), speed.end()})) {
      curve.emplace_back(fmt::format("{:.0f}", t), elements_text(rate));
    }
    threads.add(
        key, figures.curve(fmt::format("host.threads.{}", key), curve,
                           {"cpu_kernel", fmt::format("{} by threads, rising", kernel), 0.10, {}}));
  }
  if (!threads.empty()) {
    host.add("threads", threads);
  }
}

// Bytes of DRAM that an element of our kernels moves; a line is read before it is written.
double traffic(std::string_view kernel) {
  return kernel == "adam_f32" ? 28 : kernel == "copy_f32" ? 12 : 8;
}

std::vector<Contended> contended(const Records& records) {
  constexpr double kElements = 128.0 * kMiB;
  std::map<std::pair<std::string, double>, double> alone;
  std::map<std::string, double> link;  // of a copy with nobody beside it
  const std::vector<Point> points = records.of("beside_copies");
  const auto bytes_per_second = [&](const Point& p) {
    const double elements = p.number("elements") > 0 ? p.number("elements") : kElements;
    return traffic(p.word("kernel")) * elements / p.value;
  };
  for (const Point& p : points) {
    if (p.word("what") == "kernel" && p.word("copies") == "none") {
      alone[{p.word("kernel"), p.number("threads")}] = bytes_per_second(p);
    }
  }
  for (const Point& p : records.of("copy", {{"memory", "pinned"}})) {
    const std::string& direction = p.word("direction");  // each way as fast as both together allow
    link[direction] = std::max(link[direction], p.number("bytes") / p.value);
  }
  std::vector<Contended> out;
  for (const Point& kernel : points) {
    const std::string& copies = kernel.word("copies");
    const auto lone = alone.find({kernel.word("kernel"), kernel.number("threads")});
    if (kernel.word("what") != "kernel" || copies == "none" || lone == alone.end() ||
        !link.contains(copies)) {
      continue;
    }
    for (const Point& copy : points) {
      if (copy.word("what") == "copy" && copy.word("kernel") == kernel.word("kernel") &&
          copy.word("copies") == copies && copy.number("threads") == kernel.number("threads")) {
        out.push_back({lone->second, link[copies], copies == "both" ? 2 : 1,
                       bytes_per_second(kernel), copy.value});
      }
    }
  }
  return out;
}

double fastest_stream(const Records& records, double threads) {
  double best = 0;
  for (const Point& p : records.of("stream")) {
    // Of those that read what they write: the others' read before the write is not counted.
    if (p.number("threads") == threads && (p.word("what") == "mul" || p.word("what") == "add")) {
      best = std::max(best, p.value);
    }
  }
  return best;
}

void add_dram(Figures& figures, Section& host) {
  const Records& records = figures.records;
  const std::vector<Contended> records_beside = contended(records);
  if (!records_beside.empty()) {
    const Contention fit = fit_contention(records_beside);
    const std::string how = fmt::format("weighted sharing, {} records of a kernel beside copies",
                                        records_beside.size());
    host.add("dram", figures.value("host.dram", rate_text(fit.dram),
                                   {"beside_copies", how, 0.10, fit.residual}));
    host.add("dma_weight", figures.value("host.dma_weight", fmt::format("{:.2f}", fit.dma_weight),
                                         {"beside_copies", how, 0.15, fit.residual}));
  } else if (const double best = fastest_stream(records, cores(records)); best > 0) {
    host.add("dram",
             figures.value("host.dram", rate_text(best),
                           {"stream", "the fastest of all cores: no copies beside it", 0.15, {}}));
  }
  if (const double one = fastest_stream(records, 1); one > 0) {
    host.add("core_bandwidth", figures.value("host.core_bandwidth", rate_text(one),
                                             {"stream", "the fastest of one core", 0.10, {}}));
  }
}

// One core against the framework's rates, over kernels that both have.
void add_core_speed(Figures& figures, const machine::Framework& framework, Section& host) {
  double logs = 0;
  double squares = 0;
  int count = 0;
  for (const auto& [ours_name, theirs] : {std::pair{"adam_f32", "adam_torch_fused_f32"},
                                          {"mul_f32", "mul_f32"},
                                          {"norm_f32", "norm_f32"}}) {
    for (const auto& [elements, rate] : speeds(figures.records, "cpu_kernel", ours_name, 1)) {
      if (elements == kSmallKernel) {
        const double ratio = std::log(rate / framework.kernels.at(theirs).core_rate.value);
        logs += ratio;
        squares += ratio * ratio;
        ++count;
      }
    }
  }
  if (count > 0) {
    const double mean = logs / count;
    const double deviation = std::sqrt(std::max(squares / count - mean * mean, 0.0));
    host.add("core_speed", figures.value("host.core_speed", fmt::format("{:.3f}", std::exp(mean)),
                                         {"cpu_kernel",
                                          "Adam, mul and norm on one core over the framework's",
                                          std::min(deviation, 1.0),
                                          {}}));
  }
}

using Faults = std::map<double, std::pair<double, double>>;  // by threads: bytes, seconds

// One thread that writes new pages is, in offloaded training, the driver in a blocking copy: where
// that was measured, over sizes that the allocator maps afresh, it stands for one thread.
void add_driver_pages(const Records& records, Faults& fresh) {
  const auto threshold = records.of("map_threshold");
  const double least = threshold.empty() ? 32.0 * kMiB : threshold.front().value;
  std::pair<double, double> sum;
  for (const Point& p : records.of("fresh_copy", {{"state", "fresh"}})) {
    for (const Point& warm : records.of("fresh_copy", {{"state", "warm"}})) {
      if (p.number("bytes") > least && p.number("bytes") == warm.number("bytes") &&
          p.value > warm.value) {
        sum.first += p.number("bytes");
        sum.second += p.value - warm.value;
      }
    }
  }
  if (sum.second > 0) {
    fresh[1] = sum;
  }
}

// What pages cost beside the writing: bytes over (first write less second write).
void add_pages(Figures& figures, Section& host) {
  const Records& records = figures.records;
  Faults fresh;
  for (const Point& p : records.of("page_touch", {{"state", "fresh"}})) {
    for (const Point& warm : records.of("page_touch", {{"state", "warm"}})) {
      const bool same = warm.number("threads") == p.number("threads") &&
                        warm.number("bytes") == p.number("bytes") &&
                        warm.number("huge") == p.number("huge") && p.number("huge") == 0;
      if (same && p.value > warm.value) {
        auto& [bytes, seconds] = fresh[p.number("threads")];
        bytes += p.number("bytes");
        seconds += p.value - warm.value;
      }
    }
  }
  add_driver_pages(records, fresh);
  if (!fresh.empty()) {
    Points rates;
    for (const auto& [threads, sum] : fresh) {
      rates.emplace_back(threads, sum.first / sum.second);
    }
    std::vector<std::pair<std::string, std::string>> curve;
    for (const auto& [threads, rate] : rising(rates)) {
      curve.emplace_back(fmt::format("{:.0f}", threads), rate_text(rate));
    }
    const std::string how = "first less second write, by threads; of one fresh_copy's if there";
    host.add("fresh_pages",
             figures.curve("host.fresh_pages", curve, {"page_touch", how, 0.30, {}}));
  }
  for (const auto& [key, bench] :
       {std::pair{"page_release", "page_release"}, {"pinned_alloc", "pinned_alloc"}}) {
    Points times;
    for (const Point& p : records.of(bench)) {
      times.emplace_back(p.number("bytes"), p.value);
    }
    if (!times.empty()) {
      const Line line = fit_line(times);
      host.add(key, figures.value(fmt::format("host.{}", key), rate_text(line.rate),
                                  {bench, fmt::format("a line through {} sizes", times.size()),
                                   0.15, line.residual}));
    }
  }
}

}  // namespace

Section host_figures(Figures& figures, const machine::Framework& framework) {
  const Environment& e = figures.records.environment;
  Section host;
  if (figures.records.of("stream").empty() || figures.records.of("page_touch").empty()) {
    return host;
  }
  host.add("name", double_quoted(e.cpu));
  host.add("cores", fmt::format("{}", e.cores));
  host.add("avx", e.isa == "generic" ? "false" : "true");
  host.add("memory", figures.value("host.memory", fmt::format("{} B", e.memory_bytes),
                                   {"env", "as the system reports it", 0.01, {}}));
  add_dram(figures, host);
  add_core_speed(figures, framework, host);
  add_pages(figures, host);
  add_kernels(figures, framework, host);
  add_threads(figures, host);
  return host;
}

Section drive_figures(Figures& figures) {
  const Records& records = figures.records;
  std::map<std::string, Point> best;  // by operation
  for (const Point& p : records.of("drive")) {
    Point& held = best[p.word("op")];
    held = p.value > held.value ? p : held;
  }
  Section drive;
  const auto space = records.of("drive_space", {{"what", "total"}});
  const auto latency = records.of("drive_latency");
  if (!best.contains("read") || !best.contains("write") || space.empty() || latency.empty()) {
    return drive;
  }
  drive.add("name", double_quoted("the drive of the measured file"));
  drive.add("capacity",
            figures.value("drive.capacity", fmt::format("{:.0f} B", space.front().value),
                          {"drive_space", "of its file system", 0.01, {}}));
  const auto sustained = records.of("drive_sustained");
  for (const auto& [key, p] : {std::pair{"read", best["read"]}, {"write", best["write"]}}) {
    const bool held =
        std::string_view(key) == "write" && !sustained.empty() && sustained.front().value < p.value;
    drive.add(key,
              held ? figures.value("drive.write", rate_text(sustained.front().value),
                                   {"drive_sustained",
                                    "the last third of the run",
                                    std::max(0.10, sustained.front().spread),
                                    {}})
                   : figures.value(fmt::format("drive.{}", key), rate_text(p.value),
                                   {"drive", "best: " + p.where(), std::max(0.10, p.spread), {}}));
  }
  // A mix of half and half takes half of its bytes over each rate.
  double mixed = 0.9;
  if (best.contains("mixed")) {
    mixed = best["mixed"].value / 2 * (1 / best["read"].value + 1 / best["write"].value);
    drive.add("mixed",
              figures.value("drive.mixed", fmt::format("{:.0f} %", std::min(mixed, 1.0) * 100),
                            {"drive", "reads and writes at once, by time sharing", 0.10, {}}));
  } else {
    drive.add("mixed",
              "{value: 90 %, source: assumed, from: \"time sharing with a tenth lost to turns\"}");
  }
  drive.add("latency",
            figures.value("drive.latency", time_text(latency.front().value),
                          {"drive_latency", latency.front().where(), latency.front().spread, {}}));
  return drive;
}

}  // namespace offsim::calibrate
