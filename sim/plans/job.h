// One question: this model, this work, this machine, this plan with these options.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/config.h"
#include "sim/machine/machine.h"
#include "sim/model/shape.h"
#include "sim/model/work.h"

namespace offsim::plans {

// bf16-mixed: fp32 parameters under autocast, or a 16-bit model with fp32 masters where the system
// keeps those. bf16: parameters, gradients and Adam states all 16-bit. fp16-mixed as bf16-mixed
// with fp16. With adapters: fp32 ones over a 16-bit model (PEFT's autocast_adapter_dtype), or
// 16-bit ones; DeepSpeed makes them 16-bit in both.
enum class Precision : std::uint8_t { kBf16Mixed, kBf16, kFp16Mixed, kFp32 };
enum class Checkpointing : std::uint8_t { kNone, kFull };

std::string_view to_string(Precision precision);
// Saved tensors in host memory, by hooks on them: torch.autograd.graph.save_on_cpu without and with
// pin_memory; or on a stream of their own (torchtune's OffloadActivations).
enum class ActivationOffload : std::uint8_t { kNone, kSaveOnCpu, kSaveOnCpuPinned, kStreamed };

std::string_view to_string(Checkpointing checkpointing);
std::string_view to_string(ActivationOffload offload);

struct Workload {
  std::int64_t micro_batch = 1;   // sequences a GPU
  std::int64_t sequence = 1024;   // tokens
  std::int64_t accumulation = 1;  // micro-batches a step
  std::int64_t gpus = 1;          // data-parallel ranks, one process and one GPU each
  Checkpointing checkpointing = Checkpointing::kNone;
  Precision precision = Precision::kBf16Mixed;
  ActivationOffload activation_offload = ActivationOffload::kNone;
  bool phase_sync = false;  // the training loop synchronises between forward, backward and step
  // A data loader beside each process's loop, all the time: so many cores busy, so much of DRAM's
  // bandwidth.
  std::int64_t loader_workers = 0;
  BytesPerSecond loader_bandwidth = {};

  model::Batch batch() const { return {micro_batch, sequence}; }
  std::int64_t tokens_per_step() const { return micro_batch * sequence * accumulation * gpus; }
};

// An option of a plan, named and valued as in the real system.
struct OptionSpec {
  enum class Kind : std::uint8_t { kFlag, kCount, kChoice, kVersion, kNumber };
  std::string_view name;
  Kind kind = Kind::kFlag;
  std::string_view fallback;  // the default, as text; "by version" where it depends on one
  std::string_view unit;      // "elements", "layers"; empty for flags and choices
  std::string_view effect;    // one sentence
  std::vector<std::string> choices = {};
  std::int64_t least = 0;                     // kCount, kNumber
  std::int64_t most = 1'000'000'000'000'000;  // kCount, kNumber
};

// Values of a plan's options: those given and the defaults of the rest. Checked when they are set.
class Options {
 public:
  explicit Options(const std::vector<OptionSpec>& specs, std::string_view plan);

  // Throws InputError at `place` for an unknown name (with the nearest), or a value that is not of
  // the option's kind; a quoted one is a text, and no number and no flag.
  void set(std::string_view name, std::string_view value, const Place& place, bool quoted = false);

  // A copy with one option changed; what is its default counts as not given. Throws as set() does.
  Options with(std::string_view name, std::string_view value) const;

  bool has(std::string_view name) const;  // the plan lists it
  bool given(std::string_view name) const;
  Place place(std::string_view name) const;  // of a given value
  bool flag(std::string_view name) const;
  bool flag(std::string_view name, bool by_version) const;  // the default where it is "by version"
  std::int64_t count(std::string_view name) const;
  std::int64_t count(std::string_view name, std::int64_t automatic) const;  // where it is "auto"
  double number(std::string_view name) const;
  const std::string& text(std::string_view name) const;
  // 0.14.5 as 14005, 0.19.6 as 19006: comparable.
  std::int64_t version(std::string_view name) const;
  // Every option with its value and origin, in the order of the table.
  Origins origins() const;

 private:
  struct Value {
    const OptionSpec* spec;
    std::string text;
    bool given = false;
    Place place;
  };
  const Value& value(std::string_view name) const;

  std::string plan_;
  std::map<std::string, Value, std::less<>> values_;
  std::vector<std::string> order_;
};

struct Plan;

struct Job {
  model::Shape shape;
  Workload workload;
  machine::Machine machine;
  const Plan* plan = nullptr;
  Options options;
};

}  // namespace offsim::plans
