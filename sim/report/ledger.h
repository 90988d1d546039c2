// The memory ledger for people: a table a pool, a row a tag, a column a phase, in GiB; the last
// column is what the tag takes at the pool's largest peak, in bytes a parameter of the model.
#pragma once

#include <string>

#include "sim/report/text.h"
#include "sim/study/memory_ledger.h"

namespace offsim::report {

std::string ledger_text(const plans::Job& job, const study::Prediction& prediction,
                        const study::MemoryLedger& ledger, const TextStyle& style = {});

}  // namespace offsim::report
