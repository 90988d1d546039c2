// What a person could change about a job: a candidate for each knob that there is.
//
// An edit is one change, or two that belong together ("checkpointing full" and the micro-batch that
// it makes room for). Options of plans come from a table of rules (edits.cpp): which option, which
// values, why one would; a plan's OptionSpec says whether it has the option, and what its values
// are. Work, other plans and other machines are rules of their own. Whether an edit helps is not
// said here: study/advise.h simulates each.
// Left out, since the model learns something else then: precision, sequence, adapters, clipping,
// ZenFlow's share of columns. A larger micro-batch or accumulation changes the tokens of an update
// and is tried, since that is what people do. Not modelled: threads of
// Adam and their binding, selective checkpointing, a loader's prefetching.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sim/machine/machine.h"
#include "sim/plans/job.h"
#include "sim/study/catalog.h"

namespace offsim::study {

struct Change {
  std::string setting;  // "micro_batch", "pin_memory", "plan", "hardware"
  std::string from, to;
  friend bool operator==(const Change&, const Change&) = default;
};

struct Edit {
  enum class Kind : std::uint8_t { kSetting, kPlan, kMachine };
  Kind kind = Kind::kSetting;
  std::vector<Change> changes;
  std::string why;       // what one hopes for: a phrase
  int size = 1;          // how large a change it is for a person; 1 is a word in a file
  bool largest = false;  // its micro-batch is still to be searched: the largest that fits
  plans::Job job;        // with the edit

  bool changes_setting(std::string_view setting) const;
};

// The steps that an edit may take the tokens of a micro-batch to: more never fit.
inline constexpr std::int64_t kMostTokensOfMicroBatch = 64'000'000;

// Edits of `job`, those of settings in the order in which the usual advice has them, then plans,
// then `machines`. None leaves the job as it is.
std::vector<Edit> edits_of(const plans::Job& job, const std::vector<machine::Machine>& machines);

// The machines of the catalog that have the same accelerator as `here`, and those whose link is
// coherent: what another host or another link would do.
std::vector<machine::Machine> other_machines(const Catalog& catalog, const machine::Machine& here);

// `job` with one option changed. Throws InputError for what Options::set refuses.
plans::Job with_option(const plans::Job& job, std::string_view option, std::string_view value);

// For tests: whether a rule tries the option, or says why none does.
bool is_considered(std::string_view option);

}  // namespace offsim::study
