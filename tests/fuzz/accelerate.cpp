// Does every Accelerate file become a plan with options that it takes, or lines that say why not?
#include "sim/import/accelerate.h"
#include "tests/fuzz/question.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  namespace imports = offsim::imports;
  const std::string text(reinterpret_cast<const char*>(data), size);
  for (const bool filled : {false, true}) {
    try {
      const auto root = offsim::parse_document(text, "fuzz", offsim::Syntax::kYaml);
      if (!imports::is_accelerate(root)) {
        imports::refuse_other_tools(root);
      }
      imports::Findings findings;
      offsim::study::GivenPlan plan;
      offsim::study::GivenWorkload work;
      // No file is there to be referred to.
      imports::read_accelerate(root, "fuzz/none/", offsim::fuzz::around(filled), findings, plan,
                               work);
      offsim::fuzz::check(findings, plan);
    } catch (const offsim::InputError& error) {
      offsim::fuzz::one_line(error.what());
    }
  }
  return 0;
}
