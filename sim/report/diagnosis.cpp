#include "sim/report/diagnosis.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "sim/base/table.h"
#include "sim/base/text.h"
#include "sim/report/layout.h"

namespace offsim::report {

namespace {

using study::Diagnosis;
using study::StepTimes;
using study::Suspect;
using study::Verdict;

constexpr std::size_t kMostSuspects = 4;
constexpr std::size_t kLongestName = 60;

struct PhaseOf {
  const char* name;
  std::optional<double> StepTimes::*time;
};
constexpr std::array<PhaseOf, 4> kPhases{{{"forward", &StepTimes::forward},
                                          {"backward", &StepTimes::backward},
                                          {"optimizer", &StepTimes::optimizer},
                                          {"step", &StepTimes::step}}};

std::string ratio_text(std::optional<double> measured, std::optional<double> modelled) {
  if (!measured || !modelled) {
    return "";
  }
  const double ratio = *measured / std::max(*modelled, 1e-12);
  return ratio < 1000 ? fmt::format("{:.2f}", ratio) : "over 1000";
}

std::string times_table(const Diagnosis& d, const TextStyle& style) {
  Table table({{"", Table::Align::kLeft},
               {"measured", Table::Align::kRight},
               {"expected", Table::Align::kRight},
               {"ratio", Table::Align::kRight}});
  const double whole = *d.expected.step;
  for (const PhaseOf& phase : kPhases) {
    const std::optional<double> measured = d.measured.*phase.time;
    const std::optional<double> expected = d.expected.*phase.time;
    table.add_row({phase.name, measured ? time_text(Seconds(*measured), Seconds(whole)) : "",
                   time_text(Seconds(*expected), Seconds(whole)), ratio_text(measured, expected)});
  }
  for (const study::MemoryRow& row : d.memory) {
    table.add_row({row.name, gib_text(row.measured), gib_text(row.expected),
                   ratio_text(gib(row.measured), gib(row.expected))});
  }
  return table.text({.indent = 2, .colour = style.colour});
}

std::string log_text(const Diagnosis& d, const logs::Log& log, const TextStyle& style) {
  std::size_t left_out = 0;
  for (const study::Summary& summary : d.summaries) {
    left_out = std::max(left_out, summary.left_out);
  }
  std::string text = fmt::format("{}: {} lines, {} of a kind that offsim reads",
                                 printable(log.name, kLongestName), log.lines, log.known);
  if (log.unknown > 0) {
    text += fmt::format(", {} of others passed over", log.unknown);
  }
  if (log.absurd > 0) {
    text += fmt::format("; passed over {} that no run has",
                        log.absurd == 1 ? "one figure" : fmt::format("{} figures", log.absurd));
  }
  if (left_out > 0) {
    text += fmt::format("; the first {} of a kind left out as warm-up",
                        left_out == 1 ? "figure" : fmt::format("{} figures at most", left_out));
  }
  if (!d.step_from.empty()) {
    text += "; the step from " + d.step_from;
  }
  return paragraph("", text + ".", style);
}

std::string verdict_text(const Diagnosis& d) {
  const std::string within = fmt::format("{:.0f} %", 100 * d.tolerance);
  switch (d.verdict) {
    case Verdict::kAsExpected:
      return "All is as expected: every time is within " + within + " of its prediction.";
    case Verdict::kFaster:
      return "Nothing is slower than expected, and something is faster: is the log of this model, "
             "work and machine?";
    case Verdict::kFound:
      return fmt::format("First suspect: {}.", d.suspects.front().title);
    case Verdict::kClosest:
      return fmt::format("None of these explains it. The closest: {}.", d.suspects.front().title);
    case Verdict::kUnexplained:
      return "Nothing that was tried explains it.";
  }
  return "";
}

std::string suspects_table(const Diagnosis& d, const TextStyle& style) {
  Table table({{"measured over", Table::Align::kLeft},
               {"forward", Table::Align::kRight},
               {"backward", Table::Align::kRight},
               {"optimizer", Table::Align::kRight},
               {"step", Table::Align::kRight}});
  const auto add = [&](const std::string& name, const StepTimes& times) {
    std::vector<std::string> cells{name};
    for (const PhaseOf& phase : kPhases) {
      cells.push_back(ratio_text(d.measured.*phase.time, times.*phase.time));
    }
    table.add_row(cells);
  };
  add("nothing wrong", d.expected);
  std::size_t shown = 0;
  for (const Suspect& suspect : d.suspects) {
    if (suspect.distance && shown++ < kMostSuspects) {
      add(suspect.setting, suspect.times);
    }
  }
  return table.text({.indent = 2, .colour = style.colour});
}

std::string first_text(const Diagnosis& d, const TextStyle& style) {
  const Suspect& first = d.suspects.front();
  std::string out;
  if (!first.seen.empty()) {
    out += labelled("seen", first.seen, style);
  }
  if (first.distance) {
    out +=
        labelled("tried",
                 fmt::format(fmt::runtime(first.reproduces
                                              ? "{}: within {} of what was measured, throughout"
                                              : "{}: closer to what was measured, not within {}"),
                             first.setting, percent(study::kReproduces)),
                 style);
  }
  out += labelled("check", first.check, style);
  std::vector<std::string> others;
  for (std::size_t i = 1; i < d.suspects.size(); ++i) {
    if (d.suspects[i].reproduces || !d.suspects[i].distance) {
      others.push_back(d.suspects[i].title);
    }
  }
  if (!others.empty()) {
    out += labelled("or", join(others, "; "), style);
  }
  return out;
}

nlohmann::ordered_json optional_json(const std::optional<double>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
}

nlohmann::ordered_json times_json(const StepTimes& times) {
  nlohmann::ordered_json out;
  for (const PhaseOf& phase : kPhases) {
    out[std::string(phase.name) + "_s"] = optional_json(times.*phase.time);
  }
  return out;
}

}  // namespace

std::string diagnosis_text(const Diagnosis& d, const logs::Log& log, const TextStyle& style) {
  std::string out;
  for (const std::string& line :
       wrap(fmt::format("{}, {} on {}", d.job.plan->name, d.job.shape.name, d.job.machine.name),
            page_width(style))) {
    out += paint(line, Ink::kBold, style) + "\n";
  }
  out += log_text(d, log, style) + "\n" + times_table(d, style) + "\n";
  const bool slower = d.verdict != Verdict::kAsExpected;
  out += paragraph("", verdict_text(d), style);
  if (slower && !d.suspects.empty()) {
    out += first_text(d, style) + "\n" + suspects_table(d, style);
  }
  if (!d.notes.empty()) {
    out += "\n";
  }
  for (const std::string& note : d.notes) {
    out += labelled("note", note, style);
  }
  return out;
}

std::string diagnosis_json(const Diagnosis& d, const logs::Log& log) {
  using nlohmann::ordered_json;
  ordered_json out{{"schema", "offsim.diagnosis/1"},
                   {"model", d.job.shape.name},
                   {"hardware", d.job.machine.name},
                   {"plan", d.job.plan->name},
                   {"log",
                    {{"lines", log.lines},
                     {"known", log.known},
                     {"unknown", log.unknown},
                     {"absurd", log.absurd},
                     {"too_long", log.too_long}}},
                   {"verdict", study::verdict_name(d.verdict)},
                   {"tolerance", d.tolerance},
                   {"measured", times_json(d.measured)},
                   {"expected", times_json(d.expected)}};
  ordered_json& figures = out["figures"] = ordered_json::array();
  for (const study::Summary& summary : d.summaries) {
    figures.push_back({{"what", logs::name_of(summary.what)},
                       {"unit", logs::unit_of(summary.what)},
                       {"value", summary.value},
                       {"count", summary.count},
                       {"left_out", summary.left_out}});
  }
  ordered_json& memory = out["memory"] = ordered_json::array();
  for (const study::MemoryRow& row : d.memory) {
    memory.push_back({{"name", row.name},
                      {"measured_bytes", row.measured.value},
                      {"expected_bytes", row.expected.value}});
  }
  ordered_json& suspects = out["suspects"] = ordered_json::array();
  for (const Suspect& suspect : d.suspects) {
    suspects.push_back({{"name", suspect.name},
                        {"title", suspect.title},
                        {"setting", suspect.setting},
                        {"seen", suspect.seen},
                        {"reproduces", suspect.reproduces},
                        {"distance", optional_json(suspect.distance)},
                        {"predicted", times_json(suspect.times)},
                        {"check", suspect.check},
                        {"command", suspect.command}});
  }
  out["notes"] = d.notes;
  return out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace offsim::report
