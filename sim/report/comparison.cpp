// The table of several predictions and the price of a token budget (text.h).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <utility>

#include "sim/base/error.h"
#include "sim/base/quantity.h"
#include "sim/base/table.h"
#include "sim/report/layout.h"
#include "sim/report/text.h"

namespace offsim::report {

namespace {

using Align = Table::Align;
using Lines = std::vector<std::string>;
using Rows = std::vector<ComparisonRow>;

constexpr std::size_t kIndent = 2;
constexpr std::size_t kNarrowest = 24;  // what tells rows apart, where the table is too wide

// What tells rows apart: columns of what varies; the rest is said once.
struct Identity {
  std::vector<Table::Column> columns;
  std::vector<Lines> cells;  // by row
  Lines common;
};

Identity identify(const Rows& rows) {
  using Member = std::string ComparisonRow::*;
  static constexpr std::array<std::pair<const char*, Member>, 4> kColumns{{
      {"model", &ComparisonRow::model},
      {"hardware", &ComparisonRow::hardware},
      {"workload", &ComparisonRow::workload},
      {"plan", &ComparisonRow::plan},
  }};
  Identity identity{{}, std::vector<Lines>(rows.size()), {}};
  for (const auto& [header, member] : kColumns) {
    const std::string& first = rows.front().*member;
    const bool alike = std::ranges::all_of(
        rows, [&, m = member](const ComparisonRow& row) { return row.*m == first; });
    const bool last = member == &ComparisonRow::plan;  // something has to name the row
    if (alike && !(last && identity.columns.empty())) {
      if (!first.empty()) {
        identity.common.push_back(first);
      }
      continue;
    }
    identity.columns.push_back({header});
    for (std::size_t i = 0; i < rows.size(); ++i) {
      identity.cells[i].push_back(rows[i].*member);
    }
  }
  return identity;
}

// Why a row has no numbers; empty when it has.
std::string reason(const ComparisonRow& row) {
  if (!row.refused.empty()) {
    return row.refused;
  }
  Lines pools;
  for (const study::PoolReport& pool : row.prediction.pools) {
    if (!pool.fits()) {
      pools.push_back(tie(fmt::format("{} needs {} of {}", pool_title(pool.name),
                                      gib_text(pool.needed()), gib_text(*pool.capacity))));
    }
  }
  return pools.empty() ? "" : "does not fit: " + join(pools, ", ");
}

std::string tenths_of_gib(const study::PoolReport* pool) {
  const std::string text = pool == nullptr ? "" : gib_text(pool->needed());
  return text.substr(0, text.find(' '));
}

Lines numbers(const ComparisonRow& row, bool published) {
  const study::Prediction& p = row.prediction;
  const bool unified = p.pool("unified") != nullptr;
  Lines cells{three_digits(p.step.value),
              three_digits(p.tokens_per_s),
              three_digits(p.tflops_six_nd),
              tenths_of_gib(p.pool(unified ? "unified" : "gpu")),
              unified ? "shared" : tenths_of_gib(p.pool("host")),
              p.cost ? three_digits(p.cost->usd_per_million_tokens.value) : "no price"};
  if (published) {
    const auto& known = row.published_tflops;
    cells.push_back(known ? three_digits(*known) : "");
    cells.push_back(known ? fmt::format("{:+.0f} %", 100 * (p.tflops_six_nd / *known - 1)) : "");
  }
  return cells;
}

Lines number_lines(const Rows& rows, bool published) {
  std::vector<Table::Column> columns;
  for (const char* const header : {"s/step", "tokens/s", "TFLOPS", "GPU", "host", "$/Mtoken"}) {
    columns.push_back({header, Align::kRight});
  }
  if (published) {
    columns.push_back({"published", Align::kRight});
    columns.push_back({"differs", Align::kRight});
  }
  Table table(columns);
  for (const ComparisonRow& row : rows) {
    table.add_row(reason(row).empty() ? numbers(row, published) : Lines{});
  }
  return lines_of(table.text());
}

std::size_t widest(const Lines& lines) {
  std::size_t width = 0;
  for (const std::string& line : lines) {
    width = std::max(width, visible_width(line));
  }
  return width;
}

// The header's and each row's lines: one each, or wrapped where they have to be narrow.
std::vector<Lines> identity_blocks(const Identity& identity, std::size_t room) {
  Table table(identity.columns);
  for (const Lines& cells : identity.cells) {
    table.add_row(cells);
  }
  const Lines lines = lines_of(table.text());
  std::vector<Lines> blocks;
  if (widest(lines) <= room) {
    for (const std::string& line : lines) {
      blocks.push_back({line});
    }
    return blocks;
  }
  Lines headers;
  for (const Table::Column& column : identity.columns) {
    headers.push_back(column.header);
  }
  blocks.push_back(wrap(join(headers, " "), room));
  for (const Lines& cells : identity.cells) {
    blocks.push_back(wrap(join(cells, " "), room - kIndent));
    for (std::size_t i = 1; i < blocks.back().size(); ++i) {
      blocks.back()[i].insert(0, kIndent, ' ');
    }
  }
  return blocks;
}

std::string beside(const Lines& left, const Lines& right, std::size_t left_width) {
  std::string out;
  for (std::size_t i = 0; i < std::max(left.size(), right.size()); ++i) {
    const std::string_view l = i < left.size() ? std::string_view(left[i]) : "";
    const std::string_view r = i < right.size() ? std::string_view(right[i]) : "";
    std::string line(kIndent, ' ');
    line += l;
    line.append(left_width - visible_width(l) + 2, ' ').append(r);
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

std::string legend(const Rows& rows, bool published, const TextStyle& style) {
  std::string text = "TFLOPS are 6ND a GPU; GPU and host: GiB at the peak, with what is fixed.";
  Lines sources;
  for (const ComparisonRow& row : rows) {
    const std::string& from = row.published_from;
    if (row.published_tflops && std::ranges::find(sources, from) == sources.end()) {
      sources.push_back(from);
    }
  }
  if (published) {
    text += " Published TFLOPS: " + join(sources, "; ");
  }
  return paragraph("  ", text, style);
}

}  // namespace

std::string comparison_text(std::string_view title, const Rows& rows, const TextStyle& style) {
  std::string out;
  for (const std::string& line : wrap(title, static_cast<std::size_t>(style.width))) {
    out += line.empty() ? "" : paint(line, Ink::kBold, style) + "\n";
  }
  if (rows.empty()) {
    return out + "  nothing to compare\n";
  }
  const bool published = std::ranges::any_of(
      rows, [](const ComparisonRow& row) { return row.published_tflops.has_value(); });
  const Identity identity = identify(rows);
  const Lines right = number_lines(rows, published);
  const auto width = static_cast<std::size_t>(std::max(style.width, 0));
  const std::size_t taken = kIndent + 2 + widest(right);
  const std::vector<Lines> left =
      identity_blocks(identity, std::max(kNarrowest, width > taken ? width - taken : 0));
  std::size_t left_width = 0;
  for (const Lines& block : left) {
    left_width = std::max(left_width, widest(block));
  }
  if (!identity.common.empty()) {
    out += paragraph("", join(identity.common, ", "), style) + "\n";
  }
  out += paint(beside(left[0], {right[0]}, left_width), Ink::kBold, style);
  const std::size_t room = std::max(kNarrowest, width - std::min(width, kIndent + 2 + left_width));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::string why = reason(rows[i]);
    out += beside(left[i + 1], why.empty() ? Lines{right[i + 1]} : wrap(why, room), left_width);
  }
  return out + "\n" + legend(rows, published, style);
}

std::string budget_text(const plans::Job& job, const study::Prediction& prediction, double tokens,
                        const TextStyle& style) {
  SIM_ASSERT(tokens > 0, "a budget has tokens");
  if (!prediction.feasible()) {
    return paragraph("", "no budget: the step does not fit", style);
  }
  const double steps = std::ceil(tokens / static_cast<double>(job.workload.tokens_per_step()));
  const Seconds time = prediction.step * steps;
  const double hours = time.value / 3600;
  std::string text =
      fmt::format("{} tokens take {} {} and {} hours", with_commas(tokens), with_commas(steps),
                  steps == 1 ? "step" : "steps", three_digits(hours));
  text += fmt::format(" ({} to {})", three_digits(prediction.step_low.value * steps / 3600),
                      three_digits(prediction.step_high.value * steps / 3600));
  text += prediction.cost ? fmt::format(", and cost {} at {} an hour",
                                        show(prediction.cost->usd_per_step * steps),
                                        show(Usd(prediction.cost->usd_per_hour.value)))
                          : "; no price in the catalog: give --price";
  return paragraph("", text, style);
}

}  // namespace offsim::report
