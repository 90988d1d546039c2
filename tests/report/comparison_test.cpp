// Can rows be compared at a glance, whatever varies between them?
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "sim/report/layout.h"
#include "sim/report/text.h"
#include "tests/report/fixture.h"

namespace offsim::report {
namespace {

using testing::HasSubstr;
using testing::Not;

ComparisonRow row(const std::string& plan, const std::string& workload = "micro-batch 8 x 1,024") {
  ComparisonRow r;
  r.model = "gpt2";
  r.hardware = "box";
  r.plan = plan;
  r.workload = workload;
  r.prediction = made_up_prediction();
  return r;
}

ComparisonRow misfit(const std::string& plan) {
  ComparisonRow r = row(plan);
  r.prediction.pools[0].capacity = Bytes(4 * kGiB);
  return r;
}

TEST(ComparisonText, ReadsAsThis) {
  ComparisonRow refused = row("zero2-offload");
  refused.refused = "zero2-offload does not run in fp32; expected bf16-mixed or fp16-mixed";
  EXPECT_EQ(comparison_text("What fits?", {row("megatrain"), misfit("native"), refused}),
            R"(What fits?
gpt2, box, micro-batch 8 x 1,024

  plan           s/step  tokens/s  TFLOPS   GPU   host  $/Mtoken
  megatrain        20.0     3,277    2.44  10.5  101.0     0.212
  native         does not fit: GPU needs 10.5 of 4.0 GiB
  zero2-offload  zero2-offload does not run in fp32; expected bf16-mixed or
                 fp16-mixed

  TFLOPS: 6ND, of each GPU. GPU, host: GiB at the peak and what is fixed.
  $/Mtoken: dollars for a million tokens.
)");
}

TEST(ComparisonText, PutsInColumnsOnlyWhatVaries) {
  const std::string sweep = comparison_text(
      "", {row("native", "micro-batch 8 x 1,024"), row("native", "micro-batch 16 x 1,024")});
  EXPECT_THAT(sweep, HasSubstr("\n  micro-batch  s/step"));
  EXPECT_THAT(sweep, HasSubstr("\n  16 x 1,024     20.0"));
  EXPECT_THAT(sweep, testing::StartsWith("gpt2, box, native\n"));

  ComparisonRow other = row("native");
  other.hardware = "barn";
  EXPECT_THAT(comparison_text("", {row("native"), other}), HasSubstr("\n  hardware  s/step"));
}

TEST(ComparisonText, MovesTheCommonPlanIntoTheHeader) {
  const std::string text = comparison_text(
      "", {row("megatrain checkpoint_interval=2"), row("megatrain checkpoint_interval=4")});
  EXPECT_THAT(text, HasSubstr("\n  megatrain              s/step"));
  EXPECT_THAT(text, HasSubstr("\n  checkpoint_interval=2    20.0"));
}

TEST(ComparisonText, DoesNotRepeatTheTitle) {
  EXPECT_THAT(comparison_text("gpt2 on a box", {row("native"), row("megatrain")}),
              Not(HasSubstr("\ngpt2, box")));
}

TEST(ComparisonText, ShowsPublishedBesidePredicted) {
  ComparisonRow known = row("megatrain");
  known.published_tflops = 2.0;
  known.published_from = "a paper";
  const std::string text = comparison_text("", {known, row("native")});
  EXPECT_THAT(text, HasSubstr("$/Mtoken  published  differs\n"));
  EXPECT_THAT(text, HasSubstr("0.212       2.00    +22 %\n"));
  EXPECT_THAT(text, HasSubstr("Published: TFLOPS of a paper"));
  EXPECT_THAT(comparison_text("", {row("native")}), Not(HasSubstr("ublished")));
}

TEST(ComparisonText, NamesAMachineOfOneMemory) {
  ComparisonRow r = row("native");
  r.prediction.pools = {{"unified", Bytes(kGiB), {}, {}, Bytes(kGiB), "forward", {}}};
  EXPECT_THAT(comparison_text("", {r}), HasSubstr("  1.0  shared  "));
  r.prediction.pools[0].fixed = Bytes(kGiB);
  EXPECT_THAT(comparison_text("", {r}), HasSubstr("does not fit: unified needs 2.0 of 1.0 GiB"));
}

TEST(ComparisonText, SaysThatThereIsNoPrice) {
  ComparisonRow r = row("native");
  r.prediction.cost.reset();
  EXPECT_THAT(comparison_text("", {r}), HasSubstr("no price\n"));
}

TEST(ComparisonText, LinesUpEveryRowUnderItsHeader) {
  ComparisonRow big = row("megatrain variant=paper");
  big.prediction.step = Seconds(12345);
  big.prediction.tokens_per_s = 0.25;
  big.prediction.pools[1].peak = Bytes(123'456 * kGiB);
  big.prediction.pools[1].capacity = Bytes(200'000 * kGiB);
  big.prediction.cost->usd_per_million_tokens = Usd(4321);
  const std::vector<std::string> lines =
      lines_of(comparison_text("", {row("native"), big, row("zero2-offload")}));
  const auto head = std::ranges::find_if(
      lines, [](const std::string& line) { return line.find("s/step") != std::string::npos; });
  ASSERT_NE(head, lines.end());
  for (const char* const name : {"s/step", "tokens/s", "TFLOPS", "GPU", "host", "$/Mtoken"}) {
    const std::size_t end = head->find(name) + std::string(name).size();
    for (auto line = head + 1; line != head + 4; ++line) {
      EXPECT_EQ(visible_width(*line), visible_width(*head)) << *line;
      EXPECT_NE((*line)[end - 1], ' ') << name << ": " << *line;
      EXPECT_TRUE(end == line->size() || (*line)[end] == ' ') << name << ": " << *line;
    }
  }
}

TEST(ComparisonText, TakesTwoLinesARowWhereOneIsTooWide) {
  const std::string options = " deepspeed_version=0.14.5 pin_memory=true";
  std::vector<ComparisonRow> rows{row("zero2-offload" + options, "micro-batch 16 x 2,048"),
                                  row("native"), misfit("zero2-offload" + options)};
  rows[1].model = "llama-3.1-405b";
  rows[0].published_tflops = 2.0;
  const std::string text = comparison_text("", rows);
  EXPECT_THAT(text, HasSubstr("\n  gpt2, micro-batch 16 x 2,048, zero2-offload "
                              "deepspeed_version=0.14.5\n    pin_memory=true\n      20.0  "));
  EXPECT_THAT(text, HasSubstr("\n    does not fit: GPU needs 10.5 of 4.0 GiB\n"));
  for (const std::string& line : lines_of(text)) {
    EXPECT_LE(visible_width(line), 80u) << line;
  }
  EXPECT_THAT(comparison_text("", rows, {.width = 160}),
              HasSubstr("zero2-offload deepspeed_version=0.14.5 pin_memory=true    20.0"));
}

TEST(ComparisonText, PaintsOnlyWhenAskedAndOnlyColours) {
  const std::vector<ComparisonRow> rows{row("native"), misfit("megatrain")};
  const std::string painted = comparison_text("title", rows, {.colour = true});
  EXPECT_THAT(comparison_text("title", rows), Not(HasSubstr("\x1b")));
  EXPECT_THAT(painted, HasSubstr("\x1b[1mtitle\x1b[0m\n"));
  EXPECT_EQ(without_colour(painted), comparison_text("title", rows));
}

TEST(ComparisonText, SaysWhenThereIsNothing) {
  EXPECT_EQ(comparison_text("title", {}), "title\n  nothing to compare\n");
}

}  // namespace
}  // namespace offsim::report
