// The oddities of DeepSpeed's configurations one by one: what becomes of each, by its number.
#include <gtest/gtest.h>

#include "tests/import/answer.h"

namespace offsim::imports::oddities_test {
namespace {

struct Oddity {
  const char* what;
  const char* text;
  const char* asked;    // plan and work; empty where it is refused
  const char* warning;  // a part of one; empty: not looked at
  const char* refusal;  // how it begins
  const char* trainer = "";
  int gpus = 0;  // of the launcher; 0: not said
};

class Oddities : public testing::TestWithParam<Oddity> {};
TEST_P(Oddities, ComeOutAsDeepSpeedTakesThem) {
  const Oddity& odd = GetParam();
  model::Shape shape;
  shape.hidden = 4096;
  shape.layers = 1;
  Findings of_trainer;
  const Trainer trainer(odd.trainer, of_trainer);
  Around around;
  around.shape = &shape;
  if (odd.trainer[0] != '\0') {
    around.trainer = &trainer;
    around.hugging_face = true;
  }
  if (odd.gpus > 0) {
    around.gpus = study::on_command_line(std::to_string(odd.gpus));
  }
  const Answer a = answer(odd.text, around);
  if (odd.refusal[0] != '\0') {
    ASSERT_FALSE(a.refusals.empty()) << a.asked;
    EXPECT_EQ(a.refusals.back().substr(0, std::string(odd.refusal).size()), odd.refusal);
    return;
  }
  EXPECT_TRUE(a.refusals.empty()) << a.refusals[0];
  EXPECT_EQ(a.asked, odd.asked);
  if (odd.warning[0] != '\0') {
    EXPECT_TRUE(a.warns(odd.warning)) << testing::PrintToString(a.warnings);
  }
}

INSTANTIATE_TEST_SUITE_P(
    DeepSpeed, Oddities,
    testing::Values(
        Oddity{"1 comments, bare keys, commas",
               R"({ // stage)"
               "\n"
               R"( stage_note: x,)"
               "\n"
               R"( "train_batch_size": 1, "bf16": {"enabled": true}, )"
               R"("zero_optimization": {"stage": 3,}, })",
               "zero3-offload offload_optimizer=none offload_param=none | 1 x 1 x 1 bf16-mixed",
               "DeepSpeed ignores 'stage_note'", "", "", 0},
        Oddity{"6 a Python dict",
               R"({'train_batch_size': 1, 'zero_optimization': {'stage': 3, )"
               R"('overlap_comm': True}})",
               "", "", "ds.json:1:75: not JSON or Hjson: True is Python's", "", 0},
        Oddity{"9 micro-batch auto",
               R"({"bf16": {"enabled": true},)"
               "\n"
               R"("train_micro_batch_size_per_gpu": "auto", "train_batch_size": "auto"})",
               "native | 4 x 1 x 1 bf16-mixed", "", "", "--per_device_train_batch_size 4", 0},
        Oddity{"9 without the Trainer",
               R"({"bf16": {"enabled": true},)"
               "\n"
               R"("train_micro_batch_size_per_gpu": "auto"})",
               "", "",
               "ds.json:2:35: train_micro_batch_size_per_gpu is auto; expected --micro-batch N", "",
               0},
        Oddity{"10 accumulation auto",
               R"({"bf16": {"enabled": true},)"
               "\n"
               R"("train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": )"
               R"("auto"})",
               "native | 2 x 8 x 1 bf16-mixed", "", "", "--gradient_accumulation_steps 8", 0},
        Oddity{"11 total auto",
               R"({"bf16": {"enabled": true},)"
               "\n"
               R"("train_micro_batch_size_per_gpu": 2, "train_batch_size": "auto"})",
               "native | 2 x 1 x 1 bf16-mixed",
               "train_batch_size is auto, which only Hugging Face's Trainer fills", "", "", 0},
        Oddity{"12 13 14 of the Trainer",
               R"({"train_micro_batch_size_per_gpu": "auto", "bf16": {"enabled": )"
               R"("auto"}, "zero_optimization": {"stage": 3,)"
               "\n"
               R"("reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto", )"
               R"("stage3_param_persistence_threshold": "auto"}})",
               "zero3-offload offload_optimizer=none offload_param=none "
               "stage3_prefetch_bucket_size=15099494 stage3_param_persistence_threshold=40960 "
               "reduce_bucket_size=16777216 | 1 x 1 x 1 bf16-mixed",
               "", "", "--bf16 --per_device_train_batch_size 1", 0},
        Oddity{"12 of DeepSpeed",
               R"({"train_batch_size": 1, "bf16": {"enabled": true}, )"
               R"("zero_optimization": {"stage": 3,)"
               "\n"
               R"("reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto", )"
               R"("stage3_param_persistence_threshold": "auto"}})",
               "zero3-offload offload_optimizer=none offload_param=none | 1 x 1 x 1 bf16-mixed",
               "reduce_bucket_size is auto: DeepSpeed's 5e8 is taken", "", "", 0},
        Oddity{"13 of DeepSpeed",
               R"({"train_batch_size": 1, "bf16": {"enabled": true}, )"
               R"("zero_optimization": {"stage": 3,)"
               "\n"
               R"("reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto", )"
               R"("stage3_param_persistence_threshold": "auto"}})",
               "zero3-offload offload_optimizer=none offload_param=none | 1 x 1 x 1 bf16-mixed",
               "stage3_prefetch_bucket_size is auto: DeepSpeed's 5e7 is taken", "", "", 0},
        Oddity{"14 of DeepSpeed",
               R"({"train_batch_size": 1, "bf16": {"enabled": true}, )"
               R"("zero_optimization": {"stage": 3,)"
               "\n"
               R"("reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto", )"
               R"("stage3_param_persistence_threshold": "auto"}})",
               "zero3-offload offload_optimizer=none offload_param=none | 1 x 1 x 1 bf16-mixed",
               "stage3_param_persistence_threshold is auto: DeepSpeed's 1e5 is taken", "", "", 0},
        Oddity{"15 auto without a rule",
               R"({"train_batch_size": 1, "bf16": {"enabled": true}, )"
               R"("zero_optimization": {"stage": 3,)"
               "\n"
               R"("sub_group_size": "auto", "stage3_max_live_parameters": "auto", )"
               R"("stage3_max_reuse_distance": "auto"}})",
               "zero3-offload offload_optimizer=none offload_param=none | 1 x 1 x 1 bf16-mixed", "",
               "", "", 0},
        Oddity{"16 no precision",
               R"({"train_batch_size": 1, "fp16": {"enabled": "auto"}, "bf16": )"
               R"({"enabled": "auto"},)"
               "\n"
               R"("zero_optimization": {"stage": 2}})",
               "", "", "ds.json:1:45: the precision is auto (DeepSpeed alone would run in fp32)",
               "", 0},
        Oddity{"17 overlap_comm auto",
               R"({"train_batch_size": 1, "bf16": {"enabled": true}, )"
               R"("zero_optimization": {"stage": 3,)"
               "\n"
               R"("overlap_comm": "auto"}})",
               "zero3-offload offload_optimizer=none offload_param=none | 1 x 1 x 1 bf16-mixed", "",
               "", "", 0},
        Oddity{"18 clipping auto",
               R"({"bf16": {"enabled": true},)"
               "\n"
               R"("train_batch_size": 1, "gradient_clipping": "auto"})",
               "native gradient_clipping=true | 1 x 1 x 1 bf16-mixed",
               "gradient_clipping is auto, which DeepSpeed does not fill: 1.0 is taken", "", "", 0},
        Oddity{"19 quantised weights auto",
               R"({"train_batch_size": 1, "bf16": {"enabled": true}, )"
               R"("zero_optimization": {"stage": 3,)"
               "\n"
               R"("zero_quantized_weights": "auto"}})",
               "zero3-offload offload_optimizer=none offload_param=none | 1 x 1 x 1 bf16-mixed", "",
               "", "", 0},
        Oddity{"20 total and micro-batch",
               R"({"bf16": {"enabled": true},)"
               "\n"
               R"("train_batch_size": 8, "train_micro_batch_size_per_gpu": 4})",
               "native | 4 x 2 x 1 bf16-mixed", "", "", "", 0},
        Oddity{"20 on two GPUs",
               R"({"bf16": {"enabled": true},)"
               "\n"
               R"("train_batch_size": 8, "train_micro_batch_size_per_gpu": 4})",
               "native | 4 x 1 x 2 bf16-mixed", "", "", "", 2},
        Oddity{"21 total alone",
               R"({"bf16": {"enabled": true},)"
               "\n"
               R"("train_batch_size": 8})",
               "native | 8 x 1 x 1 bf16-mixed", "", "", "", 0},
        Oddity{"21 on two GPUs",
               R"({"bf16": {"enabled": true},)"
               "\n"
               R"("train_batch_size": 8})",
               "native | 4 x 1 x 2 bf16-mixed", "", "", "", 2},
        Oddity{"22 micro-batch alone",
               R"({"bf16": {"enabled": true},)"
               "\n"
               R"("train_micro_batch_size_per_gpu": 4})",
               "native | 4 x 1 x 1 bf16-mixed", "", "", "", 0},
        Oddity{"24 product differs",
               R"({"bf16": {"enabled": true},)"
               "\n"
               R"("train_batch_size": 20, "train_micro_batch_size_per_gpu": 1, )"
               R"("gradient_accumulation_steps": 2})",
               "", "",
               "ds.json:2:21: train_batch_size is 20, and micro-batch 1 x accumulation 2 x 8 GPUs "
               "is 16",
               "", 8},
        Oddity{
            "25 divided to nothing",
            R"({"bf16": {"enabled": true},)"
            "\n"
            R"("train_batch_size": 8, "gradient_accumulation_steps": 4})",
            "", "",
            "ds.json:2:21: train_batch_size is 8, and micro-batch 0 x accumulation 4 x 4 GPUs is 0",
            "", 4},
        Oddity{"26 implies three GPUs",
               R"({"bf16": {"enabled": true},)"
               "\n"
               R"("train_batch_size": 12, "train_micro_batch_size_per_gpu": 2, )"
               R"("gradient_accumulation_steps": 2})",
               "native | 2 x 2 x 3 bf16-mixed", "3 GPUs", "", "", 0},
        Oddity{"33 pinning of old",
               R"({"train_batch_size": 1, "bf16": {"enabled": true}, )"
               R"("zero_optimization": {"stage": 2,)"
               "\n"
               R"("cpu_offload": true, "cpu_offload_use_pin_memory": true}})",
               "zero2-offload | 1 x 1 x 1 bf16-mixed", "is the old spelling of offload_optimizer",
               "", "", 0},
        Oddity{"34 renamed",
               R"({"train_batch_size": 1, "bf16": {"enabled": true}, )"
               R"("zero_optimization": {"stage": 3,)"
               "\n"
               R"("stage3_gather_fp16_weights_on_model_save": true}})",
               "zero3-offload offload_optimizer=none offload_param=none | 1 x 1 x 1 bf16-mixed", "",
               "", "", 0},
        Oddity{"36 bfloat16", R"({"train_batch_size": 1, "bfloat16": {"enabled": true}})",
               "native | 1 x 1 x 1 bf16-mixed", "", "", "", 0},
        Oddity{"38 no effect on a step",
               R"({"train_batch_size": 1, "bf16": {"enabled": true}, )"
               R"("zero_optimization": {"stage": 2,)"
               "\n"
               R"("offload_optimizer": {"device": "cpu"}, "elastic_checkpoint": true, )"
               R"("legacy_stage1": true}})",
               "zero2-offload | 1 x 1 x 1 bf16-mixed", "", "", "", 0}));
INSTANTIATE_TEST_SUITE_P(
    DeepSpeedToo, Oddities,
    testing::Values(
        Oddity{"41 misspelt inside",
               R"({"train_batch_size": 1, "bf16": {"enabled": true}, )"
               R"("zero_optimization": {"stage": 3,)"
               "\n"
               R"("overlap_com": true}})",
               "", "",
               "ds.json:2:1: there is no 'overlap_com' in zero_optimization; did you mean "
               "'overlap_comm'?",
               "", 0},
        Oddity{"47 stage 1",
               R"({"train_batch_size": 1, "bf16": {"enabled": true}, )"
               R"("zero_optimization": {"stage": 1,)"
               "\n"
               R"("offload_optimizer": {"device": "cpu"}}})",
               "zero2-offload | 1 x 1 x 1 bf16-mixed", "stage 1 is taken as stage 2", "", "", 0},
        Oddity{"49 relative path",
               R"({"train_batch_size": 1, "bf16": {"enabled": true}, )"
               R"("zero_optimization": {"stage": 3,)"
               "\n"
               R"("offload_optimizer": {"device": "nvme", "nvme_path": "nvme"}}})",
               "zero-infinity offload_optimizer=nvme offload_param=none | 1 x 1 x 1 bf16-mixed",
               "nvme_path is relative", "", "", 0},
        Oddity{"50 no pin_memory",
               R"({"train_batch_size": 1, "bf16": {"enabled": true}, )"
               R"("zero_optimization": {"stage": 3,)"
               "\n"
               R"("offload_optimizer": {"device": "cpu"}}})",
               "zero3-offload offload_optimizer=cpu offload_param=none | 1 x 1 x 1 bf16-mixed", "",
               "", "", 0},
        Oddity{"51 three buffers",
               R"({"train_batch_size": 1, "bf16": {"enabled": true}, )"
               R"("zero_optimization": {"stage": 3,)"
               "\n"
               R"("offload_optimizer": {"device": "nvme", "nvme_path": "/d", )"
               R"("buffer_count": 3}}})",
               "", "", "ds.json:2:76: buffer_count is 3; expected 4 or more", "", 0},
        Oddity{"57 super_offload",
               R"({"train_batch_size": 1, "bf16": {"enabled": true}, )"
               R"("zero_optimization": {"stage": 3,)"
               "\n"
               R"("offload_optimizer": {"device": "cpu", "super_offload": true, )"
               R"("cpuadam_cores_perc": 0.9}}})",
               "superoffload offload_param=none cpuadam_cores_perc=0.9 | 1 x 1 x 1 bf16-mixed", "",
               "", "", 0},
        Oddity{"59 percent",
               R"({"train_batch_size": 1, "bf16": {"enabled": true}, )"
               R"("zero_optimization": {"stage": 3,)"
               "\n"
               R"("offload_optimizer": {"device": "cpu", "super_offload": true, )"
               R"("cpuadam_cores_perc": 90}}})",
               "", "",
               "ds.json:2:85: zero_optimization.offload_optimizer.cpuadam_cores_perc is '90'; "
               "expected a share from 0 to 1; did you mean 0.9?",
               "", 0},
        Oddity{"61 fast_init",
               R"({"train_batch_size": 1, "bf16": {"enabled": true}, )"
               R"("zero_optimization": {"stage": 3,)"
               "\n"
               R"("offload_optimizer": {"device": "cpu", "fast_init": false}}})",
               "zero3-offload offload_optimizer=cpu offload_param=none | 1 x 1 x 1 bf16-mixed", "",
               "", "", 0},
        Oddity{"64 selects before it updates",
               R"({"train_batch_size": 1, "bf16": {"enabled": true}, )"
               R"("zero_optimization": {"stage": 2,)"
               "\n"
               R"("offload_optimizer": {"device": "cpu"}, "zenflow": )"
               R"({"select_strategy": "step", "select_interval": 2, "update_interval": )"
               R"(4}}})",
               "", "", "ds.json:2:99: select_interval 2 is less than update_interval 4", "", 0},
        Oddity{"66 round robin",
               R"({"train_batch_size": 1, "bf16": {"enabled": true}, )"
               R"("zero_optimization": {"stage": 2,)"
               "\n"
               R"("offload_optimizer": {"device": "cpu"}, "round_robin_gradients": )"
               R"(true}})",
               "zero2-offload | 1 x 1 x 1 bf16-mixed", "", "", "", 0},
        Oddity{"69 frozen weights in 8 bits",
               R"({"train_batch_size": 1, "bf16": {"enabled": true}, )"
               R"("zero_optimization": {"stage": 3,)"
               "\n"
               R"("zero_quantized_nontrainable_weights": true}})",
               "zero3-offload offload_optimizer=none offload_param=none | 1 x 1 x 1 bf16-mixed",
               "zero_quantized_nontrainable_weights is not modelled", "", "", 0},
        Oddity{"71 GPUDirect",
               R"({"train_batch_size": 1, "aio": {"use_gds": true}, "bf16": {"enabled": )"
               R"(true}, "zero_optimization": {"stage": 3,)"
               "\n"
               R"("offload_optimizer": {"device": "cpu"}}})",
               "zero3-offload offload_optimizer=cpu offload_param=none | 1 x 1 x 1 bf16-mixed",
               "use_gds is not modelled", "", "", 0},
        Oddity{"73 a float",
               R"({"train_batch_size": 1, "bf16": {"enabled": true}, )"
               R"("zero_optimization": {"stage": 3,)"
               "\n"
               R"("reduce_bucket_size": 5e8}})",
               "zero3-offload offload_optimizer=none offload_param=none "
               "reduce_bucket_size=500000000 | 1 x 1 x 1 bf16-mixed",
               "", "", "", 0},
        Oddity{"77 all in one sub-group",
               R"({"train_batch_size": 1, "bf16": {"enabled": true}, )"
               R"("zero_optimization": {"stage": 3,)"
               "\n"
               R"("sub_group_size": 1e12}})",
               "zero3-offload offload_optimizer=none offload_param=none "
               "sub_group_size=1000000000000 | 1 x 1 x 1 bf16-mixed",
               "sub_group_size is more than the model has", "", "", 0},
        Oddity{"79 zeros",
               R"({"train_batch_size": 1, "bf16": {"enabled": true}, )"
               R"("zero_optimization": {"stage": 3,)"
               "\n"
               R"("stage3_prefetch_bucket_size": 0, "stage3_max_reuse_distance": 0}})",
               "zero3-offload offload_optimizer=none offload_param=none "
               "stage3_prefetch_bucket_size=0 stage3_max_reuse_distance=0 | 1 x 1 x 1 bf16-mixed",
               "", "", "", 0},
        Oddity{"83 a large scale",
               R"({"train_batch_size": 1, "fp16": {"enabled": true, )"
               R"("initial_scale_power": 32}})",
               "native | 1 x 1 x 1 fp16-mixed", "the first steps skip the optimizer and look fast",
               "", "", 0},
        Oddity{"84 no optimizer block",
               R"({"train_batch_size": 1, "bf16": {"enabled": true}, )"
               R"("zero_optimization": {"stage": 2,)"
               "\n"
               R"("offload_optimizer": {"device": "cpu"}}})",
               "zero2-offload | 1 x 1 x 1 bf16-mixed", "", "", "", 0},
        Oddity{"85 a framework's Adam",
               R"({"train_batch_size": 1, "zero_force_ds_cpu_optimizer": false, "bf16": )"
               R"({"enabled": true}, "zero_optimization": {"stage": 2,)"
               "\n"
               R"("offload_optimizer": {"device": "cpu"}}})",
               "zero2-offload | 1 x 1 x 1 bf16-mixed",
               "a framework's Adam on the CPU takes several times as long", "", "", 0},
        Oddity{"86 Adafactor",
               R"({"train_batch_size": 1, "zero_allow_untested_optimizer": true, )"
               R"("optimizer": {"type": "Adafactor"}, "bf16": {"enabled": true}, )"
               R"("zero_optimization": {"stage": 2,)"
               "\n"
               R"("offload_optimizer": {"device": "cpu"}}})",
               "zero2-offload | 1 x 1 x 1 bf16-mixed", "optimizer Adafactor is not modelled", "",
               "", 0},
        Oddity{"87 torch_adam",
               R"({"train_batch_size": 1, "optimizer": {"type": "AdamW", "params": )"
               R"({"torch_adam": true}}, "bf16": {"enabled": true}, )"
               R"("zero_optimization": {"stage": 2,)"
               "\n"
               R"("offload_optimizer": {"device": "cpu"}}})",
               "zero2-offload | 1 x 1 x 1 bf16-mixed", "torch_adam: a framework's Adam on the CPU",
               "", "", 0},
        Oddity{"88 Muon",
               R"({"train_batch_size": 1, "optimizer": {"type": "Muon"}, "bf16": )"
               R"({"enabled": true}, "zero_optimization": {"stage": 2,)"
               "\n"
               R"("offload_optimizer": {"device": "cpu"}}})",
               "zero2-offload | 1 x 1 x 1 bf16-mixed", "optimizer Muon is not modelled", "", "", 0},
        Oddity{"89 cpu_checkpointing in the file",
               R"({"train_batch_size": 1, "activation_checkpointing": )"
               R"({"cpu_checkpointing": true}, "bf16": {"enabled": true}, )"
               R"("zero_optimization": {"stage": 3,)"
               "\n"
               R"("offload_optimizer": {"device": "cpu"}}})",
               "zero3-offload offload_optimizer=cpu offload_param=none | 1 x 1 x 1 bf16-mixed",
               "cpu_checkpointing has no effect on Hugging Face's models", "", "", 0},
        Oddity{"90 masters in 16 bits",
               R"({"train_batch_size": 1, "bf16": {"enabled": true, )"
               R"("bf16_master_weights_and_grads": true, "bf16_optimizer_states": )"
               R"(true}, "zero_optimization": {"stage": 2, "offload_optimizer": )"
               R"({"device": "cpu"}}})",
               "zero2-offload | 1 x 1 x 1 bf16-mixed",
               "bf16_master_weights_and_grads is not modelled", "", "", 0},
        Oddity{"91 accumulation in fp32",
               R"({"train_batch_size": 1, "data_types": {"grad_accum_dtype": "fp32"}, )"
               R"("bf16": {"enabled": true}, "zero_optimization": {"stage": 2,)"
               "\n"
               R"("offload_optimizer": {"device": "cpu"}}})",
               "zero2-offload | 1 x 1 x 1 bf16-mixed", "data_types is not modelled", "", "", 0},
        Oddity{"92 timers",
               R"({"train_batch_size": 1, "wall_clock_breakdown": true, "bf16": )"
               R"({"enabled": true}, "zero_optimization": {"stage": 2,)"
               "\n"
               R"("offload_optimizer": {"device": "cpu"}}})",
               "zero2-offload | 1 x 1 x 1 bf16-mixed", "", "", "", 0},
        Oddity{"93 communication in fp32",
               R"({"train_batch_size": 1, "communication_data_type": "fp32", "bf16": )"
               R"({"enabled": true}, "zero_optimization": {"stage": 2,)"
               "\n"
               R"("offload_optimizer": {"device": "cpu"}}})",
               "zero2-offload | 1 x 1 x 1 bf16-mixed", "", "", "", 0},
        Oddity{"96 pipeline",
               R"({"train_batch_size": 1, "pipeline": {"stages": 2}, "bf16": )"
               R"({"enabled": true}, "zero_optimization": {"stage": 3,)"
               "\n"
               R"("offload_optimizer": {"device": "cpu"}}})",
               "", "", "ds.json:1:25: pipeline is not modelled", "", 0}));

}  // namespace
}  // namespace offsim::imports::oddities_test
