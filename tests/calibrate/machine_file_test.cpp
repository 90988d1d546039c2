// Does a machine file say what the records say, and does the program take it?
#include "sim/calibrate/machine_file.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

#include "sim/calibrate/drift.h"
#include "sim/machine/cost.h"

namespace offsim::calibrate::machine_file_test {
namespace {

constexpr const char* kHost =
    R"({"cpu":"A Xeon","isa":"avx512","cores":4,"nodes":1,"memory_bytes":68719476736})";
constexpr const char* kGpu =
    R"({"name":"NVIDIA H200","count":1,"memory_bytes":150109880320,"multiprocessors":132})";

std::string records_text(const std::string& gpu, const std::string& lines) {
  return fmt::format(
      "{{\"record\":\"env\",\"schema\":\"offsim.measured/1\",\"date\":\"2026-11-30T10:00:00Z\","
      "\"quick\":true,\"host\":{},\"gpu\":{}}}\n{}{{\"record\":\"end\",\"seconds\":1}}\n",
      kHost, gpu, lines);
}

std::string point(const std::string& bench, const std::string& at, double value,
                  const std::string& unit = "s") {
  return fmt::format(
      "{{\"record\":\"point\",\"bench\":\"{}\",\"at\":{{{}}},\"value\":{},\"unit\":\"{}\","
      "\"spread\":0.02,\"samples\":5}}\n",
      bench, at, value, unit);
}

std::string host_lines() {
  std::string lines;
  for (const auto& [threads, rate] : {std::pair{1, 20e9}, {2, 38e9}, {4, 60e9}}) {
    lines += point("stream", fmt::format("\"what\":\"mul\",\"threads\":{}", threads), rate, "B/s");
    // 16 Mi elements of 8 bytes.
    lines +=
        point("cpu_kernel",
              fmt::format("\"kernel\":\"mul_f32\",\"elements\":16777216,\"threads\":{}", threads),
              16777216 * 8 / rate);
  }
  lines += point("page_touch", R"("threads":1,"bytes":1000000000,"state":"fresh","huge":0)", 0.75);
  lines += point("page_touch", R"("threads":1,"bytes":1000000000,"state":"warm","huge":0)", 0.25);
  lines += point("page_release", R"("bytes":1000000000)", 0.1);
  return lines;
}

machine::Catalog catalog() {
  return machine::folder_catalog(std::string(OFFSIM_SOURCE_DIR) + "/hardware");
}

// As a user's: from a file.
machine::Machine load(const MachineFile& file) {
  const std::string path = testing::TempDir() + "calibrated.yaml";
  std::ofstream(path) << file.text;
  machine::Machine m = machine::load_machine(catalog(), path);
  std::remove(path.c_str());
  return m;
}

MachineFile file_of(const std::string& text, const std::string& base) {
  return machine_file(parse_records(text, "r.jsonl"), catalog(), base, "r.jsonl");
}

TEST(MachineFile, AHostIsItsFigures) {
  const machine::Machine m =
      load(file_of(records_text("null", host_lines()), "workstation-pcie4-4090"));
  EXPECT_EQ(m.host.name, "A Xeon");
  EXPECT_EQ(m.host.cores, 4);
  EXPECT_EQ(m.host.memory.value, Bytes(64 * kGiB));
  EXPECT_NEAR(m.host.dram.value.value, 60e9, 1e6);
  EXPECT_NEAR(m.host.core_bandwidth.value.value, 20e9, 1e6);
  EXPECT_NEAR(m.host.fresh_pages.at(1), 2e9, 1e6);  // 1 GB in half a second more than warm
  EXPECT_NEAR(m.host.page_release.value.value, 10e9, 1e6);
  EXPECT_NEAR(m.host.threads.at("stream").at(4), 7.5e9, 1e6);
  // Half of the speed on two of four threads is 38 / 60 of it.
  EXPECT_NEAR(machine::cpu_kernel(m, "mul_f32", 16777216, 2).rate.value, 7.5e9 * 38 / 60, 5e6);
  const machine::Figure& dram = m.figure(m.host.dram.figure);
  EXPECT_EQ(dram.source, machine::Source::kMeasured);
  EXPECT_EQ(dram.from,
            "r.jsonl: stream, the fastest of all cores: no copies beside it, 2026-11-30");
}

// PyTorch's kernel is what training runs, ours what a replay runs: both are in the file, each once.
TEST(MachineFile, PyTorchsKernelsStandBeforeOursWhichAReplayRuns) {
  const std::string theirs = point(
      "torch_cpu_kernel", R"("kernel":"mul_f32","elements":16777216,"threads":4)", 16777216 / 5e9);
  const machine::Machine both =
      load(file_of(records_text("null", host_lines() + theirs), "workstation-pcie4-4090"));
  EXPECT_NEAR(both.host.kernels.at("mul_f32").at(16777216), 5e9, 1e6);
  EXPECT_NEAR(both.host.standins.at("mul_f32").at(16777216), 7.5e9, 1e6);
  const machine::Machine one =
      load(file_of(records_text("null", host_lines()), "workstation-pcie4-4090"));
  EXPECT_NEAR(one.host.kernels.at("mul_f32").at(16777216), 7.5e9, 1e6);
  EXPECT_TRUE(one.host.standins.empty());
}

TEST(MachineFile, WhatWasNotMeasuredIsTheBasesAndSaidToBe) {
  const MachineFile file = file_of(records_text("null", host_lines()), "workstation-pcie4-4090");
  const machine::Machine m = load(file);
  const machine::Machine base = machine::load_machine(catalog(), "workstation-pcie4-4090");
  EXPECT_EQ(m.accelerator.name, base.accelerator.name);
  EXPECT_EQ(m.link->h2d.value, base.link->h2d.value);
  EXPECT_EQ(m.drives.at(0).read.value, base.drives.at(0).read.value);
  EXPECT_EQ(m.host.pinned_alloc.value, base.host.pinned_alloc.value);
  EXPECT_EQ(file.kept, (std::vector<std::string>{"accelerator: of workstation-pcie4-4090",
                                                 "host.dma_weight: of workstation-pcie4-4090",
                                                 "host.pinned_alloc: of workstation-pcie4-4090",
                                                 "link: of workstation-pcie4-4090",
                                                 "drives: of workstation-pcie4-4090"}));
}

std::string link_lines() {
  std::string lines;
  for (const char* const direction : {"h2d", "d2h"}) {
    for (const double bytes : {1e6, 1e7, 1e9}) {  // 2 us and 50 GB/s
      lines += point(
          "copy",
          fmt::format("\"direction\":\"{}\",\"memory\":\"pinned\",\"bytes\":{:.0f},\"node\":0",
                      direction, bytes),
          2e-6 + bytes / 50e9);
    }
  }
  return lines + point("copy",
                       R"("direction":"both","memory":"pinned","bytes":1000000000,"node":0)",
                       0.025);
}

TEST(MachineFile, ALinkIsALineThroughItsCopies) {
  const std::string text = records_text(kGpu, link_lines());
  const std::string base = system_of_gpu(parse_records(text, "r.jsonl"), catalog());
  EXPECT_EQ(base, "h200-pcie5");
  const machine::Machine m = load(file_of(text, base));
  EXPECT_NEAR(m.link->h2d.value.value, 50e9, 1e7);
  EXPECT_NEAR(m.link->latency.value.value, 2e-6, 1e-9);
  EXPECT_NEAR(m.link->total.value.value, 80e9, 1e7);  // 2 GB in 25 ms
  EXPECT_EQ(m.accelerator.bf16.value,
            machine::load_machine(catalog(), base).accelerator.bf16.value);
}

// All GPUs at once share what the host gives them; one alone, or two of four, say nothing of that.
TEST(MachineFile, SeveralGpusShareWhatTheyReachAtOnce) {
  std::string gpus = kGpu;
  gpus.replace(gpus.find("\"count\":1"), 9, "\"count\":2");
  std::string lines;
  for (const auto& [direction, one, two] :
       {std::tuple{"h2d", 55e9, 106e9}, {"d2h", 54e9, 107e9}, {"both", 100e9, 134e9}}) {
    const std::string at = fmt::format("\"direction\":\"{}\",\"bytes\":268435456", direction);
    lines += point("gpus_at_once", at + ",\"gpus\":1", one, "B/s");
    lines += point("gpus_at_once", at + ",\"gpus\":2", two, "B/s");
  }
  lines += point("peer_copy", R"("direction":"one","gpus":2,"direct":1)", 392e9, "B/s");
  lines += point("peer_copy", R"("direction":"both","gpus":2,"direct":1)", 780e9, "B/s");
  const machine::Machine m = load(file_of(records_text(gpus, lines), "h200-pcie5"));
  ASSERT_TRUE(m.uplink && m.peer);
  EXPECT_EQ(m.gpus, 2);
  EXPECT_EQ(m.uplink->gpus, 2);
  EXPECT_NEAR(m.uplink->h2d.value.value, 106e9, 1e6);
  EXPECT_NEAR(m.uplink->d2h.value.value, 107e9, 1e6);
  EXPECT_NEAR(m.uplink->total.value.value, 134e9, 1e6);
  EXPECT_NEAR(m.peer->value.value, 392e9, 1e6);
}

TEST(MachineFile, ALinkThatTheBaseHasNotIsLeftOutAndSaidToBe) {
  const MachineFile file = file_of(records_text(kGpu, link_lines()), "dgx-spark");
  EXPECT_FALSE(load(file).link);
  EXPECT_EQ(file.left_out,
            (std::vector<std::string>{"the link was measured and is left out: dgx-spark has none; "
                                      "--base names another system"}));
  EXPECT_TRUE(file.fitted.empty());
  EXPECT_TRUE(file_of(records_text(kGpu, link_lines()), "h200-pcie5").left_out.empty());
}

TEST(MachineFile, ADriveIsItsBestAndWhatAMixKeeps) {
  std::string lines;
  const auto drive = [&](const char* op, int depth, double rate) {
    lines +=
        point("drive",
              fmt::format("\"op\":\"{}\",\"block\":1048576,\"depth\":{},\"threads\":1", op, depth),
              rate, "B/s");
  };
  drive("read", 1, 2e9);
  drive("read", 32, 6e9);
  drive("write", 32, 3e9);
  drive("mixed", 32, 3.6e9);  // 1.8 each: 1.8 / 6 + 1.8 / 3 = 0.9
  lines += point("drive_space", R"("what":"total")", 1e12, "B");
  lines += point("drive_latency", R"("op":"read","block":4096)", 80e-6);
  const machine::Machine m = load(file_of(records_text("null", lines), "workstation-pcie4-4090"));
  ASSERT_EQ(m.drives.size(), 1U);
  EXPECT_NEAR(m.drives[0].read.value.value, 6e9, 1e6);
  EXPECT_NEAR(m.drives[0].write.value.value, 3e9, 1e6);
  EXPECT_NEAR(m.drives[0].mixed.value, 0.9, 1e-9);
  EXPECT_NEAR(m.drives[0].latency.value.value, 80e-6, 1e-9);
}

TEST(Records, AMistakeHasItsPlace) {
  const auto refusal = [](const std::string& text) {
    try {
      parse_records(text, "r.jsonl");
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string("taken");
  };
  EXPECT_EQ(refusal(records_text("null", "{\"record\":\"guess\"}\n")),
            "r.jsonl:2:11: there is no record 'guess'; expected env, point, skipped or end");
  EXPECT_EQ(refusal(records_text("null", point("stream", "", -1))),
            "r.jsonl:2:52: value is '-1'; expected a number such as 0.85, not negative");
  const std::string whole = records_text("null", "");
  EXPECT_EQ(refusal(whole.substr(0, whole.find('\n') + 1)),
            "r.jsonl: the records have no end; expected a run that was not interrupted");
}

TEST(Drift, SlowerThanItsNoiseHasDrifted) {
  const auto records = [](double seconds, double rate) {
    return parse_records(records_text("null", point("launch", "\"how\":\"plain\"", seconds) +
                                                  point("stream", "\"threads\":1", rate, "B/s")),
                         "r.jsonl");
  };
  const std::vector<Drift> found = drifts(records(1e-6, 10e9), records(2e-6, 9.5e9));
  ASSERT_EQ(found.size(), 2U);
  EXPECT_DOUBLE_EQ(found[0].median, 0.5);  // twice the time
  EXPECT_TRUE(found[0].drifted());
  EXPECT_DOUBLE_EQ(found[1].median, 0.95);
  EXPECT_FALSE(found[1].drifted());
}

}  // namespace
}  // namespace offsim::calibrate::machine_file_test
