#include "sim/report/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <span>
#include <utility>

#include "sim/base/language.h"
#include "sim/base/quantity.h"
#include "sim/base/table.h"
#include "sim/base/text.h"
#include "sim/model/tensors.h"
#include "sim/report/layout.h"

namespace offsim::report {

namespace {

using runtime::Cause;
using study::PoolReport;
using study::Prediction;
using Align = Table::Align;

constexpr std::size_t kMostTags = 4;
constexpr std::size_t kMostLabels = 3;    // of a cause
constexpr std::size_t kMostDetailed = 3;  // causes
constexpr std::size_t kMostFigures = 3;

std::string head_text(const plans::Job& job, const TextStyle& style) {
  std::string parameters = tr_format(
      "{} parameters", parameters_text(static_cast<double>(model::parameters(job.shape))));
  if (job.shape.has_experts()) {
    parameters += tr_format(
        ", {} active", parameters_text(static_cast<double>(model::active_parameters(job.shape))));
  }
  if (job.shape.adapters.any()) {
    parameters += tr_format(
        ", {} trained", parameters_text(static_cast<double>(model::trained_parameters(job.shape))));
  }
  const std::string model =
      listed({job.shape.name, parameters, std::string(plans::to_string(job.workload.precision))});
  const auto width = page_width(style);
  const std::size_t used = display_width(model) + display_width(job.machine.title);
  if (used + 3 <= width) {
    return paint(model, Ink::kBold, style) + std::string(width - used, ' ') + job.machine.title +
           "\n";
  }
  std::string out;
  for (const std::string& line : wrap(model, width)) {
    out += paint(line, Ink::kBold, style) + "\n";
  }
  for (const std::string& line : wrap(job.machine.title, width)) {
    out += line + "\n";
  }
  return out;
}

std::string job_text(const plans::Job& job, const TextStyle& style) {
  std::string plan(job.plan->name);
  for (const plans::OptionSpec& spec : job.plan->options) {
    if (job.options.given(spec.name)) {
      plan += fmt::format(" {}={}", spec.name, job.options.text(spec.name));
    }
  }
  const plans::Workload& work = job.workload;
  std::vector<std::string> batch{tr_format("{} x {} tokens",
                                           with_commas(static_cast<double>(work.micro_batch)),
                                           with_commas(static_cast<double>(work.sequence)))};
  if (work.accumulation > 1) {
    batch.push_back(
        tr_format("{} times a step", with_commas(static_cast<double>(work.accumulation))));
  }
  if (work.gpus > 1) {
    batch.push_back(tr_format("on each of {} GPUs", work.gpus));
  }
  if (work.checkpointing != plans::Checkpointing::kNone) {
    batch.push_back(tr_format("checkpointing {}", plans::to_string(work.checkpointing)));
  }
  if (work.activation_offload != plans::ActivationOffload::kNone) {
    batch.push_back(tr_format("activations {}", plans::to_string(work.activation_offload)));
  }
  if (job.shape.adapters.any()) {
    batch.push_back(adapters_text(job.shape.adapters));
  }
  if (work.phase_sync) {
    batch.push_back(tr("phases synchronised"));
  }
  if (const std::string loader = loader_text(work); !loader.empty()) {
    batch.push_back(loader);
  }
  return paragraph("", tr(job.plan->sentence), style) + "\n" + labelled("plan", plan, style) +
         labelled("batch", listed(batch), style);
}

std::string rates_text(const plans::Job& job, const Prediction& p, const TextStyle& style) {
  const std::string high = time_text(p.step_high, p.step);
  std::string low = time_text(p.step_low, p.step);
  low.resize(low.find(' '));  // one unit is enough
  std::string out =
      labelled("step",
               tr_format("{} {}, {} tokens/s", tie(show(p.step)),
                         tie(tr_format("({} to {})", low, high)), three_digits(p.tokens_per_s)),
               style);
  // n of the N parameters are trained.
  const std::string_view convention = job.shape.adapters.any() ? "4ND + 2nD" : "6ND";
  out +=
      labelled("TFLOPS",
               tr_format("{} as {}, {} of the model, {} executed", three_digits(p.tflops_six_nd),
                         convention, three_digits(p.tflops_model), three_digits(p.tflops_hardware)),
               style);
  if (!p.cost) {
    return out + labelled("cost", tr("no price in the catalog: give --price"), style);
  }
  const std::int64_t gpus = job.workload.gpus;
  return out + labelled("cost",
                        tr_format("{} a step, {} a million tokens, at {}{} an hour",
                                  show(p.cost->usd_per_step), show(p.cost->usd_per_million_tokens),
                                  gpus > 1 ? fmt::format("{} x ", gpus) : "",
                                  show(Usd(p.cost->usd_per_hour.value))),
                        style);
}

// A table with what is in each of its rows below it; a row without details stands alone.
std::string section(const Table& table, const std::vector<std::string>& details,
                    const TextStyle& style) {
  const std::vector<std::string> lines =
      lines_of(table.text({.indent = 2, .colour = style.colour}));
  std::string out = "\n" + lines.front() + "\n";
  for (std::size_t row = 0; row < details.size(); ++row) {
    out += lines[row + 1] + "\n";
    out += details[row].empty() ? "" : paragraph("      ", details[row], style);
  }
  return out;
}

using NamedTimes = std::vector<std::pair<std::string, Seconds>>;

// "layer forward 10.9 s, layer backward 7.2 s": tied, to be wrapped between the parts.
std::string named_times(const NamedTimes& parts, Seconds whole) {
  std::vector<std::string> texts;
  for (const auto& [name, time] : parts) {
    texts.push_back(tie(tr_sentence(name) + " " + time_text(time, whole)));
  }
  return listed(texts);
}

// What a cause's time was spent on, where that is more than one thing: those of at least 1 % of the
// step, longest first. Sizes in a label, "norm (512 elements)", tell works apart, not people.
std::string details_of(const Prediction& p, Cause cause) {
  NamedTimes parts;
  for (const study::Spent& spent : p.spent) {
    if (spent.cause != cause || spent.label.empty()) {
      continue;
    }
    const std::string name = spent.label.substr(0, spent.label.find(" ("));
    const auto found = std::ranges::find(parts, name, &NamedTimes::value_type::first);
    if (found == parts.end()) {
      parts.emplace_back(name, spent.time);
    } else {
      found->second += spent.time;
    }
  }
  std::erase_if(parts, [&](const auto& part) { return part.second < p.step * 0.01; });
  std::ranges::stable_sort(parts, std::greater{}, &NamedTimes::value_type::second);
  parts.resize(std::min(parts.size(), kMostLabels));
  return parts.size() > 1 ? named_times(parts, p.step) : "";
}

// The critical path by cause, longest first; causes that were busy beside it stay with 0.
std::string causes_text(const Prediction& p, const TextStyle& style) {
  std::vector<Seconds> exposed(p.critical_path.begin(), p.critical_path.end());
  exposed.push_back(p.idle);
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < exposed.size(); ++i) {
    if (exposed[i].value > 0 || (i < p.busy.size() && p.busy[i].value > 0)) {
      order.push_back(i);
    }
  }
  std::ranges::stable_sort(order,
                           [&](std::size_t a, std::size_t b) { return exposed[a] > exposed[b]; });
  Table table({{tr("where the step goes")},
               {tr("exposed"), Align::kRight},
               {tr("share"), Align::kRight},
               {tr("busy"), Align::kRight}});
  std::vector<std::string> details;
  std::size_t detailed = 0;
  for (const std::size_t i : order) {
    const bool idle = i == p.critical_path.size();
    table.add_row({"  " + (idle ? tr("idle") : tr(runtime::cause_title(Cause(i)))),
                   time_text(exposed[i], p.step), percent(exposed[i] / p.step),
                   idle ? "" : time_text(p.busy[i], p.step)});
    details.push_back(idle || detailed == kMostDetailed ? "" : details_of(p, Cause(i)));
    detailed += details.back().empty() ? 0 : 1;
  }
  return section(table, details, style);
}

double share_of(Bytes part, Bytes whole) {
  return whole.value > 0 ? static_cast<double>(part.value) / static_cast<double>(whole.value) : 0;
}

// "peak in optimizer: Adam states 48 %, weights 12 %, pinned at most 66.0 GiB".
std::string filling(const Prediction& p, const PoolReport& pool) {
  std::vector<std::string> parts;
  for (const study::Tagged& tag : pool.by_tag) {
    const double share = share_of(tag.bytes, pool.peak);
    if (parts.size() < kMostTags && share >= 0.005) {
      parts.push_back(tie(tr(tag.tag) + " " + percent(share)));
    }
  }
  const PoolReport* const pinned = pool.name == "host" ? p.pool("host_pinned") : nullptr;
  if (pinned != nullptr && pinned->peak.value > 0) {
    parts.push_back(tie(tr_format("pinned at most {}", gib_text(pinned->peak))));
  }
  return pool.peak.value > 0 ? tr_format("peak in {}: {}", tr(pool.phase), listed(parts)) : "";
}

// What a day of such steps writes, as drives are rated: in times their capacity.
std::string wear_text(const Prediction& p, const PoolReport& drive) {
  if (!drive.capacity || p.nvme_written_a_day.value == 0) {
    return "";
  }
  return tr_format(
      "; writes {} a day, {} times its capacity: drives are rated for about "
      "0.3 (consumer) to 3 (data centre; assumed)",
      tie(show(p.nvme_written_a_day)),
      three_digits(share_of(p.nvme_written_a_day, *drive.capacity)));
}

std::string memory_text(const Prediction& p, const TextStyle& style) {
  Table table({{tr("memory, GiB")},
               {tr("peak"), Align::kRight},
               {tr("+ fixed"), Align::kRight},
               {tr("of"), Align::kRight},
               {tr("used"), Align::kRight},
               {tr("at the end"), Align::kRight}});
  std::vector<std::string> fillings;
  for (const PoolReport& pool : p.pools) {
    if (pool.name != "host_pinned") {
      table.add_row({"  " + tr(pool_title(pool.name)), gib_number(pool.peak),
                     gib_number(pool.fixed), pool.capacity ? gib_number(*pool.capacity) : "",
                     pool.capacity ? percent(share_of(pool.needed(), *pool.capacity)) : "",
                     gib_number(pool.resident)});
      std::string said = pool.fits() ? filling(p, pool) : "";  // said above where it does not
      if (pool.name == "nvme" && pool.fits()) {
        said += wear_text(p, pool);
      }
      fillings.push_back(std::move(said));
    }
  }
  return section(table, fillings, style);
}

// What does not fit, where, by how much, and its largest parts.
std::string misfit_text(const Prediction& p, const TextStyle& style) {
  std::string out;
  for (const PoolReport& pool : p.pools) {
    if (pool.fits()) {
      continue;
    }
    const Bytes excess(pool.needed().value - pool.capacity->value);
    const std::string what =
        tr_format("does not fit: {} memory needs {} of {}, {} too much, in the {} phase",
                  tr(pool_title(pool.name)), tie(gib_text(pool.needed())),
                  tie(gib_text(*pool.capacity)), tie(show(excess)), tr(pool.phase));
    for (const std::string& line : wrap(what, page_width(style))) {
      out += paint(line, Ink::kRed, style) + "\n";
    }
    Table parts({{""}, {"", Align::kRight}, {"", Align::kRight}});
    const auto add = [&](const std::string& name, Bytes bytes) {
      parts.add_row({name, gib_text(bytes), percent(share_of(bytes, pool.needed()))});
    };
    Bytes rest = pool.peak;
    for (const study::Tagged& tag :
         std::span(pool.by_tag).first(std::min(pool.by_tag.size(), kMostTags))) {
      add(tr(tag.tag), tag.bytes);
      rest -= tag.bytes;
    }
    if (rest.value > 0) {
      add(tr("everything else"), rest);
    }
    add(tr("fixed"), pool.fixed);
    out += parts.text({.indent = 2});
  }
  return out + "\n";
}

std::string support_text(const plans::Job& job, const Prediction& p, const TextStyle& style) {
  std::vector<std::string> kinds, weak;
  for (std::size_t i = 0; i < p.sources.size(); ++i) {
    if (p.sources[i] >= 0.005) {
      kinds.push_back(
          fmt::format("{} {}", percent(p.sources[i]), tr(source_name(machine::Source(i)))));
    }
  }
  for (const study::Support& support : p.supports) {
    const machine::Figure& figure = job.machine.figure(support.figure);
    const bool soft =
        figure.source == machine::Source::kPublished || figure.source == machine::Source::kAssumed;
    if (soft && support.share >= 0.005 && weak.size() < kMostFigures) {
      const std::string name = figure.title.empty() ? figure.name : tr_sentence(figure.title);
      weak.push_back(name + tie(" " + percent(support.share)));
    }
  }
  return "\n" + labelled("rests on", listed(kinds), style) +
         (weak.empty() ? "" : labelled("weakest", listed(weak), style));
}

}  // namespace

std::string path_text(const Prediction& p, const TextStyle& style) {
  NamedTimes phases;
  for (const char* const name : {"setup", "forward", "backward", "optimizer"}) {
    const auto found = p.phases.find(name);
    if (found != p.phases.end() && found->second.value > 0) {
      phases.emplace_back(*found);
    }
  }
  return causes_text(p, style) + labelled("phases", named_times(phases, p.step), style);
}

std::string question_text(const plans::Job& job, const TextStyle& style) {
  return head_text(job, style) + job_text(job, style);
}

std::string next_text(const std::string& command, const TextStyle& style) {
  constexpr std::size_t kBackslash = 2;
  std::string out, line = tr("Next:");
  for (std::size_t at = 0; at < command.size();) {
    const std::size_t end =
        std::min({command.find(" --", at), command.find(" > ", at), command.size()});
    const std::string piece = command.substr(at, end - at);  // a flag stays beside its value
    if (at > 0 && display_width(line) + 1 + display_width(piece) + kBackslash > page_width(style)) {
      out += line + " \\\n";
      line.assign(display_width(tr("Next:")), ' ');
    }
    line += " " + piece;
    at = end + 1;
  }
  return out + line + "\n";
}

std::string prediction_text(const plans::Job& job, const study::Prediction& prediction,
                            const TextStyle& page, const std::string& next) {
  constexpr int kReadable = 100;  // of columns; wider pages are for tables
  const TextStyle style{page.colour, std::min(page.width, kReadable)};
  const std::string asked = question_text(job, style);
  std::string out;
  if (prediction.feasible()) {
    out = asked + rates_text(job, prediction, style) + path_text(prediction, style) +
          memory_text(prediction, style) + support_text(job, prediction, style);
  } else {
    out = misfit_text(prediction, style) + asked + memory_text(prediction, style) + "\n";
  }
  return out + warnings_text(prediction.warnings, style) +
         (next.empty() ? "" : next_text(next, style));
}

}  // namespace offsim::report
