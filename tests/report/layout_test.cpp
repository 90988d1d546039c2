// Do numbers read as they are, and does text stay within its page?
#include "sim/report/layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "sim/base/text.h"

namespace offsim::report::layout_test {
namespace {

using testing::ElementsAre;

TEST(Numbers, ThreeDigitsAreShownAndNoneInvented) {
  EXPECT_EQ(three_digits(0), "0");
  EXPECT_EQ(three_digits(0.0854), "0.085");
  EXPECT_EQ(three_digits(0.99949), "0.999");
  EXPECT_EQ(three_digits(0.9996), "1.00");
  EXPECT_EQ(three_digits(21.44), "21.4");
  EXPECT_EQ(three_digits(99.96), "100");
  EXPECT_EQ(three_digits(3062.4), "3,062");
}

TEST(Numbers, GibibytesHaveOneDecimalAndCarry) {
  EXPECT_EQ(gib_number(Bytes(0)), "0.0");
  EXPECT_EQ(gib_number(Bytes(kGiB / 2)), "0.5");
  EXPECT_EQ(gib_number(Bytes(kGiB - 1)), "1.0");
  EXPECT_EQ(gib_number(Bytes(1024 * kGiB - 1)), "1,024.0");
  EXPECT_EQ(gib_text(Bytes(1500 * kGiB + kGiB / 4)), "1,500.3 GiB");
}

TEST(Numbers, ParametersReadAsPeopleSayThem) {
  EXPECT_EQ(parameters_text(124'439'808), "124 M");
  EXPECT_EQ(parameters_text(999'600'000), "1.00 B");
  EXPECT_EQ(parameters_text(14'770'033'664), "14.77 B");
}

TEST(Numbers, TimesTakeUnitAndDecimalsFromTheWhole) {
  EXPECT_EQ(time_text(Seconds(0.04), Seconds(21.4)), "0.0 s");
  EXPECT_EQ(time_text(Seconds(1.25), Seconds(3.5)), "1.25 s");
  EXPECT_EQ(time_text(Seconds(0.0774), Seconds(0.103)), "77 ms");
  EXPECT_EQ(time_text(Seconds(0.9999), Seconds(0.9999)), "1.00 s");
}

TEST(Wrapping, BreaksAtBlanksButNotWithinATie) {
  EXPECT_THAT(wrap("one two three", 8), ElementsAre("one two", "three"));
  EXPECT_THAT(wrap("one " + tie("two three"), 9), ElementsAre("one", "two three"));
  EXPECT_THAT(wrap("", 9), ElementsAre(""));
}

TEST(Wrapping, CountsCharactersAndCutsWordsThatAreLongerThanALine) {
  EXPECT_THAT(wrap("\u00e9\u00e9\u00e9 ab", 6), ElementsAre("\u00e9\u00e9\u00e9 ab"));
  EXPECT_THAT(wrap("ab \u00e9\u00e9\u00e9\u00e9\u00e9", 3),
              ElementsAre("ab", "\u00e9\u00e9\u00e9", "\u00e9\u00e9"));
}

TEST(Wrapping, BreaksBesideWideCharactersToo) {
  EXPECT_THAT(wrap("参数在反向", 4), ElementsAre("参数", "在反", "向"));
  EXPECT_THAT(wrap("参数在反向", 5), ElementsAre("参数", "在反", "向"));
  EXPECT_THAT(wrap("在 GPU 上的梯度", 9), ElementsAre("在 GPU 上", "的梯度"));
  EXPECT_THAT(wrap("共139.8，步", 5), ElementsAre("共", "139.8", "，步"));
  EXPECT_THAT(wrap("共139.8步", 5), ElementsAre("共", "139.8", "步"));
}

TEST(Wrapping, PunctuationStaysWithWhatItClosesOrOpens) {
  EXPECT_THAT(wrap("参数，梯度。", 6), ElementsAre("参数，", "梯度。"));
  EXPECT_THAT(wrap("参数，梯度", 5), ElementsAre("参", "数，", "梯度"));
  EXPECT_THAT(wrap("参数（梯度）", 6), ElementsAre("参数", "（梯", "度）"));
  EXPECT_THAT(wrap("放得下 (GPU)：是", 10), ElementsAre("放得下", "(GPU)：是"));
}

TEST(Wrapping, ATiedPhraseStaysWhole) {
  EXPECT_THAT(wrap(tie("权重 12 %") + "，" + tie("隐藏状态 8 %"), 14),
              ElementsAre("权重 12 %，", "隐藏状态 8 %"));
  const std::string edit = tie(tie("方案 x") + "（GPU 1）");
  EXPECT_THAT(wrap(edit + "；" + edit, 24), ElementsAre("方案 x（GPU 1）；", "方案 x（GPU 1）"));
}

// A person copies it.
TEST(Wrapping, LeavesAnAddressWhole) {
  EXPECT_THAT(wrap("see https://example.org/page: it", 9),
              ElementsAre("see", "https://example.org/page:", "it"));
}

RC_GTEST_PROP(Wrapping, KeepsEveryWordAndTheWidth, ()) {
  const auto width = *rc::gen::inRange<std::size_t>(5, 30);
  const auto words = *rc::gen::container<std::vector<std::string>>(
      rc::gen::nonEmpty(rc::gen::container<std::string>(rc::gen::inRange('a', 'e'))));
  const auto letters = [](std::string text) {
    std::erase(text, ' ');
    return text;
  };
  const std::vector<std::string> lines = wrap(join(words, " "), width);
  RC_ASSERT(letters(join(lines, "")) == letters(join(words, "")));
  for (const std::string& line : lines) {
    RC_ASSERT(display_width(line) <= width);
  }
  const bool short_words =
      std::ranges::all_of(words, [&](const std::string& word) { return word.size() <= width; });
  if (short_words) {
    RC_ASSERT(join(lines, " ") == join(words, " "));
  }
}

TEST(Wrapping, AParagraphContinuesBelowItsText) {
  TextStyle narrow;
  narrow.width = 40;
  EXPECT_EQ(labelled("plan", "megatrain checkpoint_interval=4", narrow),
            "  plan      megatrain\n            checkpoint_interval=4\n");
}

TEST(Colour, IsThereOnlyWhenAskedFor) {
  EXPECT_EQ(paint("no", Ink::kRed, {}), "no");
  EXPECT_EQ(paint("yes", Ink::kRed, {.colour = true}), "\x1b[1;31myes\x1b[0m");
}

}  // namespace
}  // namespace offsim::report::layout_test
