// Is every line of advice a prediction, and is the order that of their gains?
#include "sim/study/advise.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "sim/study/limits.h"
#include "tests/plans/held.h"

namespace offsim::plans::advise_test {
namespace {

using study::Advice;
using study::Edit;
using study::Tried;

Advice advise(const Job& job) { return study::advise(job, {}); }

const Tried* with(const Advice& advice, std::string_view setting, std::string_view to) {
  const auto found = std::ranges::find_if(advice.tried, [&](const Tried& t) {
    return t.edit.changes.size() == 1 && t.edit.changes.front().setting == setting &&
           t.edit.changes.front().to == to;
  });
  return found == advice.tried.end() ? nullptr : &*found;
}

// Asked again by itself, each says the same.
TEST(Advise, EveryRowIsAPrediction) {
  const Job job = plans::job("zero3-offload", few_tokens());
  const Advice advice = advise(job);
  ASSERT_GT(advice.tried.size(), 20U);
  for (const Tried& t : advice.tried) {
    if (t.idle) {
      continue;  // AnIdleEditChangesNothing
    }
    if (t.refused.empty()) {
      const study::Prediction again = study::predict(t.job);
      EXPECT_EQ(again.step.value, t.prediction.step.value);
      EXPECT_EQ(t.gain, again.tokens_per_s / advice.now.tokens_per_s - 1);
    } else {
      EXPECT_THROW(study::predict(t.job), InputError);
    }
  }
}

TEST(Advise, BestFirstAndWhatDoesNotFitLast) {
  Workload w = few_tokens();
  w.sequence = 64;
  const Advice advice = advise(plans::job("zero3-offload", w));
  for (std::size_t i = 1; i < advice.tried.size(); ++i) {
    const Tried& a = advice.tried[i - 1];
    const Tried& b = advice.tried[i];
    EXPECT_GE(a.fits(), b.fits());
    if (a.fits() && b.fits()) {
      EXPECT_GT(a.gain, b.gain - 1.1e-3);
    }
  }
  ASSERT_NE(advice.best(), nullptr);
  EXPECT_EQ(advice.best(), &advice.tried.front());
}

// One step of Adam for more tokens, and as many fetches: more tokens a second.
TEST(Advise, MoreAccumulationIsWorthItWhereAdamIsLong) {
  machine::Machine m = runtime::synthetic_machine();
  m.framework.kernels["adam_deepspeed_f32"].core_rate = ElementsPerSecond(1e5);
  const Advice advice = advise(plans::job("zero2-offload", few_tokens(), {}, tiny_shape(), m));
  const Tried* const more = with(advice, "accumulation", "4");
  ASSERT_NE(more, nullptr);
  EXPECT_GT(more->gain, 2);
}

// The most that the GPU holds: one more does not fit, to an eighth.
TEST(Advise, TheLargestMicroBatchFitsAndAnEighthMoreDoesNot) {
  machine::Machine m = runtime::synthetic_machine();
  Workload w = few_tokens();
  w.sequence = 64;
  w.micro_batch = 64;
  m.accelerator.memory =
      runtime::known_bytes(peak(plans::job("native", w, {}, tiny_shape(), m), "gpu") +
                           m.framework.gpu_context.value.value);
  w.micro_batch = 1;
  const Advice advice = advise(plans::job("native", w, {}, tiny_shape(), m));
  std::int64_t largest = 0;
  for (const Tried& t : advice.tried) {
    const plans::Workload& work = t.job.workload;
    if (t.fits() && t.edit.of_settings() && work.checkpointing == Checkpointing::kNone &&
        work.activation_offload == w.activation_offload) {
      largest = std::max(largest, work.micro_batch);
    }
  }
  EXPECT_GT(largest, 64 * 7 / 8 - 1);
  EXPECT_LE(largest, 64);
}

// Where one edit is not enough, two are tried.
TEST(Advise, TwoEditsWhereNoneFits) {
  machine::Machine m = runtime::synthetic_machine();
  Workload w = few_tokens();
  w.sequence = 256;
  w.micro_batch = 8;
  const auto gpu = [&](const Workload& work, const Given& options) {
    return peak(plans::job("zero3-offload", work, options, tiny_shape(8), m), "gpu");
  };
  Workload small = w;
  small.micro_batch = 1;
  small.checkpointing = Checkpointing::kFull;
  const Given options{{"reduce_bucket_size", "1e6"}};
  m.accelerator.memory =
      runtime::known_bytes(gpu(small, options) + m.framework.gpu_context.value.value);
  const Job asked = plans::job("zero3-offload", w, options, tiny_shape(8), m);
  const Advice advice = advise(asked);
  ASSERT_FALSE(advice.now.feasible());
  for (const Tried& pair : advice.pairs) {
    EXPECT_TRUE(pair.fits());
    EXPECT_GE(pair.edit.changes.size(), 2U);
  }
  for (const Tried& t : advice.tried) {
    EXPECT_FALSE(t.fits() && t.edit.of_settings());
  }
  EXPECT_FALSE(advice.pairs.empty());
}

// What the plan says has no effect changes nothing: the same prediction, to the last digit.
TEST(Advise, AnIdleEditChangesNothing) {
  const Job asked = plans::job("zero3-offload", few_tokens());
  const Advice advice = advise(asked);
  int idle = 0;
  for (const Tried& t : advice.tried) {
    if (t.idle) {
      const study::Prediction p = study::predict(t.job);
      EXPECT_EQ(p.step.value, advice.now.step.value) << t.edit.changes.front().setting;
      EXPECT_EQ(p.pool("gpu")->peak, advice.now.pool("gpu")->peak);
      ++idle;
    }
  }
  EXPECT_GT(idle, 3);
}

// Four times the accumulation, up to what may be asked for.
TEST(Edits, CanBeAskedFor) {
  const auto accumulates = [](std::int64_t accumulation) {
    Workload w = few_tokens();
    w.accumulation = accumulation;
    const std::vector<Edit> edits = study::edits_of(plans::job("native", w), {});
    return std::ranges::any_of(edits, [](const Edit& edit) {
      return edit.changes.size() == 1 && edit.changes_setting("accumulation");
    });
  };
  EXPECT_TRUE(accumulates(1024));
  EXPECT_FALSE(accumulates(1025));
}

// A step so long that not all edits can be simulated: some are, and the rest is counted.
TEST(Advise, EndsWhereItTakesTooLong) {
  Workload w = few_tokens();
  w.accumulation = 1000;
  const Advice advice = advise(plans::job("native", w, {}, tiny_shape(8)));
  double work = 0;
  for (const Tried& t : advice.tried) {
    work +=
        t.refused.empty() && !t.idle ? study::step_size(t.job.shape, t.job.workload).share() : 0;
  }
  EXPECT_GT(advice.untried, 0U);
  EXPECT_GT(work, 1);
  EXPECT_LE(work, study::kMostWork);
}

// Every option of every plan is tried, or there is a reason why not.
TEST(Edits, ConsiderEveryOption) {
  for (const Plan& plan : registry()) {
    for (const OptionSpec& option : plan.options) {
      EXPECT_TRUE(study::is_considered(option.name)) << plan.name << "." << option.name;
    }
  }
}

TEST(Edits, TogetherAreBoth) {
  const Job job = plans::job("zero2-offload", few_tokens());
  const std::vector<Edit> edits = study::edits_of(job, {});
  const auto edit_of = [&](std::string_view setting) {
    return *std::ranges::find_if(
        edits, [&](const Edit& e) { return e.changes.size() == 1 && e.changes_setting(setting); });
  };
  const Edit accumulation = edit_of("accumulation"), pageable = edit_of("overlap_comm");
  const auto both = study::together(accumulation, pageable);
  ASSERT_TRUE(both.has_value());
  EXPECT_EQ(both->of(job).workload.accumulation, accumulation.of(job).workload.accumulation);
  EXPECT_EQ(both->of(job).options.text("overlap_comm"),
            pageable.of(job).options.text("overlap_comm"));
  EXPECT_FALSE(study::together(accumulation, accumulation).has_value());
}

}  // namespace
}  // namespace offsim::plans::advise_test
