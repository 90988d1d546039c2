// Is a mistake in a machine file refused, at its place, with what was expected?
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "sim/base/config.h"
#include "tests/machine/test_catalog.h"

namespace offsim::machine::reader_test {
namespace {

constexpr const char* kSystem =
    "title: probe\n"
    "gpus: 1\n"
    "accelerator: h200\n"
    "host: dgx-h100\n"
    "framework: pytorch-2.11\n"
    "link: pcie5-x16\n";

std::string message(const std::string& system, const std::string& name = "probe",
                    const Place& asked_at = {}) {
  try {
    load_machine(test_catalog({{"systems/probe.yaml", system}}), name, asked_at);
  } catch (const InputError& e) {
    return e.what();
  }
  return "";
}

std::string with_override(const std::string& lines) {
  return fmt::format("{}override:\n{}", kSystem, lines);
}

TEST(Reader, AcceptsTheProbe) { EXPECT_EQ(message(kSystem), ""); }

TEST(Reader, AnUnknownMachineGetsTheNearest) {
  EXPECT_EQ(message(kSystem, "gh200-480bg", {"command line", 0, 0}),
            "command line: there is no machine 'gh200-480bg'; did you mean 'gh200-480gb'?");
}

TEST(Reader, AnUnknownPartGetsTheNearest) {
  std::string system = kSystem;
  system.replace(system.find("h200"), 4, "h2000");
  EXPECT_EQ(message(system),
            "systems/probe.yaml:3:14: accelerator 'h2000' is not in accelerators/; did you mean "
            "'h200'?");
}

TEST(Reader, AMissingKeyIsNamed) {
  EXPECT_EQ(message("title: probe\n"),
            "systems/probe.yaml:1:1: gpus is missing; expected it in this map");
}

TEST(Reader, AnUnknownKeyGetsTheNearest) {
  EXPECT_EQ(message(fmt::format("{}drive: none\n", kSystem)),
            "systems/probe.yaml:7:1: unknown key 'drive'; did you mean 'drives'?");
}

TEST(Reader, AFigureNeedsASource) {
  EXPECT_EQ(message(with_override("  host:\n    dram: {value: 100 GB/s}\n")),
            "systems/probe.yaml:9:11: host.dram.source is missing; expected it in this map");
  EXPECT_EQ(message(with_override(
                "  host:\n    dram: {value: 100 GB/s, source: guessed, from: somewhere}\n")),
            "systems/probe.yaml:9:37: host.dram.source is 'guessed'; expected one of measured, "
            "datasheet, published, assumed");
  EXPECT_EQ(message(with_override("  host:\n    dram: {value: 100 GB/s, source: assumed}\n")),
            "systems/probe.yaml:9:11: host.dram.from is missing; expected it in this map");
  EXPECT_EQ(
      message(with_override("  host:\n    dram: {value: 100 GB/s, source: assumed, from: ''}\n")),
      "systems/probe.yaml:9:52: host.dram.from is empty; expected a file, an address, or the "
      "reason of an assumption");
}

TEST(Reader, AFigureNeedsItsUnitAndMoreThanZero) {
  EXPECT_EQ(message(with_override(
                "  host:\n    dram: {value: 100, source: assumed, from: a test of units}\n")),
            "systems/probe.yaml:9:19: '100' has no unit; expected a bandwidth such as '26.0 GB/s'");
  EXPECT_EQ(message(with_override(
                "  host:\n    dram: {value: 0 GB/s, source: assumed, from: a test of units}\n")),
            "systems/probe.yaml:9:19: host.dram.value is '0 GB/s'; expected more than zero");
}

TEST(Reader, ACurveAscends) {
  EXPECT_EQ(message(with_override("  host:\n    fresh_pages: {points: [[4, 1 GB/s], [2, 2 GB/s]], "
                                  "source: assumed, from: a test of curves}\n")),
            "systems/probe.yaml:9:41: host.fresh_pages.points do not ascend; expected each x "
            "larger than the one before");
}

TEST(Reader, ATableNamesTheLine) {
  EXPECT_EQ(message(with_override("  accelerator:\n"
                                  "    gemm:\n"
                                  "      source: assumed\n"
                                  "      from: a test of tables\n"
                                  "      rows: |\n"
                                  "        1024, 1024, 1024, 70 us\n"
                                  "        1024, 1024, 70 us\n")),
            "systems/probe.yaml:14:1: '1024, 1024, 70 us' is not a row of accelerator.gemm.rows; "
            "expected 4 cells, separated by commas");
  EXPECT_EQ(message(with_override("  accelerator:\n"
                                  "    gemm:\n"
                                  "      source: assumed\n"
                                  "      from: a test of tables\n"
                                  "      rows: |\n"
                                  "        1024, 1024, 1024, 70 us,\n")),
            "systems/probe.yaml:13:1: '1024, 1024, 1024, 70 us,' is not a row of "
            "accelerator.gemm.rows; expected 4 cells, separated by commas");
}

// The engine sums rates and times: what no machine has would overflow them, or vanish beside them.
TEST(Reader, AFigureOutOfAnyMachinesRangeIsRefused) {
  const auto figure = [](const std::string& part, const std::string& key,
                         const std::string& value) {
    return message(with_override("  " + part + ": {" + key + ": {value: " + value +
                                 ", source: assumed, from: a test of bounds}}\n"));
  };
  const auto range = [](const std::string& column, const std::string& value,
                        const std::string& expected) {
    return "systems/probe.yaml:8:" + column + ": '" + value + "' is out of range; expected " +
           expected;
  };
  EXPECT_EQ(figure("link", "h2d", "1e-9 GB/s"), range("23", "1e-9 GB/s", "1 kB/s to 1000 PB/s"));
  EXPECT_EQ(figure("host", "dram", "1e4 PB/s"), range("24", "1e4 PB/s", "1 kB/s to 1000 PB/s"));
  EXPECT_EQ(figure("host", "memory", "9223372036854775807 B"),
            range("26", "9223372036854775807 B", "1 B to 1 PB"));
  EXPECT_EQ(figure("framework", "launch", "101 s"), range("31", "101 s", "0.001 ns to 100 s"));
  EXPECT_EQ(figure("framework", "indexed", "1 /s"), range("32", "1 /s", "1 k/s to 1000000 T/s"));
  EXPECT_EQ(figure("host", "core_speed", "1e-300"), range("30", "1e-300", "0.001 to 1000"));
  EXPECT_EQ(figure("accelerator", "gemm", "201 %"), range("31", "201 %", "0.1 % to 200 %"));
  EXPECT_EQ(figure("accelerator", "memory_bandwidth", "1 kB/s"), "");
  EXPECT_EQ(figure("accelerator", "gemm", "200 %"), "");
  EXPECT_EQ(figure("framework", "gpu_rounding", "2 GiB"),
            "systems/probe.yaml:8:29: framework.gpu_rounding is above 1 GiB; expected the size of "
            "the smallest block, such as 512 B");
  EXPECT_EQ(message(with_override("  host: {memory: {value: 1 GiB, spread: 101 %, source: assumed, "
                                  "from: a test of bounds}}\n")),
            "systems/probe.yaml:8:41: host.memory.spread is above 100 %; expected a smaller one");
}

TEST(Reader, AKernelOfTheCpuHasARate) {
  EXPECT_EQ(
      message(with_override("  framework: {kernels: {copy_f32: {bytes: 12 B, core_rate: 0 G/s, "
                            "source: assumed, from: a test of rates}}}\n")),
      "systems/probe.yaml:8:60: framework.kernels.copy_f32.core_rate is '0 G/s'; expected "
      "more than zero");
}

TEST(Reader, ALikenessIsOfAMeasuredMachine) {
  EXPECT_EQ(
      message(with_override("  accelerator: {like: {machine: dgx-h100, source: assumed, from: "
                            "a test of likeness}}\n")),
      "systems/probe.yaml:8:33: machine 'dgx-h100' has no accelerator of its own; expected "
      "one that was measured");
}

TEST(Reader, AnOwnFigureStandsBeforeTheLikeness) {
  const std::string system = with_override(
      "  accelerator:\n"
      "    gemm: {value: 50 %, source: assumed, from: a test of likeness}\n");
  const Machine m = load_machine(test_catalog({{"systems/probe.yaml", system}}), "probe");
  EXPECT_TRUE(m.accelerator.gemm.correction.points.empty());
  EXPECT_FALSE(m.accelerator.attention_forward.correction.points.empty());
}

// "accelerator.like" says nothing to a person.
TEST(Reader, ALikenessSaysWhoseSharesItTook) {
  const Machine m = load("gh200-480gb");
  const Figure& likeness = m.figure(m.accelerator.gemm.figure);
  EXPECT_EQ(likeness.name, "accelerator.like");
  EXPECT_EQ(likeness.text(), "efficiency shares taken from h200-16core-vm");
  EXPECT_EQ(m.figure(m.host.dram.figure).text(), "host.dram");
}

TEST(Reader, AnOverrideReplacesOneFigureWithItsSource) {
  const std::string system = with_override(
      "  host:\n    dram: {value: 100 GB/s, source: assumed, from: a test of overrides}\n");
  const Machine m = load_machine(test_catalog({{"systems/probe.yaml", system}}), "probe");
  EXPECT_EQ(m.host.dram.value, BytesPerSecond(100e9));
  const Figure& figure = m.figure(m.host.dram.figure);
  EXPECT_EQ(figure.source, Source::kAssumed);
  EXPECT_EQ(figure.spread, 0.25);
  EXPECT_EQ(figure.name, "host.dram");
  EXPECT_EQ(figure.place, (Place{"systems/probe.yaml", 9, 11}));
  EXPECT_EQ(m.host.cores, 112);  // the rest is the host's file
}

TEST(Reader, AnOverrideOfNothingIsRefused) {
  EXPECT_EQ(message(with_override("  hosts: {}\n")),
            "systems/probe.yaml:8:3: unknown key 'hosts' in override; did you mean 'host'?");
}

TEST(Reader, AUnifiedMachineHasNoLink) {
  std::string system = kSystem;
  system.replace(system.find("h200"), 4, "gb10");
  EXPECT_EQ(message(system),
            "systems/probe.yaml:6:7: a unified machine has a link; expected no link: CPU and GPU "
            "share one memory");
}

TEST(Reader, APathIsAFileOnDisk) {
  const std::string path = OFFSIM_SOURCE_DIR "/hardware/systems/dgx-h100.yaml";
  EXPECT_EQ(load_machine(test_catalog(), path).name, "dgx-h100");
  EXPECT_EQ(load_machine(test_catalog(), path).host.cores, 112);
}

}  // namespace
}  // namespace offsim::machine::reader_test
