#include "sim/report/alternatives.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "sim/base/quantity.h"
#include "sim/base/table.h"
#include "sim/base/text.h"
#include "sim/report/layout.h"

namespace offsim::report {

namespace {

using Align = Table::Align;

using study::Alternative;
using study::BreakEven;
using study::CostStudy;
using study::Way;

bool recomputes(const Alternative& row, const Alternative& asked) {
  return row.job.workload.checkpointing != asked.job.workload.checkpointing;
}

// Beside the machine and how many GPUs of it.
std::string way_of(const Alternative& row, const Alternative& asked) {
  if (row.way == Way::kAsked) {
    return fmt::format("{} (asked)", row.job.plan->name);
  }
  return std::string(row.way == Way::kIdeal ? "ideal" : "native") +
         (recomputes(row, asked) ? ", checkpointing" : "");
}

// In a sentence.
std::string name_of(const Alternative& row, const Alternative& asked) {
  const std::string on = row.gpus > 1 ? fmt::format("{} GPUs of ", row.gpus) : "";
  return fmt::format("{} on {}{}{}", row.way == Way::kIdeal ? "the ideal" : "native", on,
                     row.hardware, recomputes(row, asked) ? " with checkpointing" : "");
}

std::string price_text(UsdPerHour price) { return fmt::format("{:.2f}", price.value); }

std::string title_of(const CostStudy& study) {
  const plans::Job& job = study.rows[study.asked].job;
  const plans::Workload& work = job.workload;
  std::string text =
      fmt::format("{}, {} tokens, micro-batch {} x {}", job.shape.name, with_commas(study.tokens),
                  work.micro_batch, with_commas(static_cast<double>(work.sequence)));
  if (work.accumulation > 1) {
    text += fmt::format(" x {}", work.accumulation);
  }
  text += fmt::format(", {}", plans::to_string(work.precision));
  if (work.checkpointing == plans::Checkpointing::kFull) {
    text += ", full checkpointing";
  }
  if (job.shape.adapters.any()) {
    text += ", " + adapters_text(job.shape.adapters);
  }
  return text;
}

std::vector<std::string> cells_of(const Alternative& row, const CostStudy& study) {
  const study::Bill bill = study::bill(row, study.tokens);
  return {bill.usd ? three_digits(bill.usd->value) : "no price",
          three_digits(bill.time.value / 3600),
          three_digits(row.tokens_per_s()),
          row.price ? price_text(*row.price) : "",
          std::to_string(row.gpus),
          row.hardware,
          way_of(row, study.rows[study.asked])};
}

// A row a line; two lines where that is wider than the page.
std::string table_text(const CostStudy& study, const TextStyle& style) {
  Table numbers({{"USD", Align::kRight},
                 {"hours", Align::kRight},
                 {"tokens/s", Align::kRight},
                 {"$/h", Align::kRight},
                 {"GPUs", Align::kRight}});
  Table names({{"hardware"}, {"how"}});
  std::size_t asked = 0, shown = 0;
  for (std::size_t i = 0; i < study.rows.size(); ++i) {
    if (study.rows[i].possible()) {
      std::vector<std::string> cells = cells_of(study.rows[i], study);
      names.add_row({cells[5], cells[6]});
      cells.resize(5);
      numbers.add_row(std::move(cells));
      ++shown;
      asked = i == study.asked ? shown : asked;
    }
  }
  if (shown == 0) {
    return "";
  }
  const std::vector<std::string> left = lines_of(numbers.text()), right = lines_of(names.text());
  const auto width_of = [](const std::vector<std::string>& lines) {
    return display_width(*std::ranges::max_element(lines, {}, display_width));
  };
  const std::size_t column = width_of(left) + 2;
  const bool beside = 2 + column + width_of(right) <= page_width(style);
  std::string out;
  for (std::size_t i = 0; i < left.size(); ++i) {
    const std::string pad(column - display_width(left[i]), ' ');
    const std::string line =
        beside ? "  " + left[i] + pad + right[i] : "  " + right[i] + "\n    " + left[i];
    out += (i == 0 || (asked > 0 && i == asked) ? paint(line, Ink::kBold, style) : line) + "\n";
  }
  return out;
}

std::string why_not(const Alternative& row, const Alternative& asked) {
  if (!row.refused.empty()) {
    return "is refused: " + row.refused;
  }
  const std::string what =
      fmt::format("does not fit: {}{}", recomputes(row, asked) ? "with checkpointing, " : "",
                  misfit_text(row.prediction));
  if (row.way != Way::kIdeal) {
    return what;
  }
  return row.gpus == 0 ? what + ", and sharing the states does not mend it"
                       : fmt::format("{}; sharing the states takes {} GPUs, {} such machines", what,
                                     row.gpus, row.machines());
}

std::string impossible_text(const CostStudy& study, const TextStyle& style) {
  const Alternative& asked = study.rows[study.asked];
  std::string out;
  for (const Alternative& row : study.rows) {
    if (!row.possible()) {
      const bool is_asked = row.way == Way::kAsked;
      out += paragraph("  ",
                       fmt::format("{} on {} {}", is_asked ? way_of(row, asked) : "native",
                                   row.hardware, why_not(row, asked)),
                       style);
    }
  }
  return out.empty() ? "" : "\n" + out;
}

std::string legend(const CostStudy& study, const TextStyle& style) {
  std::vector<std::string> dates;
  double spread = 0;
  bool ideal = false, checkpointing = false;
  const Alternative& asked = study.rows[study.asked];
  for (const Alternative& row : study.rows) {
    if (!row.possible()) {
      continue;
    }
    ideal = ideal || row.way == Way::kIdeal;
    checkpointing = checkpointing || recomputes(row, asked);
    const auto& price = row.job.machine.price;
    if (price && row.price && price->per_gpu == *row.price) {
      dates.push_back(price->date);
      spread = std::max(spread, row.job.machine.figure(price->figure).spread);
    }
  }
  std::string text = "$/h: of one GPU";
  if (!dates.empty()) {
    const auto [first, last] = std::ranges::minmax(dates);
    text += fmt::format(
        ", as published {}, and up to {} off; offsim catalog hardware NAME shows "
        "where",
        first == last ? "in " + first : fmt::format("from {} to {}", first, last),
        tie(percent(spread)));
  }
  text += ". Hours are of whole steps.";
  if (checkpointing) {
    text += " Checkpointing: full, since it does not fit without.";
  }
  if (ideal) {
    text +=
        " Ideal: no prediction; native on the fewest GPUs that hold it if they share parameters, "
        "gradients and optimizer states evenly, each with a whole step and no communication.";
  }
  return paragraph("  ", text, style);
}

std::string accumulation_text(const BreakEven& even, const CostStudy& study) {
  const plans::Job& job = study.rows[study.asked].job;
  const auto tokens = [&](std::int64_t accumulation) {
    plans::Workload work = job.workload;
    work.accumulation = accumulation;
    return with_commas(static_cast<double>(work.tokens_per_step()));
  };
  if (!even.refused.empty()) {
    return "none: " + even.refused;
  }
  if (!even.accumulation) {
    std::string text = fmt::format("at none up to {} micro-batches a step ({} tokens)", even.most,
                                   tokens(even.most));
    if (even.unfit != study::Unfit::kNone) {
      text += fmt::format(", with which {} does not fit", even.unfit == study::Unfit::kAsked
                                                              ? std::string(job.plan->name)
                                                              : "the alternative");
    }
    return even.nearest ? fmt::format("{}: at best it is {} dearer, at {}", text,
                                      tie(three_digits(100 * even.dearer) + " %"), *even.nearest)
                        : text;
  }
  if (*even.accumulation == 1) {
    return fmt::format("from the first: already 1 micro-batch a step ({} tokens) is no dearer",
                       tokens(1));
  }
  return fmt::format("from {} micro-batches a step on ({} tokens)", *even.accumulation,
                     tokens(*even.accumulation));
}

std::string break_even_text(const CostStudy& study, const TextStyle& style) {
  const Alternative& asked = study.rows[study.asked];
  if (!study.break_even) {
    return paragraph("",
                     asked.possible() ? "No break-even: no alternative that fits has a price."
                                      : "No break-even: the job as asked does not fit.",
                     style);
  }
  const BreakEven& even = *study.break_even;
  const Alternative& other = study.rows[even.against];
  std::string out = paragraph(
      "", fmt::format("break-even of {} with {}", asked.job.plan->name, name_of(other, asked)),
      style);
  out +=
      labelled("batch",
               even.has_accumulation ? accumulation_text(even, study)
                                     : fmt::format("{} has no price: give --price", asked.hardware),
               style);
  return out + labelled("price",
                        even.price ? fmt::format("with {} at {} an hour of a GPU", asked.hardware,
                                                 show(Usd(even.price->value)))
                                   : "at no price: both are on the same machine",
                        style);
}

// Those of the job, and of others that may be slower than predicted.
std::vector<std::string> warnings_of(const CostStudy& study) {
  std::vector<std::string> warnings = study.rows[study.asked].prediction.warnings;
  for (const Alternative& row : study.rows) {
    if (row.way != Way::kAsked && row.possible() && row.prediction.may_swap()) {
      warnings.push_back(fmt::format("{} may swap", name_of(row, study.rows[study.asked])));
    }
  }
  return warnings;
}

using Json = nlohmann::ordered_json;

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

const char* key_of(Way way) {
  return way == Way::kAsked ? "asked" : way == Way::kOneGpu ? "one_gpu" : "ideal";
}

Json row_json(const Alternative& row, double tokens) {
  const bool predicted = row.refused.empty();
  Json json{{"way", key_of(row.way)},
            {"hardware", row.hardware},
            {"plan", row.job.plan->name},
            {"checkpointing", to_string(row.job.workload.checkpointing)},
            {"gpus", row.gpus > 0 ? Json(row.gpus) : Json()},
            {"machines", row.gpus > 0 ? Json(row.machines()) : Json()},
            {"possible", row.possible()},
            {"refused", predicted ? Json() : Json(row.refused)},
            {"step_s", predicted ? Json(row.prediction.step.value) : Json()},
            {"tokens_per_step", row.possible() ? Json(row.tokens_per_step()) : Json()},
            {"tokens_per_s", row.possible() ? Json(row.tokens_per_s()) : Json()},
            {"usd_per_gpu_hour", row.price ? Json(row.price->value) : Json()}};
  const auto& price = row.job.machine.price;
  const bool published = price && row.price && price->per_gpu == *row.price;
  json["price_date"] = published ? Json(price->date) : Json();
  json["price_from"] = published ? Json(row.job.machine.figure(price->figure).from) : Json();
  for (const char* const key : {"steps", "hours", "usd"}) {
    json[key] = nullptr;
  }
  if (row.possible()) {
    const study::Bill bill = study::bill(row, tokens);
    json["steps"] = bill.steps;
    json["hours"] = bill.time.value / 3600;
    json["usd"] = bill.usd ? Json(bill.usd->value) : Json();
  }
  return json;
}

Json break_even_json(const CostStudy& study) {
  if (!study.break_even) {
    return nullptr;
  }
  const BreakEven& even = *study.break_even;
  plans::Workload work = study.rows[study.asked].job.workload;
  work.accumulation = even.accumulation.value_or(1);
  const char* const unfit = even.unfit == study::Unfit::kAsked   ? "asked"
                            : even.unfit == study::Unfit::kOther ? "against"
                                                                 : nullptr;
  return {{"against", even.against},
          {"accumulation", or_null(even.accumulation)},
          {"tokens_per_step", even.accumulation ? Json(work.tokens_per_step()) : Json()},
          {"most_accumulation", even.has_accumulation ? Json(even.most) : Json()},
          {"unfit_at_most", unfit ? Json(unfit) : Json()},
          {"nearest_accumulation", or_null(even.nearest)},
          {"dearer_at_nearest", even.nearest ? Json(even.dearer) : Json()},
          {"refused", even.refused.empty() ? Json() : Json(even.refused)},
          {"usd_per_gpu_hour", even.price ? Json(even.price->value) : Json()}};
}

}  // namespace

std::string cost_text(const CostStudy& study, const TextStyle& style) {
  std::string out;
  for (const std::string& line : wrap(title_of(study), page_width(style))) {
    out += paint(line, Ink::kBold, style) + "\n";
  }
  const std::string table = table_text(study, style);
  return out + (table.empty() ? "" : "\n" + table + "\n" + legend(study, style)) +
         impossible_text(study, style) + "\n" + break_even_text(study, style) +
         warnings_text(warnings_of(study), style);
}

std::string cost_json(const CostStudy& study) {
  const plans::Job& asked = study.rows[study.asked].job;
  Json rows = Json::array();
  for (const Alternative& row : study.rows) {
    rows.push_back(row_json(row, study.tokens));
  }
  const Json json{{"schema", "offsim.cost/1"},
                  {"model", asked.shape.name},
                  {"tokens", study.tokens},
                  {"micro_batch", asked.workload.micro_batch},
                  {"sequence", asked.workload.sequence},
                  {"accumulation", asked.workload.accumulation},
                  {"precision", to_string(asked.workload.precision)},
                  {"rows", rows},
                  {"asked", study.asked},
                  {"break_even", break_even_json(study)}};
  // A file's name may be any bytes.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace offsim::report
