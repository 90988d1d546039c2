// Does each oddity of a DeepSpeed configuration come out as DeepSpeed takes it, or refused with its
// place?
#include <gtest/gtest.h>

#include "tests/import/answer.h"

namespace offsim::imports::deepspeed_test {
namespace {

class Refuses : public testing::TestWithParam<Case> {};
TEST_P(Refuses, WithPlaceAndReason) {
  SCOPED_TRACE(GetParam().what);
  const Answer a = answer(GetParam().text);
  ASSERT_EQ(a.refusals.size(), 1U) << a.asked;
  EXPECT_EQ(a.refusals[0].substr(0, GetParam().expected.size()), GetParam().expected);
}
INSTANTIATE_TEST_SUITE_P(
    DeepSpeed, Refuses,
    testing::Values(
        // DeepSpeed takes True for a text, where whoever wrote it means true.
        Case{"6 Python", "{'zero_optimization': {'stage': 3, 'x': True}}",
             "ds.json:1:41: not JSON or Hjson: True is Python's; expected true"},
        Case{"16 both auto",
             "{\"train_batch_size\": 1, \"fp16\": {\"enabled\": \"auto\"}, \"bf16\": {\"enabled\": "
             "\"auto\"}}",
             "ds.json:1:45: the precision is auto (DeepSpeed alone would run in fp32); expected "
             "--precision"},
        // 20 is no multiple of 1 x 3: no number of GPUs makes it.
        Case{"24 product",
             "{\"train_batch_size\": 20, \"train_micro_batch_size_per_gpu\": 1, "
             "\"gradient_accumulation_steps\": 3}",
             "ds.json:1:22: train_batch_size is 20, and micro-batch 1 x accumulation 3 x 1 GPU is "
             "3; expected the same"},
        Case{"41", stage(3, "\"overlap_com\": true"),
             "ds.json:2:1: there is no 'overlap_com' in zero_optimization; did you mean "
             "'overlap_comm'?"},
        Case{"51 too few",
             stage(3,
                   "\"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \"/x\", "
                   "\"buffer_count\": 3}"),
             "ds.json:2:76: buffer_count is 3; expected 4 or more"},
        Case{"59",
             stage(3, "\"offload_optimizer\": {\"device\": \"cpu\", \"cpuadam_cores_perc\": 90}"),
             "ds.json:2:62: zero_optimization.offload_optimizer.cpuadam_cores_perc is '90'; "
             "expected a share from 0 to 1; did you mean 0.9?"},
        Case{"64",
             stage(
                 2,
                 "\"offload_optimizer\": {\"device\": \"cpu\"}, \"zenflow\": {\"select_strategy\": "
                 "\"step\", \"select_interval\": 2, \"update_interval\": 4}"),
             "ds.json:2:99: select_interval 2 is less than update_interval 4; expected as much or "
             "more"},
        Case{"67 weights", stage(3, "\"zero_quantized_weights\": true"),
             "ds.json:2:1: ZeRO++ is not modelled; expected no zero_quantized_weights"},
        Case{"67 gradients", stage(3, "\"zero_quantized_gradients\": true"),
             "ds.json:2:1: ZeRO++ is not modelled; expected no zero_quantized_gradients"},
        Case{"67 shard", stage(3, "\"zero_hpz_partition_size\": 8"),
             "ds.json:2:1: ZeRO++ is not modelled; expected no zero_hpz_partition_size"},
        Case{"86 8 bits",
             top("\"train_batch_size\": 1, \"optimizer\": {\"type\": \"AdamW8bit\"}, "
                 "\"zero_optimization\": {\"stage\": 2, \"offload_optimizer\": {\"device\": "
                 "\"cpu\"}}"),
             "ds.json:2:46: an 8-bit Adam does not run on the CPU; expected AdamW with offload"},
        Case{"96", top("\"train_batch_size\": 1, \"pipeline\": {\"stages\": 2}"),
             "ds.json:2:24: pipeline is not modelled; expected data parallelism alone"},
        Case{"2 twice", "{\"fp16\": {}, \"fp16\": {}}", "ds.json:1:14: key 'fp16' is given twice"},
        Case{"5 hole", "{\"train_batch_size\": SIZE}",
             "ds.json:1:22: not JSON or Hjson: 'SIZE' is neither"},
        Case{"8 nested", top("\"train_batch_size\": 1, \"deepspeed\": {\"zero_optimization\": {}}"),
             "ds.json:2:38: zero_optimization is inside 'deepspeed'"},
        Case{"23 no batch", top("\"gradient_accumulation_steps\": 4"),
             "ds.json:1:1: neither train_batch_size nor"},
        Case{"31 both",
             stage(2, "\"cpu_offload\": true, \"offload_optimizer\": {\"device\": \"cpu\"}"),
             "ds.json:2:1: cpu_offload stands beside the block that replaces it"},
        Case{"32 plural", stage(3, "\"cpu_offload_params\": true"),
             "ds.json:2:1: there is no 'cpu_offload_params' in zero_optimization; did you mean "
             "'cpu_offload_param'?"},
        Case{"37 both precisions",
             "{\"train_batch_size\": 1, \"fp16\": {\"enabled\": true}, \"bf16\": {\"enabled\": "
             "true}}",
             "ds.json:1:45: fp16 and bf16 are both enabled; expected one of them"},
        Case{"39", stage(3, "\"offload_optimizer\": {\"device\": \"cpu\", \"buffer_size\": 1e8}"),
             "ds.json:2:40: there is no 'buffer_size' in zero_optimization.offload_optimizer; it "
             "belongs in zero_optimization.offload_param"},
        Case{"40", stage(3, "\"offload_param\": {\"device\": \"cpu\", \"ratio\": 0.5}"),
             "ds.json:2:36: there is no 'ratio' in zero_optimization.offload_param; it belongs in "
             "zero_optimization.offload_optimizer"},
        Case{"43", stage(3, "\"offload_optimizer\": {\"device\": \"gpu\"}"), "ds.json:2:33: "},
        Case{"44 null", stage(3, "\"offload_optimizer\": {\"device\": null}"),
             "ds.json:2:23: zero_optimization.offload_optimizer.device is null"},
        Case{"45", stage(4, ""), "ds.json:1:83: zero_optimization.stage is '4'; expected one of"},
        Case{"48", stage(3, "\"offload_optimizer\": {\"device\": \"nvme\"}"),
             "ds.json:2:33: zero_optimization.offload_optimizer.device is nvme, without nvme_path"},
        Case{"54", stage(2, "\"offload_optimizer\": {\"device\": \"cpu\", \"ratio\": 0.3}"),
             "ds.json:2:49: ratio is 0.3 at stage 2"},
        Case{"56", stage(3, "\"offload_optimizer\": {\"device\": \"cpu\", \"ratio\": 30}"),
             "ds.json:2:49: zero_optimization.offload_optimizer.ratio is '30'; expected a share "
             "from 0 to 1; did you mean 0.3?"},
        Case{"68", stage(3, "\"mics_shard_size\": 8"), "ds.json:2:1: MiCS is not modelled"},
        Case{"72", stage(3, "\"aio\": {}"),
             "ds.json:2:1: there is no 'aio' in zero_optimization; it belongs at the top level"},
        Case{"74", stage(3, "\"reduce_bucket_size\": \"5e8\""),
             "ds.json:2:23: zero_optimization.reduce_bucket_size is the text '5e8'; expected a "
             "number without quotes"},
        Case{
            "76", stage(3, "\"reduce_bucket_size\": 2.5"),
            "ds.json:2:23: zero_optimization.reduce_bucket_size is '2.5'; expected a whole number"},
        Case{"78", stage(3, "\"sub_group_size\": 0"), "ds.json:2:19: sub_group_size is 0"},
        Case{
            "82",
            "{\"train_batch_size\": 1, \"fp16\": {\"enabled\": true, \"loss_scale\": \"dynamic\"}}",
            "ds.json:1:65: fp16.loss_scale is the text 'dynamic'; expected a number"},
        Case{"94", top("\"train_batch_size\": 1, \"compile\": {\"deepcompile\": true}"),
             "ds.json:2:51: DeepCompile has a schedule of its own"},
        Case{"95", top("\"train_batch_size\": 1, \"elasticity\": {\"enabled\": true}"),
             "ds.json:2:24: elastic batches are not modelled"}));

class Warns : public testing::TestWithParam<Case> {};
TEST_P(Warns, AndTakesIt) {
  SCOPED_TRACE(GetParam().what);
  const Answer a = answer(GetParam().text);
  EXPECT_TRUE(a.refusals.empty()) << a.refusals[0];
  EXPECT_TRUE(a.warns(GetParam().expected)) << testing::PrintToString(a.warnings);
}
INSTANTIATE_TEST_SUITE_P(
    DeepSpeed, Warns,
    testing::Values(
        Case{"1 unknown",
             "{ // stage\n stage_note: x,\n \"train_batch_size\": 1, \"zero_optimization\": "
             "{\"stage\": 3,}, }",
             "ds.json:2:2: DeepSpeed ignores 'stage_note'"},
        // DeepSpeed alone stops at each of these; taken as the files of Trainers, which they are.
        Case{
            "10",
            top("\"train_micro_batch_size_per_gpu\": 4, \"gradient_accumulation_steps\": \"auto\""),
            "ds.json:2:69: gradient_accumulation_steps is auto, which only Hugging Face's Trainer "
            "fills"},
        Case{"11", top("\"train_micro_batch_size_per_gpu\": 4, \"train_batch_size\": \"auto\""),
             "ds.json:2:58: train_batch_size is auto, which only Hugging Face's Trainer fills"},
        Case{"12 alone", stage(3, "\"reduce_bucket_size\": \"auto\""),
             "ds.json:2:23: reduce_bucket_size is auto: DeepSpeed's 5e8 is taken; with --trainer "
             "the Trainer's, hidden size squared"},
        Case{"13 alone", stage(3, "\"stage3_prefetch_bucket_size\": \"auto\""),
             "ds.json:2:32: stage3_prefetch_bucket_size is auto: DeepSpeed's 5e7 is taken; with "
             "--trainer the Trainer's, 0.9 x hidden size squared"},
        Case{"14 alone", stage(3, "\"stage3_param_persistence_threshold\": \"auto\""),
             "ds.json:2:39: stage3_param_persistence_threshold is auto: DeepSpeed's 1e5 is taken; "
             "with --trainer the Trainer's, 10 x hidden size"},
        Case{
            "18 alone", top("\"train_batch_size\": 1, \"gradient_clipping\": \"auto\""),
            "ds.json:2:45: gradient_clipping is auto, which DeepSpeed does not fill: 1.0 is taken"},
        Case{"26 three GPUs",
             top("\"train_batch_size\": 12, \"train_micro_batch_size_per_gpu\": 2, "
                 "\"gradient_accumulation_steps\": 2"),
             "ds.json:2:21: the three batch keys are those of 3 GPUs (--gpus 1 --micro-batch 2"},
        Case{"47", stage(1, "\"offload_optimizer\": {\"device\": \"cpu\"}"),
             "ds.json:1:83: stage 1 is taken as stage 2"},
        Case{"49", stage(3, "\"offload_param\": {\"device\": \"nvme\", \"nvme_path\": \"nvme\"}"),
             "ds.json:2:50: nvme_path is relative"},
        Case{"69", stage(3, "\"zero_quantized_nontrainable_weights\": true"),
             "ds.json:2:1: zero_quantized_nontrainable_weights is not modelled"},
        Case{"71", top("\"train_batch_size\": 1, \"aio\": {\"use_gds\": true}"),
             "ds.json:2:43: use_gds is not modelled"},
        Case{
            "83",
            "{\"train_batch_size\": 1, \"fp16\": {\"enabled\": true, \"initial_scale_power\": 32}}",
            "ds.json:1:74: a scale so large overflows: the first steps skip the optimizer"},
        // Not its slow rate, which no machine file has: the warning says by how much it is out.
        Case{"85",
             top("\"train_batch_size\": 1, \"zero_force_ds_cpu_optimizer\": false, "
                 "\"zero_optimization\": {\"stage\": 2, \"offload_optimizer\": {\"device\": "
                 "\"cpu\"}}"),
             "ds.json:2:55: zero_force_ds_cpu_optimizer false: a framework's Adam on the CPU takes "
             "several times as long"},
        Case{"86 Lion",
             top("\"train_batch_size\": 1, \"zero_allow_untested_optimizer\": true, \"optimizer\": "
                 "{\"type\": \"Lion\"}"),
             "ds.json:2:85: optimizer Lion is not modelled: Adam's bytes and time are taken"},
        Case{"87",
             top("\"train_batch_size\": 1, \"optimizer\": {\"type\": \"AdamW\", \"params\": "
                 "{\"torch_adam\": true}}, \"zero_optimization\": {\"stage\": 2, "
                 "\"offload_optimizer\": {\"device\": \"cpu\"}}"),
             "ds.json:2:80: torch_adam: a framework's Adam on the CPU"},
        Case{"88",
             top("\"train_batch_size\": 1, \"optimizer\": {\"type\": \"Muon\"}, "
                 "\"zero_optimization\": {\"stage\": 3, \"save_muon_momentum_buffer_in_memory\": "
                 "true, \"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \"/x\"}}"),
             "ds.json:2:46: optimizer Muon is not modelled"},
        Case{"89",
             top("\"train_batch_size\": 1, \"activation_checkpointing\": {\"cpu_checkpointing\": "
                 "true}"),
             "ds.json:2:74: cpu_checkpointing has no effect on Hugging Face's models"},
        // 2 bytes for 4 of everything on the host, which no plan has: warned of, with the factor.
        Case{"90 masters",
             "{\"train_batch_size\": 1, \"bf16\": {\"enabled\": "
             "true,\n\"bf16_master_weights_and_grads\": true}}",
             "ds.json:2:34: bf16_master_weights_and_grads is not modelled: masters, gradients and "
             "states are fp32 here"},
        Case{"90 states",
             "{\"train_batch_size\": 1, \"bf16\": {\"enabled\": true,\n\"bf16_optimizer_states\": "
             "true}}",
             "ds.json:2:26: bf16_optimizer_states is not modelled"},
        Case{"91", top("\"train_batch_size\": 1, \"data_types\": {\"grad_accum_dtype\": \"fp32\"}"),
             "ds.json:2:24: data_types is not modelled: the prediction is without it"},
        Case{"28", top("\"train_batch_size\": 1, \"zero_optimization\": true"),
             "ds.json:2:45: zero_optimization: true is the old form of stage 1"},
        Case{"29", top("\"train_batch_size\": 1"), "there is no zero_optimization"},
        Case{"30", stage(2, "\"cpu_offload\": true"), "is the old spelling of offload_optimizer"},
        Case{"42", top("\"train_batch_size\": 1, \"zero_optimisation\": {}"), "NOTHING of it"},
        Case{"46", stage(2, "\"offload_param\": {\"device\": \"cpu\"}"),
             "ds.json:2:1: offload_param has NO EFFECT below stage 3"},
        Case{"58",
             stage(2, "\"offload_optimizer\": {\"device\": \"cpu\", \"super_offload\": true}"),
             "super_offload has no effect below stage 3"},
        Case{"70", top("\"train_batch_size\": 1, \"aio\": {\"thread_count\": 8}"),
             "intra_op_parallelism is what thread_count is meant for"}));

class Accepts : public testing::TestWithParam<Case> {};
TEST_P(Accepts, AsThePlan) {
  SCOPED_TRACE(GetParam().what);
  const Answer a = answer(GetParam().text);
  EXPECT_TRUE(a.refusals.empty()) << a.refusals[0];
  EXPECT_EQ(a.asked, GetParam().expected);
  const plans::Plan& plan = plans::find_plan(a.plan.name.text, {});
  plans::Options options(plan.options, plan.name);
  for (const auto& [name, value] : a.plan.options) {
    EXPECT_NO_THROW(options.set(name.text, value.text, value.place)) << name.text;
  }
}
INSTANTIATE_TEST_SUITE_P(
    DeepSpeed, Accepts,
    testing::Values(
        Case{"1 hjson",
             "{ // stage\n stage_note: x,\n \"train_batch_size\": 1, \"zero_optimization\": "
             "{\"stage\": 3,}, }",
             "zero3-offload offload_optimizer=none offload_param=none | 1 x 1 x 1 fp32"},
        // The Trainer's default of both is what an absent argument leaves.
        Case{
            "10",
            top("\"train_micro_batch_size_per_gpu\": 4, \"gradient_accumulation_steps\": \"auto\""),
            "native | 4 x 1 x 1 bf16-mixed"},
        Case{"11", top("\"train_micro_batch_size_per_gpu\": 4, \"train_batch_size\": \"auto\""),
             "native | 4 x 1 x 1 bf16-mixed"},
        // Dropped: the plan's default is DeepSpeed's.
        Case{"12 alone", stage(3, "\"reduce_bucket_size\": \"auto\""),
             "zero3-offload offload_optimizer=none offload_param=none | 1 x 1 x 1 bf16-mixed"},
        Case{"15 17 19",
             stage(3,
                   "\"sub_group_size\": \"auto\", \"stage3_max_live_parameters\": \"auto\", "
                   "\"stage3_max_reuse_distance\": \"auto\", \"overlap_comm\": \"auto\", "
                   "\"zero_quantized_weights\": \"auto\""),
             "zero3-offload offload_optimizer=none offload_param=none | 1 x 1 x 1 bf16-mixed"},
        Case{"18 alone", top("\"train_batch_size\": 1, \"gradient_clipping\": \"auto\""),
             "native gradient_clipping=true | 1 x 1 x 1 bf16-mixed"},
        Case{"20 on one", top("\"train_batch_size\": 32, \"train_micro_batch_size_per_gpu\": 4"),
             "native | 4 x 8 x 1 bf16-mixed"},
        Case{"21 on one", top("\"train_batch_size\": 32"), "native | 32 x 1 x 1 bf16-mixed"},
        Case{"22 on one", top("\"train_micro_batch_size_per_gpu\": 4"),
             "native | 4 x 1 x 1 bf16-mixed"},
        Case{"26 three GPUs",
             top("\"train_batch_size\": 12, \"train_micro_batch_size_per_gpu\": 2, "
                 "\"gradient_accumulation_steps\": 2"),
             "native | 2 x 2 x 3 bf16-mixed"},
        // Not pin_memory=true: DeepSpeed ignores it.
        Case{"33", stage(2, "\"cpu_offload\": true, \"cpu_offload_use_pin_memory\": true"),
             "zero2-offload | 1 x 1 x 1 bf16-mixed"},
        Case{"34", stage(3, "\"stage3_gather_fp16_weights_on_model_save\": true"),
             "zero3-offload offload_optimizer=none offload_param=none | 1 x 1 x 1 bf16-mixed"},
        Case{"36", "{\"train_batch_size\": 1, \"bfloat16\": {\"enabled\": true}}",
             "native | 1 x 1 x 1 bf16-mixed"},
        Case{"38",
             stage(2,
                   "\"elastic_checkpoint\": true, \"legacy_stage1\": true, \"offload_optimizer\": "
                   "{\"device\": \"cpu\"}"),
             "zero2-offload | 1 x 1 x 1 bf16-mixed"},
        Case{"47", stage(1, "\"offload_optimizer\": {\"device\": \"cpu\"}"),
             "zero2-offload | 1 x 1 x 1 bf16-mixed"},
        Case{"50", stage(2, "\"offload_optimizer\": {\"device\": \"cpu\", \"pin_memory\": false}"),
             "zero2-offload pin_memory=false | 1 x 1 x 1 bf16-mixed"},
        Case{"51",
             stage(3,
                   "\"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \"/x\", "
                   "\"buffer_count\": 4}, \"offload_param\": {\"device\": \"nvme\", \"nvme_path\": "
                   "\"/x\", \"buffer_count\": 5}"),
             "zero-infinity offload_optimizer=nvme offload_param=nvme buffer_count=4 "
             "param_buffer_count=5 | 1 x 1 x 1 bf16-mixed"},
        // The plan knows the largest tensor, and refuses.
        Case{"52",
             stage(3,
                   "\"offload_param\": {\"device\": \"nvme\", \"nvme_path\": \"/x\", "
                   "\"buffer_size\": 1e8}"),
             "zero-infinity offload_optimizer=none offload_param=nvme param_buffer_size=100000000 "
             "| 1 x 1 x 1 bf16-mixed"},
        Case{"53", stage(3, "\"offload_param\": {\"device\": \"cpu\", \"max_in_cpu\": 1e9}"),
             "zero3-offload offload_optimizer=none offload_param=cpu | 1 x 1 x 1 bf16-mixed"},
        // The plan refuses it: nobody has tried.
        Case{"55",
             stage(3,
                   "\"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \"/x\", "
                   "\"ratio\": 0.3}"),
             "zero-infinity offload_optimizer=nvme offload_param=none ratio=0.3 | 1 x 1 x 1 "
             "bf16-mixed"},
        Case{"57",
             stage(3,
                   "\"offload_optimizer\": {\"device\": \"cpu\", \"super_offload\": true, "
                   "\"cpuadam_cores_perc\": 0.9}"),
             "superoffload offload_param=none cpuadam_cores_perc=0.9 | 1 x 1 x 1 bf16-mixed"},
        Case{"60 61",
             stage(3,
                   "\"offload_optimizer\": {\"device\": \"cpu\", \"pipeline_read\": true, "
                   "\"fast_init\": false}"),
             "zero3-offload offload_optimizer=cpu offload_param=none | 1 x 1 x 1 bf16-mixed"},
        Case{"66",
             stage(2,
                   "\"round_robin_gradients\": true, \"offload_optimizer\": {\"device\": \"cpu\"}"),
             "zero2-offload | 1 x 1 x 1 bf16-mixed"},
        Case{"73", stage(3, "\"reduce_bucket_size\": 5e8"),
             "zero3-offload offload_optimizer=none offload_param=none reduce_bucket_size=500000000 "
             "| 1 x 1 x 1 bf16-mixed"},
        Case{"77", stage(3, "\"sub_group_size\": 1e12"),
             "zero3-offload offload_optimizer=none offload_param=none sub_group_size=1000000000000 "
             "| 1 x 1 x 1 bf16-mixed"},
        Case{"79", stage(3, "\"stage3_prefetch_bucket_size\": 0, \"stage3_max_reuse_distance\": 0"),
             "zero3-offload offload_optimizer=none offload_param=none "
             "stage3_prefetch_bucket_size=0 stage3_max_reuse_distance=0 | 1 x 1 x 1 bf16-mixed"},
        Case{
            "7 floats", stage(3, "\"sub_group_size\": 1.000000e+09"),
            "zero3-offload offload_optimizer=none offload_param=none sub_group_size=1000000000 | 1 "
            "x 1 x 1 bf16-mixed"},
        Case{"30", stage(2, "\"cpu_offload\": true"), "zero2-offload | 1 x 1 x 1 bf16-mixed"},
        Case{
            "35", stage(3, "\"prefetch_bucket_size\": 5"),
            "zero3-offload offload_optimizer=none offload_param=none stage3_prefetch_bucket_size=5 "
            "| 1 x 1 x 1 bf16-mixed"},
        Case{"62 63 65",
             stage(
                 2,
                 "\"offload_optimizer\": {\"device\": \"cpu\"}, \"zenflow\": {\"topk_ratio\": 0.1, "
                 "\"update_interval\": \"auto\", \"pt_reserved_cores_perc\": 1}"),
             "zenflow topk_ratio=0.1 pt_reserved_cores_perc=1 | 1 x 1 x 1 bf16-mixed"},
        // Too small for a double of full precision, and a number all the same.
        Case{"denormal", top("\"train_batch_size\": 1, \"gradient_clipping\": 1e-320"),
             "native gradient_clipping=true | 1 x 1 x 1 bf16-mixed"},
        Case{"denormal ratio",
             stage(3, "\"offload_optimizer\": {\"device\": \"cpu\", \"ratio\": 1e-320}"),
             "zero3-offload offload_optimizer=cpu offload_param=none ratio=1e-320 | 1 x 1 x 1 "
             "bf16-mixed"},
        Case{"75", stage(3, "\"reduce_bucket_size\": \"500000000\""),
             "zero3-offload offload_optimizer=none offload_param=none reduce_bucket_size=500000000 "
             "| 1 x 1 x 1 bf16-mixed"}));

}  // namespace
}  // namespace offsim::imports::deepspeed_test
