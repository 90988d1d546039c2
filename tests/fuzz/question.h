// What must hold of what became of a configuration, whatever was in it.
#pragma once

#include <string>

#include "sim/import/deepspeed.h"
#include "sim/plans/job.h"
#include "sim/plans/plan.h"
#include "tests/fuzz/document.h"

namespace offsim::fuzz {

inline void one_line(const std::string& text) {
  require(text.find('\n') == std::string::npos && text.find('\x1b') == std::string::npos);
}

// A refusal, or a plan that is there, whose options take what they are given or say why not.
inline void check(const imports::Findings& findings, const study::GivenPlan& plan) {
  for (const std::string& warning : findings.warnings) {
    one_line(warning);
  }
  for (const imports::Setting& s : findings.settings) {
    one_line(s.key + s.value + s.origin + s.effect);
  }
  for (const InputError& refusal : findings.refusals) {
    check(refusal);
  }
  if (!findings.refusals.empty()) {
    return;
  }
  const plans::Plan& found = plans::find_plan(plan.name.text, {"fuzz"});
  plans::Options options(found.options, found.name);
  for (const auto& [name, value] : plan.options) {
    options.set(name.text, value.text, value.place);
  }
}

// As the command line asks it: alone, and as the Trainer or Accelerate would fill it.
inline imports::Around around(bool hugging_face) {
  static const model::Shape shape = [] {
    model::Shape s;
    s.name = "fuzz";
    s.layers = 2;
    s.hidden = 64;
    s.heads = s.kv_heads = 4;
    s.head_dim = 16;
    s.kinds.front().ffn = 128;
    s.vocabulary = 256;
    s.max_sequence = 4096;
    return s;
  }();
  imports::Around out;
  out.version = "0.19.6";
  if (hugging_face) {
    out.hugging_face = true;
    out.shape = &shape;
    out.gpus = study::Given{"8", {"fuzz"}};
    out.flags.precision = study::Given{"bf16-mixed", {"fuzz"}};
    out.flags.micro_batch = study::Given{"1", {"fuzz"}};
  }
  return out;
}

}  // namespace offsim::fuzz
