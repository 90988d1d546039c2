// Do whole files, as people have them, become the question that they are, through the one entry
// that the commands use?
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/import/answer.h"
#include "tests/plans/jobs.h"

namespace offsim::imports::files_test {
namespace {

// A folder of files, removed with them.
class Files : public testing::Test {
 protected:
  Files()
      : folder_(testing::TempDir() +
                testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::filesystem::create_directories(folder_);
  }
  ~Files() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ + "/" + name) << text;
    return folder_ + "/" + name;
  }
  // Of a model whose hidden size is 64; a refusal is its lines.
  static Answer ask(Ask ask) {
    const model::Shape shape = plans::tiny_shape();
    ask.shape = &shape;
    Answer out;
    try {
      const Imported imported = import_question(ask);
      out.plan = imported.plan;
      out.warnings = imported.warnings;
      out.settings = imported.settings;
      out.asked = asked(imported.plan, imported.workload);
    } catch (const Refused& refused) {
      out.refusals = refused.before();
      out.refusals.emplace_back(refused.what());
    } catch (const InputError& error) {
      out.refusals = {error.what()};
    }
    return out;
  }
  static Answer ask_of(const std::string& config) {
    Ask asks;
    asks.config = config;
    return ask(asks);
  }

 private:
  std::string folder_;
};

TEST_F(Files, OfEveryGuideToStage3) {
  const std::string path = write("z3.json", R"({"train_micro_batch_size_per_gpu": 2,
 "gradient_accumulation_steps": 8, "bf16": {"enabled": true},
 "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "pin_memory": true},
  "offload_param": {"device": "cpu", "pin_memory": true}, "overlap_comm": true,
  "contiguous_gradients": true, "sub_group_size": 1e9, "reduce_bucket_size": "auto",
  "stage3_prefetch_bucket_size": "auto", "stage3_param_persistence_threshold": "auto",
  "stage3_max_live_parameters": 1e9, "stage3_max_reuse_distance": 1e9,
  "stage3_gather_16bit_weights_on_model_save": true}})");
  const std::string begins =
      "zero3-offload offload_optimizer=cpu offload_param=cpu sub_group_size=1000000000";
  const std::string goes_on =
      " overlap_comm=true contiguous_gradients=true pin_memory=true | 2 x 8 x 1 bf16-mixed";
  const std::string live = " stage3_max_live_parameters=1000000000";
  const std::string reuse = " stage3_max_reuse_distance=1000000000";
  const Answer alone = ask_of(path);
  EXPECT_TRUE(alone.refusals.empty()) << alone.refusals[0];
  EXPECT_EQ(alone.asked, begins + live + reuse + goes_on);
  EXPECT_TRUE(alone.warns("reduce_bucket_size is auto: DeepSpeed's 5e8 is taken"));
  EXPECT_TRUE(alone.warns("stage3_prefetch_bucket_size is auto: DeepSpeed's 5e7 is taken"));
  EXPECT_TRUE(alone.warns("stage3_param_persistence_threshold is auto: DeepSpeed's 1e5"));
  // 64^2 = 4,096; 0.9 of it is 3,686.4; 10 x 64.
  Ask with;
  with.config = path;
  with.trainer = "--bf16 --per_device_train_batch_size 2 --gradient_accumulation_steps 8";
  EXPECT_EQ(ask(with).asked, begins + " stage3_prefetch_bucket_size=3686" + live + reuse +
                                 " stage3_param_persistence_threshold=640 reduce_bucket_size=4096" +
                                 goes_on);
}

TEST_F(Files, OfTheDrive) {
  const Answer a = ask_of(write("infinity.json", R"({"train_batch_size": 4,
 "fp16": {"enabled": true, "initial_scale_power": 12},
 "zero_optimization": {"stage": 3,
  "offload_optimizer": {"device": "nvme", "nvme_path": "/local_nvme", "buffer_count": 4,
                        "pipeline_read": true, "pipeline_write": true},
  "offload_param": {"device": "nvme", "nvme_path": "/local_nvme", "buffer_count": 5,
                    "buffer_size": 6e8, "max_in_cpu": 1e9}},
 "aio": {"block_size": 1048576, "queue_depth": 16, "intra_op_parallelism": 2,
         "single_submit": false, "overlap_events": true}})"));
  EXPECT_TRUE(a.refusals.empty()) << a.refusals[0];
  // Whether 4 buffers are enough for both pipelines is the plan's to say, of the whole.
  EXPECT_EQ(a.asked,
            "zero-infinity offload_optimizer=nvme offload_param=nvme buffer_count=4 "
            "pipeline_read=true pipeline_write=true param_buffer_count=5 "
            "param_buffer_size=600000000 max_in_cpu=1000000000 aio_block_size=1048576 "
            "aio_queue_depth=16 aio_intra_op_parallelism=2 aio_overlap_events=true | 4 x 1 x 1 "
            "fp16-mixed");
  EXPECT_NE(
      a.setting("zero_optimization.offload_param.nvme_path").find("the machine's drive is taken"),
      std::string::npos);
}

TEST_F(Files, OfAnOldGuideToStage2) {
  const Answer a = ask_of(write("old.json", R"({"train_batch_size": 2048,
 "zero_optimization": {"stage": 2, "cpu_offload": true, "overlap_comm": true,
  "allgather_bucket_size": 50000000, "reduce_bucket_size": 50000000},
 "fp16": {"enabled": true, "loss_scale": 0}})"));
  EXPECT_TRUE(a.refusals.empty()) << a.refusals[0];
  EXPECT_EQ(a.asked,
            "zero2-offload reduce_bucket_size=50000000 overlap_comm=true | 2048 x 1 x 1 "
            "fp16-mixed");
  EXPECT_TRUE(a.warns("cpu_offload is the old spelling of offload_optimizer: {device: cpu}"));
}

TEST_F(Files, OfSuperOffload) {
  const Answer a = ask_of(write("super.json", R"({"train_batch_size": 4,
 "zero_optimization": {"stage": 3, "overlap_comm": false, "reduce_bucket_size": 4e8,
  "sub_group_size": 4e8, "offload_optimizer": {"device": "cpu", "pin_memory": true, "ratio": 0.9,
  "super_offload": true, "cpuadam_cores_perc": 0.9}}, "bf16": {"enabled": true}})"));
  EXPECT_TRUE(a.refusals.empty()) << a.refusals[0];
  EXPECT_EQ(a.asked,
            "superoffload offload_param=none sub_group_size=400000000 "
            "reduce_bucket_size=400000000 overlap_comm=false ratio=0.9 cpuadam_cores_perc=0.9 "
            "pin_memory=true | 4 x 1 x 1 bf16-mixed");
}

// What is only warned of, offload_param at stage 2, is not told of a file that is refused.
TEST_F(Files, OfTwoMistakesHaveTwoMessages) {
  const std::string path = write("wrong.json", R"({"train_batch_size": 8,
 "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu", "ratio": 0.4},
  "offload_param": {"device": "cpu"},
  "stage3_max_live_params": 1e9}})");
  const Answer a = ask_of(path);
  const auto says = [&](const std::string& line) {
    return std::ranges::count_if(a.refusals,
                                 [&](const std::string& r) { return r.starts_with(path + line); });
  };
  EXPECT_EQ(says(":2:84: ratio is 0.4 at stage 2; a part of the optimizer is offloaded at stage"),
            1);
  EXPECT_EQ(a.refusals.size(), 2U);
  EXPECT_EQ(says(":4:3: there is no 'stage3_max_live_params' in zero_optimization; did you mean "
                 "'stage3_max_live_parameters'?"),
            1);
}

// 1: DeepSpeed's tolerance is not everybody's.
TEST_F(Files, OfHjsonAreWarnedOf) {
  const std::string text =
      "{ // stage\n stage_note: x,\n \"train_batch_size\": 1,\n \"zero_optimization\": {\"stage\": "
      "3,}, }";
  Ask asks;
  asks.config = write("loose.json", text);
  EXPECT_TRUE(ask(asks).warns("loose.json:1:3: DeepSpeed reads this, but it is no strict JSON"));
  asks.trainer = "--per_device_train_batch_size 1";
  EXPECT_TRUE(ask(asks).warns("the Trainer, which wants strict JSON, does not"));
}

// 3: {"zero_optimization": {"stage": 3}} as a launcher passes it.
TEST_F(Files, MayBeBase64) {
  Ask asks;
  asks.config = "eyJ6ZXJvX29wdGltaXphdGlvbiI6IHsic3RhZ2UiOiAzfX0=";
  asks.flags.micro_batch = study::Given{"2", {"command line"}};
  EXPECT_EQ(ask(asks).asked,
            "zero3-offload offload_optimizer=none offload_param=none | 2 x 1 x 1 fp32");
  asks.config = "eyJ6ZXJvX29wdGltaXphdGlvbiI6IHsic3RhZ2UiOiA5fX0=";  // stage 9
  ASSERT_EQ(ask(asks).refusals.empty(), false);
  EXPECT_TRUE(ask(asks).refusals.back().starts_with("base64 text:1:"));
}

// --deepspeed is the Trainer's word for the same file.
TEST_F(Files, MayBeNamedByTheTrainer) {
  const std::string path = write("named.json", R"({"train_batch_size": 2,
 "bf16": {"enabled": true}, "zero_optimization": {"stage": 2, "cpu_offload": true}})");
  const std::string batch = " --bf16 --per_device_train_batch_size 2";
  Ask asks;
  asks.trainer = "--deepspeed " + path + batch;
  EXPECT_EQ(ask(asks).asked, "zero2-offload | 2 x 1 x 1 bf16-mixed");
  asks.config = path;
  EXPECT_EQ(ask(asks).asked, "zero2-offload | 2 x 1 x 1 bf16-mixed");
  asks.trainer = "--deepspeed " + path.substr(0, path.rfind('/')) + "/../" +
                 path.substr(testing::TempDir().size()) + batch;  // by another way
  EXPECT_EQ(ask(asks).asked, "zero2-offload | 2 x 1 x 1 bf16-mixed");
  asks.trainer = "deepspeed train.py --deepspeed" + batch;
  EXPECT_EQ(ask(asks).asked, "zero2-offload | 2 x 1 x 1 bf16-mixed");
  asks.trainer = "--deepspeed where/it/trains/named.json" + batch;  // of another machine
  EXPECT_EQ(ask(asks).asked, "zero2-offload | 2 x 1 x 1 bf16-mixed");
  const std::string other = write("other.json", "{}");
  asks.trainer = "--deepspeed " + other + batch;
  const Answer two = ask(asks);
  ASSERT_EQ(two.refusals.size(), 1U);
  EXPECT_EQ(two.refusals[0], "--trainer: --deepspeed is " + other + ", and --ds-config " + path +
                                 "; expected the same file");
  asks.config.reset();
  asks.trainer = "deepspeed train.py --deepspeed" + batch;
  const Answer none = ask(asks);
  ASSERT_EQ(none.refusals.size(), 1U);
  EXPECT_EQ(none.refusals[0],
            "--trainer: --deepspeed names no file; expected it as --ds-config FILE");
}

TEST_F(Files, ThatAreNotThereAreRefused) {
  EXPECT_EQ(ask_of("nowhere/ds.json").refusals.back().substr(0, 29),
            "nowhere/ds.json: no such file");
  EXPECT_EQ(ask_of(write("empty.json", "")).refusals.size(), 1U);
}

// 4: whatever else is YAML.
class OtherTools : public Files, public testing::WithParamInterface<Case> {};
TEST_P(OtherTools, AreToldWhatToDo) {
  const std::string path = write("tool.yaml", GetParam().text);
  const Answer a = ask_of(path);
  ASSERT_EQ(a.refusals.size(), 1U);
  EXPECT_EQ(a.refusals[0], path + ":1:1: " + GetParam().expected);
}
INSTANTIATE_TEST_SUITE_P(
    Import, OtherTools,
    testing::Values(
        Case{"LLaMA-Factory",
             "model_name_or_path: x\ndeepspeed: examples/deepspeed/ds_z3.json\ncutoff_len: 2048\n",
             "this file is LLaMA-Factory's; expected it as --trainer FILE, and the DeepSpeed file "
             "it names as --ds-config"},
        Case{"axolotl", "base_model: x\ndeepspeed: deepspeed_configs/zero3.json\n",
             "this file is axolotl's; expected the DeepSpeed file that it names"},
        Case{"torchtune", "batch_size: 2\nfsdp_cpu_offload: True\n",
             "this file is torchtune's; expected --plan fsdp2-offload"},
        Case{"torchtune, one GPU",
             "optimizer: {component: CPUOffloadOptimizer, offload_gradients: true}\n",
             "this file is torchtune's; expected --plan torchao-offload for its "
             "CPUOffloadOptimizer"},
        Case{"GPT-NeoX", "zero_optimization: {stage: 2, cpu_offload: True}\n",
             "this file is GPT-NeoX's, or YAML around a DeepSpeed configuration; expected what "
             "DeepSpeed is given, as a .json file"},
        Case{"verl", "actor_rollout_ref: {actor: {fsdp_config: {param_offload: true}}}\n",
             "this file is verl's; its offload moves states between phases, not during a step: "
             "expected --plan native"},
        Case{"prime-rl", "model: {optim_cpu_offload: true}\n",
             "this file is prime-rl's; expected --plan fsdp2-offload"},
        Case{"MegaTrain", "memory: {checkpoint_interval: 4, num_grad_slabs: 8}\n",
             "this file is MegaTrain's; expected --plan megatrain"},
        Case{"mlx-lm", "fine_tune_type: lora\nbatch_size: 4\n",
             "this file is mlx-lm's; expected --plan mlx"},
        Case{"Lightning", "trainer: {strategy: deepspeed_stage_3_offload}\n",
             "this file is Lightning's; expected the DeepSpeed configuration that its strategy "
             "stands for, as a .json file"},
        Case{"nobody's", "learning_rate: 1\n",
             "this file is neither Accelerate's nor a DeepSpeed configuration; expected "
             "deepspeed_config, fsdp_config, or DeepSpeed's own keys in a .json file"}));

}  // namespace
}  // namespace offsim::imports::files_test
