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
constexpr std::size_t kGap = 2;

// What tells rows apart: a column of each thing that varies; the rest is said once.
struct Identity {
  Lines headers;
  std::vector<Lines> columns;  // by header, then by row
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
  Identity identity;
  for (const auto& [header, member] : kColumns) {
    Lines texts;
    for (const ComparisonRow& row : rows) {
      texts.push_back(row.*member);
    }
    const bool alike = std::ranges::count(texts, texts.front()) == std::ssize(texts);
    const bool last = member == &ComparisonRow::plan;
    if (alike && !(last && identity.columns.empty())) {  // something has to name the row
      identity.common.push_back(texts.front());
      continue;
    }
    identity.headers.emplace_back(header);
    identity.columns.push_back(std::move(texts));
  }
  return identity;
}

// A word that all texts begin with becomes the header: "micro-batch" of "micro-batch 2 x 2,048".
void factor_word(std::string& header, Lines& texts) {
  const std::string word = texts.front().substr(0, texts.front().find(' ') + 1);
  if (!word.empty() && std::ranges::all_of(texts, [&](const std::string& text) {
        return text.starts_with(word) && text != word;
      })) {
    header = word.substr(0, word.size() - 1);
    for (std::string& text : texts) {
      text.erase(0, word.size());
    }
  }
}

// The header and a line for each row.
Lines name_lines(Identity identity) {
  std::vector<Table::Column> columns;
  for (std::size_t i = 0; i < identity.columns.size(); ++i) {
    factor_word(identity.headers[i], identity.columns[i]);
    columns.push_back({identity.headers[i]});
  }
  Table table(columns);
  for (std::size_t row = 0; row < identity.columns.front().size(); ++row) {
    Lines cells;
    for (const Lines& column : identity.columns) {
      cells.push_back(column[row]);
    }
    table.add_row(cells);
  }
  return lines_of(table.text());
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
                                      gib_number(pool.needed()), gib_text(*pool.capacity))));
    }
  }
  return pools.empty() ? "" : "does not fit: " + join(pools, ", ");
}

std::string needed(const study::PoolReport* pool) {
  return pool == nullptr ? "" : gib_number(pool->needed());
}

Lines numbers(const ComparisonRow& row, bool published) {
  const study::Prediction& p = row.prediction;
  const bool unified = p.pool("unified") != nullptr;
  Lines cells{three_digits(p.step.value),
              three_digits(p.tokens_per_s),
              three_digits(p.tflops_six_nd),
              needed(p.pool(unified ? "unified" : "gpu")),
              unified ? "shared" : needed(p.pool("host")),
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

// One line a row, `right` beside `left`; a reason may take more below its first.
std::string side_by_side(const Lines& left, const std::vector<Lines>& right,
                         const TextStyle& style) {
  const std::size_t column = widest(left) + kGap;
  std::string out;
  for (std::size_t row = 0; row < left.size(); ++row) {
    std::string line = std::string(kIndent, ' ') + left[row];
    for (const std::string& text : right[row]) {
      line.append(kIndent + column - visible_width(line), ' ').append(text);
      line.erase(line.find_last_not_of(' ') + 1);
      out += (row == 0 ? paint(line, Ink::kBold, style) : line) + "\n";
      line.clear();
    }
  }
  return out;
}

// Two lines a row: what it is, then its numbers.
std::string stacked(const Identity& identity, const std::vector<Lines>& right, std::size_t width,
                    const TextStyle& style) {
  const std::string inner(2 * kIndent, ' ');
  std::string out = paint(inner + right[0][0], Ink::kBold, style) + "\n";
  for (std::size_t row = 0; row + 1 < right.size(); ++row) {
    Lines cells;
    for (const Lines& column : identity.columns) {
      cells.push_back(column[row]);
    }
    const Lines name = wrap(join(cells, ", "), width - inner.size());
    for (std::size_t i = 0; i < name.size(); ++i) {
      out += (i == 0 ? std::string(kIndent, ' ') : inner) + name[i] + "\n";
    }
    for (const std::string& text : right[row + 1]) {
      out += inner + text + "\n";
    }
  }
  return out;
}

std::string table_text(const Rows& rows, const Identity& identity, bool published,
                       const TextStyle& style) {
  const Lines left = name_lines(identity);
  const Lines numbers = number_lines(rows, published);
  const auto width = page_width(style);
  const std::size_t column = kIndent + widest(left) + kGap;
  const bool beside = column + widest(numbers) <= width;
  std::vector<Lines> right{{numbers[0]}};
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::string why = reason(rows[i]);
    right.push_back(why.empty() ? Lines{numbers[i + 1]}
                                : wrap(why, width - (beside ? column : 2 * kIndent)));
  }
  return beside ? side_by_side(left, right, style) : stacked(identity, right, width, style);
}

std::string legend(const Rows& rows, bool published, const TextStyle& style) {
  std::string text =
      "TFLOPS: 6ND, of each GPU. GPU, host: GiB at the peak and what is fixed. $/Mtoken: dollars "
      "for "
      "a million tokens.";
  Lines sources;
  for (const ComparisonRow& row : rows) {
    const std::string& from = row.published_from;
    if (row.published_tflops && std::ranges::find(sources, from) == sources.end()) {
      sources.push_back(from);
    }
  }
  if (published) {
    text += " Published: TFLOPS of " + join(sources, "; ");
  }
  return paragraph("  ", text, style);
}

}  // namespace

std::string comparison_text(std::string_view title, const Rows& rows, const TextStyle& style) {
  std::string out;
  for (const std::string& line : wrap(title, page_width(style))) {
    out += line.empty() ? "" : paint(line, Ink::kBold, style) + "\n";
  }
  if (rows.empty()) {
    return out + "  nothing to compare\n";
  }
  const bool published = std::ranges::any_of(
      rows, [](const ComparisonRow& row) { return row.published_tflops.has_value(); });
  const Identity identity = identify(rows);
  Lines common;
  for (const std::string& part : identity.common) {
    if (!part.empty() && title.find(part) == std::string_view::npos) {
      common.push_back(part);
    }
  }
  if (!common.empty()) {
    out += paragraph("", join(common, ", "), style);
  }
  return out + "\n" + table_text(rows, identity, published, style) + "\n" +
         legend(rows, published, style);
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
