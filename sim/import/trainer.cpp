#include "sim/import/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "sim/base/config.h"
#include "sim/base/text.h"
#include "sim/import/argument_names.h"
#include "sim/import/block.h"

namespace offsim::imports {

namespace {

using study::Given;

const Place kHere{"--trainer", 0, 0};

constexpr std::array<std::string_view, 4> kMegatrons{
    "optimizer-cpu-offload", "optimizer-offload-fraction", "overlap-cpu-optimizer-d2h-h2d",
    "use-precision-aware-optimizer"};

constexpr const char* kLeftToTheTrainer =
    "read where a DeepSpeed configuration leaves it to the Trainer, and none does";
constexpr const char* kLauncher =
    "not read: expected Accelerate's YAML, or DeepSpeed's file, as --ds-config";

// Names that are read; the others say why not, which is warned of where they are not false.
const std::map<std::string, std::string>& arguments() {
  static const std::map<std::string, std::string> kNames{
      {"per_device_train_batch_size", ""},
      {"per_gpu_train_batch_size", ""},
      {"gradient_accumulation_steps", ""},
      {"max_grad_norm", kLeftToTheTrainer},
      {"bf16", ""},
      {"fp16", ""},
      {"gradient_checkpointing", ""},
      {"deepspeed", ""},
      {"max_seq_length", ""},
      {"max_length", ""},
      {"cutoff_len", ""},
      {"model_max_length", ""},
      {"block_size", ""},
      {"optim", kLeftToTheTrainer},
      {"dataloader_num_workers", ""},
      {"mixed_precision", kLauncher},
      {"use_deepspeed", kLauncher},
      {"zero_stage", kLauncher},
      {"offload_optimizer_device", kLauncher},
      {"offload_param_device", kLauncher},
      {"use_fsdp", kLauncher},
      {"fsdp_offload_params", kLauncher},
      {"activation_offloading", ""},
      {"num_processes", ""},
      {"num_gpus", ""},
      {"nproc_per_node", ""},
      {"use_peft", ""},
      {"lora_r", ""},
      {"lora_rank", ""},
      {"load_in_4bit", ""},
      {"load_in_8bit", ""},
      {"torch_compile", "not modelled: kernels are PyTorch's eager ones"},
      {"fsdp", "not read: name the plan, --plan fsdp2-offload, or Accelerate's file"}};
  return kNames;
}

// As the Trainer takes words; an argument alone is true.
bool to_flag(const std::string& name, const Given& given) {
  const std::string word = lower(given.text);
  const auto is = [&](std::initializer_list<std::string_view> words) {
    return std::ranges::find(words, word) != words.end();
  };
  if (!is({"", "true", "t", "yes", "y", "1", "false", "f", "no", "n", "0"})) {
    throw InputError(given.place, fmt::format("--{} is '{}'", name, printable(given.text, 60)),
                     "expected true or false");
  }
  return is({"", "true", "t", "yes", "y", "1"});
}

// Of transformers, TRL, LLaMA-Factory or a launcher; "no_" before what is true by itself.
bool is_argument(const std::string& name) {
  return argument_names().contains(name) ||
         (name.starts_with("no_") && argument_names().contains(name.substr(3)));
}

// Those that are read come first: the nearest of two is one that matters.
std::string nearest_argument(const std::string& name) {
  std::vector<std::string> known;
  for (const auto& [argument, effect] : arguments()) {
    known.push_back(argument);
  }
  known.insert(known.end(), argument_names().begin(), argument_names().end());
  return nearest(name, known);
}

// Words as a shell makes them, quotes taken away.
std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  std::string word;
  bool open = false;
  char quote = '\0';
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (quote != '\0') {
      if (c == quote) {
        quote = '\0';
      } else {
        word += c;
      }
    } else if (c == '"' || c == '\'') {
      quote = c;
      open = true;
    } else if (c == '\\' && at + 1 < text.size()) {
      ++at;
      word += text[at] == '\n' ? "" : text.substr(at, 1);
    } else if (c == ' ' || c == '\t' || c == '\n') {
      if (open || !word.empty()) {
        words.push_back(std::move(word));
      }
      word.clear();
      open = false;
    } else {
      word += c;
    }
  }
  if (quote != '\0') {
    throw InputError(kHere, "a quote has no end", fmt::format("expected {} at its end", quote));
  }
  if (open || !word.empty()) {
    words.push_back(std::move(word));
  }
  return words;
}

bool is_file(const std::string& text) {
  return text.find(' ') == std::string::npos && !text.starts_with("-") &&
         (text.ends_with(".yaml") || text.ends_with(".yml") || text.ends_with(".json"));
}

}  // namespace

Trainer::Trainer(const std::string& arguments, Findings& findings) : findings_(&findings) {
  if (is_file(arguments)) {
    read_file(arguments);
  } else {
    read_words(arguments);
  }
  list();
}

void Trainer::read_words(const std::string& arguments) {
  const std::vector<std::string> words = words_of(arguments);
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (!words[i].starts_with("--")) {
      warn_of_word(words[i]);
      continue;
    }
    const std::size_t equals = words[i].find('=');
    std::string name = words[i].substr(2, equals == std::string::npos ? equals : equals - 2);
    std::string value = equals == std::string::npos ? "" : words[i].substr(equals + 1);
    if (equals == std::string::npos && i + 1 < words.size() && !words[i + 1].starts_with("--")) {
      value = words[++i];
    }
    add(name, {value, kHere});
  }
  if (!words.empty() && order_.empty()) {
    throw InputError(kHere, fmt::format("'{}' has no argument", printable(arguments, 60)),
                     "expected --name value ..., or a .yaml or .json file of them");
  }
}

// The program, its own words, and the second value of an argument that takes several are passed
// over; an argument without its "--" is none.
void Trainer::warn_of_word(const std::string& word) {
  const std::size_t dashes = word.starts_with('-') ? 1 : 0;
  const std::string name = word.substr(dashes, word.find('=') - dashes);
  if (arguments().contains(name) && (dashes == 1 || !order_.empty())) {
    findings_->warn(kHere, fmt::format("'{}' is no argument, and not read; did you mean --{}?",
                                       printable(word, 60), name));
  }
}

void Trainer::read_file(const std::string& path) {
  const Node root = load_document(path);
  const View map(root, "");
  for (std::size_t i = 0; i < root.keys.size(); ++i) {
    const Node& item = root.items[i];
    add(root.keys[i],
        {item.kind == Node::Kind::kScalar ? item.scalar : "(not a single value)", item.place});
  }
}

void Trainer::add(const std::string& name, const Given& value) {
  if (std::ranges::count(kMegatrons, name) > 0) {
    throw InputError(value.place, fmt::format("--{} is Megatron's", name),
                     "expected the Trainer's arguments: Megatron's offload is not modelled");
  }
  std::string folded = name;
  std::ranges::replace(folded, '-', '_');
  if (const auto found = values_.find(folded); found != values_.end()) {
    findings_->warn(value.place, fmt::format("--{} is given twice: the last counts", folded));
    found->second = value;
    return;
  }
  order_.push_back(folded);
  values_.emplace(folded, value);
}

void Trainer::list() {
  for (const std::string& name : order_) {
    const Given& value = values_.at(name);
    const auto found = arguments().find(name);
    const std::string shown = printable(name, 60);
    const bool known = is_argument(name) || found != arguments().end();
    listed_[name] = findings_->add(
        {"--" + shown, value.text.empty() ? "true" : printable(value.text, 60), value.place.text(),
         found != arguments().end() ? found->second
         : known                    ? "not read: it is none of those that offsim knows to change a "
                                      "step's time or memory"
                                    : "not read: no argument of the Trainer"});
    if (!known) {
      const std::string near = nearest_argument(name);
      findings_->warn(
          value.place,
          near.empty()
              ? fmt::format("--{} is no argument of the Trainer, and not read", shown)
              : fmt::format("--{} is no argument of the Trainer, and not read; did you mean --{}?",
                            shown, near));
    } else if (found != arguments().end() && !found->second.empty() &&
               found->second != kLeftToTheTrainer && lower(value.text) != "false") {
      findings_->warn(value.place, fmt::format("--{} is {}", name, found->second));
    }
  }
  if (flag("bf16") && flag("fp16")) {
    findings_->refuse(find("fp16")->place, "--bf16 and --fp16 are both true",
                      "expected one of them");
  }
}

const Given* Trainer::find(const std::string& name) const {
  const auto found = values_.find(name);
  return found == values_.end() ? nullptr : &found->second;
}

const Given* Trainer::take(const std::string& name) {
  const Given* const value = find(name);
  if (value != nullptr) {
    findings_->settings[listed_.at(name)].effect.clear();
  }
  return value;
}

bool Trainer::flag(const std::string& name) const {
  const Given* const value = find(name);
  return value != nullptr && to_flag(name, *value);
}

const Given* Trainer::any(std::initializer_list<const char*> names) const {
  for (const char* const name : names) {
    if (const Given* const value = find(name)) {
      return value;
    }
  }
  return nullptr;
}

std::optional<Given> Trainer::precision() const {
  for (const char* const name : {"bf16", "fp16"}) {
    if (flag(name)) {
      return Given{std::string(name) + "-mixed", find(name)->place};
    }
  }
  return std::nullopt;
}

void Trainer::read_adapters(study::GivenWorkload& work) const {
  const Given* const rank = any({"lora_r", "lora_rank"});
  const bool lora = rank != nullptr || flag("use_peft");
  if (!lora) {
    return;
  }
  // TRL's ModelConfig: rank 16 unless it is given.
  work.lora_rank = rank != nullptr ? *rank : Given{"16", find("use_peft")->place};
  if (flag("load_in_4bit")) {
    work.base = Given{"nf4", find("load_in_4bit")->place};
  } else if (flag("load_in_8bit")) {
    work.base = Given{"int8", find("load_in_8bit")->place};
  }
}

study::GivenWorkload Trainer::workload() const {
  study::GivenWorkload work;
  const auto give = [](const Given* value) -> std::optional<Given> {
    return value != nullptr ? std::optional(*value) : std::nullopt;
  };
  work.micro_batch = give(any({"per_device_train_batch_size", "per_gpu_train_batch_size"}));
  work.accumulation = give(find("gradient_accumulation_steps"));
  work.sequence =
      give(any({"max_seq_length", "max_length", "cutoff_len", "model_max_length", "block_size"}));
  work.loader_workers = give(find("dataloader_num_workers"));
  work.gpus = give(any({"num_processes", "num_gpus", "nproc_per_node"}));
  work.precision = precision();
  if (flag("gradient_checkpointing")) {
    work.checkpointing = Given{"full", find("gradient_checkpointing")->place};
  }
  if (flag("activation_offloading")) {
    work.activation_offload = Given{"streamed", find("activation_offloading")->place};
  }
  read_adapters(work);
  return work;
}

}  // namespace offsim::imports
