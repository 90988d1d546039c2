// Accelerate's YAML (accelerate config): its DeepSpeed keys, flat or in a file of their own, and
// its FSDP ones.
//
// deepspeed_config's flat keys become the DeepSpeed configuration that Accelerate makes of them,
// with the places of the YAML. fsdp_config is fsdp2-offload, or native without offload; version 1
// is taken as version 2. zero3_init_flag false: every process loads the whole model.
// The Trainer's precision wins over the YAML's, and with FSDP its accumulation, too.
#pragma once

#include "sim/import/deepspeed.h"

namespace offsim::imports {

bool is_accelerate(const Node& root);
// `folder`: of the YAML, where deepspeed_config_file begins.
void read_accelerate(const Node& root, const std::string& folder, Around around, Findings& findings,
                     study::GivenPlan& plan, study::GivenWorkload& workload);

// Throws InputError for a file that is another tool's, with what to do.
void refuse_other_tools(const Node& root);

}  // namespace offsim::imports
