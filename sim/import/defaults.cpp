#include "sim/import/defaults.h"

#include <algorithm>

#include "sim/plans/deepspeed.h"
#include "sim/plans/plan.h"
#include "sim/plans/plans.h"

namespace offsim::imports {

namespace {

using study::GivenPlan;

std::int64_t number_of(const std::string& version) {
  const plans::Plan& any = plans::find_plan("zero3-offload", {});
  plans::Options options(any.options, any.name);
  options.set("deepspeed_version", version, {});
  return options.version("deepspeed_version");
}

bool is_useless(const plans::OptionSpec& spec) { return spec.effect.starts_with("no effect"); }

}  // namespace

void list_defaults(const GivenPlan& plan, const std::string& version, Findings& findings) {
  for (const plans::OptionSpec& spec : plans::find_plan(plan.name.text, plan.name.place).options) {
    const bool given = std::ranges::any_of(
        plan.options, [&](const auto& option) { return option.first.text == spec.name; });
    const bool listed = std::ranges::any_of(findings.settings, [&](const Setting& setting) {
      return setting.key.ends_with("." + std::string(spec.name)) &&
             setting.origin.find("auto") != std::string::npos;
    });
    if (given || listed || spec.name == "variant" || spec.name == "deepspeed_version" ||
        (plans::is_of_drive(spec.name) && plan.name.text != "zero-infinity") || is_useless(spec)) {
      continue;
    }
    std::string value(spec.fallback);
    if (value == "by version" && spec.name == "pin_memory") {
      value = number_of(version) >= plans::kPinnedByDefaultSince ? "true" : "false";
    } else if (value == "by version") {
      value = number_of(version) >= plans::kClippingByDefaultSince ? "1" : "0";
    }
    findings.add({std::string(spec.name), value,
                  version.empty() ? "default" : "default of DeepSpeed " + version, ""});
  }
}

}  // namespace offsim::imports
