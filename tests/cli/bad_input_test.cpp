// Does every mistake get one line that names it, exit code 2, and no output?
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <memory>

#include "tests/cli/program.h"

namespace offsim::cli::bad_input_test {
namespace {

using testing::HasSubstr;

// What goes wrong in a file: its name and its text. Files of models say what they are by .json.
struct BadFile {
  const char* name;
  std::string text;
};

std::string nested(int depth) {
  return std::string(static_cast<std::size_t>(depth), '[') +
         std::string(static_cast<std::size_t>(depth), ']');
}

std::string llama(const std::string& other) {
  std::string text = R"({"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, )";
  text += R"("intermediate_size": 128, "num_attention_heads": 4, "vocab_size": 100, )";
  text += R"("max_position_embeddings": 4096)";
  return text + (other.empty() ? "" : ", " + other) + "}\n";
}

std::string scenario(const std::string& other) {
  return "model: gpt2\nhardware: h200-pcie5\n" + other + "\n";
}

std::vector<BadFile> bad_models() {
  return {
      {"empty.json", ""},
      {"truncated.json", R"({"model_type": "llama", "num_hidden_layers": )"},
      {"list.json", "[1, 2]"},
      {"comment.json", "{\"model_type\": \"llama\" // why not\n}"},
      {"twice.json", R"({"model_type": "llama", "model_type": "gpt2"})"},
      {"binary.json", std::string("\x7f"
                                  "ELF\x02\x01\xff\xfe\x00\x80",
                                  10)},
      {"nul.json", std::string("{\"model_type\": \"ll\0ma\"}", 22)},
      {"deep.json", nested(100'000)},
      {"heads.json", R"({"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 100,
        "intermediate_size": 128, "num_attention_heads": 3, "vocab_size": 100})"},
      {"kv.json", llama(R"("num_key_value_heads": 3)")},
      {"mixture.json", llama(R"("num_local_experts": 8)")},
      {"t5.json", R"({"model_type": "t5", "num_layers": 2})"},
      {"no_type.json", R"({"hidden_size": 64})"},
      {"negative.json", R"({"model_type": "llama", "num_hidden_layers": -2, "hidden_size": 64,
        "intermediate_size": 128, "num_attention_heads": 4, "vocab_size": 100})"},
      {"absurd.json",
       R"({"model_type": "llama", "num_hidden_layers": 100000, "hidden_size": 8000000,
        "intermediate_size": 8000000, "num_attention_heads": 4, "vocab_size": 100})"},
      {"fraction.json", R"({"model_type": "llama", "num_hidden_layers": 2.5, "hidden_size": 64,
        "intermediate_size": 128, "num_attention_heads": 4, "vocab_size": 100})"},
  };
}

std::vector<BadFile> bad_hardware() {
  return {
      {"truncated.yaml", "title: half\ngpus: {value: 1, sour"},
      {"unknown.yaml",
       "title: one\ngpus: 1\naccelerator: h200\nhost: grace-480gb\nlink: pcie5-x16\n"
       "framework: pytorch-2.11\ncoler: red\n"},
      {"twice.yaml", "title: one\ngpus: 1\ngpus: 2\n"},
      {"part.yaml",
       "title: one\ngpus: 1\naccelerator: h2000\nhost: grace-480gb\nlink: pcie5-x16\n"
       "framework: pytorch-2.11\n"},
      {"unit.yaml",
       "title: one\ngpus: 1\naccelerator: h200\nhost: grace-480gb\nlink: pcie5-x16\n"
       "framework: pytorch-2.11\noverride: {host: {memory: {value: 128, source: assumed,"
       " from: guess}}}\n"},
      {"negative.yaml",
       "title: one\ngpus: 1\naccelerator: h200\nhost: grace-480gb\nlink: pcie5-x16\n"
       "framework: pytorch-2.11\noverride: {host: {memory: {value: -1 GiB,"
       " source: assumed, from: guess}}}\n"},
      {"source.yaml",
       "title: one\ngpus: 1\naccelerator: h200\nhost: grace-480gb\nlink: pcie5-x16\n"
       "framework: pytorch-2.11\noverride: {host: {memory: {value: 1 GiB,"
       " source: dream, from: guess}}}\n"},
      {"gpus.yaml", "title: one\ngpus: 0\n"},
      {"bomb.yaml", "a: &a [1, 1, 1, 1]\nb: &b [*a, *a, *a, *a]\nc: &c [*b, *b, *b, *b]\n"},
      {"deep.yaml", nested(10'000)},
      {"binary.yaml", std::string("\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", 16)},
      {"nul.yaml", std::string("title: a\0b\n", 11)},
      {"tabs.yaml", "title: one\n\tgpus: 1\n"},
  };
}

std::vector<BadFile> bad_scenarios() {
  std::string sweep = "plans: native\nsweep: {micro_batch: [";
  for (int i = 1; i <= 200; ++i) {
    sweep += std::to_string(i) + ", ";
  }
  sweep += "201], sequence: [";
  for (int i = 1; i <= 100; ++i) {
    sweep += std::to_string(i) + ", ";
  }
  sweep += "101]}";
  return {
      {"s_empty.yaml", ""},
      {"s_models.yaml", "model: []\nhardware: h200-pcie5\nplans: native\n"},
      {"s_plans.yaml", scenario("plans: []")},
      {"s_no_plans.yaml", scenario("title: none")},
      {"s_key.yaml", scenario("plans: native\nworklaod: {sequence: 8}")},
      {"s_plan.yaml", scenario("plans: {nativ: {}}")},
      {"s_option.yaml", scenario("plans: {native: {gradient_cliping: true}}")},
      {"s_plan_twice.yaml", scenario("plans: {native: {}, native: {}}")},
      {"s_value.yaml", scenario("plans: {megatrain: {checkpoint_interval: lots}}")},
      {"s_list_value.yaml", scenario("plans: {megatrain: {checkpoint_interval: [1, 2]}}")},
      {"s_work.yaml", scenario("plans: native\nworkload: {micro_batch: -1}")},
      {"s_work_key.yaml", scenario("plans: native\nworkload: {micro_batches: 1}")},
      {"s_sweep_key.yaml", scenario("plans: native\nsweep: {batch: [1, 2]}")},
      {"s_sweep_empty.yaml", scenario("plans: native\nsweep: {micro_batch: []}")},
      {"s_sweep_list.yaml", scenario("plans: native\nsweep: [micro_batch]")},
      {"s_sweep_huge.yaml", scenario(sweep)},
      {"s_published.yaml", scenario("plans: native\npublished: [{model: gpt2}]")},
      {"s_documents.yaml", scenario("plans: native\n---\nplans: megatrain")},
      {"s_tag.yaml", scenario("plans: !!python/object native")},
  };
}

std::vector<BadFile> bad_graphs() {
  return {
      {"word.dag", "hello world\n"},
      {"kind.dag", "@resource a link 1\n0 copy a 1\n"},
      {"resource.dag", "@resource a link 1\n0 xfer b 1\n"},
      {"rate.dag", "@resource a link 0\n"},
      {"dep.dag", "@resource a link 1\n0 xfer a 1 7\n"},
      {"self.dag", "@resource a link 1\n0 xfer a 1 0\n"},
      {"amount.dag", "@resource a link 1\n0 xfer a -1\n"},
      {"id_twice.dag", "@resource a link 1\n0 xfer a 1\n0 xfer a 1\n"},
      {"huge.dag", "@resource a link 1\n0 xfer a 99999999999999999999\n"},
      {"binary.dag", std::string("\x00\xff\xfe\x01\n", 5)},
  };
}

std::vector<BadFile> bad_files() {
  std::vector<BadFile> files;
  for (const auto& some : {bad_models(), bad_hardware(), bad_scenarios(), bad_graphs()}) {
    files.insert(files.end(), some.begin(), some.end());
  }
  return files;
}

class BadInput : public testing::Test {
 protected:
  // One folder for all cases: they only read it.
  static void SetUpTestSuite() {
    folder_ = std::make_unique<Folder>();
    for (const BadFile& file : bad_files()) {
      folder_->write(file.name, file.text);
    }
    std::filesystem::create_directories(folder_->path() / "folder.json");
    std::filesystem::create_directories(folder_->path() / "folder.yaml");
    std::filesystem::create_directories(folder_->path() / "nothing");
    for (const char* name : {"gigabyte.json", "gigabyte.yaml", "gigabyte.dag"}) {
      folder_->write(name, "");
      std::filesystem::resize_file(folder_->path() / name, 1'000'000'000);  // sparse
    }
    for (const char* name : {"pipe.json", "pipe.yaml", "pipe.dag"}) {
      ASSERT_EQ(::mkfifo((folder_->path() / name).c_str(), 0600), 0);
    }
  }
  static void TearDownTestSuite() { folder_.reset(); }

  static void check(const std::vector<Refusal>& cases) { expect_refused(cases, folder_->path()); }

 private:
  static std::unique_ptr<Folder> folder_;
};
std::unique_ptr<Folder> BadInput::folder_;

const std::string kAsk = "predict --model gpt2 --hardware h200-pcie5 --plan ";
const std::string kModel = "predict --hardware h200-pcie5 --plan native --model ";
const std::string kHardware = "predict --model gpt2 --plan native --hardware ";

TEST_F(BadInput, CommandsAndFlags) {
  check({
      {"predikt", "no command 'predikt'; did you mean 'predict'?"},
      {"frobnicate --model gpt2", "no command 'frobnicate'; expected one of predict"},
      {"--verson", "no option '--verson'; did you mean '--version'?"},
      {"-q", "no option '-q'"},
      {"predict", "--model is missing"},
      {"predict --model gpt2", "--hardware is missing"},
      {"predict --model gpt2 --hardware h200-pcie5", "--plan is missing"},
      {"predict --modle gpt2", "no option '--modle'; did you mean '--model'?"},
      {"predict --modle=gpt2", "no option '--modle'; did you mean '--model'?"},
      {kAsk + "native --verbose-mode", "no option '--verbose-mode'; offsim predict --help"},
      {kAsk + "native --gpus 2", "native is modelled on one GPU"},
      {kAsk + "fsdp2-offload --gpus 2", "gpus is 2, and h200-pcie5 has 1"},
      {"predict --model gpt2 --hardware dgx-spark --plan fsdp2-offload --gpus 2",
       "gpus is 2, and dgx-spark has 1"},
      {kAsk + "fsdp2-offload --gpus 0", "gpus is '0'"},
      {kAsk + "fsdp2-offload --gpus 1.5", "gpus is '1.5'"},
      {"predict --model gpt2 --hardware mi300x-server --plan fsdp2-offload --gpus 9",
       "gpus is 9, and mi300x-server has 8"},
      {"predict --model gpt2 --hardware mi300x-server --plan fsdp2-offload --gpus 2",
       "collectives between the GPUs of mi300x-server are not modelled"},
      {"predict --model mixtral-8x7b --hardware dgx-a100 --plan fsdp2-offload --gpus 2",
       "fsdp2-offload does not run a mixture of experts"},
      {kAsk + "native extra", "'extra' was not expected"},
      {kAsk + "native --plan native", "--plan is given twice"},
      {kAsk + "native --json a --json b", "--json is given twice"},
      {"predict --hardware h200-pcie5 --model", "--model has no value"},
      {kAsk + "native --micro-batch", "--micro-batch has no value"},
      {kAsk + "native --set", "--set has no value"},
      {kAsk + "native --json ''", "--json is empty"},
      {kAsk + "native --trace ''", "--trace is empty"},
      {kAsk + "native --catalog ''", "--catalog is empty"},
      {"predict --hardware h200-pcie5 --plan native --model ''", "--model is empty"},
      {"run", "SCENARIO is missing"},
      {"catalog", "WHAT is missing"},
      {"dag", "FILE is missing"},
      {"predict compare", "'compare' was not expected"},
  });
}

TEST_F(BadInput, NamesOfTheCatalog) {
  check({
      {kAsk + "nativ", "no plan 'nativ'; did you mean 'native'?"},
      {kAsk + "all", "predict takes one plan and one machine"},
      {kAsk + "native,megatrain", "predict takes one plan and one machine"},
      {kAsk + "native,native", "--plans names native twice"},
      {kAsk + "native,", "has an empty name"},
      {kModel + "gpt3", "no model 'gpt3'; did you mean 'gpt2'?"},
      {kModel + "unheard-of", "expected one that offsim catalog models lists, or a path such as "},
      {kModel + "qwen2.5-8b", "did you mean 'qwen2.5-"},
      {kHardware + "h200-pci5", "no machine 'h200-pci5'; did you mean 'h200-pcie5'?"},
      {kHardware + "h200-pcie5,gh200-480gb", "predict takes one plan and one machine"},
      {"compare --model gpt2 --hardware h200-pcie5,,dgx-2", "has an empty name"},
      {"compare --model gpt2 --hardware h200-pcie5 --plans native,megatrian",
       "did you mean 'megatrain'?"},
      {"catalog hardwar", "no catalog of 'hardwar'; did you mean 'hardware'?"},
      {"catalog hardware h200-pci5", "did you mean 'h200-pcie5'?"},
      {"catalog models gpt3", "did you mean 'gpt2'?"},
      {"catalog options nativ", "did you mean 'native'?"},
      {"catalog plans nativ", "did you mean 'native'?"},
      {"catalog hardware h200-pcie5 more", "'more' was not expected"},
      {"run gh20", "no scenario 'gh20'; did you mean 'gh200'?"},
      {"validate nope", "no measured steps 'nope'"},
      {kAsk + "native --catalog missing", "missing: is not a catalog"},
      {kAsk + "native --catalog nothing", "nothing: is not a catalog"},
      {kAsk + "native --catalog s_empty.yaml", "s_empty.yaml: is not a catalog"},
  });
}

TEST_F(BadInput, Work) {
  check({
      {kAsk + "native --micro-batch 0", "micro_batch is '0'"},
      {kAsk + "native --micro-batch -8", "micro_batch is '-8'"},
      {kAsk + "native --micro-batch 1.5", "micro_batch is '1.5'"},
      {kAsk + "native --micro-batch eight", "micro_batch is 'eight'"},
      {kAsk + "native --micro-batch 99999999999999999999", "micro_batch is"},
      {kAsk + "native --micro-batch-limit 4", "micro_batch_limit has no effect"},
      {kAsk + "native --micro-batch largest --micro-batch-limit 0", "micro_batch_limit is '0'"},
      {kAsk + "native --sequence 0", "sequence is '0'"},
      {kAsk + "native --sequence 1025", "expected at most the 1024 positions of gpt2"},
      {kModel + "gpt2 --sequence 1e3", "sequence is '1e3'"},
      {kModel + "qwen2.5-7b --micro-batch 1000000 --sequence 10000000", "more than 1e12 tokens"},
      {kAsk + "native --accumulation 0", "accumulation is '0'"},
      {kAsk + "native --accumulation 5000", "accumulation is '5000'"},
      {kAsk + "native --checkpointing ful", "did you mean 'full'?"},
      {kAsk + "native --precision bf61", "did you mean 'bf16'?"},
      {kAsk + "native --precision int4", "expected one of bf16-mixed, bf16, fp16-mixed, fp32"},
      {kAsk + "native --price 3.35", "'3.35' has no unit; expected a price such as '3.35 USD/h'"},
      {kAsk + "native --price -3USD/h", "negative"},
      {kAsk + "native --price 3EUR/h", "3EUR/h"},
      {kAsk + "native --tokens 0", "'0' is no budget"},
      {kAsk + "native --tokens -5M", "negative"},
      {kAsk + "native --tokens 10X", "10X"},
      {kAsk + "native --tokens nan", "nan"},
      {kAsk + "native --tokens inf", "inf"},
      {kAsk + "megatrain --precision fp32", "megatrain does not run in fp32"},
      {kAsk + "zero2-offload --precision bf16", "zero2-offload does not run in bf16"},
  });
}

TEST_F(BadInput, OptionsOfPlans) {
  check({
      {kAsk + "native --set ''", "--set is empty"},
      {kAsk + "native --set native", "--set 'native' sets nothing; expected PLAN.OPTION=VALUE"},
      {kAsk + "native --set =1", "sets nothing"},
      {kAsk + "native --set .gradient_clipping=true", "sets nothing"},
      {kAsk + "native --set native.=true", "sets nothing"},
      {kAsk + "native --set gradient_clipping=true", "sets nothing"},
      {kAsk + "native --set megatrain.variant=code", "is of a plan that does not run"},
      {kAsk + "native --set nativ.gradient_clipping=true", "did you mean 'native'?"},
      {kAsk + "native --set native.gradient_cliping=true", "did you mean 'gradient_clipping'?"},
      {kAsk + "native --set native.gradient_clipping=yes", "expected true or false"},
      {kAsk + "native --set native.gradient_clipping=", "native.gradient_clipping is ''"},
      {kAsk + "native --set native.gradient_clipping=true --set native.gradient_clipping=true",
       "native.gradient_clipping is given twice"},
      {kAsk + "megatrain --set megatrain.checkpoint_interval=0",
       "expected a whole number of layers from 1"},
      {kAsk + "megatrain --set megatrain.checkpoint_interval=-3",
       "megatrain.checkpoint_interval is '-3'"},
      {kAsk + "megatrain --set megatrain.checkpoint_interval=1e99",
       "checkpoint_interval is '1e99'"},
      {kAsk + "megatrain --set megatrain.variant=papr", "did you mean 'paper'?"},
      {kAsk + "zero2-offload --set zero2-offload.deepspeed_version=new", "expected a version"},
      {"compare --model gpt2 --hardware h200-pcie5 --plans native --set megatrain.variant=code",
       "is of a plan that does not run"},
  });
}

TEST_F(BadInput, Outputs) {
  check({
      {kAsk + "native --json no/such/folder/x.json", "no/such/folder/x.json: cannot be written"},
      {kAsk + "native --json nothing", "nothing: cannot be written"},
      {kAsk + "native --json s_empty.yaml/x.json", "cannot be written"},
      {kAsk + "native --trace no/such.json", "no/such.json: cannot be written"},
      {kAsk + "native --program no/such.jsonl", "no/such.jsonl: cannot be written"},
      {kAsk + "native --json - --trace no/such.json", "no/such.json: cannot be written"},
      {kAsk + "native --json x --trace x", "--json and --trace both write to 'x'"},
      {kAsk + "native --trace - --program -", "--trace and --program both write to '-'"},
      {kAsk + "native --json - --explain", "--explain has no effect"},
      {kAsk + "native --trace - --memory", "--memory has no effect"},
      {kAsk + "native --json - --tokens 1M", "--tokens has no effect"},
      {"compare --model gpt2 --hardware h200-pcie5 --json no/x", "no/x: cannot be written"},
      {"run gh200 --json no/x", "no/x: cannot be written"},
  });
}

TEST_F(BadInput, FilesOfModels) {
  check({
      {kModel + "missing.json", "command line: there is no file 'missing.json'"},
      {kModel + "folder.json", "folder.json: there is no config.json in this folder"},
      {kModel + "pipe.json", "pipe.json: this is a device or a pipe"},
      {kModel + "/dev/zero", "/dev/zero: this is a device or a pipe"},
      {kModel + "gigabyte.json", "gigabyte.json: 1000000000 bytes are too many"},
      {kModel + "empty.json", "empty.json"},
      {kModel + "truncated.json", "truncated.json:1:"},
      {kModel + "list.json", "list.json"},
      {kModel + "comment.json", "comment.json:1:"},
      {kModel + "twice.json", "model_type"},
      {kModel + "binary.json", "binary.json"},
      {kModel + "nul.json", "nul.json"},
      {kModel + "deep.json", "deep.json"},
      {kModel + "heads.json", "heads.json:2:58: num_attention_heads 3 does not divide"},
      {kModel + "kv.json", "num_key_value_heads"},
      {kModel + "mixture.json", "mixture.json:1:"},
      {kModel + "t5.json", "t5"},
      {kModel + "no_type.json", "model_type"},
      {kModel + "negative.json", "num_hidden_layers"},
      {kModel + "absurd.json", "absurd.json:"},
      {kModel + "fraction.json", "num_hidden_layers"},
  });
}

TEST_F(BadInput, FilesOfHardware) {
  check({
      {kHardware + "missing.yaml", "command line: there is no file 'missing.yaml'"},
      {kHardware + "folder.yaml", "folder.yaml: this is a folder"},
      {kHardware + "pipe.yaml", "pipe.yaml: this is a device or a pipe"},
      {kHardware + "gigabyte.yaml", "bytes are too many"},
      {kHardware + "s_empty.yaml", "s_empty.yaml"},
      {kHardware + "truncated.yaml", "truncated.yaml:2:"},
      {kHardware + "unknown.yaml", "unknown.yaml:7:1"},
      {kHardware + "twice.yaml", "twice.yaml:3:1"},
      {kHardware + "part.yaml", "did you mean 'h200'?"},
      {kHardware + "unit.yaml", "'128' has no unit"},
      {kHardware + "negative.yaml", "negative"},
      {kHardware + "source.yaml", "dream"},
      {kHardware + "gpus.yaml", "gpus.yaml:2:"},
      {kHardware + "bomb.yaml", "bomb.yaml:1:"},
      {kHardware + "deep.yaml", "deep.yaml"},
      {kHardware + "binary.yaml", "binary.yaml"},
      {kHardware + "nul.yaml", "nul.yaml"},
      {kHardware + "tabs.yaml", "tabs.yaml:2:"},
  });
}

TEST_F(BadInput, FilesOfScenarios) {
  check({
      {"run missing.yaml", "missing.yaml: no such file"},
      {"run folder.yaml", "folder.yaml: this is a folder"},
      {"run pipe.yaml", "pipe.yaml: this is a device or a pipe"},
      {"run gigabyte.yaml", "bytes are too many"},
      {"run s_empty.yaml", "s_empty.yaml"},
      {"run s_models.yaml", "s_models.yaml:1:8: model is an empty list"},
      {"run s_plans.yaml", "s_plans.yaml:3:8: no plan is named"},
      {"run s_no_plans.yaml", "plans"},
      {"run s_key.yaml", "did you mean 'workload'?"},
      {"run s_plan.yaml", "s_plan.yaml:3:9: there is no plan 'nativ'; did you mean 'native'?"},
      {"run s_option.yaml", "s_option.yaml:3:"},
      {"run s_plan_twice.yaml", "s_plan_twice.yaml:3:"},
      {"run s_value.yaml", "s_value.yaml:3:"},
      {"run s_list_value.yaml", "s_list_value.yaml:3:"},
      {"run s_work.yaml", "s_work.yaml:4:25: micro_batch is '-1'"},
      {"run s_work_key.yaml", "did you mean 'micro_batch'?"},
      {"run s_sweep_key.yaml", "sweep has no key 'batch'"},
      {"run s_sweep_empty.yaml", "micro_batch is an empty list"},
      {"run s_sweep_list.yaml", "sweep is not a map"},
      {"run s_sweep_huge.yaml", "s_sweep_huge.yaml:4:9: the scenario has 20,301 cases"},
      {"run s_published.yaml", "s_published.yaml:4:"},
      {"run s_documents.yaml", "s_documents.yaml:4:"},
      {"run s_tag.yaml", "s_tag.yaml:3:"},
      {"run gh200 s_plan.yaml", "s_plan.yaml:3:9"},
  });
}

TEST_F(BadInput, FilesOfGraphs) {
  check({
      {"dag missing.dag", "missing.dag: no such file"},
      {"dag nothing", "nothing: this is a folder"},
      {"dag pipe.dag", "pipe.dag"},
      {"dag gigabyte.dag", "gigabyte.dag:1:"},
      {"dag word.dag", "word.dag:1:1"},
      {"dag kind.dag", "kind.dag:2:3"},
      {"dag resource.dag", "resource.dag:2:8"},
      {"dag rate.dag", "rate.dag:1:18"},
      {"dag dep.dag", "dep.dag:2:"},
      {"dag self.dag", "self.dag:2:"},
      {"dag amount.dag", "amount.dag:2:10"},
      {"dag id_twice.dag", "id_twice.dag:3:1"},
      {"dag huge.dag", "huge.dag:2:10"},
      {"dag binary.dag", "binary.dag:1:"},
  });
}

}  // namespace
}  // namespace offsim::cli::bad_input_test
