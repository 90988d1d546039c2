// DeepSpeed's keys, block by block: runtime/config.py, zero/config.py, zero/offload_config.py,
// zenflow/zenflow_config.py, precision_config.py, swap_tensor/constants.py of 0.19.6.
//
// A key's `effect` says why it has none on a predicted step, where that does not depend on others.
#pragma once

#include "sim/import/block.h"

namespace offsim::imports {

const BlockSpec& top_block();
const BlockSpec& zero_block();
const BlockSpec& offload_optimizer_block();
const BlockSpec& offload_param_block();
const BlockSpec& zenflow_block();
const BlockSpec& fp16_block();
const BlockSpec& bf16_block();
const BlockSpec& aio_block();
const BlockSpec& activation_block();
const BlockSpec& optimizer_block();

// Where a key is known that is not known in the block of that name: "at the top level", "in
// zero_optimization"; empty when nowhere.
std::string block_with(const std::string& key, std::string_view not_in);

}  // namespace offsim::imports
