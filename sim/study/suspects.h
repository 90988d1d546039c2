// The things that diagnose() tries.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "sim/study/diagnose.h"

namespace offsim::study {

// One way of something to be wrong, in one strength.
struct Trial {
  Suspect suspect;  // without times
  plans::Job job;
};
// `log`: what rules a suspect out, or shows it.
std::vector<Trial> trials(const plans::Job& job, const logs::Log& log);

// Those that need no prediction of their own: time between the steps, skipped updates, swapping.
std::vector<Suspect> arithmetic_suspects(const Diagnosis& diagnosis, const Prediction& expected,
                                         const logs::Log& log);

}  // namespace offsim::study
