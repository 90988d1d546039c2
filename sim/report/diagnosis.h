// A diagnosis as text and as JSON (schema offsim.diagnosis/1).
//
// Ratios are measured over expected. A row of a suspect shows measured over what is predicted with
// it: the nearer to 1 the better it explains the log.
#pragma once

#include <string>

#include "sim/report/text.h"
#include "sim/study/diagnose.h"

namespace offsim::report {

std::string diagnosis_text(const study::Diagnosis& diagnosis, const logs::Log& log,
                           const TextStyle& style = {});
std::string diagnosis_json(const study::Diagnosis& diagnosis, const logs::Log& log);

}  // namespace offsim::report
