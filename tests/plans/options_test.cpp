// Does every option do something, or say that it does nothing? Are slips of the hand refused in one
// line?
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "sim/base/error.h"
#include "tests/base/message_of.h"
#include "tests/plans/jobs.h"

namespace offsim::plans {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

// A job for which everything may matter: several layers and micro-batches.
Workload busy() { return {.micro_batch = 2, .sequence = 128, .accumulation = 2}; }
Job asked(std::string_view plan, Workload w = busy(), const Given& options = {}) {
  if (w.precision == Workload{}.precision) {
    w.precision = usual_precision(plan);
  }
  return job(plan, w, options, tiny_shape(6), usual_machine(plan));
}

// What is done and what is held.
std::string program_text(const Job& of) {
  std::ostringstream out;
  runtime::write_program(predicted(of).run.program, out);
  return out.str();
}

// Another value than the default. A new option needs a row here.
const std::map<std::string, std::string> kOther{
    {"native.gradient_clipping", "true"},
    {"zero2-offload.pin_memory", "false"},
    {"zero2-offload.overlap_comm", "true"},
    {"zero2-offload.contiguous_gradients", "false"},
    {"zero2-offload.reduce_bucket_size", "20000"},
    {"zero2-offload.allgather_bucket_size", "20000"},
    {"zero2-offload.round_robin_gradients", "true"},
    {"zero2-offload.deepspeed_version", "0.14.5"},
    {"zero2-offload.variant", "paper"},
    {"fsdp2-offload.fused", "false"},
    {"fsdp2-offload.pin_memory", "false"},
    {"fsdp2-offload.gradient_clipping", "true"},
    {"torchao-offload.offload_gradients", "true"},
    {"torchao-offload.minimal_size", "20000"},
    {"megatrain.checkpoint_interval", "2"},
    {"megatrain.num_grad_slabs", "5"},
    {"megatrain.gradient_clipping", "false"},
    {"megatrain.optimizer", "torch_fused"},
    {"megatrain.variant", "paper"},
    {"memascend.pool", "equal"},
    {"memascend.allocator", "torch"},
    {"memascend.overflow_check", "chain"},
    {"memascend.engine", "filesystem"},
    {"memascend.optimizer_states", "bf16"},
    {"ratel.planner", "ordered"},
    {"ratel.swap_ratio", "0.3"},
    {"ratel.is_grad_async", "false"},
    {"ratel.is_mp", "false"},
    {"ratel.is_nvme_rearrange", "false"},
    {"ratel.sub_group_size", "20000"},
    {"ratel.aio_block_size", "4096"},
    {"ratel.aio_queue_depth", "1"},
    {"ratel.aio_thread_count", "1"},
    {"coherent-offload.access", "managed"},
    {"coherent-offload.gradients", "gpu"},
    {"mlx.compile", "false"},
    {"mlx.donation", "false"},
    {"mlx.memory_limit", "1e9"},
    {"mlx.wired_limit", "1e9"},
};

// Stage 3's options matter to models larger than a request to the drive: not asked here yet.
bool is_asked(std::string_view plan) {
  return plan != "zero3-offload" && plan != "zero-infinity" && plan != "memascend" &&
         plan != "superoffload";
}

TEST(EveryOption, ChangesSomethingOrSaysThatItDoesNot) {
  for (const Plan& plan : registry()) {
    if (!is_asked(plan.name)) {
      continue;
    }
    const std::string base = program_text(asked(plan.name));
    for (const OptionSpec& option : plan.options) {
      const std::string name = std::string(plan.name) + "." + std::string(option.name);
      ASSERT_TRUE(kOther.contains(name)) << name << " has no row in kOther";
      Workload work = busy();
      if (name == "torchao-offload.offload_gradients") {
        work.accumulation = 1;  // refused with more
      }
      const Job other = asked(plan.name, work, {{std::string(option.name), kOther.at(name)}});
      const bool changed = program_text(other) != base;
      const std::vector<std::string> warnings = plan.check(other);
      const bool warned = std::ranges::any_of(
          warnings, [&](const std::string& w) { return w.find(name) != std::string::npos; });
      EXPECT_NE(changed, warned) << name;
    }
  }
}

TEST(EveryOption, GivenItsDefaultChangesNothing) {
  for (const Plan& plan : registry()) {
    const std::string base = program_text(asked(plan.name));
    for (const OptionSpec& option : plan.options) {
      const bool number = option.kind == OptionSpec::Kind::kNumber;
      const std::string fallback =
          option.fallback == "by version" ? (number ? "1" : "true") : std::string(option.fallback);
      EXPECT_EQ(program_text(asked(plan.name, busy(), {{std::string(option.name), fallback}})),
                base)
          << plan.name << "." << option.name;
    }
  }
}

TEST(EveryPlan, WarnsOfNothingByDefault) {
  for (const Plan& plan : registry()) {
    EXPECT_THAT(plan.check(asked(plan.name)), IsEmpty()) << plan.name;
  }
}

// The same of the work: each setting changes the program, is warned of, or is refused.
TEST(EveryWorkload, ChangesSomethingOrSaysThatItDoesNot) {
  std::map<std::string, Workload> others;
  others["micro_batch"] = others["sequence"] = others["accumulation"] = others["checkpointing"] =
      others["phase_sync"] = busy();
  others["micro_batch"].micro_batch = 3;
  others["sequence"].sequence = 256;
  others["accumulation"].accumulation = 3;
  others["checkpointing"].checkpointing = Checkpointing::kFull;
  others["phase_sync"].phase_sync = true;
  for (const Precision precision : {Precision::kBf16, Precision::kFp16Mixed, Precision::kFp32}) {
    Workload& w = others["precision " + std::string(to_string(precision))] = busy();
    w.precision = precision;
  }
  for (const Plan& plan : registry()) {
    const std::string base = program_text(asked(plan.name));
    for (const auto& [name, workload] : others) {
      const Job other = asked(plan.name, workload);
      if (name == "precision " + std::string(to_string(usual_precision(plan.name)))) {
        continue;
      }
      try {
        const bool warned = !plan.check(other).empty();
        EXPECT_NE(program_text(other) != base, warned) << plan.name << ": " << name;
      } catch (const InputError& error) {
        EXPECT_THAT(error.what(), HasSubstr("does not run in")) << plan.name << ": " << name;
      }
    }
  }
}

// --- refusals

std::string refused(std::string_view plan, std::string_view option, std::string_view value) {
  Job of = job(plan);
  return message_of([&] { of.options.set(option, value, {"case.yaml", 3, 7}); });
}

TEST(Refused, AreSlipsOfTheHand) {
  EXPECT_EQ(refused("megatrain", "checkpoint_intervall", "4"),
            "case.yaml:3:7: plan megatrain has no option 'checkpoint_intervall'; did you mean "
            "'checkpoint_interval'?");
  EXPECT_EQ(
      refused("native", "overlap_comm", "true"),
      "case.yaml:3:7: plan native has no option 'overlap_comm'; expected one of gradient_clipping");
  EXPECT_EQ(refused("zero2-offload", "overlap_comm", "yes"),
            "case.yaml:3:7: zero2-offload.overlap_comm is 'yes'; expected true or false");
  EXPECT_EQ(refused("megatrain", "optimizer", "torch-fused"),
            "case.yaml:3:7: megatrain.optimizer is 'torch-fused'; did you mean 'torch_fused'?");
  EXPECT_EQ(refused("megatrain", "variant", "x"),
            "case.yaml:3:7: megatrain.variant is 'x'; expected one of code, paper");
  EXPECT_EQ(refused("megatrain", "checkpoint_interval", "0"),
            "case.yaml:3:7: megatrain.checkpoint_interval is '0'; expected a whole number of "
            "layers from 1 to 1,000,000,000,000,000");
  EXPECT_EQ(refused("zero2-offload", "reduce_bucket_size", "2e15"),
            "case.yaml:3:7: zero2-offload.reduce_bucket_size is '2e15'; expected a whole number of "
            "elements from 1 to 1,000,000,000,000,000");
}

// Every slab is a pinned block and an event: a number that nobody has must not be recorded one by
// one.
TEST(Refused, AreMoreSlabsThanAnyHostHolds) {
  EXPECT_EQ(refused("megatrain", "num_grad_slabs", "1e9"),
            "case.yaml:3:7: megatrain.num_grad_slabs is '1e9'; expected a whole number of layers "
            "from 1 to 10,000");
  EXPECT_EQ(refused("megatrain", "num_grad_slabs", "10000"), "(nothing was refused)");
}

TEST(Refused, AreCountsThatAreNoneByTheNameOfTheirOption) {
  for (const char* value : {"", "-3", "1.5", "nan", "1e999", "0x10", "010", "4 ", "4 layers"}) {
    EXPECT_EQ(refused("megatrain", "num_grad_slabs", value),
              std::string("case.yaml:3:7: megatrain.num_grad_slabs is '") + value +
                  "'; expected a whole number of layers from 1 to 10,000");
  }
}

class Versions : public testing::TestWithParam<const char*> {};
TEST_P(Versions, ThatAreNotThreeNumbersAreRefused) {
  EXPECT_EQ(refused("zero2-offload", "deepspeed_version", GetParam()),
            std::string("case.yaml:3:7: zero2-offload.deepspeed_version is '") + GetParam() +
                "'; expected a version such as 0.14.5");
}
INSTANTIATE_TEST_SUITE_P(Slips, Versions,
                         testing::Values("", "0.14", "0.14.", "0.14.5.1", "v0.14.5", "0.14.5 ",
                                         "0..5", "-1.2.3", "-0.1.2", "0.-0.2", "00.1.2", "0.01.2",
                                         "0.1000.1", "0.99999999.1"));

TEST(Versions, AreOrderedAsReleases) {
  const auto version = [](const char* text) {
    return job("zero2-offload", {}, {{"deepspeed_version", text}})
        .options.version("deepspeed_version");
  };
  EXPECT_LT(version("0.9.10"), version("0.10.0"));
  EXPECT_LT(version("0.16.9"), version("0.16.10"));
  EXPECT_LT(version("0.999.999"), version("1.0.0"));
}

TEST(Refused, IsAnOptionGivenTwice) {
  Job of = job("megatrain", {}, {{"variant", "paper"}});
  EXPECT_EQ(message_of([&] {
              of.options.set("variant", "code", {"case.yaml", 3, 7});
            }),
            "case.yaml:3:7: megatrain.variant is given twice; expected it once");
}

TEST(Refused, AreUnknownPlansWithTheNearest) {
  EXPECT_EQ(message_of([] {
              find_plan("zero2-ofload", {"case.yaml", 1, 2});
            }),
            "case.yaml:1:2: there is no plan 'zero2-ofload'; did you mean 'zero2-offload'?");
}

TEST(Refused, ArePrecisionsThatTheSystemDoesNotHave) {
  const auto checked = [](const char* plan, Precision precision) {
    Workload w;
    w.precision = precision;
    const Job of = job(plan, w);
    return message_of([&] { of.plan->check(of); });
  };
  EXPECT_THAT(checked("zero2-offload", Precision::kFp32),
              HasSubstr("zero2-offload does not run in fp32; expected"));
  EXPECT_THAT(checked("zero2-offload", Precision::kBf16),
              HasSubstr("zero2-offload does not run in bf16; expected"));
  EXPECT_THAT(checked("megatrain", Precision::kFp32),
              HasSubstr("megatrain does not run in fp32; expected"));
  EXPECT_EQ(checked("zero2-offload", Precision::kFp16Mixed), "(nothing was refused)");
}

// --- what a report shows

TEST(Origins, NameEveryOptionWithWhereItWasGiven) {
  Job of = job("megatrain");
  of.options.set("variant", "paper", {"case.yaml", 3, 7});
  const Origins origins = of.options.origins();
  ASSERT_EQ(origins.size(), of.plan->options.size());
  EXPECT_EQ(origins.front().name, "megatrain.checkpoint_interval");
  EXPECT_EQ(origins.front().value, "4");
  EXPECT_EQ(origins.front().place, Place{});
  EXPECT_EQ(origins.back().value, "paper");
  EXPECT_EQ(origins.back().place, (Place{"case.yaml", 3, 7}));
}

TEST(Registry, SaysOfEveryPlanAndOptionWhatItIs) {
  for (const Plan& plan : registry()) {
    EXPECT_FALSE(plan.sentence.empty() || plan.source.empty()) << plan.name;
    EXPECT_GE(plan.steps, 2) << plan.name;  // the last one is reported
    for (const OptionSpec& option : plan.options) {
      EXPECT_FALSE(option.effect.empty() || option.fallback.empty()) << option.name;
      EXPECT_EQ(option.kind == OptionSpec::Kind::kChoice, !option.choices.empty()) << option.name;
    }
  }
}

}  // namespace
}  // namespace offsim::plans
