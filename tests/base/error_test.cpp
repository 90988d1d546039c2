// Is a message one readable line, whatever the input held?
#include "sim/base/error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace offsim::error_test {
namespace {

TEST(InputError, ReadsPlaceWrongExpected) {
  EXPECT_STREQ(InputError({"s.yaml", 3, 14}, "x is 'y'", "expected a number").what(),
               "s.yaml:3:14: x is 'y'; expected a number");
  EXPECT_STREQ(InputError({"s.yaml"}, "no such file").what(), "s.yaml: no such file");
  EXPECT_STREQ(InputError({}, "nothing to run").what(), "nothing to run");
}

TEST(InputError, TakesThePlaceOfTheCallerWhenItHasNone) {
  const Place place{"s.yaml", 3, 14};
  EXPECT_STREQ(InputError({}, "x is refused", "expected y").at(place).what(),
               "s.yaml:3:14: x is refused; expected y");
  EXPECT_STREQ(InputError({"t.yaml", 1, 2}, "x").at(place).what(), "t.yaml:1:2: x");
}

TEST(InputError, StaysOneLine) {
  const std::string message = InputError({"a\nb"}, "key 'c\r\n\x1b[31m'").what();
  EXPECT_EQ(message, "a?b: key 'c???[31m'");
}

TEST(InputError, CutsWhatNobodyReads) {
  const std::string long_one(10'000, 'x');
  const std::string message =
      InputError({long_one, 3, 14}, "key '" + long_one + "' is unknown", long_one + " y").what();
  EXPECT_LT(message.size(), 1000U);
  // Each part keeps its beginning and its end: the place, what is wrong, what was expected.
  EXPECT_THAT(message,
              testing::MatchesRegex("x+ \\.\\.\\. x+:3:14: key 'x+ \\.\\.\\. x+' is unknown; "
                                    "x+ \\.\\.\\. x+ y"));
}

TEST(SimAssert, NamesConditionAndReason) {
  try {
    SIM_ASSERT(1 + 1 == 3, "sums must hold");
    FAIL() << "the assertion passed";
  } catch (const InternalError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("1 + 1 == 3 does not hold: sums must hold"));
  }
  EXPECT_NO_THROW(SIM_ASSERT(true, "never seen"));
}

}  // namespace
}  // namespace offsim::error_test
