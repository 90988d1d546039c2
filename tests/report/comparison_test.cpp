// Can rows be compared at a glance, whatever varies between them?
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <memory>

#include "sim/base/text.h"
#include "sim/report/layout.h"
#include "sim/report/text.h"
#include "tests/report/fixture.h"

namespace offsim::report::comparison_test {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

// Rows and the jobs that they point to.
class Table {
 public:
  // Returns the job, to be changed before the text is asked for.
  plans::Job& add(const std::string& plan, std::int64_t micro_batch = 8) {
    jobs_.push_back(
        std::make_unique<plans::Job>(make_job("gpt2", made_up_job().machine, plan, micro_batch)));
    rows.emplace_back().prediction = made_up_prediction();
    rows.back().job = jobs_.back().get();
    return *jobs_.back();
  }
  plans::Job& add_misfit(const std::string& plan) {
    plans::Job& job = add(plan);
    rows.back().prediction.pools[0].capacity = Bytes(4 * kGiB);
    return job;
  }
  std::string text(const std::string& title = "", const TextStyle& style = {}) const {
    return comparison_text(title, rows, style);
  }

  std::vector<ComparisonRow> rows;

 private:
  std::vector<std::unique_ptr<plans::Job>> jobs_;
};

TEST(ComparisonText, ReadsAsThis) {
  Table table;
  table.add("megatrain");
  table.add_misfit("native");
  table.add("zero2-offload");
  table.rows.back().refused =
      "zero2-offload does not run in fp32; expected bf16-mixed or fp16-mixed";
  EXPECT_EQ(table.text("What fits?"),
            R"(What fits?
gpt2, box, micro-batch 8 x 1,024

  plan           s/step  tokens/s  TFLOPS   GPU   host  $/Mtoken
  megatrain        20.0     3,277    2.44  10.5  101.0     0.212
  native         does not fit: GPU needs 10.5 of 4.0 GiB
  zero2-offload  zero2-offload does not run in fp32; expected bf16-mixed or
                 fp16-mixed

  TFLOPS: 6ND, of each GPU. GPU, host: GiB at the peak and what is fixed.
  $/Mtoken: dollars for a million tokens.
warning: megatrain.num_grad_slabs has no effect here
)");
}

// As often as it is said once, by the first row that has it.
TEST(ComparisonText, WarnsOfEachThingOnce) {
  Table table;
  table.add("megatrain");
  table.add("native");
  table.rows.front().prediction.warnings = {"one", "two"};
  table.rows.back().prediction.warnings = {"two", "three"};
  EXPECT_THAT(table.text(), testing::EndsWith("\nwarning: one\nwarning: two\nwarning: three\n"));
  EXPECT_THAT(table.text("", {.colour = true}), HasSubstr("\x1b[33mwarning: two\x1b[0m\n"));
}

TEST(ComparisonText, PutsInColumnsOnlyWhatVaries) {
  Table sweep;
  sweep.add("native", 8);
  sweep.add("native", 16);
  EXPECT_THAT(sweep.text(), HasSubstr("\n  micro-batch  s/step"));
  EXPECT_THAT(sweep.text(), HasSubstr("\n  16 x 1,024     20.0"));
  EXPECT_THAT(sweep.text(), StartsWith("gpt2, box, native\n"));

  Table machines;
  machines.add("native");
  machines.add("native").machine.name = "barn";
  EXPECT_THAT(machines.text(), HasSubstr("\n  hardware  s/step"));
}

TEST(ComparisonText, NamesASingleRow) {
  Table table;
  table.add("megatrain").options.set("variant", "paper", {});
  EXPECT_THAT(table.text(), StartsWith("gpt2, box, micro-batch 8 x 1,024\n\n  plan "));
  EXPECT_THAT(table.text(), HasSubstr("\n  megatrain variant=paper    20.0"));
}

TEST(ComparisonText, SaysOnceWhatAllPlansShare) {
  Table table;
  for (const char* interval : {"2", "4"}) {
    plans::Job& job = table.add("megatrain");
    job.options.set("optimizer", "torch_fused", {});
    job.options.set("checkpoint_interval", interval, {});
  }
  EXPECT_THAT(table.text(), StartsWith("gpt2, box, micro-batch 8 x 1,024, megatrain "
                                       "optimizer=torch_fused\n"));
  EXPECT_THAT(table.text(), HasSubstr("\n  checkpoint_interval=2    20.0"));
  table.add("megatrain").options.set("optimizer", "torch_fused", {});  // it is named by its plan
  EXPECT_THAT(table.text(), StartsWith("gpt2, box, micro-batch 8 x 1,024\n"));
  EXPECT_THAT(table.text(), HasSubstr("\n  megatrain optimizer=torch_fused\n"));
}

TEST(ComparisonText, ShowsSettingsThatAreNotTheDefault) {
  Table table;
  table.add("native").workload.checkpointing = plans::Checkpointing::kFull;
  plans::Job& other = table.add("native");
  other.workload.checkpointing = plans::Checkpointing::kFull;
  other.workload.precision = plans::Precision::kBf16;
  other.workload.phase_sync = true;
  EXPECT_THAT(table.text(),
              StartsWith("gpt2, box, micro-batch 8 x 1,024, checkpointing full, native\n"));
  EXPECT_THAT(table.text(), HasSubstr("\n  settings                   s/step"));
  EXPECT_THAT(table.text(), HasSubstr("\n  bf16, phases synchronised    20.0"));
}

// Whatever two jobs differ in.
RC_GTEST_PROP(ComparisonText, NoTwoDifferentRowsLookAlike, ()) {
  Table table;
  std::vector<std::string> jobs;
  const auto count = *rc::gen::inRange(2, 6);
  for (int i = 0; i < count; ++i) {
    plans::Job& job = table.add(*rc::gen::element<std::string>("native", "megatrain"));
    job.shape.name = *rc::gen::element<std::string>("gpt2", "gpt3");
    job.machine.name = *rc::gen::element<std::string>("box", "barn");
    job.workload.micro_batch = *rc::gen::inRange(1, 3);
    job.workload.sequence = *rc::gen::inRange(1, 3);
    job.workload.accumulation = *rc::gen::inRange(1, 3);
    job.workload.checkpointing = plans::Checkpointing(*rc::gen::inRange(0, 2));
    job.workload.precision = plans::Precision(*rc::gen::inRange(0, 4));
    job.workload.phase_sync = *rc::gen::arbitrary<bool>();
    for (const plans::OptionSpec& spec : job.plan->options) {
      if (spec.kind == plans::OptionSpec::Kind::kFlag && *rc::gen::arbitrary<bool>()) {
        job.options.set(spec.name, *rc::gen::element<std::string>("true", "false"), {});
      }
    }
    table.rows.back().refused = "-";  // in place of numbers, which would tell rows apart
    const plans::Workload& w = job.workload;
    jobs.push_back(fmt::format("{} {} {} {} {} {} {} {} {} {}", job.plan->name, job.shape.name,
                               job.machine.name, w.micro_batch, w.sequence, w.accumulation,
                               to_string(w.checkpointing), to_string(w.precision), w.phase_sync,
                               job.plan->options.size()));
    for (const plans::OptionSpec& spec : job.plan->options) {
      jobs.back() += job.options.given(spec.name) ? " " + job.options.text(spec.name) : " -";
    }
  }
  std::vector<std::string> lines = lines_of(table.text("", {.width = 1000}));
  lines.erase(lines.begin(), std::ranges::find_if(lines, [](const std::string& line) {
                               return line.find("s/step") != std::string::npos;
                             }) + 1);
  lines.resize(jobs.size());
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    for (std::size_t j = i + 1; j < jobs.size(); ++j) {
      RC_ASSERT((lines[i] == lines[j]) == (jobs[i] == jobs[j]));
    }
  }
}

TEST(ComparisonText, DoesNotRepeatTheTitle) {
  Table table;
  table.add("native");
  table.add("megatrain");
  EXPECT_THAT(table.text("gpt2 on a box"), Not(HasSubstr("\ngpt2, box")));
}

TEST(ComparisonText, ShowsPublishedBesidePredicted) {
  Table table;
  table.add("megatrain");
  table.add("native");
  EXPECT_THAT(table.text(), Not(HasSubstr("ublished")));
  table.rows[0].published_tflops = 2.0;
  table.rows[0].published_from = "a paper";
  EXPECT_THAT(table.text(), HasSubstr("$/Mtoken  published  differs\n"));
  EXPECT_THAT(table.text(), HasSubstr("0.212       2.00    +22 %\n"));
  EXPECT_THAT(table.text(), HasSubstr("Published: TFLOPS of a paper\n"));
}

TEST(ComparisonText, SaysWhichFigureIsOfWhichSource) {
  Table table;
  for (const char* const from : {"a paper", "https://example.org/a-talk", "a paper"}) {
    table.add("native", table.rows.empty() ? 8 : 16);
    table.rows.back().published_tflops = 2.0;
    table.rows.back().published_from = from;
  }
  table.add_misfit("native").workload.micro_batch = 32;
  table.rows.back().published_tflops = 2.0;
  table.rows.back().published_from = "what no row shows";
  const std::string text = table.text();
  EXPECT_THAT(text, HasSubstr("2.00 [1]    +22 %\n"));
  EXPECT_THAT(text, HasSubstr("2.00 [2]    +22 %\n"));
  EXPECT_THAT(text, HasSubstr("Published: TFLOPS of\n"
                              "    [1] a paper\n"
                              "    [2] https://example.org/a-talk\n"));
}

TEST(ComparisonText, NamesAMachineOfOneMemory) {
  Table table;
  table.add("native");
  auto& pools = table.rows[0].prediction.pools;
  pools = {{"unified", Bytes(kGiB), {}, {}, Bytes(kGiB), "forward", {}}};
  EXPECT_THAT(table.text(), HasSubstr("  1.0  shared  "));
  pools[0].fixed = Bytes(kGiB);
  EXPECT_THAT(table.text(), HasSubstr("does not fit: unified needs 2.0 of 1.0 GiB"));
}

TEST(ComparisonText, SaysThatThereIsNoPrice) {
  Table table;
  table.add("native");
  table.rows[0].prediction.cost.reset();
  EXPECT_THAT(table.text(), HasSubstr("no price\n"));
}

TEST(ComparisonText, LinesUpEveryRowUnderItsHeader) {
  Table table;
  table.add("native");
  table.add("megatrain").options.set("variant", "paper", {});
  study::Prediction& big = table.rows.back().prediction;
  big.step = Seconds(12345);
  big.tokens_per_s = 0.25;
  big.pools[1].peak = Bytes(123'456 * kGiB);
  big.pools[1].capacity = Bytes(200'000 * kGiB);
  big.cost->usd_per_million_tokens = Usd(4321);
  table.add("zero2-offload");
  const std::vector<std::string> lines = lines_of(table.text());
  const auto head = std::ranges::find_if(
      lines, [](const std::string& line) { return line.find("s/step") != std::string::npos; });
  ASSERT_NE(head, lines.end());
  for (const char* const name : {"s/step", "tokens/s", "TFLOPS", "GPU", "host", "$/Mtoken"}) {
    const std::size_t end = head->find(name) + std::string(name).size();
    for (auto line = head + 1; line != head + 4; ++line) {
      EXPECT_EQ(display_width(*line), display_width(*head)) << *line;
      EXPECT_NE((*line)[end - 1], ' ') << name << ": " << *line;
      EXPECT_TRUE(end == line->size() || (*line)[end] == ' ') << name << ": " << *line;
    }
  }
}

TEST(ComparisonText, TakesTwoLinesARowWhereOneIsTooWide) {
  Table table;
  const auto set = [](plans::Job& job) {
    job.options.set("deepspeed_version", "0.14.5", {});
    job.options.set("pin_memory", "true", {});
  };
  set(table.add("zero2-offload", 16));
  table.rows[0].published_tflops = 2.0;
  plans::Job& native = table.add("native");
  native.shape.name = "llama-3.1-405b";
  native.workload.precision = plans::Precision::kBf16;
  set(table.add_misfit("zero2-offload"));
  const std::string text = table.text();
  EXPECT_THAT(text, HasSubstr("\n  gpt2, micro-batch 16 x 1,024, zero2-offload pin_memory=true\n"
                              "    deepspeed_version=0.14.5\n      20.0  "));
  EXPECT_THAT(text, HasSubstr("\n  llama-3.1-405b, micro-batch 8 x 1,024, bf16, native\n"));
  EXPECT_THAT(text, HasSubstr("\n    does not fit: GPU needs 10.5 of 4.0 GiB\n"));
  for (const std::string& line : lines_of(text)) {
    EXPECT_LE(display_width(line), 80u) << line;
  }
  EXPECT_THAT(table.text("", {.width = 200}),
              HasSubstr("zero2-offload pin_memory=true deepspeed_version=0.14.5    20.0"));
}

TEST(ComparisonText, PaintsOnlyWhenAskedAndOnlyColours) {
  Table table;
  table.add("native");
  table.add_misfit("megatrain");
  const std::string painted = table.text("title", {.colour = true});
  EXPECT_THAT(table.text("title"), Not(HasSubstr("\x1b")));
  EXPECT_THAT(painted, HasSubstr("\x1b[1mtitle\x1b[0m\n"));
  EXPECT_EQ(without_colour(painted), table.text("title"));
}

TEST(ComparisonText, SaysWhenThereIsNothing) {
  EXPECT_EQ(comparison_text("title", {}), "title\n  nothing to compare\n");
}

}  // namespace
}  // namespace offsim::report::comparison_test
