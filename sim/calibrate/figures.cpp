#include "sim/calibrate/figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "sim/base/text.h"

namespace offsim::calibrate {

namespace {

constexpr double kLeastSpread = 0.01;  // two runs never agree better
constexpr double kAssumedSpread = 0.25;
constexpr std::size_t kWidest = 110;  // characters of a line of points

// "0.496 to 8.91 GB/s", of "495.9 MB/s" and "8.908 GB/s": in the unit of the second.
std::string range_text(const std::string& first, const std::string& last) {
  const std::size_t blank = first.find(' '), other = last.find(' ');
  if (blank == std::string::npos || other == std::string::npos) {
    return fmt::format("{} to {}", first, last);
  }
  const std::string unit = last.substr(other);
  const double scale = first.substr(blank) == " MB/s" && unit == " GB/s" ? 1e-3 : 1;
  if (scale == 1 && first.substr(blank) != unit) {
    return fmt::format("{} to {}", first, last);
  }
  return fmt::format("{:.3g} to {:.3g}{}", scale * std::stod(first), std::stod(last), unit);
}

std::string percent(double share) { return fmt::format("{:.0f} %", std::ceil(share * 100)); }

}  // namespace

void Section::add(std::string key, const Section& map) {
  maps_.emplace_back(entries_.size(), map);
  entries_.emplace_back(std::move(key), "");
}

void Section::append(const Section& more) {
  for (const auto& [entry, map] : more.maps_) {
    maps_.emplace_back(entries_.size() + entry, map);
  }
  entries_.insert(entries_.end(), more.entries_.begin(), more.entries_.end());
}

bool Section::has(std::string_view key) const {
  return std::ranges::any_of(entries_, [&](const auto& entry) { return entry.first == key; });
}

std::string Section::text(int indent) const {
  std::string out;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const auto& [key, value] = entries_[i];
    const auto map = std::ranges::find(maps_, i, &std::pair<std::size_t, Section>::first);
    if (map != maps_.end()) {
      out += fmt::format("{:{}}{}:\n{}", "", indent, key, map->second.text(indent + 2));
    } else if (value.starts_with("|")) {  // a block of lines
      std::string lines;
      for (const char c : value) {
        lines += c;
        if (c == '\n') {
          lines.append(static_cast<std::size_t>(indent + 2), ' ');
        }
      }
      lines.resize(lines.find_last_not_of(" \n") + 1);
      out += fmt::format("{:{}}{}: {}\n", "", indent, key, lines);
    } else {
      const char* const blank = value.starts_with("\n") ? "" : " ";
      out += fmt::format("{:{}}{}:{}{}\n", "", indent, key, blank, value);
    }
  }
  return out;
}

std::string rate_text(double bytes_per_second) {
  return bytes_per_second >= 1e9 ? fmt::format("{:.4g} GB/s", bytes_per_second / 1e9)
                                 : fmt::format("{:.4g} MB/s", bytes_per_second / 1e6);
}

std::string elements_text(double per_second) { return fmt::format("{:.4g} G/s", per_second / 1e9); }

std::string time_text(double seconds) { return fmt::format("{:.5g} us", seconds * 1e6); }

std::string size_text(double bytes) {
  const auto whole = static_cast<std::int64_t>(std::clamp(bytes, 0.0, 1e18));
  for (const auto& [unit, step] : {std::pair{"GiB", kGiB}, {"MiB", kMiB}, {"KiB", kKiB}}) {
    if (whole >= step && whole % step == 0) {
      return fmt::format("{} {}", whole / step, unit);
    }
  }
  return fmt::format("{} B", whole);
}

std::string Figures::source(const Basis& basis) const {
  const std::string how = basis.how.empty() ? "" : ", " + basis.how;
  return fmt::format("source: measured, spread: {}, from: {}",
                     percent(std::max(basis.spread, kLeastSpread)),
                     double_quoted(fmt::format("{}: {}{}, {}", raw_, basis.bench, how,
                                               records.environment.day())));
}

void Figures::note(std::string_view name, std::string value, const Basis& basis) {
  fitted_.push_back({std::string(name), std::move(value),
                     basis.how.empty() ? basis.bench : basis.bench + ": " + basis.how,
                     std::max(basis.spread, kLeastSpread), basis.residual});
}

std::string Figures::value(std::string_view name, const std::string& text, const Basis& basis) {
  note(name, text, basis);
  return fmt::format("{{value: {}, {}}}", text, source(basis));
}

std::string Figures::assumed(std::string_view name, const std::string& text,
                             const std::string& reason) {
  fitted_.push_back({std::string(name), text, reason, kAssumedSpread, {}});
  return fmt::format("{{value: {}, source: assumed, spread: {}, from: {}}}", text,
                     percent(kAssumedSpread), double_quoted(reason));
}

std::string Figures::curve(std::string_view name,
                           const std::vector<std::pair<std::string, std::string>>& points,
                           const Basis& basis) {
  std::string lines;
  std::size_t width = 0;
  for (const auto& [x, y] : points) {
    const std::string point = fmt::format("[{}, {}]", x, y);
    if (!lines.empty()) {
      lines += ",";
      lines += width + point.size() > kWidest ? "\n        " : " ";
    }
    width = width + point.size() > kWidest ? point.size() : width + point.size() + 2;
    lines += point;
  }
  note(name,
       points.size() == 1 ? points.front().second
                          : range_text(points.front().second, points.back().second),
       basis);
  return fmt::format("{{{},\n      points: [{}]}}", source(basis), lines);
}

Section Figures::table(std::string_view name, const std::vector<std::string>& rows,
                       const Basis& basis) {
  note(name, fmt::format("{} rows", rows.size()), basis);
  Section table;
  table.add("source", "measured");
  table.add("spread", percent(std::max(basis.spread, kLeastSpread)));
  table.add("from", double_quoted(fmt::format("{}: {}, {}, {}", raw_, basis.bench, basis.how,
                                              records.environment.day())));
  std::string lines = "|";
  for (const std::string& row : rows) {
    lines += "\n" + row;
  }
  table.add("rows", lines);
  return table;
}

double largest_spread(const std::vector<Point>& points) {
  double most = 0;
  for (const Point& p : points) {
    most = std::max(most, p.spread);
  }
  return most;
}

}  // namespace offsim::calibrate
