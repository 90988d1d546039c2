#include "sim/report/advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "sim/base/language.h"
#include "sim/base/table.h"
#include "sim/report/json.h"
#include "sim/report/layout.h"

namespace offsim::report {

namespace {

using study::Advice;
using study::Edit;
using study::kWorthIt;
using study::Tried;
using Align = Table::Align;
using Json = nlohmann::ordered_json;

constexpr std::size_t kMostRows = 12;
constexpr std::size_t kMostPairs = 3;
constexpr std::size_t kMostMisfits = 6;
constexpr double kNothing = 0.002;    // a change that small is none
constexpr std::size_t kNumbers = 44;  // columns of a row beside the edit

// Settings keep the names that they are given by; a plan and a machine are none.
std::string setting_text(const study::Change& change) {
  const bool is_word = change.setting == "plan" || change.setting == "hardware";
  return fmt::format("{} {}", is_word ? tr(change.setting) : change.setting, change.to);
}

std::string change_text(const Edit& edit) {
  std::vector<std::string> parts;
  for (const study::Change& change : edit.changes) {
    parts.push_back(setting_text(change));
  }
  return listed(parts);
}

// "+12 %", "x 4.4", "-71 %".
std::string gain_text(double gain) {
  return gain >= 1 ? fmt::format("x {:.3g}", 1 + gain) : fmt::format("{:+.0f} %", 100 * gain);
}

std::string needed(const study::Prediction& p, const char* name) {
  const study::PoolReport* const pool = p.pool(name);
  return pool != nullptr ? gib_number(pool->needed()) : "";
}

// Of what does not fit the memory alone.
void add_row(Table& table, const std::string& what, const study::Prediction& p,
             const std::string& gain, const TextStyle& style) {
  std::vector<std::string> lines =
      wrap(what, std::min<std::size_t>(40, page_width(style) - kNumbers));
  for (std::size_t i = 0; i + 1 < lines.size(); ++i) {
    table.add_row({"  " + lines[i]});
  }
  const bool unified = p.pool("host") == nullptr;
  table.add_row({"  " + lines.back(), p.fits() ? time_text(p.step, p.step) : "",
                 p.fits() ? three_digits(p.tokens_per_s) : "", gain,
                 needed(p, unified ? "unified" : "gpu"), unified ? "" : needed(p, "host")});
}

Table edits_table(const char* title) {
  return Table({{tr(title)},
                {tr("step"), Align::kRight},
                {tr("tokens/s"), Align::kRight},
                {tr("gain"), Align::kRight},
                {tr("GPU"), Align::kRight},
                {tr("host"), Align::kRight}});
}

std::string rows_text(const char* title, const std::vector<const Tried*>& rows, std::size_t most,
                      bool gains, const TextStyle& style) {
  if (rows.empty()) {
    return "";
  }
  Table table = edits_table(title);
  for (std::size_t i = 0; i < std::min(rows.size(), most); ++i) {
    add_row(table, change_text(rows[i]->edit), rows[i]->prediction,
            gains ? gain_text(rows[i]->gain) : "", style);
  }
  std::string out = "\n" + table.text({.colour = style.colour});
  if (rows.size() > most) {
    out += "  " + tr_format("and {} more", rows.size() - most) + "\n";
  }
  return out;
}

// The pool that is too small, and by how much.
std::string what_is_too_small(const study::Prediction& p) {
  for (const study::PoolReport& pool : p.pools) {
    if (!pool.fits()) {
      return tr_format("{} {} of {} GiB", tr(pool_title(pool.name)), gib_number(pool.needed()),
                       gib_number(*pool.capacity));
    }
  }
  return tr("may swap");
}

std::string list_text(const std::string& title, const std::vector<std::string>& parts,
                      const TextStyle& style) {
  return parts.empty() ? "" : "\n" + title + "\n" + paragraph("  ", join(parts, tr("; ")), style);
}

// What people are told to do about a slow offloaded step, in that order, judged for this job.
constexpr std::string_view kMore = ">";  // than is in force
constexpr std::string_view kLess = "<";
struct UsualAdvice {
  std::string_view setting;
  std::string_view to;  // a value, or more or less of what is in force
  const char* number;
  const char* words;
};
constexpr std::array<UsualAdvice, 10> kUsual{{
    {"offload_optimizer", "none", "1. ", "Adam on the GPU, parameters still offloaded"},
    {"offload_param", "none", "   ", "parameters on the GPU, Adam still offloaded"},
    {"pin_memory", "true", "2. ", "pinned memory"},
    {"micro_batch", kMore, "3. ", "a larger micro-batch"},
    {"checkpointing", "full", "   ", "checkpointing, and what it makes room for"},
    {"checkpointing", "none", "   ", "no checkpointing"},
    {"accumulation", kMore, "   ", "more accumulation"},
    {"stage3_max_live_parameters", kMore, "4. ", "more live parameters, longer reuse"},
    {"stage3_prefetch_bucket_size", kMore, "   ", "a larger prefetch bucket"},
    {"loader_workers", kLess, "5. ", "fewer data loader workers"},
}};

bool is_usual(const UsualAdvice& usual, const Edit& edit) {
  const study::Change& change = edit.changes.front();
  if (!edit.of_settings() || change.setting != usual.setting) {
    return false;
  }
  if (usual.to != kMore && usual.to != kLess) {
    return change.to == usual.to;
  }
  const double from = std::strtod(change.from.c_str(), nullptr);
  const double to = std::strtod(change.to.c_str(), nullptr);
  return usual.to == kMore ? to > from : to < from;
}

std::string verdict(const Tried& tried, bool now_fits) {
  if (!tried.refused.empty()) {
    return tr("refused");
  }
  if (tried.idle) {
    return tr("no effect here");
  }
  if (!tried.fits()) {
    return tr("does not fit");
  }
  if (!now_fits) {
    return tr("fits");
  }
  if (std::abs(tried.gain) < kNothing) {
    return tr("no difference");
  }
  return tried.gain < 0 ? tr_format("{}: slower", gain_text(tried.gain)) : gain_text(tried.gain);
}

// Without the name of the setting, which the words say: "16", "full, micro_batch 72".
std::string values_text(const Edit& edit) {
  std::vector<std::string> parts;
  for (const study::Change& change : edit.changes) {
    if (parts.empty()) {
      parts.push_back(change.to);
    } else if (change.to != parts.front()) {
      parts.push_back(setting_text(change));
    }
  }
  return listed(parts);
}

std::string usual_text(const Advice& advice, const TextStyle& style) {
  Table table({{tr("the usual advice, in its order")}, {tr("here")}});
  for (const UsualAdvice& usual : kUsual) {
    const auto found = std::ranges::find_if(
        advice.tried, [&](const Tried& t) { return is_usual(usual, t.edit); });  // the best
    if (found != advice.tried.end()) {
      table.add_row(
          {usual.number + tr(usual.words),
           tr_format("{} ({})", verdict(*found, advice.now.fits()), values_text(found->edit))});
    }
  }
  return "\n" + join(rows_of(table, style), "\n") + "\n";
}

std::string bounds_text(const Advice& advice, const TextStyle& style) {
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < std::min<std::size_t>(3, advice.bounds.size()); ++i) {
    const auto& [resource, time] = advice.bounds[i];
    parts.push_back(tie(fmt::format("{} {}", resource, time_text(time, advice.now.step))));
  }
  const double share = advice.bounds.empty() ? 0 : advice.bounds.front().second / advice.now.step;
  return "\n" + paragraph("",
                          tr_format("Bounds: each resource alone takes {} of the {} step; "
                                    "perfect overlap could save {} at most.",
                                    listed(parts), tie(time_text(advice.now.step, advice.now.step)),
                                    tie(percent(1 - std::min(1.0, share)))),
                          style);
}

// The edits by what comes of them, in words but for those that get a row.
struct Groups {
  std::vector<const Tried*> better, pairs;
  std::vector<std::string> worse, misfits, same, idle, refused;

  explicit Groups(const Advice& advice) {
    std::size_t more = 0;
    for (const Tried& tried : advice.tried) {
      const std::string name = report::tie(change_text(tried.edit));
      if (!tried.refused.empty()) {
        refused.push_back(name);
      } else if (tried.idle) {
        idle.push_back(name);
      } else if (!tried.fits()) {
        if (misfits.size() < kMostMisfits) {  // nearest first
          misfits.push_back(tie(tr_format("{} ({})", name, what_is_too_small(tried.prediction))));
        } else {
          ++more;
        }
      } else if (!advice.now.fits() || tried.gain >= kWorthIt) {
        better.push_back(&tried);
      } else if (tried.gain <= -kWorthIt) {
        worse.push_back(tie(fmt::format("{} {}", name, gain_text(tried.gain))));
      } else {
        same.push_back(name);
      }
    }
    if (more > 0) {
      misfits.push_back(tie(tr_format("and {} more", more)));
    }
    for (const Tried& tried : advice.pairs) {
      pairs.push_back(&tried);
    }
  }
};

// What a gain by more tokens is.
std::string tokens_text(const Groups& of, const TextStyle& style) {
  const auto tokens = [](const Tried* tried) {
    return tried->edit.changes_setting("micro_batch") ||
           tried->edit.changes_setting("accumulation");
  };
  if (std::ranges::none_of(of.better, tokens) && std::ranges::none_of(of.pairs, tokens)) {
    return "";
  }
  return paragraph("  ",
                   tr("A gain is in tokens a second. Another micro_batch or accumulation is also "
                      "another number of tokens that an optimizer step learns from."),
                   style);
}

}  // namespace

std::string advice_text(const plans::Job& job, const Advice& advice, const TextStyle& style) {
  const bool now_fits = advice.now.fits();
  const Groups of(advice);
  Table now = edits_table("as it is, memory in GiB");
  add_row(now, std::string(job.plan->name), advice.now, "", style);
  std::string out = "\n" + now.text({.colour = style.colour});
  if (!now_fits) {
    out += paragraph("  ", tr_format("does not fit: {}", what_is_too_small(advice.now)), style);
  }
  out += rows_text(now_fits ? "worth it, simulated" : "makes it fit, simulated", of.better,
                   kMostRows, now_fits, style);
  out += rows_text("two at once", of.pairs, kMostPairs, now_fits, style);
  out += tokens_text(of, style);
  if (advice.best() == nullptr) {
    out +=
        "\n" + paragraph("",
                         now_fits ? tr_format("No edit gains {} or more: as good as it gets here.",
                                              percent(study::kWorthIt))
                         : advice.untried > 0 ? tr("Nothing of what was tried makes it fit.")
                                              : tr("No edit, and no two of them, make it fit."),
                         style);
  }
  out += usual_text(advice, style);
  out += list_text(tr("makes it slower"), of.worse, style);
  out += list_text(tr("does not fit"), of.misfits, style);
  out += list_text(tr_format("makes less than {} of difference", percent(study::kWorthIt)), of.same,
                   style);
  out += list_text(tr("has no effect here"), of.idle, style);
  out += list_text(tr("refused by the system"), of.refused, style);
  if (advice.untried > 0) {
    out += "\n" + paragraph("",
                            tr_format("{} more were not tried: steps as long as this one take "
                                      "too long to simulate so often.",
                                      advice.untried),
                            style);
  }
  return now_fits ? out + bounds_text(advice, style) : out;
}

std::string advice_json(const plans::Job& job, const Advice& advice) {
  const auto row = [](const Tried& tried) {
    Json changes = Json::array();
    for (const study::Change& change : tried.edit.changes) {
      changes.push_back({{"setting", change.setting}, {"from", change.from}, {"to", change.to}});
    }
    Json json{{"changes", changes}, {"why", tried.edit.why}};
    if (!tried.refused.empty() || tried.idle) {
      json[tried.idle ? "no_effect" : "refused"] = tried.idle ? Json(true) : Json(tried.refused);
      return json;
    }
    json["fits"] = tried.fits();
    json["step_s"] = tried.prediction.step.value;
    json["tokens_per_s"] = tried.prediction.tokens_per_s;
    if (tried.fits()) {
      json["gain"] = tried.gain;
    }
    Json memory = Json::object();
    for (const study::PoolReport& pool : tried.prediction.pools) {
      memory[pool.name] = pool.needed().value;
    }
    json["needed_bytes"] = std::move(memory);
    return json;
  };
  Json single = Json::array(), pairs = Json::array(), bounds = Json::object();
  for (const Tried& tried : advice.tried) {
    single.push_back(row(tried));
  }
  for (const Tried& tried : advice.pairs) {
    pairs.push_back(row(tried));
  }
  for (const auto& [resource, time] : advice.bounds) {
    bounds[resource] = time.value;
  }
  const Json json{{"schema", "offsim.advice/1"},
                  {"now", Json::parse(prediction_json(job, advice.now))},
                  {"edits", single},
                  {"pairs", pairs},
                  {"untried", advice.untried},
                  {"bounds_s", bounds}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace offsim::report
