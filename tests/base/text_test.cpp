// Is what others wrote fit for a terminal, and still itself?
#include "sim/base/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace offsim::text_test {
namespace {

TEST(Printable, KeepsTextAndHidesTheRest) {
  EXPECT_EQ(printable("80 GiB, caf\xc3\xa9, \xe2\x82\xac, \xf0\x9f\x99\x82"),
            "80 GiB, caf\xc3\xa9, \xe2\x82\xac, \xf0\x9f\x99\x82");
  EXPECT_EQ(printable("a\n\t\x1b[31m\x7f"), "a???[31m?");
  EXPECT_EQ(printable("\xc2\x9b"
                      "1m"),
            "?1m");  // a terminal may take U+009B for "\e["
  EXPECT_EQ(printable("\xff\xc3x"), "??x");
}

TEST(Printable, LosesItsMiddleByTheByte) {
  EXPECT_EQ(printable("0123456789abcdef", 16), "0123456789abcdef");
  EXPECT_EQ(printable("0123456789abcdefg", 16), "0123456789 ... g");
  // No character is cut: three bytes each, of which 10 and 1 would be kept.
  const std::string euros = printable(
      "\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac"
      "\xe2\x82\xac",
      16);
  EXPECT_EQ(euros, "\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac ... ");
}

TEST(DisplayWidth, IsTwoForWideCharactersOneForOthers) {
  EXPECT_EQ(display_width("GPU 1"), 5U);
  EXPECT_EQ(display_width("显存"), 4U);
  EXPECT_EQ(display_width("，（）：。、"), 12U);
  EXPECT_EQ(display_width("\uac00\u3042\U00020000\U0001f600"), 8U);
  EXPECT_EQ(display_width("\u00e9\u2014\u00d7"), 3U);
  EXPECT_EQ(display_width("a\u2060b"), 2U);
  EXPECT_EQ(display_width("\xff\xe2\x82"), 3U);
  EXPECT_EQ(padded("显存", 6), "显存  ");
  EXPECT_EQ(padded("显存", 3), "显存");
}

RC_GTEST_PROP(Printable, IsShortAndPrintable, (const std::string& text)) {
  const std::string shown = printable(text, 40);
  RC_ASSERT(shown.size() <= 40U);
  for (std::size_t at = 0; at < shown.size();) {
    const std::size_t length = utf8_length(shown, at);
    RC_ASSERT(length > 0U);
    RC_ASSERT(!is_control(shown, at, length));
    at += length;
  }
}

}  // namespace
}  // namespace offsim::text_test
