// Does every option do something, or say that it does nothing? Are slips of the hand refused in one
// line?
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "sim/base/error.h"
#include "tests/base/message_of.h"
#include "tests/plans/jobs.h"

namespace offsim::plans::options_test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

// A job for which everything may matter: several layers and micro-batches; for stage 3 matrices
// that are worth a request of the drive (1 MiB), several sub-groups, and with a drive all
// parameters on it.
Workload busy() { return {.micro_batch = 2, .sequence = 128, .accumulation = 2}; }

bool is_stage3(std::string_view plan) {
  return std::ranges::any_of(find_plan(plan, {}).options, [](const OptionSpec& option) {
    return option.name == "stage3_max_live_parameters";
  });
}

// Given to both sides of a comparison unless it is what differs.
Given usual_options(std::string_view plan) {
  Given options;
  if (is_stage3(plan)) {
    options["sub_group_size"] = "3e7";
  }
  if (plan == "zero-infinity" || plan == "memascend") {
    options["max_in_cpu"] = "0";
    options["param_buffer_count"] = "200";
  }
  return options;
}

// With nothing but what is given.
Job bare(std::string_view plan, Workload w = busy(), const Given& options = {}) {
  if (w.precision == Workload{}.precision) {
    w.precision = usual_precision(plan);
  }
  return job(plan, w, options, is_stage3(plan) ? shape_of_large_matrices() : tiny_shape(6),
             usual_machine(plan));
}

Job asked(std::string_view plan, const Workload& w = busy(), Given options = {}) {
  options.merge(usual_options(plan));
  return bare(plan, w, options);
}

// What is done and what is held.
std::string program_text(const Job& of) {
  std::ostringstream out;
  runtime::write_program(recorded(of), out);
  return out.str();
}

// Another value than the default, and what must be given beside it to matter.
struct Other {
  std::string value;
  Given beside = {};
  std::int64_t accumulation = busy().accumulation;
  Checkpointing checkpointing = busy().checkpointing;
};

constexpr Checkpointing kFull = Checkpointing::kFull;

// A new option needs a row here.
const std::map<std::string, Other> kOther{
    {"native.gradient_clipping", {"true"}},
    {"zero2-offload.pin_memory", {"false"}},
    {"zero2-offload.overlap_comm", {"true"}},
    {"zero2-offload.contiguous_gradients", {"false"}},
    {"zero2-offload.reduce_bucket_size", {"20000"}},
    {"zero2-offload.allgather_bucket_size", {"20000"}},
    {"zero2-offload.round_robin_gradients", {"true"}},
    {"zero2-offload.deepspeed_version", {"0.14.5"}},
    {"zero2-offload.variant", {"paper"}},
    {"zero2-offload.cpu_checkpointing", {"true", {}, 2, kFull}},
    {"zero2-offload.partition_activations", {"true", {{"cpu_checkpointing", "true"}}, 2, kFull}},
    {"zenflow.topk_ratio", {"0.2"}},
    {"zenflow.select_strategy", {"step", {{"select_interval", "2"}}}},
    {"zenflow.select_interval", {"2", {{"select_strategy", "step"}}}},
    {"zenflow.update_interval", {"2"}},
    {"zenflow.full_warm_up_rounds", {"1", {{"overlap_step", "true"}}}},
    {"zenflow.overlap_step", {"true"}},
    {"zenflow.pt_reserved_cores_perc", {"0.25", {{"overlap_step", "true"}}}},
    {"zenflow.pin_memory", {"false"}},
    {"zenflow.overlap_comm", {"true"}},
    {"zenflow.reduce_bucket_size", {"20000"}},
    {"zenflow.cpu_checkpointing", {"true", {}, 2, kFull}},
    {"zenflow.partition_activations", {"true", {{"cpu_checkpointing", "true"}}, 2, kFull}},
    {"fsdp2-offload.fused", {"false"}},
    {"fsdp2-offload.pin_memory", {"false"}},
    {"fsdp2-offload.gradient_clipping", {"true"}},
    {"torchao-offload.offload_gradients", {"true", {}, 1}},
    {"torchao-offload.minimal_size", {"20000"}},
    {"megatrain.checkpoint_interval", {"2"}},
    {"megatrain.num_grad_slabs", {"5"}},
    {"megatrain.gradient_clipping", {"false"}},
    {"megatrain.optimizer", {"torch_fused"}},
    {"megatrain.variant", {"paper"}},
    {"memascend.pool", {"equal"}},
    {"memascend.allocator", {"torch"}},
    {"memascend.overflow_check", {"chain"}},
    {"memascend.engine", {"filesystem"}},
    {"memascend.optimizer_states", {"bf16"}},
    {"ratel.planner", {"ordered"}},
    {"ratel.swap_ratio", {"0.3"}},
    {"ratel.is_grad_async", {"false"}},
    {"ratel.is_mp", {"false"}},
    {"ratel.is_nvme_rearrange", {"false"}},
    {"ratel.sub_group_size", {"20000"}},
    {"ratel.aio_block_size", {"4096"}},
    {"ratel.aio_queue_depth", {"1"}},
    {"ratel.aio_thread_count", {"1"}},
    {"teraio.path", {"host"}},
    {"teraio.host_memory", {"1e9"}},
    {"coherent-offload.access", {"managed"}},
    {"coherent-offload.gradients", {"gpu"}},
    {"mlx.compile", {"false"}},
    {"mlx.donation", {"false"}},
    {"mlx.memory_limit", {"1e9"}},
    {"mlx.wired_limit", {"1e9"}},
    {"superoffload.offload_param", {"cpu"}},
    {"superoffload.gradient_clipping", {"0"}},
    {"superoffload.cpuadam_cores_perc", {"0.5"}},
    {"superoffload.variant", {"paper"}},
};

// And here one of stage 3, for all plans that have it.
const std::map<std::string, Other> kOtherOfStage3{
    {"offload_optimizer", {"none"}},
    {"offload_param", {"none"}},
    {"pin_memory", {"false"}},
    {"sub_group_size", {"1e8"}},
    {"ratio", {"0.5", {{"offload_optimizer", "cpu"}}}},
    {"stage3_prefetch_bucket_size", {"1e6"}},
    {"stage3_max_live_parameters", {"2e7"}},
    {"stage3_max_reuse_distance", {"1e7", {{"stage3_prefetch_bucket_size", "0"}}}},
    {"stage3_param_persistence_threshold", {"2e6"}},
    {"zero_init", {"false"}},
    {"reduce_bucket_size", {"1e7"}},
    {"overlap_comm", {"false"}},
    {"contiguous_gradients", {"false"}},
    {"buffer_count", {"8"}},
    {"pipeline_read", {"true", {{"buffer_count", "8"}}}},
    {"pipeline_write", {"true", {{"buffer_count", "8"}}}},
    {"param_buffer_count", {"300"}},
    {"param_buffer_size", {"2e8"}},
    {"max_in_cpu", {"5e7"}},
    {"aio_block_size", {"2097152"}},
    {"aio_queue_depth", {"32"}},
    {"aio_intra_op_parallelism", {"4"}},
    {"aio_overlap_events", {"false"}},
    {"deepspeed_version", {"0.14.5"}},
    {"cpu_checkpointing", {"true", {}, 2, kFull}},
    {"partition_activations", {"true", {{"cpu_checkpointing", "true"}}, 2, kFull}},
};

// Nothing when there is no row.
const Other* other_of(const Plan& plan, std::string_view option) {
  const auto own = kOther.find(fmt::format("{}.{}", plan.name, option));
  if (own != kOther.end()) {
    return &own->second;
  }
  const auto stage3 = kOtherOfStage3.find(std::string(option));
  return is_stage3(plan.name) && stage3 != kOtherOfStage3.end() ? &stage3->second : nullptr;
}

TEST(EveryOption, ChangesSomethingOrSaysThatItDoesNot) {
  for (const Plan& plan : registry()) {
    for (const OptionSpec& option : plan.options) {
      const std::string name = fmt::format("{}.{}", plan.name, option.name);
      const Other* const other = other_of(plan, option.name);
      ASSERT_NE(other, nullptr) << name << " has no row in kOther";
      Given given;
      for (const auto& [key, value] : other->beside) {
        if (asked(plan.name).options.has(key)) {
          given[key] = value;
        }
      }
      Workload w = busy();
      w.accumulation = other->accumulation;
      w.checkpointing = other->checkpointing;
      const std::string base = program_text(asked(plan.name, w, given));
      given[std::string(option.name)] = other->value;
      const Job changed = asked(plan.name, w, given);
      const std::vector<std::string> warnings = plan.check(changed);
      const bool warned = std::ranges::any_of(
          warnings, [&](const std::string& line) { return line.find(name) != std::string::npos; });
      EXPECT_NE(program_text(changed) != base, warned) << name;
    }
  }
}

TEST(EveryOption, GivenItsDefaultChangesNothing) {
  for (const Plan& plan : registry()) {
    const std::string base = program_text(bare(plan.name));
    for (const OptionSpec& option : plan.options) {
      std::string fallback(option.fallback);
      if (fallback == "by version") {
        fallback = option.kind == OptionSpec::Kind::kFlag ? "true" : "1";
      }
      EXPECT_EQ(program_text(bare(plan.name, busy(), {{std::string(option.name), fallback}})), base)
          << plan.name << "." << option.name;
    }
  }
}

TEST(EveryPlan, WarnsOfNothingByDefault) {
  for (const Plan& plan : registry()) {
    EXPECT_THAT(plan.check(bare(plan.name)), IsEmpty()) << plan.name;
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
}  // namespace offsim::plans::options_test
