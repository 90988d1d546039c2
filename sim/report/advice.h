// Advice for people and for scripts (schema offsim.advice/1): what is gained, what is not, what
// does not fit, and how near the job is to what its machine can do.
#pragma once

#include <string>

#include "sim/report/text.h"
#include "sim/study/advise.h"

namespace offsim::report {

std::string advice_text(const plans::Job& job, const study::Advice& advice,
                        const TextStyle& style = {});
std::string advice_json(const plans::Job& job, const study::Advice& advice);

}  // namespace offsim::report
