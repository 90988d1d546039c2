// The table of several predictions and the price of a token budget (text.h).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <utility>

#include "sim/base/error.h"
#include "sim/base/language.h"
#include "sim/base/quantity.h"
#include "sim/base/table.h"
#include "sim/base/text.h"
#include "sim/report/layout.h"
#include "sim/report/text.h"

namespace offsim::report {

namespace {

using Align = Table::Align;
using Lines = std::vector<std::string>;
using Rows = std::vector<ComparisonRow>;

constexpr std::size_t kIndent = 2;
constexpr std::size_t kGap = 2;

// What is said of a row in one column: what all rows share is said once, above the table.
using Facts = Lines;

Facts model_of(const plans::Job& job) { return {job.shape.name}; }
Facts hardware_of(const plans::Job& job) { return {job.machine.name}; }

Facts batch_of(const plans::Job& job) {
  const plans::Workload& work = job.workload;
  std::string text =
      fmt::format("{} x {}", work.micro_batch, with_commas(static_cast<double>(work.sequence)));
  return {work.accumulation > 1 ? fmt::format("{} x {}", text, work.accumulation) : text};
}

// Only what is not the default, so that rows with different settings differ.
Facts settings_of(const plans::Job& job) {
  const plans::Workload& work = job.workload;
  const plans::Workload usual;
  Facts facts;
  if (work.gpus != usual.gpus) {
    facts.push_back(tr_format("{} GPUs", work.gpus));
  }
  if (work.checkpointing != usual.checkpointing) {
    facts.push_back(tr_format("checkpointing {}", plans::to_string(work.checkpointing)));
  }
  if (work.precision != usual.precision) {
    facts.emplace_back(plans::to_string(work.precision));
  }
  if (work.activation_offload != plans::ActivationOffload::kNone) {
    facts.push_back(tr_format("activations {}", plans::to_string(work.activation_offload)));
  }
  if (job.shape.adapters.any()) {
    facts.push_back(adapters_text(job.shape.adapters));
  }
  if (work.phase_sync) {
    facts.push_back(tr("phases synchronised"));
  }
  if (const std::string loader = loader_text(work); !loader.empty()) {
    facts.push_back(loader);
  }
  return facts;
}

Facts plan_of(const plans::Job& job) {
  Facts facts{std::string(job.plan->name)};
  for (const plans::OptionSpec& spec : job.plan->options) {
    if (job.options.given(spec.name)) {
      facts.push_back(fmt::format("{}={}", spec.name, job.options.text(spec.name)));
    }
  }
  return facts;
}

struct ColumnKind {
  const char* header;
  const char* prefix;  // before the facts where they stand without the header
  bool is_list;        // its facts are listed; else they are words of one
  Facts (*facts)(const plans::Job& job);
};
constexpr std::array<ColumnKind, 5> kColumns{{
    {"model", "", false, model_of},
    {"hardware", "", false, hardware_of},
    {"micro-batch", "micro-batch ", false, batch_of},
    {"settings", "", true, settings_of},
    {"plan", "", false, plan_of},  // last: it is there in any case
}};

std::string text_of(const Facts& facts, const ColumnKind& kind) {
  return kind.is_list ? listed(facts) : join(facts, " ");
}

// What tells rows apart: a column of each thing that varies; the rest is said once.
struct Identity {
  struct Column {
    const ColumnKind* kind;
    Lines cells;  // by row

    std::string alone(std::size_t row) const {
      return cells[row].empty() ? "" : kind->prefix + cells[row];
    }
  };
  std::vector<Column> columns;
  Lines common;

  // A row by itself, in one line.
  std::string name(std::size_t row) const {
    Lines parts;
    for (const Column& column : columns) {
      parts.push_back(column.alone(row));
    }
    std::erase(parts, "");
    return listed(parts);
  }
};

// What every row says, in the order of the first.
Facts shared_of(const std::vector<Facts>& facts) {
  Facts shared = facts.front();
  std::erase_if(shared, [&](const std::string& fact) {
    return !std::ranges::all_of(
        facts, [&](const Facts& row) { return std::ranges::find(row, fact) != row.end(); });
  });
  return shared;
}

Identity identify(const Rows& rows) {
  Identity identity;
  for (const ColumnKind& kind : kColumns) {
    std::vector<Facts> facts;
    for (const ComparisonRow& row : rows) {
      facts.push_back(kind.facts(*row.job));
    }
    Facts shared = shared_of(facts);
    const auto said = [&](const Facts& row) { return row.size() == shared.size(); };
    const bool alike = std::ranges::all_of(facts, said);
    const bool last = &kind == &kColumns.back();
    if (last && std::ranges::any_of(facts, said) && (!alike || identity.columns.empty())) {
      shared.clear();  // something has to name each row
    }
    if (!shared.empty()) {
      identity.common.push_back(kind.prefix + text_of(shared, kind));
    }
    Identity::Column column{&kind, {}};
    for (Facts& row : facts) {
      std::erase_if(row, [&](const std::string& fact) {
        return std::ranges::find(shared, fact) != shared.end();
      });
      column.cells.push_back(text_of(row, kind));
    }
    if (std::ranges::any_of(column.cells, [](const std::string& cell) { return !cell.empty(); })) {
      identity.columns.push_back(std::move(column));
    }
  }
  return identity;
}

// The header and a line for each row.
Lines name_lines(const Identity& identity, std::size_t rows) {
  std::vector<Table::Column> columns;
  for (const Identity::Column& column : identity.columns) {
    columns.push_back({tr(column.kind->header)});
  }
  Table table(columns);
  for (std::size_t row = 0; row < rows; ++row) {
    Lines cells;
    for (const Identity::Column& column : identity.columns) {
      cells.push_back(column.cells[row]);
    }
    table.add_row(cells);
  }
  return lines_of(table.text());
}

// Why a row has no numbers; empty when it has.
std::string reason(const ComparisonRow& row) {
  if (!row.refused.empty()) {
    return placed_text(row.refused);
  }
  const std::string pools = misfit_text(row.prediction);
  return pools.empty() ? "" : tr_format("does not fit: {}", pools);
}

std::string needed(const study::PoolReport* pool) {
  return pool == nullptr ? "" : gib_number(pool->needed());
}

// Where the published figures that are shown are from, each once.
Lines sources_of(const Rows& rows) {
  Lines sources;
  for (const ComparisonRow& row : rows) {
    const std::string& from = row.published_from;
    if (row.published_tflops && reason(row).empty() &&
        std::ranges::find(sources, from) == sources.end()) {
      sources.push_back(from);
    }
  }
  return sources;
}

// " [2]" where there are several sources.
std::string mark_of(const std::string& from, const Lines& sources) {
  const auto found = std::ranges::find(sources, from);
  return sources.size() < 2 ? "" : fmt::format(" [{}]", found - sources.begin() + 1);
}

Lines numbers(const ComparisonRow& row, const Lines& sources) {
  const study::Prediction& p = row.prediction;
  const bool unified = p.pool("unified") != nullptr;
  Lines cells{three_digits(p.step.value),
              three_digits(p.tokens_per_s),
              three_digits(p.tflops_six_nd),
              needed(p.pool(unified ? "unified" : "gpu")),
              unified ? tr("shared") : needed(p.pool("host")),
              p.cost ? three_digits(p.cost->usd_per_million_tokens.value) : tr("no price")};
  if (!sources.empty()) {
    const auto& known = row.published_tflops;
    cells.push_back(known ? three_digits(*known) + mark_of(row.published_from, sources) : "");
    cells.push_back(known ? fmt::format("{:+.0f} %", 100 * (p.tflops_six_nd / *known - 1)) : "");
  }
  return cells;
}

Lines number_lines(const Rows& rows, const Lines& sources) {
  std::vector<Table::Column> columns;
  for (const char* const header : {"s/step", "tokens/s", "TFLOPS", "GPU", "host", "$/Mtoken"}) {
    columns.push_back({tr(header), Align::kRight});
  }
  if (!sources.empty()) {
    columns.push_back({tr("published"), Align::kRight});
    columns.push_back({tr("differs"), Align::kRight});
  }
  Table table(columns);
  for (const ComparisonRow& row : rows) {
    table.add_row(reason(row).empty() ? numbers(row, sources) : Lines{});
  }
  return lines_of(table.text());
}

std::size_t widest(const Lines& lines) {
  std::size_t width = 0;
  for (const std::string& line : lines) {
    width = std::max(width, display_width(line));
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
      line.append(kIndent + column - display_width(line), ' ').append(text);
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
    const Lines name = wrap(identity.name(row), width - inner.size());
    for (std::size_t i = 0; i < name.size(); ++i) {
      out += (i == 0 ? std::string(kIndent, ' ') : inner) + name[i] + "\n";
    }
    for (const std::string& text : right[row + 1]) {
      out += inner + text + "\n";
    }
  }
  return out;
}

std::string table_text(const Rows& rows, const Identity& identity, const Lines& sources,
                       const TextStyle& style) {
  const Lines left = name_lines(identity, rows.size());
  const Lines numbers = number_lines(rows, sources);
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

std::string legend(const Rows& rows, const Lines& sources, const TextStyle& style) {
  const bool adapters = std::ranges::any_of(
      rows, [](const ComparisonRow& row) { return row.job->shape.adapters.any(); });
  std::string text = tr_format(
      "TFLOPS: 6ND{}, of each GPU. GPU, host: GiB at the peak and what is fixed. "
      "$/Mtoken: dollars for a million tokens.",
      adapters ? tr(" (LoRA of n parameters: 4ND + 2nD)") : "");
  if (sources.empty()) {
    return paragraph("  ", text, style);
  }
  text += tr(" Published: TFLOPS of");
  if (sources.size() == 1) {
    return paragraph("  ", text + " " + sources.front(), style);
  }
  std::string out = paragraph("  ", text, style);
  for (const std::string& source : sources) {
    out += paragraph("   " + mark_of(source, sources) + " ", source, style);
  }
  return out;
}

// Each once: rows of one plan warn of the same.
Lines warnings_of(const Rows& rows) {
  Lines warnings;
  for (const ComparisonRow& row : rows) {
    for (const std::string& warning : row.prediction.warnings) {
      if (std::ranges::find(warnings, warning) == warnings.end()) {
        warnings.push_back(warning);
      }
    }
  }
  return warnings;
}

}  // namespace

std::string comparison_text(std::string_view title, const Rows& rows, const TextStyle& style) {
  std::string out;
  for (const std::string& line : wrap(title, page_width(style))) {
    out += line.empty() ? "" : paint(line, Ink::kBold, style) + "\n";
  }
  if (rows.empty()) {
    return out + "  " + tr("nothing to compare") + "\n";
  }
  const Lines sources = sources_of(rows);
  const Identity identity = identify(rows);
  Lines common;
  for (const std::string& part : identity.common) {
    if (title.find(part) == std::string_view::npos) {
      common.push_back(part);
    }
  }
  if (!common.empty()) {
    out += paragraph("", listed(common), style);
  }
  return out + "\n" + table_text(rows, identity, sources, style) + "\n" +
         legend(rows, sources, style) + warnings_text(warnings_of(rows), style);
}

std::string budget_text(const plans::Job& job, const study::Prediction& prediction, double tokens,
                        const TextStyle& style) {
  SIM_ASSERT(tokens > 0, "a budget has tokens");
  if (!prediction.feasible()) {
    return paragraph("", tr("no budget: the step does not fit"), style);
  }
  const double steps = std::ceil(tokens / static_cast<double>(job.workload.tokens_per_step()));
  const Seconds time = prediction.step * steps;
  const double hours = time.value / 3600;
  std::string text = steps == 1
                         ? tr_format("{} tokens take 1 step and {} hours", with_commas(tokens),
                                     three_digits(hours))
                         : tr_format("{} tokens take {} steps and {} hours", with_commas(tokens),
                                     with_commas(steps), three_digits(hours));
  text += tr_format(" ({} to {})", three_digits(prediction.step_low.value * steps / 3600),
                    three_digits(prediction.step_high.value * steps / 3600));
  text += prediction.cost ? tr_format(", and cost {} at {} an hour",
                                      show(prediction.cost->usd_per_step * steps),
                                      show(Usd(prediction.cost->usd_per_hour.value)))
                          : tr("; no price in the catalog: give --price");
  return paragraph("", text, style);
}

}  // namespace offsim::report
