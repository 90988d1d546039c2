// Does every plan run on every machine with every kind of model, or refuse with a reason?
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/study/catalog.h"
#include "tests/plans/invariants.h"

namespace offsim::plans::smoke_test {
namespace {

std::vector<std::string> machines() {
  return study::Catalog::folder(OFFSIM_SOURCE_DIR).machine_names();
}

class Smoke : public testing::TestWithParam<std::string> {};

std::string readable(std::string name) {
  std::ranges::replace_if(
      name, [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(Machines, Smoke, testing::ValuesIn(machines()),
                         [](const auto& of) { return readable(of.param); });

void expect_that_all_plans_run(const std::string& machine_name,
                               const std::vector<std::string>& models, std::int64_t layers) {
  const study::Catalog catalog = study::Catalog::folder(OFFSIM_SOURCE_DIR);
  const machine::Machine machine = catalog.machine(machine_name, {});
  for (const std::string& name : models) {
    model::Shape shape = catalog.model(name, {});
    shape.layers = std::min(shape.layers, layers);
    for (const Plan& plan : registry()) {
      Workload w{.micro_batch = 2, .sequence = 512};
      w.precision = usual_precision(plan.name);
      const Job asked = job(plan.name, w, {}, shape, machine);
      try {
        EXPECT_EQ(broken_rule(asked, predicted(asked)), "") << plan.name << " " << name;
      } catch (const InputError& refused) {
        EXPECT_THAT(refused.what(),
                    testing::AnyOf(testing::HasSubstr("has no drive"),
                                   testing::HasSubstr("'Not enough buffers'"),
                                   testing::HasSubstr("experts"), testing::HasSubstr("needs ")))
            << plan.name << " " << machine_name << " " << name;
      }
    }
  }
}

TEST_P(Smoke, EveryPlanAndModelRunsAndKeepsTheRules) {
  expect_that_all_plans_run(GetParam(),
                            {"gpt2", "llama-3.2-1b", "qwen2.5-7b", "qwen2.5-72b", "qwen3-30b-a3b",
                             "deepseek-v2-lite", "deepseek-v3", "gpt-oss-20b", "gpt-oss-120b"},
                            4);  // the others are like these
}

// On a machine for each kind of plan: with drives, with a coherent link, with one memory.
TEST(Architectures, RunUnderEveryPlan) {
  const std::vector<std::string> small{
      "gemma-2b",   "gemma-2-9b",  "gemma-3-1b",   "gemma-3-4b",   "phi-2",      "phi-3-mini-4k",
      "gpt-j-6b",   "opt-350m",    "pythia-6.9b",  "opt-1.3b",     "bloom-560m", "falcon-7b",
      "falcon-40b", "chatglm3-6b", "baichuan2-7b", "starcoder2-7b"};
  for (const char* const machine : {"h200-pcie5", "gh200-480gb", "mac-studio-m3-ultra"}) {
    expect_that_all_plans_run(machine, small, 2);
  }
}

// What does not fit says where, and by how much.
TEST(Verdict, Of72BOnAGamingCardNamesThePools) {
  const study::Catalog catalog = study::Catalog::folder(OFFSIM_SOURCE_DIR);
  const study::Prediction p = study::predict(job("native", {}, {}, catalog.model("qwen2.5-72b", {}),
                                                 catalog.machine("workstation-3090", {})));
  EXPECT_FALSE(p.feasible());
  EXPECT_FALSE(p.pool("gpu")->fits());
  EXPECT_TRUE(p.pool("host")->fits());
  EXPECT_EQ(p.pool("gpu")->by_tag.front().tag, "Adam states");
}

// The same question gives the same bytes.
TEST(Prediction, IsTheSameTwice) {
  const study::Catalog catalog = study::Catalog::folder(OFFSIM_SOURCE_DIR);
  for (const Plan& plan : registry()) {
    const char* const machine = plan.name == "mlx" ? "mac-studio-m3-ultra" : "gh200-480gb";
    Workload w{.micro_batch = 2, .sequence = 512};
    w.precision = usual_precision(plan.name);
    const Job asked =
        job(plan.name, w, {}, catalog.model("qwen2.5-7b", {}), catalog.machine(machine, {}));
    const Predicted a = predicted(asked), b = predicted(asked);
    EXPECT_EQ(a.run.timeline.finish, b.run.timeline.finish);
    EXPECT_EQ(a.prediction.supports.size(), b.prediction.supports.size());
  }
}

}  // namespace
}  // namespace offsim::plans::smoke_test
