// Does a log of a handicapped job name its handicap first, and an undisturbed one none?
#include "sim/study/diagnose.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "sim/base/error.h"
#include "sim/study/handicaps.h"
#include "sim/study/scenario.h"

namespace offsim::study::diagnose_test {
namespace {

using testing::HasSubstr;

plans::Job job_of(const std::string& plan, std::int64_t accumulation = 1,
                  const std::string& precision = "bf16-mixed") {
  Scenario scenario;
  scenario.models = {on_command_line("llama-3.2-1b")};
  scenario.machines = {on_command_line("h200-pcie5")};
  scenario.plans = {{on_command_line(plan), {}, {}}};
  if (plan == "zero-infinity") {  // with its own 5, DeepSpeed stops
    scenario.plans.front().options.emplace_back(on_command_line("param_buffer_count"),
                                                on_command_line("100"));
  }
  scenario.workload.micro_batch = on_command_line("4");
  scenario.workload.accumulation = on_command_line(std::to_string(accumulation));
  scenario.workload.precision = on_command_line(precision);
  return cases(Catalog::embedded(), scenario).front().job;
}

logs::Log read(const std::string& text) {
  std::istringstream in(text);
  return logs::read_log(in, "a.log");
}

// As DeepSpeed prints them, after a first step that is slow.
std::string timers(double forward, double backward, double optimizer) {
  const auto line = [&](double by) {
    return fmt::format("[Rank 0] time (ms) | fwd: {:.3f} | bwd: {:.3f} | step: {:.3f}\n",
                       1e3 * forward * by, 1e3 * backward * by, 1e3 * optimizer * by);
  };
  return line(5) + line(1) + line(1.01) + line(0.99);
}

std::string timers_of(plans::Job job) {
  job.workload.phase_sync = true;
  const Prediction p = predict(job);
  return timers(p.phases.at("forward").value, p.phases.at("backward").value,
                p.phases.at("optimizer").value);
}

void expect_first(const Diagnosis& d, const std::string& name) {
  EXPECT_EQ(d.verdict, Verdict::kFound) << verdict_name(d.verdict);
  ASSERT_FALSE(d.suspects.empty());
  EXPECT_EQ(d.suspects.front().name, name) << d.suspects.front().setting;
  EXPECT_FALSE(d.suspects.front().check.empty());
  EXPECT_FALSE(d.suspects.front().command.empty());
}

TEST(Undisturbed, AllIsAsExpected) {
  for (const char* const plan : {"zero2-offload", "zero3-offload", "zero-infinity", "native"}) {
    const plans::Job job = job_of(plan);
    const Diagnosis d = diagnose(job, read(timers_of(job)));
    EXPECT_EQ(d.verdict, Verdict::kAsExpected) << plan;
    EXPECT_TRUE(d.suspects.empty());
    EXPECT_LT(d.distance, 0.05);
  }
}

TEST(Undisturbed, FasterIsNoSuspicion) {
  const plans::Job job = job_of("native");
  const Prediction p = predict(job);
  const Diagnosis d = diagnose(job, read(fmt::format("step time: {} s\n", p.step.value / 2)));
  EXPECT_EQ(d.verdict, Verdict::kFaster);
}

struct Handicapped {
  const char* name;
  const char* plan;
  plans::Job (*edit)(plans::Job);
};

class EachHandicap : public testing::TestWithParam<Handicapped> {};

TEST_P(EachHandicap, IsTheFirstSuspect) {
  const Handicapped& given = GetParam();
  const plans::Job job = job_of(given.plan);
  const Diagnosis d = diagnose(job, read(timers_of(given.edit(job))));
  expect_first(d, given.name);
  EXPECT_TRUE(d.suspects.front().reproduces);
}

INSTANTIATE_TEST_SUITE_P(
    Suspects, EachHandicap,
    testing::Values(
        Handicapped{"threads", "zero3-offload", [](plans::Job j) { return with_threads(j, 1); }},
        Handicapped{"threads", "zero2-offload", [](plans::Job j) { return with_threads(j, 4); }},
        Handicapped{"adam", "zero3-offload", [](plans::Job j) { return with_loop_adam(j); }},
        Handicapped{"adam", "fsdp2-offload", [](plans::Job j) { return with_loop_adam(j); }},
        Handicapped{"channels", "zero2-offload", [](plans::Job j) { return with_dram(j, 0.5); }},
        Handicapped{"link", "zero3-offload", [](plans::Job j) { return with_link(j, 0.5); }},
        Handicapped{"link", "fsdp2-offload", [](plans::Job j) { return with_link(j, 0.25); }},
        Handicapped{"pageable", "zero3-offload",
                    [](plans::Job j) { return with_pageable_memory(j); }},
        Handicapped{"drive", "zero-infinity", [](plans::Job j) { return with_drive(j, 0.25); }},
        Handicapped{"gpu_clock", "native", [](plans::Job j) { return with_gpu_clock(j, 0.5); }}),
    [](const auto& each) { return fmt::format("{}{}", each.param.name, each.index); });

TEST(Suspects, WaitingBetweenTheSteps) {
  const plans::Job job = job_of("zero3-offload");
  const double step = 3 * predict(job).step.value;
  const Diagnosis d = diagnose(job, read(timers_of(job) + fmt::format("step time: {} s\n", step)));
  expect_first(d, "between_steps");
}

TEST(Suspects, SkippedUpdates) {
  plans::Job job = job_of("zero3-offload", 1, "fp16-mixed");
  job.workload.phase_sync = true;
  const Prediction p = predict(job);
  double check = 0;
  for (const Spent& spent : p.spent) {
    check += spent.label == "check for infinities" ? spent.time.value : 0;
  }
  ASSERT_GT(check, 0);
  const Diagnosis d = diagnose(
      job, read(timers(p.phases.at("forward").value, p.phases.at("backward").value, check) +
                "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536\n"));
  expect_first(d, "skipped_updates");
}

TEST(Suspects, AFullHostComesFirst) {
  const plans::Job job = job_of("zero3-offload");
  const Diagnosis d = diagnose(
      job, read("CPU Virtual Memory:  used = 1450.0 GB, percent = 96.1%\nstep time: 100 s\n"));
  expect_first(d, "swap");
  EXPECT_FALSE(d.suspects.front().distance.has_value());
}

TEST(Suspects, WhatTheLogShowsComesFirst) {
  const plans::Job job = job_of("zero3-offload");
  const std::string timers = timers_of(with_link(job, 0.5));
  expect_first(diagnose(job, read("Link Width\n Max : 16x\n Current : 8x\n" + timers)), "link");
  const Diagnosis full = diagnose(
      job,
      read("PCIe Generation\n Max : 5\n Current : 5\nLink Width\n Max : 16x\n Current : 16x\n" +
           timers));
  for (const Suspect& suspect : full.suspects) {
    EXPECT_NE(suspect.name, "link");  // all lanes are there
  }
}

TEST(Suspects, WhatNothingExplainsIsSaid) {
  const plans::Job job = job_of("native");  // whose phases have no way to be so
  const Diagnosis d = diagnose(job, read(timers(1000, 0.001, 1000)));
  EXPECT_THAT(verdict_name(d.verdict), testing::AnyOf("unexplained", "closest"));
}

TEST(Measured, MicroBatchesAreAddedUp) {
  const plans::Job job = job_of("zero3-offload", 2);
  std::string text;
  for (int step = 0; step < 4; ++step) {
    text +=
        "time (ms) | fwd_microstep: 10 | bwd_microstep: 20 | step_microstep: 0.1\n"
        "time (ms) | fwd_microstep: 10 | bwd_microstep: 20 | step_microstep: 500\n";
  }
  const Diagnosis d = diagnose(job, read(text));
  EXPECT_DOUBLE_EQ(d.measured.forward.value(), 0.02);
  EXPECT_DOUBLE_EQ(d.measured.backward.value(), 0.04);
  EXPECT_DOUBLE_EQ(d.measured.optimizer.value(), 0.5);
  EXPECT_FALSE(d.measured.step.has_value());
}

TEST(Measured, RatesBecomeSteps) {
  const plans::Job job = job_of("zero3-offload", 2);  // 8 samples of 1,024 tokens a step
  EXPECT_DOUBLE_EQ(diagnose(job, read("CurrSamplesPerSec=4\n")).measured.step.value(), 2);
  EXPECT_DOUBLE_EQ(diagnose(job, read("tokens_per_second_per_gpu: 1024\n")).measured.step.value(),
                   8);
  EXPECT_DOUBLE_EQ(diagnose(job, read("'train_steps_per_second': 0.25\n")).measured.step.value(),
                   4);
}

TEST(Measured, WarmUpIsLeftOutAndMemoryIsTheMost) {
  const Diagnosis d = diagnose(
      job_of("native"), read("step time: 9 s\nstep time: 1 s\nstep time: 1 s\nMaxMemAllocated=3GB\n"
                             "MaxMemAllocated=5GB\nMaxMemAllocated=4GB\n"));
  EXPECT_DOUBLE_EQ(d.measured.step.value(), 1);
  ASSERT_EQ(d.memory.size(), 1U);
  EXPECT_EQ(d.memory.front().measured, Bytes(5 * kGiB));
}

// nvidia-smi lists all GPUs of a machine: the job's is the fullest.
TEST(Measured, OfSeveralGpusTheJobsCounts) {
  const plans::Job job = job_of("zero3-offload");
  const Diagnosis d = diagnose(
      job, read(timers_of(job) +
                "|   0  NVIDIA H200        On  |   00000000:18:00.0 Off |                    0 |\n"
                "| N/A   45C    P0   523W / 700W |  12288MiB / 143771MiB |     95%      Default |\n"
                "|   1  NVIDIA H200        On  |   00000000:2A:00.0 Off |                    0 |\n"
                "| N/A   30C    P0    75W / 700W |      4MiB / 143771MiB |      0%      Default |\n"
                "GPU 00000000:18:00.0\n Link Width\n Max : 16x\n Current : 16x\n"
                "GPU 00000000:2A:00.0\n Link Width\n Max : 16x\n Current : 4x\n"));
  const auto value = [&](logs::What what) {
    return std::ranges::find(d.summaries, what, &Summary::what)->value;
  };
  EXPECT_EQ(value(logs::What::kPower), 523);
  EXPECT_EQ(value(logs::What::kGpuBusy), 0.95);
  EXPECT_EQ(value(logs::What::kGpuUsed), 12288.0 * (1 << 20));
  EXPECT_EQ(value(logs::What::kLinkWidth), 16);
  ASSERT_EQ(d.notes.size(), 1U);
  EXPECT_EQ(d.notes.front(),
            "the log has 2 GPUs, and the job 1: memory, power and load are the fullest one's, GPU "
            "0");
}

TEST(Measured, WholeStepsAloneAreSaidToBeLittle) {
  const Diagnosis d = diagnose(job_of("zero3-offload"), read("step time: 2 s\n"));
  ASSERT_FALSE(d.notes.empty());
  EXPECT_THAT(d.notes.front(), HasSubstr("wall_clock_breakdown"));
}

TEST(Measured, ALogWithoutATimeIsRefused) {
  try {
    diagnose(job_of("native"), read("MaxMemAllocated=3GB\n"));
    FAIL();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("a.log: has no time or rate of a step; expected"));
  }
}

}  // namespace
}  // namespace offsim::study::diagnose_test
