// Does the list of settings say what is in force, where that is from, and why it has no effect?
#include <gtest/gtest.h>

#include "tests/import/answer.h"

namespace offsim::imports::settings_test {
namespace {

struct Listed {
  const char* what;
  std::string text, key, expected;
  friend void PrintTo(const Listed& c, std::ostream* out) { *out << c.what; }
};
class Lists : public testing::TestWithParam<Listed> {};
TEST_P(Lists, WhatIsInForceAndWhy) {
  SCOPED_TRACE(GetParam().what);
  const Answer a = answer(GetParam().text);
  EXPECT_TRUE(a.refusals.empty()) << a.refusals[0];
  EXPECT_EQ(a.setting(GetParam().key), GetParam().expected);
}
INSTANTIATE_TEST_SUITE_P(
    DeepSpeed, Lists,
    testing::Values(
        Listed{"12 alone", stage(3, "\"reduce_bucket_size\": \"auto\""),
               "zero_optimization.reduce_bucket_size",
               "5e8 [ds.json:2:23, auto: DeepSpeed's default] "},
        // Listed and not warned of: there is no other rule that could hold.
        Listed{"15", stage(3, "\"sub_group_size\": \"auto\""), "zero_optimization.sub_group_size",
               "1e9 [ds.json:2:19, auto: DeepSpeed's default] "},
        Listed{"17 at 3", stage(3, "\"overlap_comm\": \"auto\""), "zero_optimization.overlap_comm",
               "true [ds.json:2:17, auto: DeepSpeed's default] "},
        Listed{"17 at 2",
               stage(2, "\"overlap_comm\": \"auto\", \"offload_optimizer\": {\"device\": \"cpu\"}"),
               "zero_optimization.overlap_comm",
               "false [ds.json:2:17, auto: DeepSpeed's default] "},
        Listed{"19", stage(3, "\"zero_quantized_weights\": \"auto\""),
               "zero_optimization.zero_quantized_weights",
               "false [ds.json:2:27, auto: DeepSpeed's default] one GPU exchanges nothing with "
               "others"},
        Listed{"21", top("\"train_batch_size\": 32"), "batch", "32 x 1 x 1 GPU [ds.json:2:21] "},
        Listed{"33",
               stage(2,
                     "\"cpu_offload_use_pin_memory\": true, \"offload_optimizer\": {\"device\": "
                     "\"cpu\"}"),
               "zero_optimization.cpu_offload_use_pin_memory",
               "true [ds.json:2:31] DeepSpeed ignores it: pin_memory inside the offload block is "
               "what counts"},
        Listed{"34", stage(3, "\"stage3_gather_fp16_weights_on_model_save\": true"),
               "zero_optimization.stage3_gather_fp16_weights_on_model_save",
               "true [ds.json:2:45] matters when a model is saved or loaded"},
        Listed{"38", stage(3, "\"legacy_stage1\": true"), "zero_optimization.legacy_stage1",
               "true [ds.json:2:18] matters when a model is saved or loaded"},
        Listed{"50", stage(2, "\"offload_optimizer\": {\"device\": \"cpu\"}"), "pin_memory",
               "true [default of DeepSpeed 0.19.6] "},
        Listed{"51",
               stage(3, "\"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \"/x\"}"),
               "buffer_count", "4 [default of DeepSpeed 0.19.6] "},
        Listed{"51 parameters",
               stage(3, "\"offload_param\": {\"device\": \"nvme\", \"nvme_path\": \"/x\"}"),
               "param_buffer_count", "5 [default of DeepSpeed 0.19.6] "},
        Listed{"53", stage(3, "\"offload_param\": {\"device\": \"cpu\", \"max_in_cpu\": 1e9}"),
               "zero_optimization.offload_param.max_in_cpu",
               "1,000,000,000 elements, 1.86 GiB in 16 bits [ds.json:2:50] read for nvme only"},
        Listed{"60",
               stage(3, "\"offload_optimizer\": {\"device\": \"cpu\", \"pipeline_read\": true}"),
               "zero_optimization.offload_optimizer.pipeline_read",
               "true [ds.json:2:57] read for nvme only"},
        Listed{"61", stage(3, "\"offload_optimizer\": {\"device\": \"cpu\", \"fast_init\": false}"),
               "zero_optimization.offload_optimizer.fast_init",
               "false [ds.json:2:53] matters while training starts"},
        Listed{
            "66",
            stage(2,
                  "\"round_robin_gradients\": true, \"offload_optimizer\": {\"device\": \"cpu\"}"),
            "zero_optimization.round_robin_gradients",
            "true [ds.json:2:26] it spreads copies over GPUs, and there is one"},
        // 5e8 x 2 bytes = 1e9 / 2^20 MiB.
        Listed{"81", stage(3, "\"reduce_bucket_size\": 5e8"),
               "zero_optimization.reduce_bucket_size",
               "500,000,000 elements, 954 MiB in 16 bits [ds.json:2:23] "},
        Listed{"84", stage(2, "\"offload_optimizer\": {\"device\": \"cpu\"}"), "optimizer",
               "AdamW, DeepSpeed's own on the CPU [no optimizer block] "},
        Listed{"86", top("\"train_batch_size\": 1, \"zero_allow_untested_optimizer\": true"),
               "zero_allow_untested_optimizer",
               "true [ds.json:2:57] it lets DeepSpeed start, and changes no step"},
        Listed{"88", stage(3, "\"save_muon_momentum_buffer_in_memory\": true"),
               "zero_optimization.save_muon_momentum_buffer_in_memory",
               "true [ds.json:2:40] not modelled"},
        Listed{"89",
               top("\"train_batch_size\": 1, \"activation_checkpointing\": {\"cpu_checkpointing\": "
                   "true}"),
               "activation_checkpointing.cpu_checkpointing",
               "true [ds.json:2:74] Hugging Face's models do not call DeepSpeed's checkpointing: "
               "their own gradient_checkpointing counts"},
        Listed{"92", top("\"train_batch_size\": 1, \"wall_clock_breakdown\": true"),
               "wall_clock_breakdown",
               "true [ds.json:2:48] its timers' synchronisation is not modelled"},
        Listed{"93", top("\"train_batch_size\": 1, \"communication_data_type\": \"fp32\""),
               "communication_data_type",
               "fp32 [ds.json:2:51] one GPU exchanges nothing with others"}));

// 43, 45: what is refused is not taken as if it were absent.
TEST(DeepSpeed, DrawsNoConclusionsFromWhatItRefuses) {
  const std::string param = "\"offload_param\": {\"device\": \"cpu\"}";
  EXPECT_THAT(answer(stage(4, param)).warnings, testing::IsEmpty());
  EXPECT_THAT(answer(stage(3, "\"offload_optimizer\": {\"device\": \"gpu\"}")).warnings,
              testing::IsEmpty());
  EXPECT_THAT(answer(stage(2, "\"offload_optimizer\": {\"device\": \"gpu\"}")).warnings,
              testing::IsEmpty());
}

TEST(DeepSpeed, SaysAllThatIsWrongAtOnce) {  // 67, together
  const Answer a =
      answer(stage(3,
                   "\"zero_hpz_partition_size\": 8,\n\"zero_quantized_weights\": true,\n"
                   "\"zero_quantized_gradients\": true"));
  ASSERT_EQ(a.refusals.size(), 3U);
  EXPECT_EQ(a.refusals[0].substr(0, 12), "ds.json:2:1:");
  EXPECT_EQ(a.refusals[1].substr(0, 12), "ds.json:3:1:");
  EXPECT_EQ(a.refusals[2].substr(0, 12), "ds.json:4:1:");
}

// 85, 87: a slow Adam on the CPU is none where nothing is on the CPU.
TEST(DeepSpeed, WarnsOfASlowAdamOnTheCpuAlone) {
  const std::string slow =
      "\"train_batch_size\": 1, \"zero_force_ds_cpu_optimizer\": false, \"optimizer\": "
      "{\"type\": \"AdamW\", \"params\": {\"torch_adam\": true}}, \"zero_optimization\": ";
  EXPECT_FALSE(answer(top(slow + "{\"stage\": 2}")).warns("several times as long"));
  EXPECT_FALSE(answer(top(slow + "{\"stage\": 3}")).warns("several times as long"));
  EXPECT_FALSE(answer(top(slow + "{\"stage\": 3, \"offload_param\": {\"device\": \"cpu\"}}"))
                   .warns("several times as long"));
  EXPECT_TRUE(answer(top(slow + "{\"stage\": 3, \"offload_optimizer\": {\"device\": \"cpu\"}}"))
                  .warns("several times as long"));
}

// 50: since 0.19.5 host memory is pinned unless told otherwise.
TEST(DeepSpeed, PinsByDefaultSinceItsVersion) {
  Around around;
  around.version = "0.19.4";
  const std::string text = stage(2, "\"offload_optimizer\": {\"device\": \"cpu\"}");
  EXPECT_EQ(answer(text, around).setting("pin_memory"), "false [default of DeepSpeed 0.19.4] ");
  around.version = "0.19.5";
  EXPECT_EQ(answer(text, around).setting("pin_memory"), "true [default of DeepSpeed 0.19.5] ");
}

// 62: without what it depends on, ZenFlow is not in the plan that is predicted.
TEST(DeepSpeed, WarnsOfZenFlowWithoutOffload) {
  EXPECT_TRUE(answer(stage(2, "\"zenflow\": {\"topk_ratio\": 0.1}"))
                  .warns("ds.json:2:12: zenflow has no effect here without offload_optimizer"));
}

}  // namespace
}  // namespace offsim::imports::settings_test
