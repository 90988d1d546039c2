// Does every DeepSpeed configuration become a plan with options that it takes, or lines that say
// why not?
#include "sim/base/hjson.h"
#include "tests/fuzz/question.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  namespace imports = offsim::imports;
  const std::string text(reinterpret_cast<const char*>(data), size);
  for (const bool hugging_face : {false, true}) {
    try {
      const offsim::Node root = offsim::parse_hjson(text, "fuzz");
      imports::Findings findings;
      offsim::study::GivenPlan plan;
      offsim::study::GivenWorkload work;
      imports::read_deepspeed(root, offsim::fuzz::around(hugging_face), findings, plan, work);
      offsim::fuzz::check(findings, plan);
    } catch (const offsim::InputError& error) {
      offsim::fuzz::check(error);
    }
  }
  return 0;
}
