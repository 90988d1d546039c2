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

TEST_P(Smoke, EveryPlanAndModelRunsAndKeepsTheRules) {
  const study::Catalog catalog = study::Catalog::folder(OFFSIM_SOURCE_DIR);
  const machine::Machine machine = catalog.machine(GetParam(), {});
  for (const char* const name :
       {"gpt2", "llama-3.2-1b", "qwen2.5-7b", "qwen2.5-72b", "qwen3-30b-a3b", "deepseek-v2-lite",
        "deepseek-v3", "gpt-oss-20b", "gpt-oss-120b"}) {
    model::Shape shape = catalog.model(name, {});
    shape.layers = std::min<std::int64_t>(shape.layers, 4);  // the others are like these
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
            << plan.name << " " << GetParam();
      }
    }
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
