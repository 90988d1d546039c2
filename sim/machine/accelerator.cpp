// Reads an accelerator and fits its corrections.
#include <fmt/format.h>

#include <cmath>

#include "sim/machine/formulas.h"
#include "sim/machine/parts.h"

namespace offsim::machine {

namespace {

// Whether the figure is measured: a table or curve in place of an efficiency.
bool is_measured(View& map, std::string_view key) {
  const Node* const node = map.get(key);
  return node != nullptr && (node->find("rows") != nullptr || node->find("points") != nullptr);
}

// Rows of measured kernels: their sizes, then the time.
FigureReader::Table kernel_rows(View& map, std::string_view key, std::size_t sizes,
                                FigureReader& figures) {
  std::vector<Parse> columns(sizes, parse_count);
  columns.push_back(as_time);
  return figures.table(map, key, columns);
}

Sample sample(const Estimate& estimate, double seconds) {
  return {estimate.features, estimate.where, std::log(seconds / estimate.seconds)};
}

Efficiency fitted(const std::vector<Sample>& samples, FigureId figure, const View& map,
                  std::string_view key) {
  if (samples.empty() || samples.size() < samples.front().features.size()) {
    throw InputError(map.place_of(key), fmt::format("{}.{} has too few rows", map.path(), key),
                     "expected at least three, or an efficiency: {value: 70 %, ...}");
  }
  return {fit_correction(samples), figure};
}

Efficiency read_product(View& map, FigureReader& figures, const Accelerator& a) {
  if (!is_measured(map, "gemm")) {
    const Known<double> efficiency = figures.fraction(map, "gemm");
    return {unmeasured_product(efficiency.value), efficiency.figure};
  }
  const auto table = kernel_rows(map, "gemm", 3, figures);
  std::vector<Sample> samples;
  for (const auto& row : table.rows) {
    samples.push_back(sample(product_estimate({row[0], row[1], row[2]}, a.bf16.value.value,
                                              a.memory_bandwidth.value.value, 2),
                             row[3]));
  }
  return fitted(samples, table.figure, map, "gemm");
}

Efficiency read_attention(View& map, std::string_view key, FigureReader& figures,
                          const Accelerator& a, bool backward) {
  if (!is_measured(map, key)) {
    const Known<double> efficiency = figures.fraction(map, key);
    return {unmeasured_attention(efficiency.value, backward), efficiency.figure};
  }
  const auto table = kernel_rows(map, key, 4, figures);
  std::vector<Sample> samples;
  for (const auto& row : table.rows) {
    samples.push_back(sample(
        attention_estimate({row[0], row[1], row[2], row[3], true, backward}, a.bf16.value.value),
        row[4]));
  }
  return fitted(samples, table.figure, map, key);
}

Curve read_elementwise(View& map, FigureReader& figures, const Accelerator& a) {
  if (is_measured(map, "elementwise")) {
    return figures.curve(map, "elementwise", as_bytes, as_bandwidth);
  }
  const Known<double> efficiency = figures.fraction(map, "elementwise");
  return {{1}, {efficiency.value * a.memory_bandwidth.value.value}, efficiency.figure};
}

// Without units of its own for a type, an accelerator computes it at the fp32 rate.
void read_peaks(View map, FigureReader& figures, Accelerator& a) {
  a.fp32 = figures.flops(map, "fp32");
  const auto peak = [&](std::string_view key) {
    return map.get(key) != nullptr ? figures.flops(map, key) : a.fp32;
  };
  a.bf16 = peak("bf16");
  a.fp16 = peak("fp16");
  a.tf32 = peak("tf32");
  map.finish();
}

// The peaks and the memory of a map, without its name and kernels: what a scaled fit needs.
void read_rates(View& map, FigureReader& figures, Accelerator& a) {
  a.memory_bandwidth = figures.bandwidth(map, "memory_bandwidth");
  read_peaks(map.map("peak"), figures, a);
}

// Where `like` has filled a model already, the map may still have its own.
void read_kernels(View& map, FigureReader& figures, Accelerator& a, bool filled) {
  const auto own = [&](std::string_view key) { return !filled || map.get(key) != nullptr; };
  if (own("gemm")) {
    a.gemm = read_product(map, figures, a);
  }
  if (own("attention_forward")) {
    a.attention_forward = read_attention(map, "attention_forward", figures, a, false);
  }
  if (own("attention_backward")) {
    a.attention_backward = read_attention(map, "attention_backward", figures, a, true);
  }
  if (map.get("standin_attention_forward") != nullptr) {
    a.standin_forward = read_attention(map, "standin_attention_forward", figures, a, false);
  }
  if (map.get("standin_attention_backward") != nullptr) {
    a.standin_backward = read_attention(map, "standin_attention_backward", figures, a, true);
  }
  if (own("elementwise")) {
    a.elementwise = read_elementwise(map, figures, a);
  }
}

// The measured shares of another machine's peaks, as one figure of this one.
void read_like(View like, FigureReader& figures, const FindLike& find_like, Accelerator& a) {
  const Place at = like.place_of("machine");
  const std::string machine = like.text("machine");
  const Node node = find_like(machine, at);
  const FigureId figure = figures.add(like, 1, "efficiency shares taken from " + machine);

  std::vector<Figure> of_other;
  FigureReader other_figures(of_other);
  View other(node, "accelerator");
  Accelerator b;
  read_rates(other, other_figures, b);
  read_kernels(other, other_figures, b, false);
  a.gemm = {b.gemm.correction, figure};
  a.attention_forward = {b.attention_forward.correction, figure};
  a.attention_backward = {b.attention_backward.correction, figure};
  a.elementwise = b.elementwise;
  a.elementwise.figure = figure;
  for (double& rate : a.elementwise.y) {
    rate *= a.memory_bandwidth.value / b.memory_bandwidth.value;
  }
}

}  // namespace

Accelerator read_accelerator(View map, FigureReader& figures, const FindLike& find_like) {
  Accelerator a;
  a.name = map.text("name");
  a.vendor = map.text("vendor");
  a.multiprocessors = static_cast<int>(map.integer("multiprocessors", 1, 10'000));
  a.unified = map.boolean("unified", false);
  a.gpudirect = map.boolean("gpudirect", true);
  a.memory = figures.bytes(map, "memory");
  a.sustained = figures.number(map, "sustained");
  a.kernel_floor = figures.time(map, "kernel_floor");
  read_rates(map, figures, a);
  std::optional<View> like = map.find_map("like");
  if (like) {
    read_like(*like, figures, find_like, a);
  }
  read_kernels(map, figures, a, like.has_value());
  for (auto [key, rate] : {std::pair{"adam_f32", &a.adam_f32},
                           {"adam_bf16", &a.adam_bf16},
                           {"standin_adam_f32", &a.standin_adam_f32},
                           {"standin_adam_bf16", &a.standin_adam_bf16}}) {
    if (map.get(key) != nullptr) {
      *rate = figures.elements(map, key);
    }
  }
  map.finish();
  return a;
}

}  // namespace offsim::machine
