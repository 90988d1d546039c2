// Does every command take the configuration that training takes, and does every mistake in it get a
// line that names its place, and exit code 2?
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <regex>

#include "tests/cli/program.h"

namespace offsim::cli::configuration_test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

std::vector<std::pair<std::string, std::string>> bad_configurations() {
  const std::string cpu = R"("offload_optimizer": {"device": "cpu"})";
  return {
      {"empty.json", ""},
      {"ds_hole.json", "{\"train_batch_size\": SIZE}"},
      {"ds_open.json", "{\"train_batch_size\": 1,\n"},
      {"ds_key.json",
       "{\"train_batch_size\": 1, \"bf16\": {\"enabled\": true},\n"
       "\"zero_optimization\": {\"stage\": 2, \"overlap_com\": true}}"},
      {"ds_two.json",
       "{\"train_batch_size\": 1, \"bf16\": {\"enabled\": true},\n"
       "\"zero_optimization\": {\"stage\": 4,\n\"overlap_com\": true}}"},
      {"ds_warned.json",
       "{\"train_batch_size\": 1, \"bf16\": {\"enabled\": true}, \"zero_optimisation\": {},\n"
       "\"zero_optimization\": {\"stage\": 4}}"},
      {"ds_fp32.json",
       "{\"train_batch_size\": 1,\n\"zero_optimization\": {\"stage\": 2, " + cpu + "}}"},
      {"ds_buffer.json",
       "{\"train_batch_size\": 1, \"bf16\": {\"enabled\": true}, \"zero_optimization\": "
       "{\"stage\": 3,\n"
       "\"offload_param\": {\"device\": \"nvme\", \"nvme_path\": \"/x\", \"buffer_size\": 1e6}}}"},
      {"ds_buffers.json",
       "{\"train_batch_size\": 1, \"bf16\": {\"enabled\": true}, \"zero_optimization\": "
       "{\"stage\": 3,\n"
       "\"offload_param\": {\"device\": \"nvme\", \"nvme_path\": \"/x\", \"buffer_count\": 0}}}"},
      {"ds_few.json",
       "{\"train_batch_size\": 1, \"bf16\": {\"enabled\": true}, \"zero_optimization\": "
       "{\"stage\": 3,\n"
       "\"offload_param\": {\"device\": \"nvme\", \"nvme_path\": \"/x\"}}}"},
      {"ds_ratio.json",
       "{\"train_batch_size\": 1, \"bf16\": {\"enabled\": true}, \"zero_optimization\": "
       "{\"stage\": 3,\n"
       "\"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \"/x\", \"ratio\": 0.3}}}"},
      {"ds_good.json",
       "{\"train_batch_size\": 1, \"bf16\": {\"enabled\": true},\n"
       "\"zero_optimization\": {\"stage\": 2, " +
           cpu + "}}"},
      {"acc_8.yaml",
       "distributed_type: DEEPSPEED\nmixed_precision: bf16\nnum_processes: 8\n"
       "deepspeed_config: {zero_stage: 2, offload_optimizer_device: cpu}\n"},
      {"acc_fsdp_8.yaml",
       "distributed_type: FSDP\nmixed_precision: bf16\nnum_processes: 8\n"
       "fsdp_config: {fsdp_offload_params: true, fsdp_version: 2}\n"},
      {"llama_factory.yaml", "deepspeed: ds_good.json\ncutoff_len: 2048\n"},
  };
}

class Configurations : public testing::Test {
 protected:
  // One folder for all cases: they only read it.
  static void SetUpTestSuite() {
    folder_ = std::make_unique<Folder>();
    for (const auto& [name, text] : bad_configurations()) {
      folder_->write(name, text);
    }
    std::filesystem::create_directories(folder_->path() / "nothing");
  }
  static void TearDownTestSuite() { folder_.reset(); }

  static void check(const std::vector<Refusal>& cases) { expect_refused(cases, folder_->path()); }

  static std::unique_ptr<Folder> folder_;
};
std::unique_ptr<Folder> Configurations::folder_;

const std::string kAsk = "predict --model gpt2 --hardware h200-pcie5 --plan ";
const std::string kConfig = "predict --model gpt2 --hardware h200-pcie5 --ds-config ";

TEST_F(Configurations, ThatAreNone) {
  check({
      {kConfig + "missing.json", "missing.json: no such file"},
      {kConfig + "nothing", "nothing: this is a folder"},
      {kConfig + "/dev/zero", "/dev/zero: this is a device or a pipe"},
      {kConfig + "empty.json", "empty.json: nothing is in this file"},
      {kConfig + "ds_hole.json", "ds_hole.json:1:22: not JSON or Hjson: 'SIZE' is neither"},
      {kConfig + "ds_open.json", "ds_open.json:1:1: not JSON or Hjson: this { is not closed"},
      {kConfig + "ds_key.json",
       "ds_key.json:2:35: there is no 'overlap_com' in zero_optimization; did you mean "
       "'overlap_comm'?"},
      {kConfig + "llama_factory.yaml", "llama_factory.yaml:1:1: this file is LLaMA-Factory's"},
      {kConfig + "ds_good.json --plan native", "--plan and the configuration both name a plan"},
      {kConfig + "ds_good.json --micro-batch 0", "train_micro_batch_size_per_gpu is '0'"},
      {kConfig + "''", "--ds-config is empty"},
      {kAsk + "native --trainer ''", "--trainer is empty"},
      {kAsk + "native --trainer train.py", "--trainer: 'train.py' has no argument"},
      {kAsk + "native --trainer missing.yaml", "missing.yaml: no such file"},
      {kAsk + "native --trainer --bf16=maybe", "--trainer: --bf16 is 'maybe'; expected true"},
      {kAsk + "native --trainer=--per_device_train_batch_size=x", "micro_batch is 'x'"},
  });
}

// What a plan refuses has its place in the configuration.
TEST_F(Configurations, ThatAPlanRefuses) {
  check({
      {kConfig + "ds_buffer.json",
       "ds_buffer.json:2:71: DeepSpeed stops with 'More elements than buffer size'; expected a "
       "zero_optimization.offload_param.buffer_size of 38597376 or more"},
      {kConfig + "ds_buffers.json",
       "ds_buffers.json:2:72: zero_optimization.offload_param.buffer_count is '0'; expected"},
      {"predict --model llama-3.2-1b --hardware h200-pcie5 --ds-config ds_few.json",
       "ds_few.json:1:83: DeepSpeed stops with 'Not enough buffers' for parameters on the drive; "
       "expected a larger zero_optimization.offload_param.buffer_count, or a smaller "
       "stage3_max_reuse_distance: what"},
      {kConfig + "ds_ratio.json", "ds_ratio.json:2:69: ratio needs the optimizer in memory"},
      {kConfig + "acc_8.yaml --micro-batch 1",
       "acc_8.yaml:3:16: 8 processes, and zero2-offload is modelled on one GPU; expected --gpus 1, "
       "which overrides it"},
      {kConfig + "acc_fsdp_8.yaml --micro-batch 1",
       "acc_fsdp_8.yaml:3:16: 8 processes, and h200-pcie5 has 1; expected --gpus 1, which "
       "overrides it"},
      {kConfig + "ds_good.json --precision fp32",
       "ds_good.json:2:32: zero2-offload does not run in fp32"},
  });
}

// Of a file that is refused nothing is warned of.
TEST_F(Configurations, ThatAreRefusedAreNotWarnedOf) {
  const Outcome outcome = offsim(kConfig + "ds_warned.json", folder_->path());
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(lines_of(outcome.err).size(), 1U) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("ds_warned.json:2:32: zero_optimization.stage is '4'"));
}

// In compare it is a row, on every machine, and in the file's words too.
TEST_F(Configurations, ThatAPlanRefusesAreRows) {
  const Outcome outcome = offsim(
      "compare --model gpt2 --hardware h200-pcie5,gb200 --plans native --ds-config ds_buffer.json",
      folder_->path());
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, testing::Not(HasSubstr("a param_buffer_size")));
  EXPECT_THAT(outcome.out, HasSubstr("zero_optimization.offload_param.buffer_size"));
}

// All at once, the last of them with the program's own exit code.
TEST_F(Configurations, TellAllMistakesAtOnce) {
  const Outcome outcome = offsim(kConfig + "ds_two.json", folder_->path());
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(outcome.out, "");
  const std::vector<std::string> lines = lines_of(outcome.err);
  ASSERT_EQ(lines.size(), 2U) << outcome.err;
  EXPECT_THAT(lines[0], HasSubstr("ds_two.json:2:32: zero_optimization.stage is '4'"));
  EXPECT_THAT(lines[1], HasSubstr("ds_two.json:3:1: there is no 'overlap_com'"));
}

std::string good(const Outcome& outcome) {
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.err, "");
  return outcome.out;
}

// What was wrapped, in one line.
std::string one_line(const std::string& text) {
  return std::regex_replace(text, std::regex("\\s+"), " ");
}

// scenarios/ds_z3_offload.json: 4 of "auto" are the arguments', 3 are llama's hidden size, 4,096.
TEST(Predict, TakesTheConfigurationThatTrainingTakes) {
  const std::string ask =
      "offsim predict --model llama-3.1-8b --hardware h200-pcie5 "
      "--ds-config scenarios/ds_z3_offload.json "
      "--trainer '--per_device_train_batch_size 2 --bf16 --gradient_checkpointing'";
  const std::string text = good(shell(ask + " --explain", OFFSIM_SOURCE_DIR));
  const std::string plain = one_line(text);
  EXPECT_THAT(plain, HasSubstr("plan zero3-offload offload_optimizer=cpu offload_param=cpu"));
  EXPECT_THAT(plain, HasSubstr("batch 2 x 1,024 tokens, checkpointing full"));
  EXPECT_THAT(plain, HasSubstr("reduce_bucket_size 16,777,216 elements, 32.0 MiB in 16 bits"));
  EXPECT_THAT(plain, HasSubstr("train_batch_size 2 (scenarios/ds_z3_offload.json:3:23, auto: "
                               "micro-batch x accumulation x GPUs)"));
  EXPECT_THAT(plain, HasSubstr("--bf16 true (--trainer)"));
  // The same, asked in offsim's own words.
  const json config = json::parse(good(shell(ask + " --json -", OFFSIM_SOURCE_DIR)));
  const json words = json::parse(
      good(offsim("predict --model llama-3.1-8b --hardware h200-pcie5 --plan zero3-offload "
                  "--micro-batch 2 --checkpointing full --set zero3-offload.offload_param=cpu "
                  "--set zero3-offload.pin_memory=true "
                  "--set zero3-offload.reduce_bucket_size=16777216 "
                  "--set zero3-offload.stage3_prefetch_bucket_size=15099494 "
                  "--set zero3-offload.stage3_param_persistence_threshold=40960 --json -")));
  EXPECT_EQ(config.at("step_s"), words.at("step_s"));
  EXPECT_EQ(config.at("memory"), words.at("memory"));
}

// The configuration's plan is the first row, in place of the plan of its name; its work is every
// row's.
TEST(Compare, LaysAConfigurationBesideOtherPlans) {
  const std::string config =
      "--model llama-3.1-8b --hardware h200-pcie5 --ds-config scenarios/ds_z3_offload.json "
      "--trainer '--per_device_train_batch_size 2 --bf16'";
  const json own =
      json::parse(good(shell("offsim predict " + config + " --json -", OFFSIM_SOURCE_DIR)));
  const std::string compare = "offsim compare " + config + " --plans native,zero3-offload,zenflow";
  const json rows =
      json::parse(good(shell(compare + " --json -", OFFSIM_SOURCE_DIR))).at("predictions");
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[0].at("step_s"), own.at("step_s"));
  EXPECT_EQ(rows[0].at("warnings"), own.at("warnings"));
  EXPECT_EQ(rows[0].at("scenario").at("plan"), "zero3-offload");
  EXPECT_EQ(rows[1].at("scenario").at("plan"), "native");
  EXPECT_EQ(rows[1].at("scenario").at("micro_batch"), 2);
  // A plan that is not asked for is the configuration's all the same, and --set may change it.
  const std::string text = good(
      shell("offsim compare " + config + " --plans native --set zero3-offload.pin_memory=false",
            OFFSIM_SOURCE_DIR));
  EXPECT_THAT(text, HasSubstr("scenarios/ds_z3_offload.json beside other plans\n"));
  EXPECT_THAT(one_line(text), HasSubstr("pin_memory gives way to --set"));
  EXPECT_THAT(one_line(text), HasSubstr("config scenarios/ds_z3_offload.json: "));
  // The Trainer's arguments alone name no plan.
  const std::string trainer =
      good(shell("offsim compare --model gpt2 --hardware h200-pcie5 --trainer '--bf16 "
                 "--per_device_train_batch_size 3'"));
  EXPECT_THAT(trainer, HasSubstr("plans compared\n"));
  EXPECT_THAT(trainer, HasSubstr("micro-batch 3 x 1,024"));
}

}  // namespace
}  // namespace offsim::cli::configuration_test
