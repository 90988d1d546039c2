// Parts of stage 3's optimizer step that its plans share: zero3-offload, zero-infinity,
// superoffload (source: runtime/zero/stage3.py, step and what it calls).
#pragma once

#include <string>
#include <vector>

#include "sim/plans/stage3.h"

namespace offsim::plans {

// Refuses a precision that stage 3 does not run in; warns of fetch options where parameters stay on
// the GPU, and of a ratio that leaves no sub-group there.
std::vector<std::string> check_stage3(const Job& job);

// Norms of the gradients, a sub-group after the other; the host reads each.
void read_gradient_norms(runtime::Recorder& gpu, const Stage3& stage);

// Unscale, Adam and write-back of a sub-group whose states are on the GPU. Write-back to parameters
// on the CPU: a blocking copy that changes the type, 4 B a parameter into a new pageable temporary.
void update_on_gpu(runtime::Recorder& gpu, Stage3& stage, const SubGroup& group);

// After Adam on the CPU: a cast into the pinned copy; or, parameters being on the GPU, a blocking
// copy that changes the type. `threads` as for Recorder::cpu. Requires: not on the drive.
void write_back_from_cpu(runtime::Recorder& gpu, const Stage3& stage, const SubGroup& group,
                         int threads = 0);

}  // namespace offsim::plans
