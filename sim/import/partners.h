// What stands beside ZeRO in a DeepSpeed configuration: other ways to be parallel, to compile, to
// cast; DeepSpeed's activation checkpointing and its asynchronous I/O. What is on and not modelled
// is refused or warned of; a block that says it is off changes nothing.
#pragma once

#include "sim/import/block.h"

namespace offsim::imports {

void read_partners(const Block& top, const Block& activation, const Block& aio, Findings& findings);

}  // namespace offsim::imports
