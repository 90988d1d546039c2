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

#include <functional>
#include <optional>
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

// What it does to a job, and what it is called.
struct Edit {
  std::vector<Change> changes = {};
  std::vector<std::function<void(plans::Job&)>> apply = {};
  std::string why = "";  // what one hopes for: a phrase
  int size = 1;          // how large a change it is for a person; 1 is a word in a file
  bool largest = false;  // its micro-batch is still to be searched: the largest that fits

  plans::Job of(plans::Job job) const;  // the job with the edit
  bool changes_setting(std::string_view setting) const;
  bool of_settings() const;  // neither the plan nor the machine
};

// Both, where they change different settings; nothing where options of one plan meet another plan.
std::optional<Edit> together(const Edit& first, const Edit& second);

// Edits of `job`, those of settings in the order in which the usual advice has them, then plans,
// then `machines`. None leaves the job as it is, and a question can ask for each (limits.h).
std::vector<Edit> edits_of(const plans::Job& job, const std::vector<machine::Machine>& machines);

// The machines of the catalog that have the same accelerator as `here`, and those whose link is
// coherent: what another host or another link would do.
std::vector<machine::Machine> other_machines(const Catalog& catalog, const machine::Machine& here);

// For tests: whether a rule tries the option, or says why none does.
bool is_considered(std::string_view option);

}  // namespace offsim::study
