// Is a slip of the hand recognised, and a different word left alone?
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "sim/base/config.h"

namespace offsim::nearest_test {
namespace {

const std::vector<std::string> kPlans = {"megatrain", "zero2-offload", "zero3-offload",
                                         "fsdp2-offload", "gpu-only"};

TEST(Nearest, FindsSlips) {
  EXPECT_EQ(nearest("megatrian", kPlans), "megatrain");          // swapped
  EXPECT_EQ(nearest("MegaTrain", kPlans), "megatrain");          // capitals
  EXPECT_EQ(nearest("zero2_offload", kPlans), "zero2-offload");  // dash
  EXPECT_EQ(nearest("zero-offload", kPlans), "zero2-offload");   // the first of two equally near
  EXPECT_EQ(nearest("gpuonly", kPlans), "gpu-only");
}

TEST(Nearest, IsTightAtAThird) {
  EXPECT_EQ(nearest("abcdxx", {"abcdef"}), "abcdef");  // 2 of 6
  EXPECT_EQ(nearest("abcxxx", {"abcdef"}), "");        // 3 of 6
  EXPECT_EQ(nearest("ab", {"ax"}), "");                // 1 of 2
  EXPECT_EQ(nearest("abx", {"abc"}), "abc");           // 1 of 3
}

TEST(Nearest, PrefersTheNearer) {
  EXPECT_EQ(nearest("abcdeg", {"abcdxx", "abcdef"}), "abcdef");
  EXPECT_EQ(nearest("anything", {}), "");
}

TEST(Suggest, AsksOrLists) {
  EXPECT_EQ(suggest("megatrian", kPlans), "did you mean 'megatrain'?");
  EXPECT_EQ(suggest("x", {"a1", "b2", "c3"}), "expected one of a1, b2, c3");
  EXPECT_EQ(suggest("x", {}), "");
  EXPECT_EQ(suggest("megatrian", kPlans, "a path"), "did you mean 'megatrain'?");
  EXPECT_EQ(suggest("x", {"a1", "b2"}, "a path"), "expected one of a1, b2, or a path");
  EXPECT_EQ(suggest("x", {}, "a path"), "expected a path");
}

RC_GTEST_PROP(Nearest, OneEditAlwaysLeadsBack, ()) {
  const auto& name = *rc::gen::elementOf(std::vector<std::string>{kPlans[0], kPlans[3], kPlans[4]});
  const auto at = *rc::gen::inRange<std::size_t>(0, name.size());
  std::string typo = name;
  switch (*rc::gen::inRange(0, 3)) {
    case 0:
      typo.erase(at, 1);
      break;
    case 1:
      typo.insert(at, 1, *rc::gen::inRange('a', 'z'));
      break;
    default:
      typo[at] = *rc::gen::inRange('a', 'z');
  }
  RC_ASSERT(nearest(typo, kPlans) == name);
}

}  // namespace
}  // namespace offsim::nearest_test
