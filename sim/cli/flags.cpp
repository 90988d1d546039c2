#include "sim/cli/flags.h"

#include <CLI/CLI.hpp>

namespace offsim::cli {

namespace {

void add_work_flags(CLI::App* app, WorkFlags& work) {
  app->add_option("--micro-batch", work.micro_batch, "sequences a GPU, or largest: what fits")
      ->type_name("N");
  app->add_option("--micro-batch-limit", work.micro_batch_limit, "beside largest: at most so many")
      ->type_name("N");
  app->add_option("--sequence", work.sequence, "tokens a sequence (1024)")->type_name("S");
  app->add_option("--accumulation", work.accumulation, "micro-batches a step (1)")->type_name("K");
  app->add_option("--gpus", work.gpus, "data-parallel ranks on one host (1)")->type_name("N");
  app->add_option("--checkpointing", work.checkpointing, "none or full (none)")->type_name("C");
  app->add_option("--activation-offload", work.activation_offload,
                  "none, save_on_cpu, save_on_cpu_pinned, streamed")
      ->type_name("A");
  app->add_option("--precision", work.precision, "bf16-mixed, bf16, fp16-mixed or fp32")
      ->type_name("P");
  app->add_option("--lora-rank", work.lora_rank, "train adapters of this rank, all else frozen (0)")
      ->type_name("R");
  app->add_option("--lora-targets", work.lora_targets, "query-value, attention or all-linear")
      ->type_name("T");
  app->add_option("--base", work.base, "what is frozen: 16-bit, int8, nf4, nf4-double")
      ->type_name("B");
  app->add_option("--loader-workers", work.loader_workers,
                  "cores that a process's data loader keeps busy (0)")
      ->type_name("N");
  app->add_option("--loader-bandwidth", work.loader_bandwidth, "DRAM that it takes, such as 2GB/s")
      ->type_name("B/s");
  app->add_flag("--phase-sync", work.phase_sync, "the loop synchronises between its phases")
      ->disable_flag_override();
  app->add_option("--set", work.set, "an option of a plan; may be repeated")
      ->type_name("PLAN.OPTION=VALUE")
      ->allow_extra_args(false);
}

}  // namespace

void add_question_flags(CLI::App* app, std::string& model, std::string& hardware, std::string& plan,
                        WorkFlags& work, Asks asks) {
  app->add_option("--model", model, "a name of the catalog, a config.json or its folder")
      ->type_name("M");
  app->add_option("--hardware", hardware, "a name of the catalog or a YAML file")->type_name("H");
  if (asks == Asks::kOnePlan) {
    app->add_option("--plan", plan, "a training system: offsim catalog plans")->type_name("P");
  } else {
    app->add_option("--plans", plan, "names separated by commas, or all (all)")->type_name("P,...");
  }
  add_work_flags(app, work);
}

void add_config_flags(CLI::App* app, StepQuestion& options, const std::string& instead) {
  app->add_option("--ds-config", options.ds_config, instead + ": DeepSpeed's, or Accelerate's")
      ->type_name("FILE");
  app->add_option("--trainer", options.trainer,
                  "arguments of Hugging Face's Trainer, or their file")
      ->type_name("\"ARGS\"");
}

void add_catalog_flag(CLI::App* app, std::optional<std::string>& catalog) {
  app->add_option("--catalog", catalog, "a folder with hardware/ and models/")->type_name("DIR");
}

void add_json_flag(CLI::App* app, std::string& json) {
  app->add_option("--json", json, "write JSON; - for stdout, without text")->type_name("FILE");
}

void add_language_flag(CLI::App* app, std::string& language) {
  app->add_option("--lang", language, "of the text: en or zh, Chinese (en)")->type_name("L");
}

void add_answer_flags(CLI::App* app, std::optional<std::string>& price, std::string& json) {
  app->add_option("--price", price, "of one GPU, such as \"3.35 USD/h\"")->type_name("USD/h");
  add_json_flag(app, json);
}

}  // namespace offsim::cli
