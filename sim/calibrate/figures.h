// Writes figures of a machine file, and keeps the list of what was fitted. Not public.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/calibrate/fits.h"
#include "sim/calibrate/machine_file.h"
#include "sim/calibrate/records.h"

namespace offsim::calibrate {

// A map of YAML, key by key in order; values are flow YAML or maps of their own.
class Section {
 public:
  void add(std::string key, std::string value) {
    entries_.emplace_back(std::move(key), std::move(value));
  }
  void add(std::string key, const Section& map);
  void append(const Section& more);  // its entries after these
  bool has(std::string_view key) const;
  bool empty() const { return entries_.empty(); }
  std::string text(int indent) const;

 private:
  std::vector<std::pair<std::string, std::string>> entries_;
  std::vector<std::pair<std::size_t, Section>> maps_;  // by entry
};

std::string rate_text(double bytes_per_second);  // "55 GB/s"
std::string elements_text(double per_second);    // "4.1 G/s"
std::string time_text(double seconds);           // "1.6 us"
std::string size_text(double bytes);             // "4 MiB"

// How a figure was come by.
struct Basis {
  std::string bench;  // "copy"
  std::string how;    // "pinned, a line through 9 sizes"
  double spread = 0;  // at least 1 %
  std::optional<double> residual;
};

class Figures {
 public:
  Figures(const Records& of, std::string raw) : records(of), raw_(std::move(raw)) {}

  const Records& records;

  // {value: ..., source: measured, ...}; noted under `name`.
  std::string value(std::string_view name, const std::string& text, const Basis& basis);
  // {points: [[x, y], ...], ...}, both as text.
  std::string curve(std::string_view name,
                    const std::vector<std::pair<std::string, std::string>>& points,
                    const Basis& basis);
  // As value, but concluded: {value: ..., source: assumed, spread: 25 %, from: REASON}.
  std::string assumed(std::string_view name, const std::string& text, const std::string& reason);
  // rows: cells separated by commas, in a block of lines.
  Section table(std::string_view name, const std::vector<std::string>& rows, const Basis& basis);

  const std::vector<Fitted>& fitted() const { return fitted_; }

 private:
  std::string source(const Basis& basis) const;
  void note(std::string_view name, std::string value, const Basis& basis);

  std::string raw_;
  std::vector<Fitted> fitted_;
};

double largest_spread(const std::vector<Point>& points);

// The parts of a machine file that were measured; empty where nothing was.
Section accelerator_figures(Figures& figures);
// Host seconds of the framework's Python where PyTorch was there; those that were not measured are
// scaled by those that were.
Section framework_figures(Figures& figures, const machine::Framework& framework);
Section link_figures(Figures& figures);
Section drive_figures(Figures& figures);
// What all GPUs of the machine reach at once; and, a value, one GPU towards another.
Section uplink_figures(Figures& figures);
std::optional<std::string> peer_figure(Figures& figures);
// Of a host whose benches ran; what they cannot say (pinned_alloc and dma_weight without a GPU) is
// missing from it.
Section host_figures(Figures& figures, const machine::Framework& framework);

}  // namespace offsim::calibrate
