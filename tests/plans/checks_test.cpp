// What a question asks for beyond the models, is it said?
#include "sim/plans/checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/plans/jobs.h"

namespace offsim::plans::checks_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(Question, OfOneGpuWithinTheModelsLimitsIsNotWarnedOf) {
  Job of = job("native", {.sequence = 128});
  of.shape.max_sequence = 128;
  of.shape.kinds.front().window = 128;
  EXPECT_THAT(check_question(of), IsEmpty());
}

TEST(Question, BeyondTheDeclaredSequenceIsWarnedOf) {
  Job of = job("native", {.sequence = 129});
  of.shape.name = "small";
  of.shape.max_sequence = 128;
  EXPECT_THAT(check_question(of), ElementsAre("sequence 129 is longer than small declares, 128"));
}

TEST(Question, BeyondTheSlidingWindowIsWarnedOf) {
  Job of = job("native", {.sequence = 128});
  of.shape.kinds.front().window = 127;
  EXPECT_THAT(check_question(of), ElementsAre(HasSubstr("sliding window of 127 is not modelled")));
}

TEST(Question, OfAMachineOfSeveralGpusIsAboutOne) {
  Job of = job("native");
  of.machine.gpus = 8;
  EXPECT_THAT(check_question(of), ElementsAre(HasSubstr("one of the 8 GPUs")));
}

TEST(WithoutEffect, IsTheWholeNameOfASetting) {
  const std::vector<std::string> warnings{"zero-infinity.param_buffer_count has no effect: why",
                                          "ds.json:3:1: ratio has no effect"};
  EXPECT_TRUE(without_effect(warnings, "param_buffer_count"));
  EXPECT_TRUE(without_effect(warnings, "ratio"));
  EXPECT_FALSE(without_effect(warnings, "buffer_count")) << "a part of another's name";
  EXPECT_FALSE(without_effect(warnings, "why"));
}

TEST(Megatrain, WarnsOfBlocksLongerThanTheModel) {
  const auto warnings = [](const char* interval) {
    const Job of = job("megatrain", {}, {{"checkpoint_interval", interval}}, tiny_shape(5));
    return of.plan->check(of);
  };
  EXPECT_THAT(warnings("5"), IsEmpty());
  EXPECT_THAT(warnings("6"),
              ElementsAre("megatrain.checkpoint_interval 6 is as 5, all of the layers"));
}

}  // namespace
}  // namespace offsim::plans::checks_test
