// Does each of the Trainer's arguments change the work as it says, or say why it does not?
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/import/answer.h"

namespace offsim::imports::trainer_test {
namespace {

struct Read {
  study::GivenWorkload work;
  Findings findings;
};
Read read(const std::string& arguments) {
  Read out;
  const Trainer trainer(arguments, out.findings);
  out.work = trainer.workload();
  return out;
}

// All that is set, by the names of a workload's keys.
std::string work(const std::string& arguments) {
  const Read r = read(arguments);
  std::string out;
  for (const auto& [key, field] : study::workload_fields()) {
    if (const auto& given = r.work.*field) {
      out += fmt::format("{}{}={}", out.empty() ? "" : " ", key, given->text);
    }
  }
  return out;
}

std::string warning(const std::string& arguments) {
  const Read r = read(arguments);
  return r.findings.warnings.empty() ? "" : r.findings.warnings.front();
}

class Argument : public testing::TestWithParam<Case> {};
TEST_P(Argument, ChangesTheWork) { EXPECT_EQ(work(GetParam().text), GetParam().expected); }
INSTANTIATE_TEST_SUITE_P(
    Trainer, Argument,
    testing::Values(Case{"batch", "--per_device_train_batch_size 4", "micro_batch=4"},
                    Case{"old batch", "--per_gpu_train_batch_size=4", "micro_batch=4"},
                    Case{"accumulation", "--gradient_accumulation_steps 8", "accumulation=8"},
                    Case{"hyphens", "--gradient-accumulation-steps 8", "accumulation=8"},
                    Case{"bf16", "--bf16", "precision=bf16-mixed"},
                    Case{"bf16 True", "--bf16 True", "precision=bf16-mixed"},
                    Case{"bf16 off", "--bf16 False", ""},
                    Case{"fp16", "--fp16=1", "precision=fp16-mixed"},
                    Case{"checkpointing", "--gradient_checkpointing", "checkpointing=full"},
                    Case{"checkpointing off", "--gradient_checkpointing no", ""},
                    Case{"TRL", "--max_seq_length 512", "sequence=512"},
                    Case{"TRL, newer", "--max_length 512", "sequence=512"},
                    Case{"LLaMA-Factory", "--cutoff_len 512", "sequence=512"},
                    Case{"tokenizer", "--model_max_length 512", "sequence=512"},
                    Case{"run_clm", "--block_size 512", "sequence=512"},
                    Case{"loader", "--dataloader_num_workers 3", "loader_workers=3"},
                    Case{"activations", "--activation_offloading", "activation_offload=streamed"},
                    Case{"accelerate launch", "accelerate launch --num_processes 2 train.py --bf16",
                         "precision=bf16-mixed gpus=2"},
                    Case{"deepspeed", "deepspeed --num_gpus=2 train.py --deepspeed ds.json",
                         "gpus=2"},
                    Case{"torchrun", "torchrun --nproc_per_node 2 train.py", "gpus=2"},
                    Case{"adapters", "--use_peft", "lora_rank=16"},
                    Case{"rank", "--use_peft --lora_r 8", "lora_rank=8"},
                    Case{"rank of LLaMA-Factory", "--lora_rank 8", "lora_rank=8"},
                    Case{"4 bits", "--use_peft --load_in_4bit", "lora_rank=16 base=nf4"},
                    Case{"8 bits", "--lora_r 4 --load_in_8bit true", "lora_rank=4 base=int8"},
                    Case{"quotes and ends of lines", "--max_seq_length \\\n '512' --bf16 \"true\"",
                         "sequence=512 precision=bf16-mixed"},
                    Case{"none", "", ""}));

TEST(TrainersArguments, ThatAreNotReadAreWarnedOf) {
  EXPECT_EQ(warning("--torch_compile"),
            "--trainer: --torch_compile is not modelled: kernels are PyTorch's eager ones");
  EXPECT_EQ(warning("--torch_compile false"), "");
  EXPECT_EQ(warning("--fsdp 'full_shard offload'"),
            "--trainer: --fsdp is not read: name the plan, --plan fsdp2-offload, or Accelerate's "
            "file");
  EXPECT_EQ(warning("accelerate launch --zero_stage 3 train.py"),
            "--trainer: --zero_stage is not read: expected Accelerate's YAML, or DeepSpeed's file, "
            "as --ds-config");
  EXPECT_EQ(warning("--learning_rate 1e-5"), "");
  EXPECT_EQ(warning("--bf16 --bf16 false"), "--trainer: --bf16 is given twice: the last counts");
}

// A slip is told from what changes nothing here; each is one line.
TEST(TrainersArguments, ThatNobodyKnowsAreWarnedOf) {
  EXPECT_EQ(warning("--bf61"),
            "--trainer: --bf61 is no argument of the Trainer, and not read; did you mean --bf16?");
  EXPECT_EQ(warning("--learning_rat 1e-5"),
            "--trainer: --learning_rat is no argument of the Trainer, and not read; did you mean "
            "--learning_rate?");
  EXPECT_EQ(warning("--zebra_crossing 3"),
            "--trainer: --zebra_crossing is no argument of the Trainer, and not read");
  EXPECT_EQ(read("--xyzzy 1 --plugh --bf16").findings.warnings.size(), 2U);
  for (const char* const known :
       {"--output_dir out --max_steps -1 --no_dataloader_pin_memory",
        "torchrun --nproc-per-node 2 -m train --dataset_name c4 --report_to wandb tensorboard",
        "deepspeed --include localhost:0 train.py --attn_implementation sdpa",
        "accelerate launch --config_file c.yaml train.py --packing --lora_alpha 8",
        "--finetuning_type lora --flash_attn fa2 --template qwen"}) {
    EXPECT_EQ(warning(known), "");
  }
}

TEST(TrainersArguments, AreWordsWithTwoHyphens) {
  EXPECT_EQ(warning("--fp16 false -bf16"),
            "--trainer: '-bf16' is no argument, and not read; did you mean --bf16?");
  EXPECT_EQ(warning("--seed 1 per_device_train_batch_size=4"),
            "--trainer: 'per_device_train_batch_size=4' is no argument, and not read; did you mean "
            "--per_device_train_batch_size?");
}

// Without a DeepSpeed configuration nothing clips or updates as they say.
TEST(TrainersArguments, ThatAConfigurationMayLeaveOpenAreInForceThere) {
  const std::string nobody =
      "read where a DeepSpeed configuration leaves it to the Trainer, and none does";
  Answer a;
  a.settings = read("--bf16 --max_grad_norm 0.5 --optim adamw_torch").findings.settings;
  EXPECT_EQ(a.setting("--max_grad_norm"), "0.5 [--trainer] " + nobody);
  EXPECT_EQ(a.setting("--optim"), "adamw_torch [--trainer] " + nobody);
  Findings findings;
  Trainer trainer("--bf16 --max_grad_norm 0.5 --optim adamw_torch", findings);
  Around around;
  around.trainer = &trainer;
  around.hugging_face = true;
  answer(top("\"train_batch_size\": 1, \"gradient_accumulation_steps\": 1, "
             "\"train_micro_batch_size_per_gpu\": 1, \"gradient_clipping\": \"auto\""),
         around);
  a.settings = findings.settings;
  EXPECT_EQ(a.setting("--max_grad_norm"), "0.5 [--trainer] ");
  EXPECT_EQ(a.setting("--optim"), "adamw_torch [--trainer] ");
}

TEST(TrainersArguments, AreListedWithWhatComesOfThem) {
  Answer a;
  a.settings = read("--learning_rate 1e-5 --bf16").findings.settings;
  EXPECT_EQ(a.setting("--bf16"), "true [--trainer] ");
  EXPECT_EQ(a.setting("--learning_rate"),
            "1e-5 [--trainer] not read: it is none of those that offsim knows to change a step's "
            "time or memory");
  a.settings = read("--zebra_crossing").findings.settings;
  EXPECT_EQ(a.setting("--zebra_crossing"), "true [--trainer] not read: no argument of the Trainer");
}

std::string refusal(const std::string& arguments) {
  try {
    const Read r = read(arguments);
    return r.findings.refusals.empty() ? "" : r.findings.refusals.front().what();
  } catch (const InputError& error) {
    return error.what();
  }
}

TEST(TrainersArguments, ThatMakeNoSenseAreRefused) {
  EXPECT_EQ(refusal("--bf16 --fp16"),
            "--trainer: --bf16 and --fp16 are both true; expected one of them");
  EXPECT_EQ(refusal("--bf16 data.json"),
            "--trainer: --bf16 is 'data.json'; expected true or false");
  EXPECT_EQ(refusal("--bf16 'true"), "--trainer: a quote has no end; expected ' at its end");
  EXPECT_EQ(refusal("train.py"),
            "--trainer: 'train.py' has no argument; expected --name value ..., or a .yaml or .json "
            "file of them");
  EXPECT_EQ(refusal("--optimizer-cpu-offload"),
            "--trainer: --optimizer-cpu-offload is Megatron's; expected the Trainer's arguments: "
            "Megatron's offload is not modelled");
  EXPECT_EQ(refusal("--overlap-cpu-optimizer-d2h-h2d").substr(0, 53),
            "--trainer: --overlap-cpu-optimizer-d2h-h2d is Megatro");
  EXPECT_EQ(refusal("--optimizer-offload-fraction 0.5").substr(0, 53),
            "--trainer: --optimizer-offload-fraction is Megatron's");
  EXPECT_EQ(refusal("--use-precision-aware-optimizer").substr(0, 53),
            "--trainer: --use-precision-aware-optimizer is Megatro");
}

TEST(TrainersArguments, MayBeAFile) {
  const std::string path = testing::TempDir() + "trainer_test.yaml";
  std::ofstream(path) << "per_device_train_batch_size: 2\nbf16: true\ncutoff_len: 256\n"
                         "dataset: [a, b]\n";
  EXPECT_EQ(work(path), "micro_batch=2 sequence=256 precision=bf16-mixed");
  Answer a;
  a.settings = read(path).findings.settings;
  EXPECT_EQ(a.setting("--bf16"), "true [" + path + ":2:7] ");
  std::filesystem::remove(path);
  EXPECT_EQ(refusal(path).substr(0, path.size()), path);
}

}  // namespace
}  // namespace offsim::imports::trainer_test
