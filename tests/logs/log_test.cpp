// Is each program's line read, and nothing taken for one that is not?
#include "sim/logs/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "sim/base/error.h"
#include "sim/base/units.h"

namespace offsim::logs::log_test {
namespace {

using testing::DoubleEq;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Log read(const std::string& text) {
  std::istringstream in(text);
  return read_log(in, "a.log");
}

std::string refusal(const std::string& text) {
  try {
    read(text);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

constexpr double kGibi = static_cast<double>(kGiB);

TEST(DeepSpeed, TimersOfAStepAndOfMicroBatches) {
  const Log log = read(
      "node1: [2024-05-01 12:00:00,123] [INFO] [logging.py:96:log_dist] [Rank 0] time (ms) | "
      "fwd_microstep: 12.30 | bwd_microstep: 45.60 | bwd_inner_microstep: 40.00 | "
      "bwd_allreduce_microstep: 5.00 | step_microstep: 1,078.90\n"
      "[Rank 0] time (ms) | fwd: 120.5 | bwd: 400 | bwd_inner: 390 | bwd_allreduce: 5 | step: 80\n"
      "[Rank 0] time (ms) | forward_microstep: 7 | backward_microstep: 8 | step_microstep: 9\n");
  EXPECT_THAT(log.values(What::kForwardMicro), ElementsAre(DoubleEq(0.0123), DoubleEq(0.007)));
  EXPECT_THAT(log.values(What::kBackwardMicro), ElementsAre(DoubleEq(0.0456), DoubleEq(0.008)));
  EXPECT_THAT(log.values(What::kOptimizerMicro), ElementsAre(DoubleEq(1.0789), DoubleEq(0.009)));
  EXPECT_THAT(log.values(What::kForward), ElementsAre(DoubleEq(0.1205)));
  EXPECT_THAT(log.values(What::kBackward), ElementsAre(DoubleEq(0.4)));
  EXPECT_THAT(log.values(What::kOptimizer), ElementsAre(DoubleEq(0.08)));
  EXPECT_EQ(log.known, 3);
}

TEST(DeepSpeed, PartsOfTheOptimizerAreNotTheStep) {
  const Log log = read(
      "time (ms) | optimizer_gradients: 1.5 | optimizer_step: 30 | optimizer_allgather: 0.5\n");
  EXPECT_THAT(log.values(What::kOptimizerPart), ElementsAre(0.0015, 0.03, 0.0005));
  EXPECT_THAT(log.values(What::kOptimizer), IsEmpty());
}

// In columns of other programs "step" is a number of steps.
TEST(DeepSpeed, TimersStandBehindTheirUnit) {
  const Log log = read(
      "epoch: 1 | step: 300 | loss: 2.5\nstep time: 7 s\n"
      "loss 2 | time (ms) | fwd: 7 | step: 9\n");
  EXPECT_THAT(log.values(What::kOptimizer), IsEmpty());
  EXPECT_THAT(log.values(What::kForward), IsEmpty());
  EXPECT_THAT(log.values(What::kStep), ElementsAre(7));
}

TEST(DeepSpeed, Throughput) {
  const Log log = read(
      "[Rank 0] epoch=0/micro_step=20/global_step=10, RunningAvgSamplesPerSec=3.5, "
      "CurrSamplesPerSec=4.25, MemAllocated=12.5GB, MaxMemAllocated=30.25GB\n");
  EXPECT_THAT(log.values(What::kSamples), ElementsAre(4.25));
  EXPECT_THAT(log.values(What::kGpuPeak), ElementsAre(30.25 * kGibi));
}

TEST(DeepSpeed, MemoryUsageAndSkippedSteps) {
  const Log log = read(
      "[INFO] MA 1.2 GB         Max_MA 3.5 GB         CA 5.6 GB         Max_CA 6 GB \n"
      "[INFO] CPU Virtual Memory:  used = 123.5 GB, percent = 12.5%\n"
      "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to "
      "32768\n");
  EXPECT_THAT(log.values(What::kGpuPeak), ElementsAre(3.5 * kGibi));
  EXPECT_THAT(log.values(What::kGpuReserved), ElementsAre(6 * kGibi));
  EXPECT_THAT(log.values(What::kHostUsed), ElementsAre(123.5 * kGibi));
  EXPECT_THAT(log.values(What::kHostShare), ElementsAre(0.125));
  EXPECT_THAT(log.values(What::kSkipped), ElementsAre(1));
}

TEST(Trainer, SummaryAndProgress) {
  const Log log = read(
      "{'loss': 1.5, 'grad_norm': 0.7, 'learning_rate': 2e-05, 'epoch': 0.1}\n"
      "{'train_runtime': 100.0, 'train_samples_per_second': 8.0, 'train_steps_per_second': 0.5, "
      "'train_loss': 1.2, 'epoch': 1.0}\n"
      "  1%|          | 1/100 [00:03<05:12,  3.25s/it]\r  2%|2         | 2/100 [00:04<04:12, "
      " 4.00it/s]\n");
  EXPECT_THAT(log.values(What::kSamplesMean), ElementsAre(8));
  EXPECT_THAT(log.values(What::kStepMean), ElementsAre(2));
  EXPECT_THAT(log.values(What::kStep), ElementsAre(3.25, 0.25));
  EXPECT_EQ(log.lines, 4);  // '\r' ends one
  EXPECT_EQ(log.known, 4);
}

TEST(Trainer, OtherBarsAreNoSteps) {
  const Log log = read(
      "Loading checkpoint shards: 100%|####| 4/4 [00:10<00:00,  2.60s/it]\n"
      "Map: 100%|####| 100/100 [00:01<00:00, 99.0 examples/s]\n"
      "step time: 1.5 s\n");
  EXPECT_THAT(log.values(What::kStep), ElementsAre(1.5));
  EXPECT_EQ(log.unknown, 2);
}

TEST(Others, StepTimesAndTokens) {
  const Log log = read(
      "step time: 1.25 s\n"
      "step_time: 250 ms\n"
      "elapsed time per iteration (ms): 1500.0 | learning rate: 1e-5\n"
      "Step 3 | loss:1.2 lr:2e-05 tokens_per_second_per_gpu:1,234.5 peak_memory_alloc:12.5\n"
      "[titan] \x1b[31mstep: 10 \x1b[32m loss: 4.5 \x1b[33m memory: 9GiB(9%) \x1b[34m tps: "
      "2,000\n");
  EXPECT_THAT(log.values(What::kStep), ElementsAre(1.25, 0.25, 1.5));
  EXPECT_THAT(log.values(What::kTokens), ElementsAre(1234.5, 2000));
  EXPECT_THAT(log.values(What::kGpuPeak), ElementsAre(12.5 * kGibi));
}

TEST(Smi, TheTableOfOneGpu) {
  const Log log = read(
      "| N/A   45C    P0            123W / 700W |  12288MiB / 143771MiB |     45%      Default "
      "|\n");
  EXPECT_THAT(log.values(What::kPower), ElementsAre(123));
  EXPECT_THAT(log.values(What::kPowerLimit), ElementsAre(700));
  EXPECT_THAT(log.values(What::kGpuUsed), ElementsAre(12 * kGibi));
  EXPECT_THAT(log.values(What::kGpuBusy), ElementsAre(0.45));
}

// Each figure is of the GPU whose line stands above it; -q names them by the bus alone.
TEST(Smi, OfTwoGpusIsKeptApart) {
  const std::string table =
      "|   0  NVIDIA H200                    On  |   00000000:18:00.0 Off |                    0 "
      "|\n"
      "| N/A   30C    P0             75W / 700W |      4MiB / 143771MiB |      0%      Default |\n"
      "|   1  NVIDIA H200                    On  |   00000000:2A:00.0 Off |                    0 "
      "|\n"
      "| N/A   45C    P0            523W / 700W |  12288MiB / 143771MiB |     95%      Default |\n";
  const Log log =
      read(table +
           "step time: 1 s\n"
           "GPU 00000000:2A:00.0\n    Link Width\n        Max : 16x\n        Current : 8x\n" +
           "GPU 00000000:3B:00.0\n    Link Width\n        Max : 16x\n        Current : 16x\n");
  EXPECT_THAT(log.gpus, ElementsAre("0", "1", "00000000:3B:00.0"));
  const auto of_gpu = [&](What what) {
    std::vector<std::pair<int, double>> out;
    for (const Observation& seen : log.observations) {
      if (seen.what == what) {
        out.emplace_back(seen.gpu, seen.value);
      }
    }
    return out;
  };
  using testing::Pair;
  EXPECT_THAT(of_gpu(What::kPower), ElementsAre(Pair(0, 75), Pair(1, 523)));
  EXPECT_THAT(of_gpu(What::kGpuBusy), ElementsAre(Pair(0, 0), Pair(1, 0.95)));
  EXPECT_THAT(of_gpu(What::kLinkWidth), ElementsAre(Pair(1, 8), Pair(2, 16)));
  EXPECT_THAT(of_gpu(What::kStep), ElementsAre(Pair(-1, 1)));
  EXPECT_EQ(log.unknown, 0);
}

TEST(Smi, LinkOnLinesOfItsOwnAndUnderHeadings) {
  const Log log = read(
      "        GPU Link Info\n"
      "            PCIe Generation\n"
      "                Max                       : 5\n"
      "                Current                   : 4\n"
      "                Device Max                : 6\n"
      "            Link Width\n"
      "                Max                       : 16x\n"
      "                Current                   : 8x\n"
      "        Bridge Chip\n"
      "                Current                   : 3\n"
      "Link Width Current : 4x\n");
  EXPECT_THAT(log.values(What::kLinkGeneration), ElementsAre(4));
  EXPECT_THAT(log.values(What::kLinkGenerationMost), ElementsAre(5));
  EXPECT_THAT(log.values(What::kLinkWidth), ElementsAre(8, 4));
  EXPECT_THAT(log.values(What::kLinkWidthMost), ElementsAre(16));
}

TEST(Log, ObservationsHaveTheirLine) {
  const Log log = read("hello\n\nstep time: 2 s\n");
  ASSERT_EQ(log.observations.size(), 1U);
  EXPECT_EQ(log.observations.front().line, 3);
  EXPECT_EQ(log.lines, 2);
  EXPECT_EQ(log.unknown, 1);
}

TEST(Log, WhatIsNoNumberIsNoFigure) {
  const Log log = read(
      "time (ms) | fwd: nan | bwd: inf | step: -3\nstep time: 1e999 s\nstep time: 1e30 s\n"
      "mystep time: 3 s\nstep time: 7 s\n");
  EXPECT_THAT(log.values(What::kForward), IsEmpty());
  EXPECT_THAT(log.values(What::kOptimizer), IsEmpty());
  EXPECT_THAT(log.values(What::kStep), ElementsAre(7));
}

// A figure is left out where no run has it, and counted.
TEST(Log, WhatNoRunHasIsLeftOut) {
  const Log log = read(
      "CurrSamplesPerSec=1e300\nCurrSamplesPerSec=1e-300\nCurrSamplesPerSec=2\n"
      "{'train_steps_per_second': 1e-300}\n{'train_steps_per_second': 1e-310}\n"
      "step time: 1e17 s\nstep time: 1e-300 s\ntime (ms) | fwd: 1e17 | bwd: 0 | step: 5\n"
      "CPU Virtual Memory: used = 1e12 GB, percent = 130%\nLink Width Current : 1000x\n");
  EXPECT_THAT(log.values(What::kSamples), ElementsAre(2));
  EXPECT_THAT(log.values(What::kStepMean), IsEmpty());
  EXPECT_THAT(log.values(What::kStep), IsEmpty());
  EXPECT_THAT(log.values(What::kForward), IsEmpty());
  EXPECT_THAT(log.values(What::kBackward), ElementsAre(0));
  EXPECT_THAT(log.values(What::kHostUsed), IsEmpty());
  EXPECT_THAT(log.values(What::kHostShare), IsEmpty());
  EXPECT_THAT(log.values(What::kLinkWidth), IsEmpty());
  EXPECT_EQ(log.absurd, 10);
}

TEST(Log, NothingKnownIsRefused) {
  EXPECT_THAT(refusal("hello\nworld\n"),
              HasSubstr("a.log: none of its 2 lines is of a kind that offsim reads; expected"));
  EXPECT_THAT(refusal(""), HasSubstr("none of its 0 lines"));
}

TEST(Log, LongLinesAreReadToABound) {
  const Log log = read(std::string(kLongestLine, 'x') + " step time: 2 s\nstep time: 1 s\n");
  EXPECT_THAT(log.values(What::kStep), ElementsAre(1));
  EXPECT_EQ(log.too_long, 1);
}

TEST(Log, ALongLogIsRefused) {
  EXPECT_THAT(refusal("step time: 1 s\n" + std::string(kLongestLog, '\n')),
              HasSubstr("larger than 64 MiB"));
}

}  // namespace
}  // namespace offsim::logs::log_test
