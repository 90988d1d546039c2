// The activities of a predicted job: when was what done?
#pragma once

#include <gtest/gtest.h>

#include <string_view>

#include "tests/plans/jobs.h"

namespace offsim::plans {

using engine::Picoseconds;
using runtime::Cause;

// The activities of a run, in issue order, by label and cause. All of the first step come first.
class Activities {
 public:
  explicit Activities(const Job& job) : done_(predicted(job)) {}

  std::size_t nth(std::string_view label, Cause cause, int n) const {
    return find(
        0, [&](std::size_t i) { return label_of(i) == label && cause_of(i) == cause && n-- == 0; });
  }
  // The first one from `from` on that matches.
  template <class Matches>
  std::size_t find(std::size_t from, Matches matches) const {
    for (std::size_t i = from; i < done_.run.lowered.graph.size(); ++i) {
      if (matches(i)) {
        return i;
      }
    }
    ADD_FAILURE() << "no such activity";
    return 0;
  }

  std::string_view label_of(std::size_t i) const {
    return done_.run.lowered.graph.label(engine::ActivityId(i));
  }
  Cause cause_of(std::size_t i) const { return Cause(done_.run.lowered.graph.causes()[i]); }
  std::uint32_t lane_of(std::size_t i) const { return done_.run.lowered.lane[i]; }
  Picoseconds start(std::size_t i) const { return done_.run.timeline.start[i]; }
  Picoseconds finish(std::size_t i) const { return done_.run.timeline.finish[i]; }

 private:
  Predicted done_;
};

}  // namespace offsim::plans
