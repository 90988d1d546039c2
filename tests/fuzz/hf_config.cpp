// Does every JSON file become a shape whose parameters can be counted, or one line?
#include "sim/model/shape.h"
#include "sim/model/tensors.h"
#include "tests/fuzz/document.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const std::string text(reinterpret_cast<const char*>(data), size);
    const auto document = offsim::parse_document(text, "fuzz", offsim::Syntax::kJson);
    const auto shape = offsim::model::read_config(document, "fuzz");
    offsim::fuzz::require(offsim::model::parameters(shape) > 0);
  } catch (const offsim::InputError& error) {
    offsim::fuzz::check(error);
  }
  return 0;
}
