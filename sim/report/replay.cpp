#include "sim/report/replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <ostream>

#include "sim/base/table.h"
#include "sim/report/layout.h"

namespace offsim::report {

namespace {

using study::ReplayRow;
using study::ReplaySpan;

constexpr double kSmallRow = 0.01;  // of the step
constexpr const char* kNoHash =
    "no hash in these records: cannot tell whether they are of this program";

// What makes the two sides less comparable than they look.
std::vector<std::string> caveats(const plans::Job& job, const study::MeasuredReplay& measured) {
  std::vector<std::string> out;
  if (!measured.has_hash) {
    out.emplace_back(kNoHash);
  }
  const machine::Host& host = job.machine.host;
  if (!host.kernels.empty() && host.standins.empty()) {
    out.push_back(fmt::format(
        "{} has no CPU kernels of the replayer's own (standins): those it has may be PyTorch's",
        job.machine.name));
  }
  return out;
}

std::string difference(double measured, double predicted) {
  return measured > 0 ? fmt::format("{:+.0f} %", 100 * (predicted / measured - 1)) : "";
}

void add_time(Table& table, const std::string& name, double measured, double predicted,
              double step) {
  table.add_row({name, time_text(Seconds(measured), Seconds(step / 10)),
                 time_text(Seconds(predicted), Seconds(step / 10)),
                 name == study::kIssuing ? "" : difference(measured, predicted)});
}

// The rows that are worth a line, the others as one.
void add_rows(Table& table, const std::vector<ReplayRow>& rows, double step,
              const std::string& indent, const std::string& rest) {
  ReplayRow small{rest, 0, 0};
  for (const ReplayRow& row : rows) {
    if (std::max(row.measured, row.predicted) >= kSmallRow * step) {
      add_time(table, indent + row.name, row.measured, row.predicted, step);
    } else {
      small.measured += row.measured;
      small.predicted += row.predicted;
    }
  }
  if (small.measured + small.predicted > 0) {
    add_time(table, indent + small.name, small.measured, small.predicted, step);
  }
}

// The class that is farthest off, as a share of the step.
std::string worst_text(const study::ReplayComparison& c, const TextStyle& style) {
  const auto worst = std::ranges::max_element(c.classes, {}, [](const ReplayRow& row) {
    return row.name == study::kIssuing ? -1 : std::abs(row.predicted - row.measured);
  });
  if (worst == c.classes.end()) {
    return "";
  }
  const double off = worst->predicted - worst->measured;
  return labelled("worst",
                  fmt::format("{}: predicted {} of the step too {}", worst->name,
                              tie(fmt::format("{:.1f} %", 100 * std::abs(off) / c.step_measured)),
                              off > 0 ? "long" : "short"),
                  style);
}

std::string arena_text(const study::MeasuredReplay& measured) {
  std::vector<std::string> parts;
  for (const study::ReplayMemory& use : measured.memory) {
    parts.push_back(
        tie(fmt::format("{} {} of {} GiB", use.pool, gib_number(use.used), gib_number(use.held))));
  }
  return join(parts, ", ");
}

std::string in_microseconds(std::int64_t nanoseconds) {
  return fmt::format("{}.{:03}", nanoseconds / 1000, nanoseconds % 1000);
}

std::string text_as_json(const std::string& text) {
  using nlohmann::json;
  return json(text).dump(-1, ' ', false, json::error_handler_t::replace);
}

// The spans of a side, a thread a lane. What overlaps what came before on its lane, by the
// uncertainty of two clocks, begins where that ends: viewers drop it otherwise.
void write_side(std::ostream& out, int process, const std::string& name,
                const runtime::Program& program, std::vector<ReplaySpan> spans) {
  out << fmt::format(R"({{"name":"process_name","ph":"M","pid":{},"tid":0,"args":{{"name":{}}}}})",
                     process, text_as_json(name));
  for (std::size_t lane = 0; lane < program.lanes.size(); ++lane) {
    const bool stream = program.lanes[lane].kind == runtime::LaneKind::kStream;
    out << fmt::format(
        ",\n"
        R"({{"name":"thread_name","ph":"M","pid":{},"tid":{},"args":{{"name":{}}}}})",
        process, lane + 1, text_as_json((stream ? "stream: " : "") + program.lanes[lane].name));
  }
  std::ranges::stable_sort(spans, {}, &ReplaySpan::begin);
  std::vector<std::int64_t> reached(program.lanes.size(), 0);
  for (const ReplaySpan& span : spans) {
    const auto begin = std::max<std::int64_t>(reached[span.lane], std::llround(span.begin * 1e9));
    const std::int64_t end = std::llround(span.end * 1e9);
    if (end <= begin) {
      continue;
    }
    reached[span.lane] = end;
    out << fmt::format(
        ",\n"
        R"({{"name":{},"cat":{},"ph":"X","ts":{},"dur":{},"pid":{},"tid":{},)"
        R"("args":{{"call":{}}}}})",
        text_as_json(study::replay_label(program, span)),
        text_as_json(study::replay_class(program, span)), in_microseconds(begin),
        in_microseconds(end - begin), process, span.lane + 1, span.call);
  }
}

nlohmann::ordered_json rows_json(const std::vector<ReplayRow>& rows) {
  nlohmann::ordered_json out = nlohmann::ordered_json::array();
  for (const ReplayRow& row : rows) {
    out.push_back(
        {{"name", row.name}, {"measured_s", row.measured}, {"predicted_s", row.predicted}});
  }
  return out;
}

}  // namespace

std::string replay_text(const plans::Job& job, const study::MeasuredReplay& measured,
                        const study::ReplayComparison& c, const TextStyle& style) {
  const double step = c.step_measured;
  std::string out = paint(fmt::format("{}, {} {} of {}, replayed", job.plan->name, job.shape.layers,
                                      job.shape.layers == 1 ? "layer" : "layers", job.shape.name),
                          Ink::kBold, style) +
                    "\n";
  const auto [least, most] = std::ranges::minmax_element(measured.steps);
  const std::string steps = fmt::format(
      "{} steps, {} to {}, on {}; predicted for {}", measured.steps.size(),
      tie(time_text(Seconds(*least), Seconds(step))), tie(time_text(Seconds(*most), Seconds(step))),
      measured.gpu.empty() ? "a GPU without a name" : measured.gpu, job.machine.name);
  out += paragraph("", steps, style) + "\n";
  Table table({{"", Table::Align::kLeft},
               {"measured", Table::Align::kRight},
               {"predicted", Table::Align::kRight},
               {"differs", Table::Align::kRight}});
  add_time(table, "step", step, c.step_predicted, step);
  for (const ReplayRow& row : c.phases) {
    add_time(table, "  " + row.name, row.measured, row.predicted, step);
  }
  add_rows(table, c.classes, step, "", "other");
  table.add_row({"overlap", fmt::format("{:.2f}", c.overlap_measured),
                 fmt::format("{:.2f}", c.overlap_predicted),
                 difference(c.overlap_measured, c.overlap_predicted)});
  out += table.text({.indent = 2, .colour = style.colour}) + "\n";
  if (!c.works.empty()) {
    Table works({{"GPU kernels of", Table::Align::kLeft},
                 {"measured", Table::Align::kRight},
                 {"predicted", Table::Align::kRight},
                 {"differs", Table::Align::kRight}});
    add_rows(works, c.works, step, "", "other");
    out += works.text({.indent = 2, .colour = style.colour}) + "\n";
  }
  out += worst_text(c, style);
  if (!measured.memory.empty()) {
    out += labelled("memory", arena_text(measured) + " that the program holds", style);
  }
  return out + warnings_text(caveats(job, measured), style);
}

std::string replay_json(const plans::Job& job, const study::MeasuredReplay& measured,
                        const study::ReplayComparison& c) {
  nlohmann::ordered_json out{{"schema", "offsim.replayed/1"},
                             {"model", job.shape.name},
                             {"layers", job.shape.layers},
                             {"hardware", job.machine.name},
                             {"plan", job.plan->name},
                             {"gpu", measured.gpu},
                             {"steps_s", measured.steps},
                             {"step_measured_s", c.step_measured},
                             {"step_predicted_s", c.step_predicted},
                             {"overlap_measured", c.overlap_measured},
                             {"overlap_predicted", c.overlap_predicted},
                             {"phases", rows_json(c.phases)},
                             {"classes", rows_json(c.classes)},
                             {"works", rows_json(c.works)}};
  for (const study::ReplayMemory& use : measured.memory) {
    out["memory"].push_back(
        {{"pool", use.pool}, {"used_bytes", use.used.value}, {"held_bytes", use.held.value}});
  }
  if (const std::vector<std::string> warnings = caveats(job, measured); !warnings.empty()) {
    out["warnings"] = warnings;
  }
  return out.dump(2) + "\n";
}

void write_replay_trace(std::ostream& out, const plans::Job& job, const runtime::Program& program,
                        const std::vector<ReplaySpan>& measured,
                        const std::vector<ReplaySpan>& predicted) {
  out << "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
  const std::string what =
      fmt::format("{}, {} on {}", job.plan->name, job.shape.name, job.machine.name);
  write_side(out, 1, "measured: " + what, program, measured);
  out << ",\n";
  write_side(out, 2, "predicted: " + what, program, predicted);
  out << "\n]}\n";
}

}  // namespace offsim::report
