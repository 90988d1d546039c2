// Do costs give back what was measured, and is the formula right where nothing was?
#include "sim/machine/cost.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "sim/base/config.h"
#include "sim/machine/formulas.h"
#include "tests/machine/test_catalog.h"

namespace offsim::machine::cost_test {
namespace {

constexpr const char* kMeasured = "h200-16core-vm";

const Machine& h200() {
  static const Machine machine = load(kMeasured);
  return machine;
}

std::vector<nlohmann::json> records(const std::string& file, const std::string& kind) {
  std::istringstream lines(
      read_file(fmt::format("{}/hardware/measured/raw/{}", OFFSIM_SOURCE_DIR, file)));
  std::vector<nlohmann::json> out;
  for (std::string line; std::getline(lines, line);) {
    nlohmann::json record = nlohmann::json::parse(line);
    if (record["kind"] == kind) {
      out.push_back(record);
    }
  }
  return out;
}

double error(double predicted, double measured) { return std::abs(predicted / measured - 1); }

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

struct Shape {
  double m, k, n, seconds;
};

// The median over the operand layouts, which the model leaves out.
std::vector<Shape> measured_products() {
  std::map<std::array<double, 3>, std::vector<double>> times;
  for (const nlohmann::json& r : records("h200-gemm.jsonl", "gemm")) {
    times[{r["m"], r["k"], r["n"]}].push_back(r["s"]);
  }
  std::vector<Shape> out;
  for (const auto& [mkn, seconds] : times) {
    out.push_back({mkn[0], mkn[1], mkn[2], median(seconds)});
  }
  return out;
}

TEST(MeasuredProducts, ComeBackWithinThreePercent) {
  for (const Shape& s : measured_products()) {
    const Gemm gemm{.m = s.m, .n = s.n, .k = s.k, .sustained = false};
    EXPECT_LT(error(gemm_time(h200(), gemm).time.value, s.seconds), 0.03)
        << s.m << " " << s.k << " " << s.n;
  }
}

Sample product_sample(const Shape& s) {
  const Accelerator& a = h200().accelerator;
  const Estimate estimate =
      product_estimate({s.m, s.k, s.n}, a.bf16.value.value, a.memory_bandwidth.value.value, 2);
  return {estimate.features, estimate.where, std::log(s.seconds / estimate.seconds)};
}

TEST(MeasuredProducts, ArePredictedFromTheOthersWithinFivePercent) {
  const std::vector<Shape> all = measured_products();
  ASSERT_GE(all.size(), 400U);
  std::vector<Sample> samples;
  for (const Shape& shape : all) {
    samples.push_back(product_sample(shape));
  }
  double sum = 0;
  double worst = 0;
  for (const Sample& one : samples) {
    std::vector<Sample> others;
    for (const Sample& sample : samples) {
      if (&sample != &one) {
        others.push_back(sample);
      }
    }
    const double factor = fit_correction(others).factor(one.features, one.where);
    const double e = error(factor, std::exp(one.log_ratio));
    sum += e;
    worst = std::max(worst, e);
  }
  const double mean = sum / static_cast<double>(all.size());
  std::cout << "leaving one product out of " << all.size() << ": mean error " << 100 * mean
            << " %, worst " << 100 * worst << " %\n";
  EXPECT_LT(mean, 0.05);
  EXPECT_LT(worst, 0.25);
}

// The efficiency that stands for large products, without any measured point, on the same shapes.
TEST(Formula, WithoutPointsIsWithinTenPercentOfTheRecords) {
  double sum = 0;
  const std::vector<Shape> all = measured_products();
  for (const Shape& s : all) {
    const Sample sample = product_sample(s);
    const double factor = unmeasured_product(0.71).factor(sample.features, sample.where);
    sum += error(factor, std::exp(sample.log_ratio));
  }
  EXPECT_LT(sum / static_cast<double>(all.size()), 0.05);
}

TEST(MeasuredAttention, ComesBackWithinThreePercent) {
  int compared = 0;
  for (const nlohmann::json& r : records("h200-layers.jsonl", "attention")) {
    Attention attention{.batch = r["b"], .heads = r["h"], .sequence = r["s"], .head_dim = r["d"]};
    attention.sustained = false;
    if (r["fwd_s"] >= 80e-6) {  // shorter ones timed the host's call
      EXPECT_LT(error(attention_time(h200(), attention).time.value, r["fwd_s"]), 0.03) << r;
      ++compared;
    }
    attention.backward = true;
    if (r["bwd_s"] >= 280e-6) {
      EXPECT_LT(error(attention_time(h200(), attention).time.value, r["bwd_s"]), 0.03) << r;
    }
  }
  EXPECT_GE(compared, 10);
}

TEST(MeasuredElementwise, ComesBackWithinThreePercent) {
  for (const nlohmann::json& r : records("h200-layers.jsonl", "elementwise")) {
    const Bytes moved(std::llround(2 * r["mib"].get<double>() * kMiB));  // read and written
    const Seconds predicted = elementwise_time(h200(), moved).time;
    if (r["mul_s"] > 2e-6) {
      EXPECT_LT(error(predicted.value, r["mul_s"]), 0.04) << r;
    } else {  // hardly longer than a kernel's start and end
      EXPECT_EQ(predicted, h200().accelerator.kernel_floor.value) << r;
    }
  }
}

TEST(MeasuredGpuAdam, ComesBackWithinThreePercent) {
  const nlohmann::json fp32 = records("h200-components.jsonl", "gpu_adam_fused_fp32").at(0);
  EXPECT_LT(error(gpu_adam_time(h200(), fp32["n"], Bytes(4)).time.value, fp32["s"]), 0.03);
  const nlohmann::json bf16 = records("h200-host-2.jsonl", "gpu_adam_fused_bf16").at(0);
  EXPECT_LT(error(gpu_adam_time(h200(), bf16["n"], Bytes(2)).time.value, median(bf16["s"])), 0.03);
}

TEST(MeasuredCopies, ComeBackWithinThreePercent) {
  for (const nlohmann::json& r : records("h200-components.jsonl", "copy")) {
    const Bytes bytes(std::llround(r["mib"].get<double>() * kMiB));
    EXPECT_LT(error(pageable_copy(h200(), Direction::kH2d, bytes).time.value, r["h2d_pageable_s"]),
              0.03)
        << r;
    EXPECT_LT(error(pageable_copy(h200(), Direction::kD2h, bytes).time.value, r["d2h_pageable_s"]),
              0.03)
        << r;
    if (r["mib"] >= 16) {
      const PinnedCopy down = pinned_copy(h200(), Direction::kH2d);
      const double t = down.latency.value + (bytes / down.rate).value;
      EXPECT_LT(error(t, r["h2d_pinned_s"]), 0.04) << r;  // the record holds the host's call too
    }
  }
}

struct CpuRecord {
  const char* kernel;
  const char* kind;
  std::map<std::string, std::string> fields;
};

class MeasuredCpuKernel : public testing::TestWithParam<CpuRecord> {};

// The largest size, which lies beyond the L3 cache as a training step's tensors do.
TEST_P(MeasuredCpuKernel, ComesBackWithinThreePercent) {
  nlohmann::json largest;
  for (const nlohmann::json& r : records("h200-host-2.jsonl", GetParam().kind)) {
    const bool same = std::ranges::all_of(GetParam().fields, [&](const auto& field) {
      return r.value(field.first, "") == field.second;
    });
    if (same && (largest.is_null() || r["n"] > largest["n"])) {
      largest = r;
    }
  }
  const double n = largest.at("n");
  const CpuWork work = cpu_kernel(h200(), GetParam().kernel, n, 16);
  EXPECT_LT(error(n / work.rate.value, median(largest["s"])), 0.03) << largest;
}

INSTANTIATE_TEST_SUITE_P(
    H200, MeasuredCpuKernel,
    testing::Values(CpuRecord{"norm_f32", "cpu_op", {{"op", "norm"}, {"dtype", "f32"}}},
                    CpuRecord{"norm_bf16", "cpu_op", {{"op", "norm"}, {"dtype", "bf16"}}},
                    CpuRecord{"mul_f32", "cpu_op", {{"op", "mul_"}, {"dtype", "f32"}}},
                    CpuRecord{"zero_bf16", "cpu_op", {{"op", "zero_"}, {"dtype", "bf16"}}},
                    CpuRecord{"add_bf16", "cpu_op", {{"op", "add_"}, {"dtype", "bf16"}}},
                    CpuRecord{"copy_f32", "cpu_op", {{"op", "copy_"}, {"dtype", "f32"}}},
                    CpuRecord{"isinf_any_f32", "cpu_op", {{"op", "isinf_any"}, {"dtype", "f32"}}},
                    CpuRecord{"cast_f32_bf16", "cpu_op", {{"op", "cast_f32_to_bf16"}}},
                    CpuRecord{"adam_torch_fused_f32", "adam_torch_fused", {{"dtype", "f32"}}},
                    CpuRecord{"adam_torch_loop_bf16", "adam_torch_loop", {{"dtype", "bf16"}}},
                    CpuRecord{"adam_deepspeed_f32", "adam_deepspeed_0.14.5", {{"dtype", "f32"}}},
                    CpuRecord{"adam_deepspeed_bf16",
                              "adam_deepspeed_0.14.5",
                              {{"dtype", "bf16_params_f32_states"}}}),
    [](const auto& kernel) { return std::string(kernel.param.kernel); });

// Bytes a second of a kernel and of each of `copies` copies: shares of DRAM by weight, each at most
// its own limit.
std::pair<double, double> shared(double kernel_limit, int copies, double capacity, double weight) {
  const double copy_limit = copies == 2 ? 47.8e9 : 55e9;
  double level = 0;
  for (double step = 1e12; step > 1e3; step /= 2) {
    const double next = level + step;
    const double used = std::min(kernel_limit, next) + copies * std::min(copy_limit, weight * next);
    level = used <= capacity ? next : level;
  }
  return {std::min(kernel_limit, level), std::min(copy_limit, weight * level)};
}

// One capacity and one weight stand for what is really queueing: no better than a sixth.
TEST(MeasuredContention, IsWhatCapacityAndWeightSay) {
  const std::map<std::string, double> bytes = {{"adam_f32", 28}, {"mul_f32", 8}, {"copy_f32", 12}};
  std::map<std::pair<std::string, int>, double> alone;
  double squares = 0;
  int compared = 0;
  for (const nlohmann::json& r : records("h200-contention.jsonl", "contention")) {
    const auto kernel = bytes.find(r["kernel"]);
    if (kernel == bytes.end()) {
      continue;
    }
    const double rate = kernel->second * 268435456 / r["kernel_s"].get<double>();
    double& own = alone[{kernel->first, r["threads"]}];
    if (r["copies"] == "none") {
      own = rate;
      continue;
    }
    const auto [k, copy] = shared(own, r["copies"] == "duplex" ? 2 : 1,
                                  h200().host.dram.value.value, h200().host.dma_weight.value);
    const double measured_copy =
        1e9 * std::max(r["h2d_gbs"].get<double>(), r["d2h_gbs"].get<double>());
    squares += std::pow(std::log(k / rate), 2) + std::pow(std::log(copy / measured_copy), 2);
    compared += 2;
  }
  ASSERT_GE(compared, 40);
  EXPECT_LT(std::sqrt(squares / compared), 0.17);
}

TEST(CpuKernels, FewerThreadsFollowTheMeasuredSpeeds) {
  for (const nlohmann::json& r : records("h200-host-2.jsonl", "adam_threads")) {
    const CpuWork work = cpu_kernel(h200(), "adam_torch_fused_f32", r["n"], r["threads"]);
    // Two sets of records differ by a third at 8 threads; the curve lies between.
    EXPECT_LT(error(r["n"].get<double>() / work.rate.value, median(r["s"])), 0.2) << r;
    EXPECT_EQ(work.cores, r["threads"].get<double>());
  }
  EXPECT_EQ(cpu_kernel(h200(), "adam_torch_fused_f32", 1e8, 99).cores, 16);
}

TEST(CpuKernels, ANormRunsOnOneCore) {
  const CpuWork one = cpu_kernel(h200(), "norm_bf16", 1e8, 1);
  const CpuWork all = cpu_kernel(h200(), "norm_bf16", 1e8, 16);
  EXPECT_EQ(one.rate, all.rate);
  EXPECT_EQ(all.cores, 1);
}

TEST(CpuKernels, NeverMoveMoreThanDramGives) {
  for (const std::string& name : cpu_kernel_names()) {
    for (const double elements : {1e3, 4e6, 6e7, 1e9, 1e11}) {
      const CpuWork work = cpu_kernel(h200(), name, elements, 16);
      EXPECT_LE(work.rate.value * work.dram_bytes_per_element,
                h200().host.dram.value.value * (1 + 1e-12))
          << name;
    }
  }
}

TEST(CpuKernels, AnUnknownNameGetsTheNearest) {
  try {
    cpu_kernel(h200(), "adam_deepseed_f32", 1e6, 16);
    FAIL();
  } catch (const InputError& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("there is no CPU kernel 'adam_deepseed_f32'; did you "
                                             "mean 'adam_deepspeed_f32'?"));
  }
}

// 4 GiB written fresh by one thread: faulting, then what warm pages take.
TEST(Pages, FaultingByOneThreadIsWhatWasMeasured) {
  std::vector<double> fresh;
  for (const nlohmann::json& p : records("h200-host-1.jsonl", "page_touch")) {
    if (p["threads"] == 1) {
      fresh.push_back(4 * kGiB / (1e9 * p["fresh_gbs"].get<double>()));
    }
  }
  const double warm = 4 * kGiB / 10e9;
  EXPECT_LT(error(warm + fresh_pages(h200(), Bytes(4 * kGiB), 1).time.value, median(fresh)), 0.12);
  EXPECT_LT(fresh_pages(h200(), Bytes(kGiB), 16).time, fresh_pages(h200(), Bytes(kGiB), 1).time);
  EXPECT_EQ(fresh_pages(h200(), Bytes(kGiB), 99).time, fresh_pages(h200(), Bytes(kGiB), 16).time);
}

// Two ways of measuring differ by four times; the figure lies between.
TEST(Pages, ReleasingLiesBetweenTheRecords) {
  const nlohmann::json mapped = records("h200-host-2.jsonl", "munmap").at(3);
  EXPECT_LT(release_pages(h200(), Bytes(2 * kGiB)).time.value, median(mapped["s"]));
  EXPECT_GT(release_pages(h200(), Bytes(2 * kGiB)).time.value, median(mapped["s"]) / 5);
}

TEST(Floors, AnEmptyKernelTakesTheShortest) {
  const Known<Seconds>& floor = h200().accelerator.kernel_floor;
  EXPECT_EQ(elementwise_time(h200(), Bytes(0)).time, floor.value);
  EXPECT_EQ(elementwise_time(h200(), Bytes(0)).figure, floor.figure);
  EXPECT_GE(gemm_time(h200(), {.m = 1, .n = 1, .k = 1}).time, floor.value);
}

TEST(Sustained, TakesTheMeasuredShareLonger) {
  const Gemm brief{.m = 8192, .n = 8192, .k = 8192, .sustained = false};
  const Gemm longer{.m = 8192, .n = 8192, .k = 8192, .sustained = true};
  EXPECT_DOUBLE_EQ(gemm_time(h200(), longer).time / gemm_time(h200(), brief).time,
                   h200().accelerator.sustained.value);
}

// 16 k x 8 k x 8 k on 989 TFLOPS: 2.2235 ms at the peak.
TEST(Formula, IsThePeakOverTheEfficiencyForLargeProducts) {
  const double roofline = 2.0 * 16384 * 8192 * 8192 / 989e12;
  const Estimate e = product_estimate({16384, 8192, 8192}, 989e12, 4.8e12, 2);
  EXPECT_DOUBLE_EQ(e.seconds, 2e-6 + roofline);
  const double t = e.seconds * unmeasured_product(0.7).factor(e.features, e.where);
  EXPECT_GT(t, roofline / 0.7);
  EXPECT_LT(t, roofline / 0.7 * 1.05);
}

TEST(Formula, ASingleRowIsBoundByMemory) {
  const Estimate e = product_estimate({1, 8192, 8192}, 989e12, 4.8e12, 2);
  EXPECT_TRUE(e.memory_bound);
  EXPECT_DOUBLE_EQ(e.seconds, 2e-6 + 2.0 * (8192 + 8192.0 * 8192 + 8192) / (0.85 * 4.8e12));
}

TEST(Formula, AttentionCountsHalfTheSquareWhenCausal) {
  // 4 x 2 x 16 x 1024^2 x 128, halved
  EXPECT_DOUBLE_EQ(attention_flops({2, 16, 1024, 128, true, false}), 8589934592.0);
  EXPECT_DOUBLE_EQ(attention_flops({2, 16, 1024, 128, false, true}), 2.5 * 17179869184.0);
}

RC_GTEST_PROP(Elementwise, TwiceTheBytesAreNeverFaster, ()) {
  const auto bytes = std::llround(std::exp2(*rc::gen::inRange(0, 40'000) / 1000.0));
  RC_ASSERT(elementwise_time(h200(), Bytes(bytes)).time <=
            elementwise_time(h200(), Bytes(2 * bytes)).time);
}

// The residuals of noisy points bend the formula a little.
RC_GTEST_PROP(Products, TwiceTheRowsAreHardlyEverFaster, ()) {
  const auto size = [] { return std::round(std::exp2(*rc::gen::inRange(0, 16'000) / 1000.0)); };
  const double m = size();
  const double n = size();
  const double k = size();
  RC_ASSERT(gemm_time(h200(), {.m = 2 * m, .n = n, .k = k}).time >
            0.9 * gemm_time(h200(), {.m = m, .n = n, .k = k}).time);
}

TEST(Drives, NeedEnoughInFlight) {
  Drive drive;
  drive.read.value = BytesPerSecond(7e9);
  drive.write.value = BytesPerSecond(5e9);
  drive.latency.value = Seconds(200e-6);
  const Bytes block(1'000'000);
  EXPECT_DOUBLE_EQ(drive_read(drive, block, 1).rate.value, 5e9);  // 1 MB in 200 us
  EXPECT_DOUBLE_EQ(drive_read(drive, block, 2).rate.value, 7e9);
  EXPECT_DOUBLE_EQ(drive_write(drive, block, 2).rate.value, 5e9);
}

}  // namespace
}  // namespace offsim::machine::cost_test
