// The GPU, its link, and what of the framework depends on them.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "sim/calibrate/figures.h"
#include "sim/machine/formulas.h"

namespace offsim::calibrate {

namespace {

constexpr double kAboveFloor = 1.5;  // times the shortest kernel: shorter ones measure the floor
constexpr double kDuplexBytes = 64.0 * kMiB;  // copies from here on are bound by the link

using Shape = std::vector<double>;

Shape shape_of(const Point& p, const std::vector<std::string_view>& keys) {
  Shape shape;
  for (const std::string_view key : keys) {
    shape.push_back(p.number(key));
  }
  return shape;
}

// The median over operand layouts: the model has no layout.
std::map<Shape, double> by_shape(const std::vector<Point>& points,
                                 const std::vector<std::string_view>& keys) {
  std::map<Shape, std::vector<double>> samples;
  for (const Point& p : points) {
    samples[shape_of(p, keys)].push_back(p.value);
  }
  std::map<Shape, double> out;
  for (const auto& [shape, times] : samples) {
    out[shape] = median(times);
  }
  return out;
}

std::vector<std::string> rows_of(const std::map<Shape, double>& times) {
  std::vector<std::string> rows;
  for (const auto& [shape, seconds] : times) {
    std::string row;
    for (const double x : shape) {
      row += fmt::format("{:.0f}, ", x);
    }
    rows.push_back(row + time_text(seconds));
  }
  return rows;
}

// How far the model is off on a shape that it has not seen, as cost.h states it.
double product_error(const std::map<Shape, double>& products) {
  // The peak and the bandwidth cancel in the correction's constants: any will do.
  constexpr double kPeak = 1e15;
  constexpr double kBandwidth = 4e12;
  std::vector<machine::Sample> samples;
  for (const auto& [shape, seconds] : products) {
    const machine::Estimate e =
        machine::product_estimate({shape[0], shape[1], shape[2]}, kPeak, kBandwidth, 2);
    samples.push_back({e.features, e.where, std::log(seconds / e.seconds)});
  }
  return leave_one_out(samples);
}

void add_products(Figures& figures, Section& out) {
  const std::vector<Point> points = figures.records.of("gemm", {{"type", "bf16"}});
  const std::map<Shape, double> products = by_shape(points, {"m", "k", "n"});
  if (products.size() < 4) {
    return;
  }
  const double error = product_error(products);
  out.add("gemm", figures.table(
                      "accelerator.gemm", rows_of(products),
                      {"gemm", "rows are m, k, n, time; bf16, median over layouts; leaving one out",
                       largest_spread(points), error}));
}

void add_attention(Figures& figures, Section& out, const std::string& key,
                   const std::vector<Point>& points) {
  const std::map<Shape, double> times =
      by_shape(points, {"batch", "heads", "sequence", "head_dim"});
  if (times.size() >= 3) {
    const std::string how = "rows are batch, heads, sequence, head size, time; causal, bf16";
    out.add(key, figures.table("accelerator." + key, rows_of(times),
                               {points.front().bench, how, 0.05, {}}));
  }
}

// A direction of attention, or of the products that a replay runs in its place.
std::vector<Point> passes(const Records& records, const std::string& bench, double backward) {
  std::vector<Point> points = records.of(bench);
  std::erase_if(points, [&](const Point& p) { return p.number("backward") != backward; });
  return points;
}

void add_elementwise(Figures& figures, Section& out) {
  const std::vector<Point> points = figures.records.of("elementwise");
  const std::vector<Point> floor = figures.records.of("kernel_floor");
  std::vector<std::pair<std::string, std::string>> curve;
  for (const Point& p : points) {
    if (floor.empty() || p.value > kAboveFloor * floor.front().value) {
      curve.emplace_back(size_text(p.number("bytes")), rate_text(p.number("bytes") / p.value));
    }
  }
  if (!curve.empty()) {
    out.add("elementwise",
            figures.curve("accelerator.elementwise", curve,
                          {"elementwise", "bytes read plus written", largest_spread(points), {}}));
  }
}

// A product beside what else a step runs, over the same in the table: what power takes.
void add_sustained(Figures& figures, Section& out) {
  for (const Point& step : figures.records.of("gemm_in_step")) {
    std::vector<double> rows;
    for (const Point& row : figures.records.of("gemm", {{"type", step.word("type")}})) {
      if (row.number("m") == step.number("m") && row.number("n") == step.number("n") &&
          row.number("k") == step.number("k")) {
        rows.push_back(row.value);
      }
    }
    if (!rows.empty()) {
      out.add(
          "sustained",
          figures.value("accelerator.sustained", fmt::format("{:.3f}", step.value / median(rows)),
                        {"gemm_in_step", "over the same product in gemm", 0.03, {}}));
    }
  }
}

// PyTorch's fused Adam where it was measured; ours, which a replay runs, beside it.
void add_adam(Figures& figures, Section& out, const std::string& type) {
  const std::vector<Point> theirs = figures.records.of("torch_launch", {{"what", "adam_" + type}});
  const std::vector<Point> ours = figures.records.of("gpu_adam", {{"type", type}});
  const auto add = [&](const std::string& key, const Point& p) {
    out.add(key, figures.value("accelerator." + key, elements_text(p.number("elements") / p.value),
                               {p.bench, p.where(), p.spread, {}}));
  };
  if (!theirs.empty()) {
    add("adam_" + type, theirs.back());
  } else if (!ours.empty()) {
    add("adam_" + type, ours.back());
  }
  if (!ours.empty()) {
    add("standin_adam_" + type, ours.back());
  }
}

// Host seconds of PyTorch's Python. What DeepSpeed's and FSDP2's hooks take was measured on another
// host: it goes with what a layer's kernels take here and there.
void add_python(Figures& figures, const machine::Framework& f, Section& out) {
  struct Host {
    const char* key;
    const char* what;  // of the bench; none: scaled
    double there;
  };
  const std::array<Host, 14> hosts{
      {{"launch", "launch", f.launch.value.value},
       {"launch_forward", "forward", f.launch_forward.value.value},
       {"launch_backward", "backward", f.launch_backward.value.value},
       {"copy_call", "copy_call", f.copy_call.value.value},
       {"optimizer_tensor", "optimizer_tensor", f.optimizer_tensor.value.value},
       {"checkpoint_call", nullptr, f.checkpoint_call.value.value},
       {"optimizer_object", nullptr, f.optimizer_object.value.value},
       {"distributed_operation", nullptr, f.distributed_operation.value.value},
       {"module_hook", nullptr, f.module_hook.value.value},
       {"module_hook_early", nullptr, f.module_hook_early.value.value},
       {"gradient_hook", nullptr, f.gradient_hook.value.value},
       {"step_tensor", nullptr, f.step_tensor.value.value},
       {"unshard_tensor", nullptr, f.unshard_tensor.value.value},
       {"reduce_tensor", nullptr, f.reduce_tensor.value.value}}};
  double logs = 0;
  int layers = 0;
  for (const Host& host : hosts) {
    const auto points = host.what != nullptr
                            ? figures.records.of("torch_launch", {{"what", host.what}})
                            : std::vector<Point>{};
    if (points.empty()) {
      continue;
    }
    out.add(host.key,
            figures.value(fmt::format("framework.{}", host.key), time_text(points.front().value),
                          {"torch_launch", host.what, points.front().spread, {}}));
    if (std::string_view(host.key).starts_with("launch_")) {
      logs += std::log(points.front().value / host.there);
      ++layers;
    }
  }
  for (const Host& host : hosts) {
    if (host.what == nullptr && layers > 0) {
      const double ratio = std::exp(logs / layers);
      out.add(host.key,
              figures.assumed(fmt::format("framework.{}", host.key), time_text(host.there * ratio),
                              fmt::format("{} x {:.2f}, as a layer's launches here",
                                          time_text(host.there), ratio)));
    }
  }
}

// Pinned copies of one direction on the node where they are fastest.
struct Copies {
  Line line;
  std::size_t count = 0;
  double spread = 0;
};
Copies pinned_copies(const Records& records, std::string_view direction) {
  std::map<double, std::vector<Point>> by_node;
  for (const Point& p : records.of("copy", {{"direction", direction}, {"memory", "pinned"}})) {
    by_node[p.number("node")].push_back(p);
  }
  Copies best;
  for (const auto& [node, points] : by_node) {
    Points times;
    for (const Point& p : points) {
      times.emplace_back(p.number("bytes"), p.value);
    }
    const Line line = fit_line(times);
    if (best.count == 0 || line.rate > best.line.rate) {
      best = {line, points.size(), largest_spread({points.back()})};
    }
  }
  return best;
}

void add_pageable(Figures& figures, Section& out, std::string_view direction) {
  const std::vector<Point> points =
      figures.records.of("copy", {{"direction", direction}, {"memory", "pageable"}});
  std::vector<std::pair<std::string, std::string>> curve;
  for (const Point& p : points) {
    if (p.number("node") == points.front().number("node")) {
      curve.emplace_back(size_text(p.number("bytes")), rate_text(p.number("bytes") / p.value));
    }
  }
  if (!curve.empty()) {
    out.add(fmt::format("pageable_{}", direction),
            figures.curve(fmt::format("link.pageable_{}", direction), curve,
                          {"copy", "pageable, by size", 0.10, {}}));
  }
}

}  // namespace

Section accelerator_figures(Figures& figures) {
  Section out;
  if (const auto total = figures.records.of("gpu_memory", {{"what", "total"}}); !total.empty()) {
    out.add("memory",
            figures.value("accelerator.memory", fmt::format("{:.0f} B", total.front().value),
                          {"gpu_memory", "total", 0, {}}));
  }
  add_sustained(figures, out);
  if (const auto floor = figures.records.of("kernel_floor"); !floor.empty()) {
    out.add("kernel_floor",
            figures.value("accelerator.kernel_floor", time_text(floor.front().value),
                          {"kernel_floor", "", floor.front().spread, {}}));
  }
  add_products(figures, out);
  for (const std::string bench : {"attention", "standin_attention"}) {
    add_attention(figures, out, bench + "_forward", passes(figures.records, bench, 0));
    add_attention(figures, out, bench + "_backward", passes(figures.records, bench, 1));
  }
  add_elementwise(figures, out);
  add_adam(figures, out, "f32");
  add_adam(figures, out, "bf16");
  return out;
}

Section framework_figures(Figures& figures, const machine::Framework& framework) {
  Section out;
  add_python(figures, framework, out);
  if (const auto indexed = figures.records.of("indexed");
      !indexed.empty() && figures.records.environment.multiprocessors > 0) {
    const double each =
        indexed.back().value / static_cast<double>(figures.records.environment.multiprocessors);
    out.add("indexed", figures.value("framework.indexed", elements_text(each),
                                     {"indexed", "a multiprocessor", 0.10, {}}));
  }
  if (const auto threshold = figures.records.of("map_threshold"); !threshold.empty()) {
    out.add("map_threshold",
            figures.value("framework.map_threshold", size_text(threshold.front().value),
                          {"map_threshold", "", 0, {}}));
  }
  return out;
}

Section link_figures(Figures& figures) {
  Section out;
  const Copies h2d = pinned_copies(figures.records, "h2d");
  const Copies d2h = pinned_copies(figures.records, "d2h");
  if (h2d.count == 0 || d2h.count == 0) {
    return out;
  }
  for (const auto& [key, copies] : {std::pair{"h2d", &h2d}, {"d2h", &d2h}}) {
    out.add(key,
            figures.value(fmt::format("link.{}", key), rate_text(copies->line.rate),
                          {"copy", fmt::format("pinned, a line through {} sizes", copies->count),
                           copies->spread, copies->line.residual}));
  }
  double both = 0;
  for (const Point& p : figures.records.of("copy", {{"direction", "both"}, {"memory", "pinned"}})) {
    if (p.number("bytes") >= kDuplexBytes) {
      both = std::max(both, 2 * p.number("bytes") / p.value);
    }
  }
  const double one_way = std::max(h2d.line.rate, d2h.line.rate);
  out.add("total", both > 0
                       ? figures.value("link.total", rate_text(std::max(both, one_way)),
                                       {"copy", "both directions at once, pinned", 0.03, {}})
                       : figures.value("link.total", rate_text(one_way),
                                       {"copy", "one direction: both were not measured", 0.5, {}}));
  const double latency = (h2d.line.start + d2h.line.start) / 2;
  out.add("latency", figures.value("link.latency", time_text(std::max(latency, 0.1e-6)),
                                   {"copy", "where the lines begin", 0.5, {}}));
  add_pageable(figures, out, "h2d");
  add_pageable(figures, out, "d2h");
  return out;
}

Section uplink_figures(Figures& figures) {
  const std::int64_t gpus = figures.records.environment.gpus;
  Section out;
  for (const auto& [key, direction] :
       {std::pair{"h2d", "h2d"}, {"d2h", "d2h"}, {"total", "both"}}) {
    for (const Point& p : figures.records.of("gpus_at_once", {{"direction", direction}})) {
      if (p.number("gpus") == static_cast<double>(gpus)) {
        out.add(key, figures.value(fmt::format("uplink.{}", key), rate_text(p.value),
                                   {p.bench, p.where(), p.spread, {}}));
      }
    }
  }
  if (!out.empty()) {
    out.add("gpus", fmt::format("{}", gpus));
  }
  return out;
}

std::optional<std::string> peer_figure(Figures& figures) {
  const auto points = figures.records.of("peer_copy", {{"direction", "one"}});
  if (points.empty()) {
    return std::nullopt;
  }
  const Point& p = points.front();
  return figures.value("peer", rate_text(p.value), {p.bench, p.where(), p.spread, {}});
}

}  // namespace offsim::calibrate
