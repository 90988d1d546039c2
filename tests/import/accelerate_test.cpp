// Does Accelerate's YAML become the question that it is, in DeepSpeed's form and in FSDP's?
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "sim/import/accelerate.h"
#include "tests/import/answer.h"

namespace offsim::imports::accelerate_test {
namespace {

Answer yaml(const std::string& text, const std::string& trainer = "", Around around = {}) {
  Findings words;
  Trainer arguments(trainer, words);
  around.version = "0.19.6";
  if (!trainer.empty()) {
    around.trainer = &arguments;
  }
  return answer_of([&](Findings& findings, study::GivenPlan& plan, study::GivenWorkload& work) {
    const Node root = parse_document(text, "acc.yaml", Syntax::kYaml);
    read_accelerate(root, testing::TempDir(), around, findings, plan, work);
  });
}

std::string fsdp(const std::string& inner) {
  return "distributed_type: FSDP\nmixed_precision: bf16\nfsdp_config:\n" + inner;
}
std::string zero(const std::string& inner) {
  return "distributed_type: DEEPSPEED\nmixed_precision: bf16\ndeepspeed_config:\n" + inner;
}

constexpr const char* kOne = "--per_device_train_batch_size 1";

TEST(AccelerateDeepSpeed, FlatKeysAreItsBlocks) {
  const Answer a = yaml(
      "distributed_type: DEEPSPEED\nmixed_precision: bf16\nnum_processes: 8\n"
      "deepspeed_config:\n  zero_stage: 2\n  offload_optimizer_device: cpu\n"
      "  offload_param_device: cpu\n  gradient_accumulation_steps: 8\n"
      "  gradient_clipping: 1.0\n  zero3_init_flag: false\n",
      "--per_device_train_batch_size 2 --gradient_accumulation_steps 8");
  EXPECT_TRUE(a.refusals.empty()) << a.refusals[0];
  EXPECT_EQ(a.asked, "zero2-offload | 2 x 8 x 8 bf16-mixed");
  EXPECT_TRUE(a.warns("acc.yaml:7:25: offload_param has NO EFFECT below stage 3"));
  EXPECT_FALSE(a.warns("zero3_init_flag")) << "it is of stage 3";
}

TEST(AccelerateDeepSpeed, DriveAndInitAreTaken) {
  const Answer a = yaml(zero("  zero_stage: 3\n  offload_optimizer_device: nvme\n"
                             "  offload_optimizer_nvme_path: /nvme\n  offload_param_device: cpu\n"
                             "  zero3_init_flag: false\n"),
                        kOne);
  EXPECT_TRUE(a.refusals.empty()) << a.refusals[0];
  EXPECT_EQ(a.asked,
            "zero-infinity offload_optimizer=nvme offload_param=cpu zero_init=false | 1 x 1 x 1 "
            "bf16-mixed");
  EXPECT_TRUE(a.warns("acc.yaml:8:20: without zero3_init_flag every process loads the whole"));
}

TEST(AccelerateDeepSpeed, MistakesHaveTheirPlaces) {
  const Answer device = yaml(zero("  zero_stage: 3\n  offload_param_device: disk\n"), kOne);
  ASSERT_EQ(device.refusals.size(), 1U);
  EXPECT_EQ(device.refusals[0],
            "acc.yaml:5:25: deepspeed_config.offload_param_device is 'disk'; expected one of none, "
            "cpu, nvme");
  const Answer path = yaml(zero("  zero_stage: 3\n  offload_param_device: nvme\n"), kOne);
  ASSERT_EQ(path.refusals.size(), 1U);
  EXPECT_TRUE(path.refusals[0].starts_with("acc.yaml:5:25: ")) << path.refusals[0];
  // Bucket sizes cannot be said in this form.
  EXPECT_TRUE(yaml(zero("  zero_stage: 2\n  reduce_bucket_size: 5\n"), kOne)
                  .warns("acc.yaml:5:3: Accelerate ignores 'reduce_bucket_size' in "
                         "deepspeed_config"));
  const Answer batch = yaml(zero("  zero_stage: 2\n"));
  ASSERT_EQ(batch.refusals.size(), 1U);
  EXPECT_NE(batch.refusals[0].find("expected --micro-batch N"), std::string::npos);
}

TEST(AccelerateDeepSpeed, AFileIsReadFromBesideTheYaml) {
  const std::string path = testing::TempDir() + "accelerate_test_ds.json";
  std::ofstream(path) << "{\"train_batch_size\": 4, \"bf16\": {\"enabled\": true},\n"
                         "\"zero_optimization\": {\"stage\": 2, \"cpu_offload\": true}}";
  const std::string named = "  deepspeed_config_file: accelerate_test_ds.json\n";
  EXPECT_EQ(yaml(zero(named + "  zero3_init_flag: true\n")).asked,
            "zero2-offload | 4 x 1 x 1 bf16-mixed");
  const Answer both = yaml(zero(named + "  zero_stage: 2\n  offload_optimizer_device: cpu\n"));
  ASSERT_EQ(both.refusals.size(), 2U);
  EXPECT_EQ(both.refusals[0],
            "acc.yaml:5:3: zero_stage stands beside deepspeed_config_file; expected it in that "
            "file");
  EXPECT_EQ(both.refusals[1].substr(0, 50), "acc.yaml:6:3: offload_optimizer_device stands besi");
  std::filesystem::remove(path);
  const Answer none = yaml(zero(named));
  ASSERT_EQ(none.refusals.size(), 1U);
  EXPECT_EQ(none.refusals[0].substr(0, path.size()), path);
}

TEST(AccelerateFsdp, OffloadIsAllOrNothing) {
  const Answer on = yaml(fsdp("  fsdp_offload_params: true\n  fsdp_version: 2\n"
                              "  fsdp_reshard_after_forward: true\n"
                              "  fsdp_cpu_ram_efficient_loading: true\n"),
                         "--per_device_train_batch_size 2 --gradient_accumulation_steps 3");
  EXPECT_TRUE(on.refusals.empty()) << on.refusals[0];
  EXPECT_EQ(on.asked, "fsdp2-offload | 2 x 3 x ? bf16-mixed");
  EXPECT_TRUE(on.warnings.empty()) << on.warnings[0];
  EXPECT_EQ(on.setting("fsdp_config.fsdp_cpu_ram_efficient_loading"),
            "true [acc.yaml:7:35] matters while training starts");
  const Answer off = yaml(fsdp("  fsdp_offload_params: false\n"), kOne);
  EXPECT_EQ(off.asked, "native | 1 x ? x ? bf16-mixed");
  EXPECT_TRUE(off.warns("acc.yaml:4:24: without fsdp_offload_params everything is on the GPU"));
}

// Values are texts or numbers, as the tool that wrote them has it.
TEST(AccelerateFsdp, ValuesMayBeTextsOrNumbers) {
  for (const char* const inner :
       {"  fsdp_offload_params: 'true'\n  fsdp_sharding_strategy: FULL_SHARD\n  fsdp_version: 2\n",
        "  fsdp_offload_params: True\n  fsdp_sharding_strategy: 1\n  fsdp_version: 2\n",
        "  fsdp_offload_params: true\n  fsdp_reshard_after_forward: True\n  fsdp_version: '2'\n",
        "  fsdp_offload_params: true\n  fsdp_reshard_after_forward: FULL_SHARD\n"}) {
    const Answer a = yaml("num_processes: 2\n" + fsdp(inner), kOne);
    EXPECT_TRUE(a.refusals.empty()) << inner << a.refusals[0];
    EXPECT_EQ(a.asked, "fsdp2-offload | 1 x ? x 2 bf16-mixed") << inner;
  }
  EXPECT_TRUE(yaml(fsdp("  fsdp_offload_params: true\n"), kOne).warns("FSDP1 is taken as FSDP2"));
}

TEST(AccelerateFsdp, WhatIsNotModelledIsRefused) {
  for (const char* const strategy : {"HYBRID_SHARD", "4", "SHARD_GRAD_OP", "2"}) {
    const Answer a = yaml("num_processes: 2\n" + fsdp(std::string("  fsdp_offload_params: true\n"
                                                                  "  fsdp_sharding_strategy: ") +
                                                      strategy + "\n"),
                          kOne);
    ASSERT_EQ(a.refusals.size(), 1U) << strategy;
    EXPECT_TRUE(a.refusals[0].starts_with("acc.yaml:6:27: sharding ")) << a.refusals[0];
  }
  // Alone, a GPU shares nothing out.
  EXPECT_TRUE(
      yaml(fsdp("  fsdp_offload_params: true\n  fsdp_sharding_strategy: HYBRID_SHARD\n"), kOne)
          .refusals.empty());
  EXPECT_EQ(yaml(fsdp("  fsdp_offload_params: true\n  fsdp_reshard_after_forward: false\n"), kOne)
                .refusals.size(),
            1U);
  const Answer cpu = yaml("use_cpu: true\n" + fsdp("  fsdp_offload_params: true\n"), kOne);
  ASSERT_EQ(cpu.refusals.size(), 1U);
  EXPECT_EQ(cpu.refusals[0],
            "acc.yaml:1:10: training on the CPU is not modelled; expected use_cpu false");
}

TEST(Accelerate, PrecisionIsItsOwn) {
  const std::string inner = "deepspeed_config: {zero_stage: 2, offload_optimizer_device: cpu}\n";
  EXPECT_EQ(yaml("mixed_precision: fp16\n" + inner, kOne).asked,
            "zero2-offload | 1 x 1 x 1 fp16-mixed");
  EXPECT_EQ(yaml("mixed_precision: 'no'\n" + inner, kOne).asked, "zero2-offload | 1 x 1 x 1 fp32");
  const Answer fp8 = yaml("mixed_precision: fp8\n" + inner, kOne);
  ASSERT_EQ(fp8.refusals.size(), 1U);
  EXPECT_EQ(fp8.refusals[0], "acc.yaml:1:18: fp8 is not modelled; expected bf16 or fp16");
}

// A text of several lines in YAML is told of in one; a key of several is one that has no colon.
TEST(Accelerate, SaysOneLineWhateverIsInTheFile) {
  const Answer a = yaml(
      "num_processes: 2\ncompute_environment: where\n\n  ever\nmixed_precision: bf16\n"
      "fsdp_config:\n  fsdp_offload_params: true\n  fsdp_sharding_strategy: no\n\n    such\n"
      "  fsdp_reshard_after_forward: nor\n\n    this\nodd\n\n  key",
      kOne);
  ASSERT_EQ(a.refusals.size(), 2U);
  EXPECT_EQ(a.refusals[0], "acc.yaml:8:27: sharding no?such is not modelled; expected FULL_SHARD");
  EXPECT_EQ(a.refusals[1],
            "acc.yaml:11:31: fsdp_reshard_after_forward nor?this is not modelled; expected true");
  EXPECT_TRUE(a.warns("acc.yaml:14:1: Accelerate ignores 'odd?key'"))
      << testing::PrintToString(a.warnings);
  EXPECT_EQ(a.setting("compute_environment"),
            "where?ever [acc.yaml:2:22] says how training is launched");
}

TEST(Accelerate, NeitherBlockIsRefused) {
  const Answer a = yaml("distributed_type: MULTI_GPU\n", kOne);
  ASSERT_EQ(a.refusals.size(), 1U);
  EXPECT_EQ(a.refusals[0].substr(0, 62),
            "acc.yaml:1:1: neither deepspeed_config nor fsdp_config is in t");
  EXPECT_TRUE(yaml("parallelism_config: {cp: 2}\n" + fsdp("  fsdp_offload_params: true\n"), kOne)
                  .warns("acc.yaml:1:1: parallelism_config is not modelled"));
}

// A block counts where distributed_type asks for it; an empty one is none.
TEST(Accelerate, ReadsTheBlockThatDistributedTypeNames) {
  const std::string both =
      "mixed_precision: bf16\ndeepspeed_config: {zero_stage: 2, offload_optimizer_device: cpu}\n"
      "fsdp_config: {fsdp_offload_params: true, fsdp_version: 2}\n";
  const Answer fsdp2 = yaml("distributed_type: FSDP\n" + both, kOne);
  EXPECT_EQ(fsdp2.asked.substr(0, 14), "fsdp2-offload ");
  EXPECT_TRUE(
      fsdp2.warns("acc.yaml:3:1: distributed_type is FSDP: Accelerate ignores "
                  "deepspeed_config"));
  const Answer zero2 = yaml("distributed_type: DEEPSPEED\n" + both, kOne);
  EXPECT_EQ(zero2.asked.substr(0, 14), "zero2-offload ");
  EXPECT_TRUE(
      zero2.warns("acc.yaml:4:1: distributed_type is DEEPSPEED: Accelerate ignores "
                  "fsdp_config"));
  const Answer empty = yaml("deepspeed_config: {}\n" + fsdp("  fsdp_offload_params: true\n"), kOne);
  EXPECT_EQ(empty.asked.substr(0, 14), "fsdp2-offload ");
  EXPECT_FALSE(empty.warns("deepspeed_config"));
}

TEST(Accelerate, RefusesWhatDistributedTypeDoesNotSettle) {
  const std::string zero2 = "deepspeed_config: {zero_stage: 2}\n";
  const auto refusal = [](const std::string& text) {
    const Answer a = yaml(text, kOne);
    return a.refusals.size() == 1 ? a.refusals[0] : fmt::format("{}", a.refusals.size());
  };
  EXPECT_EQ(refusal(zero2 + "fsdp_config: {fsdp_offload_params: true}\n"),
            "acc.yaml:2:1: fsdp_config stands beside deepspeed_config; expected distributed_type "
            "DEEPSPEED or FSDP");
  EXPECT_EQ(refusal("distributed_type: MULTI_GPU\n" + zero2),
            "acc.yaml:1:19: distributed_type is MULTI_GPU: Accelerate ignores deepspeed_config; "
            "expected DEEPSPEED or FSDP");
  EXPECT_EQ(refusal("distributed_type: FSDP\n" + zero2),
            "acc.yaml:1:19: distributed_type is FSDP, without fsdp_config; expected it");
  EXPECT_EQ(refusal("distributed_type: DEEPSPEED\ndeepspeed_config: {}\n"),
            "acc.yaml:1:19: distributed_type is DEEPSPEED, without deepspeed_config; expected it");
}

// The Trainer hands Accelerate a number of its own, 1 where no argument says.
TEST(AccelerateFsdp, AccumulationIsTheTrainers) {
  const std::string text =
      "gradient_accumulation_steps: 2\n" + fsdp("  fsdp_offload_params: true\n  fsdp_version: 2\n");
  const Answer other = yaml(text, std::string(kOne) + " --gradient_accumulation_steps 8");
  EXPECT_EQ(other.asked, "fsdp2-offload | 1 x 8 x ? bf16-mixed");
  EXPECT_TRUE(
      other.warns("acc.yaml:1:30: gradient_accumulation_steps 2 gives way to the Trainer's "
                  "8"));
  EXPECT_EQ(other.setting("gradient_accumulation_steps"), "2 [acc.yaml:1:30] the Trainer's counts");
  const Answer usual = yaml(text, kOne);
  EXPECT_EQ(usual.asked, "fsdp2-offload | 1 x 1 x ? bf16-mixed");
  EXPECT_TRUE(usual.warns("gradient_accumulation_steps 2 gives way to the Trainer's 1"));
  const Answer same = yaml(text, std::string(kOne) + " --gradient_accumulation_steps 2");
  EXPECT_TRUE(same.warnings.empty()) << same.warnings[0];
  Around around;
  around.flags.micro_batch = study::Given{"1", {"command line"}};
  EXPECT_EQ(yaml(text, "", around).asked, "fsdp2-offload | ? x 2 x ? bf16-mixed");
  around.flags.accumulation = study::Given{"4", {"command line"}};
  EXPECT_EQ(yaml(text, kOne, around).warnings,
            std::vector<std::string>{"acc.yaml:1:30: gradient_accumulation_steps 2 gives way to "
                                     "--accumulation 4"});
}

TEST(AccelerateFsdp, MicroBatchIsTheTrainersDefault) {
  const Answer a = yaml(fsdp("  fsdp_offload_params: true\n"), "--bf16");
  EXPECT_TRUE(a.refusals.empty()) << a.refusals[0];
  EXPECT_EQ(a.asked, "fsdp2-offload | 8 x ? x ? bf16-mixed");
  EXPECT_EQ(a.setting("per_device_train_batch_size"), "8 [default of the Trainer] ");
  const Answer nobody = yaml(fsdp("  fsdp_offload_params: true\n"));
  ASSERT_EQ(nobody.refusals.size(), 1U);
  EXPECT_EQ(nobody.refusals[0].substr(0, 51),
            "acc.yaml:1:1: Accelerate's file has no micro-batch;");
}

// The Trainer sets ACCELERATE_MIXED_PRECISION where one of its arguments is true.
TEST(Accelerate, PrecisionIsTheTrainersWhereItSays) {
  const std::string one(kOne);
  for (const std::string& block :
       {std::string("fsdp_config: {fsdp_offload_params: true, fsdp_version: 2}\n"),
        std::string("deepspeed_config: {zero_stage: 2, offload_optimizer_device: cpu}\n")}) {
    const auto precision = [&](const std::string& says, const std::string& arguments) {
      const Answer a = yaml("mixed_precision: " + says + "\n" + block, one + arguments);
      return a.asked.substr(a.asked.rfind(' ') + 1);
    };
    EXPECT_EQ(precision("'no'", " --bf16"), "bf16-mixed") << block;
    EXPECT_EQ(precision("bf16", " --fp16"), "fp16-mixed") << block;
    EXPECT_EQ(precision("bf16", ""), "bf16-mixed") << block;
    EXPECT_EQ(yaml(block, one + " --fp16").asked.find("fp32"), std::string::npos) << block;
    const Answer a = yaml("mixed_precision: bf16\n" + block, one + " --fp16");
    EXPECT_TRUE(a.refusals.empty()) << a.refusals[0];
    EXPECT_TRUE(a.warns("acc.yaml:1:18: mixed_precision bf16 gives way to the Trainer's --fp16"));
    EXPECT_EQ(a.setting("mixed_precision"), "bf16 [acc.yaml:1:18] the Trainer's counts");
    EXPECT_FALSE(yaml("mixed_precision: bf16\n" + block, one + " --bf16").warns("gives way"));
  }
}

TEST(Accelerate, SeveralMachinesAreRefused) {
  const std::string text = fsdp("  fsdp_offload_params: true\n");
  const Answer two = yaml("num_machines: 2\n" + text, kOne);
  ASSERT_EQ(two.refusals.size(), 1U);
  EXPECT_EQ(two.refusals[0],
            "acc.yaml:1:15: num_machines is 2, and one host is modelled; expected 1");
  EXPECT_TRUE(yaml("num_machines: 1\n" + text, kOne).refusals.empty());
}

}  // namespace
}  // namespace offsim::imports::accelerate_test
