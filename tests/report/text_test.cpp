// Does a person read what was predicted: all of it, aligned, on 80 columns?
#include "sim/report/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "sim/base/text.h"
#include "sim/report/layout.h"
#include "tests/report/fixture.h"

namespace offsim::report::text_test {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr std::size_t kPage = 80;

TEST(PredictionText, ReadsAsThis) {
  plans::Job job = made_up_job();
  job.options.set("checkpoint_interval", "2", {});
  job.workload.checkpointing = plans::Checkpointing::kFull;
  job.workload.accumulation = 4;
  EXPECT_EQ(prediction_text(job, made_up_prediction(), {}, "offsim compare --model gpt2"),
            R"(gpt2, 124 M parameters, bf16-mixed                              one GPU in a box
MegaTrain: weights stream from CPU memory, layer by layer

  plan      megatrain checkpoint_interval=2
  batch     64 x 1,024 tokens, 4 times a step, checkpointing full
  step      20.0 s (18.0 to 22.0 s), 3,277 tokens/s
  TFLOPS    2.44 as 6ND, 2.50 of the model, 4.25 executed
  cost      $0.0139 a step, $0.212 a million tokens, at $2.50 an hour

  where the step goes  exposed  share    busy
    GPU compute         14.0 s   70 %  15.0 s
      layer backward 9.5 s, layer forward 4.0 s, norm 0.3 s
    CPU optimizer        5.5 s   28 %   5.5 s
    idle                 0.5 s    2 %
    copies to the GPU    0.0 s    0 %   2.0 s
  phases    forward 4.0 s, backward 10.0 s, optimizer 6.0 s

  memory, GiB   peak  + fixed       of  used  at the end
    GPU         10.0      0.5     16.0  66 %         2.0
      peak in backward: logits 60 %, weights 40 %
    host       100.0      1.0  1,000.0  10 %        90.0
      peak in optimizer: Adam states 100 %, pinned at most 64.0 GiB

  rests on  75 % measured, 25 % assumed
  weakest   host.page_release 25 %
warning: megatrain.num_grad_slabs has no effect here
Next: offsim compare --model gpt2
)");
}

TEST(PredictionText, SaysThatThereIsNoPrice) {
  study::Prediction p = made_up_prediction();
  p.cost.reset();
  EXPECT_THAT(prediction_text(made_up_job(), p),
              HasSubstr("\n  cost      no price in the catalog: give --price\n"));
}

// Labels of different causes do not mix, and each stands below its own.
TEST(PredictionText, SaysWhatACauseWasSpentOnWhereThatIsMoreThanOneThing) {
  study::Prediction p = made_up_prediction();
  p.spent.push_back({runtime::Cause::kCpuOptimizer, "clip", Seconds(0.3)});
  EXPECT_THAT(prediction_text(made_up_job(), p),
              HasSubstr("    CPU optimizer        5.5 s   28 %   5.5 s\n"
                        "      Adam 5.5 s, clip 0.3 s\n"));
  p.spent.back().time = Seconds(0.19);  // under 1 % of the step
  EXPECT_THAT(prediction_text(made_up_job(), p), Not(HasSubstr("Adam 5.5 s")));
}

TEST(PredictionText, NamesAFigureForPeople) {
  plans::Job job = made_up_job();
  job.machine.figures[1].title = "shares taken from a barn";
  EXPECT_THAT(prediction_text(job, made_up_prediction()),
              HasSubstr("\n  weakest   shares taken from a barn 25 %\n"));
}

TEST(PredictionText, BeginsWithWhatDoesNotFitAndShowsNoTimes) {
  study::Prediction p = made_up_prediction();
  p.pools[0].peak = Bytes(20 * kGiB);
  const std::string text = prediction_text(made_up_job(), p);
  EXPECT_THAT(text, StartsWith("does not fit: GPU memory needs 20.5 GiB of 16.0 GiB, 4.50 GiB too "
                               "much, in the\nbackward phase\n"
                               "  logits            6.0 GiB  29 %\n"
                               "  weights           4.0 GiB  20 %\n"
                               "  everything else  10.0 GiB  49 %\n"
                               "  fixed             0.5 GiB   2 %\n\n"
                               "gpt2, 124 M parameters"));
  EXPECT_THAT(text, HasSubstr("    host       100.0      1.0  1,000.0   10 %"));
  EXPECT_THAT(text, Not(HasSubstr("tokens/s")));
  EXPECT_THAT(text, Not(HasSubstr("where the step goes")));
}

TEST(PredictionText, OneByteDecides) {
  study::Prediction p = made_up_prediction();
  p.pools[0].capacity = p.pools[0].needed();
  EXPECT_THAT(prediction_text(made_up_job(), p), Not(HasSubstr("does not fit")));
  p.pools[0].capacity = Bytes(p.pools[0].needed().value - 1);
  EXPECT_THAT(prediction_text(made_up_job(), p), HasSubstr("1 B too much"));
}

TEST(PredictionText, NamesEveryPoolThatDoesNotFit) {
  study::Prediction p = made_up_prediction();
  p.pools[0].capacity = Bytes(kGiB);
  p.pools[1].capacity = Bytes(kGiB);
  const std::string text = prediction_text(made_up_job(), p);
  EXPECT_THAT(text, HasSubstr("does not fit: GPU memory"));
  EXPECT_THAT(text, HasSubstr("does not fit: host memory"));
}

TEST(PredictionText, PaintsOnlyWhenAskedAndOnlyColours) {
  const plans::Job job = made_up_job();
  study::Prediction p = made_up_prediction();
  for (const Bytes capacity : {Bytes(16 * kGiB), Bytes(kGiB)}) {
    p.pools[0].capacity = capacity;
    const std::string plain = prediction_text(job, p, {}, "offsim x");
    const std::string painted = prediction_text(job, p, {.colour = true}, "offsim x");
    EXPECT_THAT(plain, Not(HasSubstr("\x1b")));
    EXPECT_NE(painted, plain);
    EXPECT_EQ(without_colour(painted), plain);
  }
}

TEST(PredictionText, KeepsToThePageWithLongNames) {
  plans::Job job = made_up_job();
  job.shape.name = std::string(100, 'm') + " of many words that go on and on and on and on";
  job.machine.title =
      "a machine whose title takes more room than any page of a terminal has to give";
  job.options.set("checkpoint_interval", "123456789", {});
  job.options.set("num_grad_slabs", "10000", {});
  job.options.set("optimizer", "deepspeed_adam", {});
  job.options.set("variant", "paper", {});
  study::Prediction p = made_up_prediction();
  p.spent[0].label = std::string(120, 'l');
  p.pools[0].by_tag[0].tag = "what a layer keeps of its many, many operations for their backward";
  for (const int width : {80, 132}) {
    for (const std::string& line : lines_of(prediction_text(job, p, {.width = width}))) {
      EXPECT_LE(display_width(line), static_cast<std::size_t>(width)) << line;
    }
  }
}

TEST(NextText, IsOneCommandForAShell) {
  const std::string command =
      "offsim compare --model qwen2.5-14b --hardware gh200-480gb --plans all --micro-batch 64 "
      "--checkpointing full --set megatrain.optimizer=torch_fused";
  const std::vector<std::string> lines = lines_of(next_text(command));
  ASSERT_GT(lines.size(), 1u);
  std::string joined;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    EXPECT_LE(display_width(lines[i]), kPage);
    const bool last = i + 1 == lines.size();
    EXPECT_EQ(lines[i].ends_with(" \\"), !last) << lines[i];
    const std::string piece = lines[i].substr(6);  // after "Next: " and its blanks
    joined += last ? piece : piece.substr(0, piece.size() - 1);
  }
  EXPECT_EQ(joined, command);
}

TEST(NextText, NeverCutsAFlagFromItsValue) {
  const std::string path = "/a/path/" + std::string(100, 'p') + "/model.json";
  EXPECT_EQ(next_text("offsim predict --model " + path + " --plan native"),
            "Next: offsim predict \\\n      --model " + path + " \\\n      --plan native\n");
}

TEST(BudgetText, CountsWholeSteps) {
  // 65,536 tokens a step: 10 M take 152.6, so 153 steps of 20 s.
  EXPECT_EQ(budget_text(made_up_job(), made_up_prediction(), 10e6),
            "10,000,000 tokens take 153 steps and 0.850 hours (0.767 to 0.933), and cost\n"
            "$2.13 at $2.50 an hour\n");
  EXPECT_THAT(budget_text(made_up_job(), made_up_prediction(), 65'536),
              HasSubstr("take 1 step and"));
  EXPECT_THAT(budget_text(made_up_job(), made_up_prediction(), 65'537), HasSubstr("2 steps"));
}

TEST(BudgetText, SaysWhatIsMissing) {
  study::Prediction p = made_up_prediction();
  p.cost.reset();
  EXPECT_THAT(budget_text(made_up_job(), p, 10e6), EndsWith("give --price\n"));
  p.pools[0].capacity = Bytes(0);
  EXPECT_EQ(budget_text(made_up_job(), p, 10e6), "no budget: the step does not fit\n");
}

struct Asked {
  const char* model;
  const char* machine;
  const char* plan;
  std::int64_t micro_batch;
};

class RealPredictions : public testing::TestWithParam<Asked> {};

TEST_P(RealPredictions, FitThePageAndAddUp) {
  const Asked& asked = GetParam();
  const plans::Job job = real_job(asked.model, asked.machine, asked.plan, asked.micro_batch);
  const study::Prediction p = study::predict(job);
  const std::string text = prediction_text(job, p);
  for (const std::string& line : lines_of(text)) {
    EXPECT_LE(display_width(line), kPage) << line;
    EXPECT_FALSE(line.ends_with(' ')) << line;
  }
  if (!p.feasible()) {
    EXPECT_THAT(text, StartsWith("does not fit: "));
    return;
  }
  // What a reader adds up: the exposed column, in the unit and digits of the step.
  const std::vector<std::string> lines = lines_of(text);
  const auto head = std::ranges::find_if(
      lines, [](const std::string& line) { return line.starts_with("  where the step goes"); });
  ASSERT_NE(head, lines.end());
  const std::size_t end = head->find("exposed") + 7;
  double sum = 0, rows = 0;
  for (auto line = head + 1; line->starts_with("    "); ++line) {
    if (line->starts_with("      ")) {
      continue;  // what the time of the row above was spent on
    }
    ++rows;
    const std::string cell = line->substr(end - 9, 9);
    EXPECT_NE(cell[cell.size() - 1], ' ') << *line;  // right under its header
    sum += std::stod(cell);
  }
  const std::string step = time_text(p.step, p.step);
  const auto point = step.find('.');
  const double digit = point == std::string::npos
                           ? 1
                           : std::pow(10, -static_cast<double>(step.find(' ') - point - 1));
  EXPECT_NEAR(sum, std::stod(step), 0.5 * digit * (rows + 1));
}

INSTANTIATE_TEST_SUITE_P(Catalog, RealPredictions,
                         testing::Values(Asked{"qwen2.5-14b", "gh200-480gb", "megatrain", 64},
                                         Asked{"qwen2.5-0.5b", "h200-16core-vm", "native", 8},
                                         Asked{"llama-3.1-405b", "dgx-h100", "native", 1},
                                         Asked{"llama-3.1-8b", "workstation-pcie4-4090",
                                               "zero2-offload", 1},
                                         Asked{"qwen2.5-7b", "dgx-spark", "megatrain", 8},
                                         Asked{"gpt2", "workstation-3090", "native", 1}));

}  // namespace
}  // namespace offsim::report::text_test
