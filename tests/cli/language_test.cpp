// With --lang zh: is everything that three commands print in Chinese, and nothing else changed?
#include "sim/base/language.h"

#include <gtest/gtest.h>

#include <regex>
#include <set>
#include <sstream>

#include "sim/cli/advise.h"
#include "sim/cli/compare.h"
#include "sim/cli/predict.h"
#include "sim/import/keys.h"
#include "sim/plans/plan.h"
#include "sim/study/catalog.h"
#include "tests/cli/program.h"

namespace offsim::cli::language_test {
namespace {

class Chinese : public testing::Test {
 protected:
  void SetUp() override { set_language(Language::kChinese); }
  void TearDown() override { set_language(Language::kEnglish); }
};

// English words that are names: of plans, of options and of what they take.
const std::set<std::string>& names() {
  static const std::set<std::string> kNames = [] {
    // Work of every plan; "by version" is what catalog options calls a default.
    std::set<std::string> out{"true",          "false",    "none",     "full",
                              "auto",          "by",       "version",  "offsim",
                              "gpus",          "sequence", "base",     "precision",
                              "checkpointing", "query",    "streamed", "accumulation"};
    for (const plans::Plan& plan : plans::registry()) {
      out.emplace(plan.name);
      for (const plans::OptionSpec& option : plan.options) {
        out.emplace(option.name);
        out.insert(option.choices.begin(), option.choices.end());
      }
    }
    return out;
  }();
  return kNames;
}

// Two English words or more, one after the other; empty where there are none.
std::string english_in(const std::string& text) {
  static const std::regex kWord("[a-z][a-z']+[,.;:]?");
  std::string run;
  std::size_t words = 0;
  std::istringstream in(text);
  for (std::string word; in >> word;) {
    if (!std::regex_match(word, kWord) || names().contains(word)) {
      if (words > 1) {
        return run;
      }
      run.clear();
      words = 0;
      continue;
    }
    run += (words++ == 0 ? "" : " ") + word;
  }
  return words > 1 ? run : "";
}

void expect_chinese(std::string text, const study::Catalog& catalog, const std::string& machine) {
  // Figures of --explain name their sources, and a command its flags.
  text.resize(std::min({text.size(), text.rfind(tr("Next:")), text.find("  " + tr("figure"))}));
  const std::string title = catalog.machine(machine, {}).title;
  if (const std::size_t at = text.find(title); at != std::string::npos) {
    text.erase(at, title.size());
  }
  EXPECT_EQ(english_in(text), "") << text;
  for (const std::string& missing : untranslated()) {
    ADD_FAILURE() << "no translation of \"" << missing << "\"";
  }
}

struct Question {
  std::string model, hardware;
  std::string micro_batch = "1";
};

// What a plan does not run at all is an error, and errors are English.
template <class Options, class Run>
bool answered(Options options, const Question& q, Run run, const study::Catalog& catalog) {
  SCOPED_TRACE(q.model + " on " + q.hardware);
  options.model = q.model;
  options.hardware = q.hardware;
  options.work.micro_batch = q.micro_batch;
  std::ostringstream out, err;
  try {
    run(options, out, err);
  } catch (const InputError&) {
    return false;
  }
  expect_chinese(out.str(), catalog, q.hardware);
  return true;
}

// PCIe, coherent, unified, with a drive and too small, several GPUs.
const std::vector<std::string> kMachines{"h200-pcie5", "gh200-480gb", "macbook-m4-max",
                                         "workstation-pcie4-4090", "h200x2-32core-vm"};

TEST_F(Chinese, PredictSaysAllOfIt) {
  const study::Catalog catalog = study::Catalog::embedded();
  std::size_t count = 0;
  for (const plans::Plan& plan : plans::registry()) {
    PredictOptions options;
    options.plan = plan.name;
    options.memory = true;
    options.tokens = "10M";
    for (const std::string& machine : kMachines) {
      for (const char* const model : {"llama-3.2-1b", "qwen1.5-moe-a2.7b", "qwen2.5-vl-7b"}) {
        count += answered(options, {model, machine}, run_predict, catalog) ? 1 : 0;
      }
    }
    options.work.accumulation = "4";
    options.work.checkpointing = "full";
    options.work.phase_sync = true;
    options.work.loader_workers = "2";
    options.work.loader_bandwidth = "1GB/s";
    options.price = "2 USD/h";
    for (const std::string& machine : kMachines) {
      answered(options, {"gpt2", machine, "512"}, run_predict, catalog);
    }
  }
  EXPECT_GT(count, 14 * 5 * 3 / 2U);
}

TEST_F(Chinese, PredictSaysAllOfTheWork) {
  const study::Catalog catalog = study::Catalog::embedded();
  PredictOptions options;
  options.explain = true;
  for (const char* const plan : {"native", "zero2-offload", "fsdp2-offload", "torchao-offload"}) {
    options.plan = plan;
    options.work = {};
    options.work.lora_rank = "8";
    options.work.base = "nf4-double";
    options.work.lora_targets = "attention";
    EXPECT_TRUE(answered(options, {"qwen1.5-moe-12l", "h200-pcie5"}, run_predict, catalog));
    for (const char* const offload : {"save_on_cpu", "save_on_cpu_pinned", "streamed"}) {
      options.work = {};
      options.work.activation_offload = offload;
      EXPECT_TRUE(answered(options, {"llama-3.2-1b", "h200-pcie5"}, run_predict, catalog));
    }
  }
  options.work = {};
  options.work.gpus = "2";
  options.plan = "fsdp2-offload";
  EXPECT_TRUE(answered(options, {"llama-3.2-1b", "h200x2-32core-vm"}, run_predict, catalog));
}

TEST_F(Chinese, PredictSaysAllOfEveryOption) {
  const study::Catalog catalog = study::Catalog::embedded();
  std::size_t count = 0, all = 0;
  for (const plans::Plan& plan : plans::registry()) {
    for (const plans::OptionSpec& option : plan.options) {
      std::vector<std::string> values = option.choices;
      if (option.kind == plans::OptionSpec::Kind::kFlag) {
        values = {"true", "false"};
      } else if (values.empty()) {
        values = {option.kind == plans::OptionSpec::Kind::kVersion ? "0.14.5"
                                                                   : std::string(option.fallback)};
      }
      for (const std::string& value : values) {
        PredictOptions options;
        options.plan = plan.name;
        options.memory = true;
        options.work.set = {std::string(plan.name) + "." + std::string(option.name) + "=" + value};
        SCOPED_TRACE(options.work.set.front());
        const char* const machine = plan.name == "mlx"                ? "macbook-m4-max"
                                    : plan.name == "coherent-offload" ? "gh200-480gb"
                                                                      : "h200-pcie5";
        options.work.precision = plan.name == "mlx" ? "bf16" : "bf16-mixed";
        count += answered(options, {"llama-3.1-8b", machine}, run_predict, catalog) ? 1 : 0;
        ++all;
      }
    }
  }
  EXPECT_GT(count, all - 8);  // some values need another, too
}

TEST_F(Chinese, CompareSaysAllOfIt) {
  const study::Catalog catalog = study::Catalog::embedded();
  for (const std::string& machine : kMachines) {
    for (const char* const model : {"llama-3.1-8b", "qwen1.5-moe-a2.7b", "gpt2"}) {
      CompareOptions options;
      EXPECT_TRUE(answered(options, {model, machine}, run_compare, catalog));
      options.work.lora_rank = "8";
      EXPECT_TRUE(answered(options, {model, machine}, run_compare, catalog));
      options.work = {};
      options.work.activation_offload = "streamed";
      options.work.precision = "fp16-mixed";
      options.price = "2 USD/h";
      EXPECT_TRUE(answered(options, {model, machine, "64"}, run_compare, catalog));
      options.work = {};
      options.work.gpus = "2";
      options.work.precision = "bf16";
      answered(options, {model, machine}, run_compare, catalog);
    }
  }
}

TEST_F(Chinese, AdviseSaysAllOfIt) {
  const study::Catalog catalog = study::Catalog::embedded();
  std::size_t count = 0, asked = 0;
  for (const plans::Plan& plan : plans::registry()) {
    AdviseOptions options;
    options.plan = plan.name;
    const std::string& machine = plan.name == "mlx"                ? kMachines[2]
                                 : plan.name == "coherent-offload" ? kMachines[1]
                                                                   : kMachines[asked % 5];
    count += answered(options, {"llama-3.2-1b", machine}, run_advise, catalog) ? 1 : 0;
    ++asked;
  }
  EXPECT_GT(count, asked / 2);
  AdviseOptions misfit;
  misfit.plan = "zero3-offload";
  EXPECT_TRUE(answered(misfit, {"llama-3.1-8b", "workstation-pcie4-4090"}, run_advise, catalog));
}

TEST_F(Chinese, ConfigurationsSayAllOfWhatComesOfThem) {
  const study::Catalog catalog = study::Catalog::embedded();
  const Folder folder;
  folder.write("two.json", R"({"zero_optimization": {"stage": 2, "cpu_offload": true,
    "offload_param": {"device": "cpu"}, "overlap_comm": true, "reduce_bucket_size": "auto",
    "stage3_gather_16bit_weights_on_model_save": true}, "bf16": {"enabled": "auto"},
    "gradient_clipping": "auto", "zero_optimisation": {}, "train_batch_size": "auto",
    "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto",
    "wall_clock_breakdown": true, "optimizer": {"type": "Lamb", "params": {}}, // loose
    "aio": {"use_gds": true}, "activation_checkpointing": {"cpu_checkpointing": true}})");
  folder.write("three.json", R"({"zero_optimization": {"stage": 3, "sub_group_size": 1e12,
    "offload_optimizer": {"device": "nvme", "nvme_path": "local", "pin_memory": true},
    "offload_param": {"device": "cpu", "pin_memory": false}, "stage3_prefetch_bucket_size": "auto",
    "stage3_max_live_parameters": 1e12, "zero_quantized_nontrainable_weights": true},
    "fp16": {"enabled": true, "initial_scale_power": 32}, "prescale_gradients": true,
    "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4})");
  folder.write("none.json", R"({"train_micro_batch_size_per_gpu": 2})");
  folder.write("fsdp.yaml",
               "distributed_type: FSDP\nmixed_precision: 'no'\nnum_processes: 1\n"
               "gradient_accumulation_steps: 2\ndeepspeed_config: {zero_stage: 2}\nfsdp_config:\n"
               "  fsdp_offload_params: true\n  fsdp_version: 1\n  fsdp_state_dict_type: X\n");
  const std::string arguments =
      "--bf16 --per_device_train_batch_size 2 --max_grad_norm 1 --torch_compile true --lr 1 "
      "--per_device_train_batch_sise 4 --fsdp true";
  std::size_t count = 0;
  for (const char* const file : {"two.json", "three.json", "none.json", "fsdp.yaml"}) {
    for (const bool trainer : {false, true}) {
      SCOPED_TRACE(std::string(file) + (trainer ? " with the Trainer" : ""));
      PredictOptions options;
      options.ds_config = (folder.path() / file).string();
      options.explain = true;
      if (trainer) {
        options.trainer = arguments;
      }
      count += answered(options, {"llama-3.2-1b", "workstation-pcie4-4090"}, run_predict, catalog)
                   ? 1
                   : 0;
    }
  }
  EXPECT_GE(count, 5U);  // the others miss what the Trainer fills
  using imports::BlockSpec;
  for (const BlockSpec* const block :
       {&imports::top_block(), &imports::zero_block(), &imports::offload_optimizer_block(),
        &imports::offload_param_block(), &imports::zenflow_block(), &imports::fp16_block(),
        &imports::bf16_block(), &imports::aio_block(), &imports::activation_block(),
        &imports::optimizer_block()}) {
    for (const imports::Key& key : block->keys) {
      EXPECT_TRUE(key.effect.empty() || tr_sentence(key.effect) != key.effect) << key.effect;
    }
  }
}

// But for the clock.
TEST(Language, ChangesNothingOfWhatAScriptReads) {
  const std::regex clock("\"simulate_s\": [^,\n]*");
  const std::string some = " --model qwen2.5-7b --hardware workstation-pcie4-4090 --json ";
  const Folder folder;
  for (const std::string& ask :
       {"predict --memory --plan zero3-offload --micro-batch 4" + some,
        "predict --plan native --set native.gradient_clipping=true" + some,
        "compare --lora-rank 8" + some, "advise --plan zero2-offload" + some}) {
    EXPECT_EQ(offsim(ask + "en.json", folder.path()).code, 0) << ask;
    EXPECT_EQ(offsim(ask + "zh.json --lang zh", folder.path()).code, 0) << ask;
    EXPECT_TRUE(std::regex_replace(folder.read("en.json"), clock, "") ==
                std::regex_replace(folder.read("zh.json"), clock, ""))
        << ask;
  }
  const Outcome idle = offsim("predict --plan native --lang zh" + some + "-");
  EXPECT_EQ(idle.code, 2);
  EXPECT_EQ(idle.err,
            "command line: --lang has no effect when '-' sends data to stdout; expected a file in "
            "place of '-'\n");
}

TEST(Language, IsEnglishUnlessAsked) {
  const std::string ask = "predict --model gpt2 --hardware h200-pcie5 --plan native ";
  EXPECT_EQ(offsim(ask).out, offsim(ask + "--lang en").out);
  EXPECT_NE(offsim(ask).out, offsim(ask + "--lang zh").out);
  const Outcome unknown = offsim(ask + "--lang fr");
  EXPECT_EQ(unknown.code, 2);
  EXPECT_EQ(unknown.err, "command line: --lang is 'fr'; expected en or zh\n");
  EXPECT_EQ(offsim("catalog hardware --lang zh").code, 2);
}

}  // namespace
}  // namespace offsim::cli::language_test
