// Does advice say what was measured?
#include "sim/study/advise.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "sim/study/scenario.h"

namespace offsim::study::advise_test {
namespace {

// validation/h200-steps.yaml: with both offloaded 1.6574 s, with parameters alone 5.6419 s, though
// people are told to take Adam off the CPU first. 15 % a prediction, so 20 % of their ratio.
TEST(Advise, AdamOnTheGpuIsSeveralTimesSlowerAsMeasured) {
  const auto given = [](const char* name, const char* value) {
    return std::pair(on_command_line(name), on_command_line(value));
  };
  Scenario scenario;
  scenario.models = {on_command_line("llama-1b-24x2048")};
  scenario.machines = {on_command_line("h200-16core-vm")};
  scenario.plans = {{on_command_line("zero3-offload"),
                     {given("deepspeed_version", "0.14.5"), given("pin_memory", "true")},
                     {}}};
  scenario.workload.micro_batch = on_command_line("16");
  scenario.workload.checkpointing = on_command_line("full");
  scenario.workload.phase_sync = on_command_line("true");
  const Advice advice = advise(cases(Catalog::embedded(), scenario).front().job, {});
  const auto found = std::ranges::find_if(advice.tried, [](const Tried& t) {
    return t.edit.changes == std::vector<Change>{{"offload_optimizer", "cpu", "none"}};
  });
  ASSERT_NE(found, advice.tried.end());
  ASSERT_TRUE(found->fits());
  EXPECT_NEAR(found->prediction.step / advice.now.step / (5.6419 / 1.6574), 1, 0.2);
  EXPECT_LT(found->gain, -0.6);
}

}  // namespace
}  // namespace offsim::study::advise_test
