// Which links are coherent?
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/machine/test_catalog.h"

namespace offsim::machine::coherent_test {
namespace {

TEST(Coherent, AreTheLinksOfGraceAndNoOthers) {
  const Catalog catalog = test_catalog();
  for (const std::string& name : machine_names(catalog)) {
    const Machine m = load(name);
    const bool grace = m.host.name.find("Grace") != std::string::npos;
    EXPECT_EQ(m.link && m.link->coherent(), grace) << name;
  }
}

TEST(Coherent, SaysHowLongAPageTakesAndFromWhere) {
  const Machine m = load("gh200-480gb");
  EXPECT_DOUBLE_EQ(m.link->page_fault->value.value, 30e-6);
  EXPECT_EQ(m.figure(m.link->page_fault->figure).source, Source::kAssumed);
}

}  // namespace
}  // namespace offsim::machine::coherent_test
