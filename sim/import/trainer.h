// The arguments of Hugging Face's Trainer, and of tools that hand theirs on to it (TRL,
// LLaMA-Factory), as in the launch command: "--per_device_train_batch_size 4 --bf16 ..."; or a
// .yaml or .json file of them.
//
// Words before the first argument are the program's. What is not read is in the list of settings;
// what nobody knows (argument_names.h) is warned of.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "sim/import/findings.h"

namespace offsim::imports {

class Trainer {
 public:
  Trainer(const std::string& arguments, Findings& findings);

  const study::Given* find(const std::string& name) const;
  // What a configuration leaves to the Trainer: only then is it in force.
  const study::Given* take(const std::string& name);
  bool flag(const std::string& name) const;  // true, however it is written
  // The first of the names that is given.
  const study::Given* any(std::initializer_list<const char*> names) const;

  // Micro-batch, accumulation, sequence, precision, checkpointing, loader and adapters.
  study::GivenWorkload workload() const;
  // "bf16-mixed" and so on, nothing where no argument says.
  std::optional<study::Given> precision() const;

 private:
  void read_words(const std::string& arguments);
  void warn_of_word(const std::string& word);
  void read_file(const std::string& path);
  void add(const std::string& name, const study::Given& value);
  void list();
  void read_adapters(study::GivenWorkload& work) const;

  Findings* findings_;
  std::map<std::string, study::Given, std::less<>> values_;
  std::vector<std::string> order_;
  std::map<std::string, std::size_t, std::less<>> listed_;  // where in the findings' settings
};

}  // namespace offsim::imports
