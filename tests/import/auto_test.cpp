// Is "auto" what the Trainer makes of it where the Trainer is, and are the batch keys DeepSpeed's
// arithmetic?
#include <gtest/gtest.h>

#include "tests/import/answer.h"
#include "tests/plans/jobs.h"

namespace offsim::imports::auto_test {
namespace {

constexpr const char* kSizes =
    "\"reduce_bucket_size\": \"auto\",\n\"stage3_prefetch_bucket_size\": \"auto\",\n"
    "\"stage3_param_persistence_threshold\": \"auto\"";

constexpr const char* kOne = "--bf16 --per_device_train_batch_size 1";  // as stage() has it

// As the Trainer asks with these arguments, of a model so wide.
Answer with_trainer(const std::string& text, const std::string& arguments,
                    std::int64_t hidden = 64) {
  model::Shape shape = plans::tiny_shape();
  shape.hidden = hidden;
  Findings findings;
  Trainer trainer(arguments, findings);
  Around around;
  around.trainer = &trainer;
  around.hugging_face = true;
  around.gpus = trainer.workload().gpus;
  around.shape = &shape;
  return answer(text, around);
}

Answer on_gpus(const char* gpus, const std::string& text) {
  Around around;
  around.gpus = study::Given{gpus, {"launcher"}};
  return answer(text, around);
}

// 12, 13, 14: hidden^2, 0.9 hidden^2, 10 hidden. 5120^2 = 26,214,400; 4096^2 = 16,777,216, 0.9 of
// it 15,099,494.4.
TEST(Auto, SizesAreTheTrainersFromTheHiddenSize) {
  const std::string plan = "zero3-offload offload_optimizer=none offload_param=none";
  EXPECT_EQ(with_trainer(stage(3, kSizes), kOne, 5120).asked,
            plan +
                " stage3_prefetch_bucket_size=23592960 stage3_param_persistence_threshold=51200 "
                "reduce_bucket_size=26214400 | 1 x 1 x 1 bf16-mixed");
  EXPECT_EQ(with_trainer(stage(3, kSizes), kOne, 4096).asked,
            plan +
                " stage3_prefetch_bucket_size=15099494 stage3_param_persistence_threshold=40960 "
                "reduce_bucket_size=16777216 | 1 x 1 x 1 bf16-mixed");
  EXPECT_EQ(
      with_trainer(stage(3, kSizes), kOne, 5120).setting("zero_optimization.reduce_bucket_size"),
      "26,214,400 elements, 50.0 MiB in 16 bits [ds.json:2:23, auto: the Trainer's hidden "
      "size squared] ");
}

TEST(Auto, SizesNeedAModel) {
  Around around;
  around.hugging_face = true;
  const Answer a = answer(stage(3, kSizes), around);
  ASSERT_EQ(a.refusals.size(), 3U);
  EXPECT_EQ(a.refusals[0],
            "ds.json:2:23: reduce_bucket_size is auto: hidden size squared; expected a model "
            "beside it");
}

// 15: what the Trainer has no rule for keeps DeepSpeed's default there, too.
TEST(Auto, WithoutARuleIsTheDefault) {
  const Answer a = with_trainer(
      stage(3, "\"sub_group_size\": \"auto\", \"stage3_max_live_parameters\": \"auto\""), kOne);
  EXPECT_EQ(a.asked,
            "zero3-offload offload_optimizer=none offload_param=none | 1 x 1 x 1 bf16-mixed");
  EXPECT_EQ(a.setting("zero_optimization.sub_group_size"),
            "1e9 [ds.json:2:19, auto: DeepSpeed's default] ");
}

const std::string kAllAuto =
    "{\"bf16\": {\"enabled\": \"auto\"}, \"fp16\": {\"enabled\": \"auto\"},\n"
    "\"train_batch_size\": \"auto\", \"train_micro_batch_size_per_gpu\": \"auto\",\n"
    "\"gradient_accumulation_steps\": \"auto\", \"gradient_clipping\": \"auto\"}";

// 9, 10, 11, 16: from the arguments; 8, 1 and fp32 where they are silent.
TEST(Auto, BatchAndPrecisionAreTheTrainers) {
  EXPECT_EQ(with_trainer(kAllAuto,
                         "--per_device_train_batch_size 3 --gradient_accumulation_steps 5 --bf16 "
                         "--num_processes 2")
                .asked,
            "native gradient_clipping=true | 3 x 5 x 2 bf16-mixed");
  EXPECT_EQ(with_trainer(kAllAuto, "--fp16 true").asked,
            "native gradient_clipping=true | 8 x 1 x 1 fp16-mixed");
  EXPECT_EQ(with_trainer(kAllAuto, "--max_grad_norm 0").asked,
            "native gradient_clipping=false | 8 x 1 x 1 fp32");
}

// 9, 16: nobody says.
TEST(Auto, BatchAndPrecisionAreAskedForWithoutTheTrainer) {
  const Answer a = answer(kAllAuto);
  ASSERT_EQ(a.refusals.size(), 2U);
  EXPECT_EQ(a.refusals[0].substr(0, 62),
            "ds.json:1:51: the precision is auto (DeepSpeed alone would run");
  EXPECT_EQ(a.refusals[1],
            "ds.json:2:63: train_micro_batch_size_per_gpu is auto; expected --micro-batch N, or "
            "--trainer '--per_device_train_batch_size N'");
}

TEST(Auto, FlagsWin) {
  Around around;
  around.flags.micro_batch = study::Given{"7", {"command line"}};
  around.flags.precision = study::Given{"bf16-mixed", {"command line"}};
  const Answer a = answer(kAllAuto, around);
  EXPECT_TRUE(a.refusals.empty()) << a.refusals[0];
  EXPECT_EQ(a.asked.substr(0, 43), "native gradient_clipping=true | 7 x 1 x 1 ?");
}

// The Trainer stops where file and arguments differ.
TEST(Auto, WhatIsNotAutoIsTheSameAsTheArgument) {
  const Answer batch = with_trainer(top("\"train_micro_batch_size_per_gpu\": 4"),
                                    "--per_device_train_batch_size 8 --bf16");
  ASSERT_EQ(batch.refusals.size(), 1U);
  EXPECT_EQ(batch.refusals[0],
            "ds.json:2:35: train_micro_batch_size_per_gpu is 4, and the Trainer's argument says "
            "8; expected the same, or auto");
  const Answer precision = with_trainer(top("\"train_batch_size\": 8"), "--bf16 false");
  ASSERT_EQ(precision.refusals.size(), 1U);
  EXPECT_EQ(precision.refusals[0],
            "ds.json:1:22: bf16.enabled is true, and the Trainer's argument says false; expected "
            "the same, or auto");
}

// 20 to 27 with the launcher's GPUs: total = micro x accumulation x GPUs, floor division.
TEST(Batch, IsDividedAmongTheGpus) {
  EXPECT_EQ(
      on_gpus("8", top("\"train_batch_size\": 32, \"train_micro_batch_size_per_gpu\": 4")).asked,
      "native | 4 x 1 x 8 bf16-mixed");
  EXPECT_EQ(on_gpus("8", top("\"train_batch_size\": 32")).asked, "native | 4 x 1 x 8 bf16-mixed");
  EXPECT_EQ(on_gpus("8", top("\"train_micro_batch_size_per_gpu\": 4")).asked,
            "native | 4 x 1 x 8 bf16-mixed");
}

TEST(Batch, ThatDoesNotMultiplyOutIsRefused) {
  const Answer product =
      on_gpus("8", top("\"train_batch_size\": 20, \"train_micro_batch_size_per_gpu\": 1, "
                       "\"gradient_accumulation_steps\": 2"));
  ASSERT_EQ(product.refusals.size(), 1U);
  EXPECT_EQ(product.refusals[0].substr(0, 95),
            "ds.json:2:21: train_batch_size is 20, and micro-batch 1 x accumulation 2 x 8 GPUs is "
            "16; expect");
  // 8 / 4 GPUs / accumulation 4 is 0.
  const Answer none =
      on_gpus("4", top("\"train_batch_size\": 8, \"gradient_accumulation_steps\": 4"));
  ASSERT_EQ(none.refusals.size(), 1U);
  EXPECT_EQ(
      none.refusals[0].substr(0, 85),
      "ds.json:2:21: train_batch_size is 8, and micro-batch 0 x accumulation 4 x 4 GPUs is 0");
  // 20 / 3 a GPU / 8 GPUs is 0.
  EXPECT_EQ(on_gpus("8", top("\"train_batch_size\": 20, \"train_micro_batch_size_per_gpu\": 3"))
                .refusals.size(),
            1U);
}

Answer with_flags(const char* micro, const char* accumulation, const std::string& text) {
  Around around;
  const Place line{"command line"};
  if (micro != nullptr) {
    around.flags.micro_batch = study::Given{micro, line};
  }
  if (accumulation != nullptr) {
    around.flags.accumulation = study::Given{accumulation, line};
  }
  return answer(text, around);
}

// The total stays, and what no flag says follows from it.
TEST(Batch, FollowsFromTheTotalAndAFlag) {
  const std::string total = top("\"train_batch_size\": 64");
  EXPECT_EQ(with_flags("4", nullptr, total).asked, "native | 4 x 16 x 1 bf16-mixed");
  EXPECT_EQ(with_flags(nullptr, "4", total).asked, "native | 16 x 4 x 1 bf16-mixed");
  EXPECT_EQ(with_flags("4", nullptr,
                       top("\"train_batch_size\": 64, \"train_micro_batch_size_per_gpu\": 8"))
                .asked,
            "native | 4 x 16 x 1 bf16-mixed");
  const Answer odd = with_flags("3", nullptr, total);
  ASSERT_EQ(odd.refusals.size(), 1U);
  EXPECT_TRUE(
      odd.refusals[0].starts_with("ds.json:2:21: train_batch_size is 64, and micro-batch 3 "
                                  "x accumulation 21 x 1 GPU is 63; "))
      << odd.refusals[0];
}

// Where nothing is left to follow, the total gives way, and says so.
TEST(Batch, TotalGivesWayToFlags) {
  const std::string total = top("\"train_batch_size\": 64");
  const std::string says = "ds.json:2:21: train_batch_size 64 gives way to offsim's own flags";
  const Answer both = with_flags("4", "2", total);
  EXPECT_EQ(both.asked, "native | 4 x 2 x 1 bf16-mixed");
  EXPECT_TRUE(both.warns(says)) << testing::PrintToString(both.warnings);
  const Answer largest = with_flags("largest", nullptr, total);
  EXPECT_EQ(largest.asked, "native | largest x 1 x 1 bf16-mixed");
  EXPECT_TRUE(largest.warns(says));
  const Answer file =
      with_flags("4", nullptr, top("\"train_batch_size\": 64, \"gradient_accumulation_steps\": 8"));
  EXPECT_EQ(file.asked, "native | 4 x 8 x 1 bf16-mixed");
  EXPECT_TRUE(file.warns(says));
}

// 27: 8 GPUs by sequences over 2 are 4 for the batch: 32 / 4.
TEST(Batch, IsDividedAmongDataParallelGpusAlone) {
  const Answer a = on_gpus("8", top("\"train_batch_size\": 32, \"sequence_parallel_size\": 2"));
  EXPECT_EQ(a.asked, "native | 8 x 1 x 8 bf16-mixed");
  EXPECT_TRUE(a.warns("ds.json:2:51: sequence parallelism is not modelled; 4 of 8 GPUs are data"));
  const Answer odd = on_gpus("3", top("\"train_batch_size\": 32, \"sequence_parallel_size\": 2"));
  ASSERT_GE(odd.refusals.size(), 1U);
  EXPECT_EQ(odd.refusals[0],
            "ds.json:2:51: 3 GPUs are no multiple of sequence_parallel_size 2; expected one");
}

// 77, 80: against a model of 106,816 parameters (tests/plans/jobs.h).
TEST(Sizes, AboveTheModelAreWarnedOf) {
  const std::string param = "\"offload_param\": {\"device\": \"cpu\"}, ";
  const auto asked = [&](const std::string& inner) { return with_trainer(stage(3, inner), kOne); };
  EXPECT_TRUE(asked("\"sub_group_size\": 106817").warns("ds.json:2:19: sub_group_size is more"));
  EXPECT_FALSE(asked("\"sub_group_size\": 106816").warns("sub_group_size"));
  EXPECT_TRUE(asked(param + "\"stage3_max_live_parameters\": 106816")
                  .warns("ds.json:2:67: stage3_max_live_parameters is as much as the whole"));
  EXPECT_FALSE(
      asked(param + "\"stage3_max_live_parameters\": 106815").warns("stage3_max_live_parameters"));
}

}  // namespace
}  // namespace offsim::imports::auto_test
