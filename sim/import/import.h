// What people have already: DeepSpeed's configuration, Accelerate's, the Trainer's arguments;
// turned into a plan with its options, the work, and a list of every setting with what comes of it.
//
// Precedence: offsim's own flags, then the Trainer's arguments where the file says "auto", then the
// file, then the defaults of the system in its version. Read as DeepSpeed reads them (0.19.6,
// runtime/config.py, zero/config.py and the blocks that they name), the arithmetic of batches
// included. Where nothing but Hugging Face's Trainer could fill an "auto", it is taken as filled by
// it: sizes from the model's hidden size, the rest from its arguments.
//
// Refused (InputError): what DeepSpeed refuses, and what would change a step's time or memory and
// has no counterpart here. Warned of: what is accepted and does not do what it says, or is not
// modelled. All else is in the list, with the reason where it has no effect.
// Left out: schedules of batch sizes (elasticity), other optimizers than Adam, several GPUs.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sim/model/shape.h"
#include "sim/study/scenario.h"

namespace offsim::imports {

struct Setting {
  std::string key;     // as the file names it, with the path: "zero_optimization.stage"
  std::string value;   // in force
  std::string origin;  // "ds.json:3:12", "--trainer", "default of DeepSpeed 0.19.6"
  std::string effect;  // empty, or why it has none
};

// What a plan calls an option, and what the file does: "zero-infinity.param_buffer_size" is
// "zero_optimization.offload_param.buffer_size".
using Names = std::vector<std::pair<std::string, std::string>>;

struct Imported {
  std::string name;               // of the file, as given; empty without one
  study::GivenPlan plan;          // its name is empty where only the Trainer's arguments were given
  study::GivenWorkload workload;  // the flags' merged in
  std::vector<Setting> settings;  // the file's in its order, then the Trainer's, then defaults
  std::vector<std::string> warnings;
  Names names;

  // What a plan says, in the file's words; at the plan's place where it has none.
  std::string in_its_words(std::string text) const;
  InputError in_its_words(const InputError& refusal) const;
};

// Several mistakes in one file: what() is the last of them, the lines before it come first.
class Refused : public InputError {
 public:
  Refused(const InputError& last, std::vector<std::string> before)
      : InputError(last), before_(std::move(before)) {}
  const std::vector<std::string>& before() const { return before_; }

 private:
  std::vector<std::string> before_;
};

struct Ask {
  // The path of a DeepSpeed configuration (hjson), of an Accelerate one (.yaml), or DeepSpeed's
  // base64 text in place of a path.
  std::optional<std::string> config;
  // Arguments as in the launch command, or the path of a .yaml or .json file of them.
  std::optional<std::string> trainer;
  study::GivenWorkload flags;                    // of offsim's command line: they win
  std::optional<std::string> deepspeed_version;  // "0.14.5"; else the plans' own default
  const model::Shape* shape = nullptr;           // for what depends on the model's size
};

Imported import_question(const Ask& ask);

}  // namespace offsim::imports
