// What becomes of a configuration, in words that a test can compare.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <ostream>
#include <string>
#include <vector>

#include "sim/base/hjson.h"
#include "sim/import/deepspeed.h"
#include "sim/import/import.h"
#include "sim/plans/plan.h"

namespace offsim::imports {

struct Answer {
  std::string asked;  // "zero3-offload offload_param=cpu | 1 x 2 x 1 bf16-mixed"
  std::vector<std::string> warnings, refusals;
  std::vector<Setting> settings;
  study::GivenPlan plan;

  bool warns(const std::string& part) const {
    return std::ranges::any_of(
        warnings, [&](const std::string& w) { return w.find(part) != std::string::npos; });
  }
  std::string setting(const std::string& key) const {
    const auto found = std::ranges::find(settings, key, &Setting::key);
    return found == settings.end()
               ? "(none)"
               : fmt::format("{} [{}] {}", found->value, found->origin, found->effect);
  }
};

inline std::string asked(const study::GivenPlan& plan, const study::GivenWorkload& work) {
  std::string out = plan.name.text;
  for (const auto& [name, value] : plan.options) {
    out += fmt::format(" {}={}", name.text, value.text);
  }
  const auto text = [](const std::optional<study::Given>& given) {
    return given ? given->text : "?";
  };
  return out + fmt::format(" | {} x {} x {} {}", text(work.micro_batch), text(work.accumulation),
                           text(work.gpus), text(work.precision));
}

// What `read(findings, plan, work)` finds. A mistake of syntax is the one refusal.
template <class Read>
Answer answer_of(Read&& read) {
  Answer out;
  Findings findings;
  study::GivenWorkload work;
  try {
    read(findings, out.plan, work);
  } catch (const InputError& error) {
    out.refusals = {error.what()};
  }
  for (const InputError& error : findings.refusals) {
    out.refusals.emplace_back(error.what());
  }
  out.warnings = findings.warnings;
  out.settings = findings.settings;
  out.asked = asked(out.plan, work);
  return out;
}

// Named ds.json.
inline Answer answer(const std::string& text, Around around = {}) {
  if (around.version.empty()) {
    around.version = "0.19.6";
  }
  return answer_of([&](Findings& findings, study::GivenPlan& plan, study::GivenWorkload& work) {
    read_deepspeed(parse_hjson(text, "ds.json"), around, findings, plan, work);
  });
}

// The inner part stands alone on line 2.
inline std::string stage(int n, const std::string& inner) {
  return "{\"train_batch_size\": 1, \"bf16\": {\"enabled\": true}, \"zero_optimization\": "
         "{\"stage\": " +
         std::to_string(n) + (inner.empty() ? "" : ",\n" + inner) + "}}";
}
inline std::string top(const std::string& inner) {
  return "{\"bf16\": {\"enabled\": true},\n" + inner + "}";
}

// What is asked is in each test's name; numbers tell rows of oddities apart.
struct Case {
  const char* what;
  std::string text, expected;
  friend void PrintTo(const Case& c, std::ostream* out) { *out << c.what; }
};

}  // namespace offsim::imports
