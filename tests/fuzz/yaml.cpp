// Does the YAML reader survive every sequence of bytes, with a tree or one line?
#include "tests/fuzz/document.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return offsim::fuzz::read(data, size, offsim::Syntax::kYaml);
}
