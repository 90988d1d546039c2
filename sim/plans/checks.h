// What the checks of plans share: refusals and warnings in one wording.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "sim/plans/job.h"

namespace offsim::plans {

// What no plan models, or nothing comes of, and the question asks for: a sequence beyond what the
// model declares, a sliding window shorter than the sequence, activations in the host memory of a
// machine that has one memory, fewer GPUs than the machine has. Throws InputError for more of them
// than it has, or than the plan models.
std::vector<std::string> check_question(const Job& job);

// Throws InputError when the workload's precision is another; `expected` names these, and why.
void require_precision(const Job& job, std::initializer_list<Precision> allowed,
                       std::string_view expected);

// Throws InputError for a mixture of experts; `why` the plan does not run one.
void refuse_experts(const Job& job, std::string_view why);

// Throws InputError when the question has adapters; `why` the plan does not.
void refuse_adapters(const Job& job, std::string_view why);

// The same of saved tensors in host memory.
void refuse_activation_offload(const Job& job, std::string_view why);

// Throws InputError when the frozen parameters are 8-bit ones, which no system shards: only 4-bit
// ones are kept in storage of the other parameters' type.
void refuse_int8(const Job& job);

// Throws InputError, at the option that asked for it if one did, on a machine without a drive.
void require_drive(const Job& job, std::string_view option = {});

// Whether one of the lines says that the setting, without its plan's name, has no effect.
bool without_effect(const std::vector<std::string>& warnings, std::string_view setting);

// A line for each of the options that was given: it does nothing, and why.
void warn_without_effect(std::vector<std::string>& warnings, const Job& job, std::string_view why,
                         std::initializer_list<std::string_view> options);

}  // namespace offsim::plans
