// Pages of new memory: what they cost to get and to give back, and from which size the C library
// gets new ones each time.
#pragma once

#include "kernels/bench.h"

namespace offsim::kernels {

void page_touch(const Run& run);
void page_release(const Run& run);
void map_threshold(const Run& run);

}  // namespace offsim::kernels
