// What a question may ask for: the values of its keys, and how large a step is to simulate.
//
// A step is measured by its passes of a layer and its positions, both in proportion to the time and
// memory that simulating it takes, and by the bytes of a micro-batch's activations, which 64 bits
// have to count. Passes count more than once where tensors have hooks or weights have adapters.
#pragma once

#include <cstdint>

#include "sim/plans/job.h"

namespace offsim::study {

inline constexpr std::int64_t kMostGpus = 64;
inline constexpr std::int64_t kMostWorkers = 10'000;
inline constexpr std::int64_t kMostBatch = 1'000'000;
inline constexpr std::int64_t kMostSequence = 50'000'000;
inline constexpr std::int64_t kMostTokens = 1'000'000'000'000;  // a step
inline constexpr std::int64_t kMostAccumulation = 4096;
inline constexpr std::int64_t kMostRank = 65'536;

// What takes ten seconds and two gigabytes (zenflow, the largest: 160 kB a pass).
inline constexpr double kMostPasses = 12'000;         // of a layer, in a step
inline constexpr double kMostPositions = 50'000'000;  // of all micro-batches of a step
inline constexpr double kMostBytes = 1e18;            // of one micro-batch's activations

// What a search for the largest micro-batch counts as, in steps (the doublings to 32 and back; few
// questions take more, and their steps are small), and what it may take, in largest steps.
inline constexpr double kSearchSteps = 10;
inline constexpr double kMostOfSearch = 2;

struct StepSize {
  double weight = 1;  // how often a pass counts
  double passes = 0, positions = 0, bytes = 0;
  double share() const;  // of the largest step
};
StepSize step_size(const model::Shape& shape, const plans::Workload& work);

std::int64_t widest_ffn(const model::Shape& shape);

// Whether a question may ask for the job: no value is above what its key allows, the step not too
// large. What the plan refuses is another matter.
bool can_be_asked(const plans::Job& job);

// The same of a search for its largest micro-batch.
bool can_be_searched(const plans::Job& job);

}  // namespace offsim::study
