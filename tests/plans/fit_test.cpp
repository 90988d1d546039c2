// Is the largest that fits the largest?
#include "sim/study/fit.h"

#include <gtest/gtest.h>

#include "tests/plans/held.h"

namespace offsim::plans::fit_test {
namespace {

machine::Machine with_gpu(std::int64_t bytes) {
  machine::Machine m = runtime::synthetic_machine();
  m.accelerator.memory = runtime::known_bytes(bytes + m.framework.gpu_context.value.value);
  return m;
}

Job asked(std::int64_t micro_batch, std::int64_t sequence, const model::Shape& shape,
          const machine::Machine& m = runtime::synthetic_machine()) {
  Workload w = few_tokens();
  w.micro_batch = micro_batch;
  w.sequence = sequence;
  return job("zero2-offload", w, {}, shape, m);
}

// The memory that 21 need exactly: 21 fit, 22 do not; with a byte less 20 do.
TEST(Fit, TheMicroBatchToTheByte) {
  const std::int64_t bytes = peak(asked(21, 64, tiny_shape()), "gpu");
  const auto fit = [](std::int64_t of) {
    return study::fit(asked(1, 64, tiny_shape(), with_gpu(of)), {});
  };
  EXPECT_EQ(fit(bytes).micro_batch, 21);
  EXPECT_EQ(fit(bytes - 1).micro_batch, 20);
  EXPECT_EQ(fit(bytes).stops, "gpu");
  EXPECT_EQ(fit(1000).micro_batch, 0);
}

TEST(Fit, TheSequenceInStepsOf1024) {
  model::Shape shape = tiny_shape();
  shape.max_sequence = 0;
  const std::int64_t bytes = peak(asked(2, 3 * 1024, shape), "gpu");
  EXPECT_EQ(study::fit(asked(2, 64, shape, with_gpu(bytes)), {}).sequence, 3 * 1024);
  EXPECT_EQ(study::fit(asked(2, 64, shape, with_gpu(bytes - 1)), {}).sequence, 2 * 1024);
  shape.positions = shape.max_sequence = 2048;  // learned: there are no more
  EXPECT_EQ(study::fit(asked(2, 64, shape), {}).sequence, 2 * 1024);
}

TEST(Fit, TheLargestOfTheModels) {
  std::vector<model::Shape> models;
  for (const int layers : {1, 2, 4, 8}) {
    models.push_back(tiny_shape(layers));
    models.back().name = std::to_string(layers);
  }
  const std::int64_t bytes = peak(asked(1, 64, models[2]), "gpu");
  EXPECT_EQ(study::fit(asked(1, 64, models[0], with_gpu(bytes)), models).model, "4");
  EXPECT_EQ(study::fit(asked(1, 64, models[0], with_gpu(bytes - 1)), models).model, "2");
}

TEST(Fit, SaysWhyAPlanDoesNotRun) {
  EXPECT_NE(study::fit(job("mlx", few_tokens()), {}).refused, "");
}

}  // namespace
}  // namespace offsim::plans::fit_test
