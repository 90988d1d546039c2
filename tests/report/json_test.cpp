// Can a script rely on the keys, the types and the sums?
#include "sim/report/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <numeric>

#include "tests/report/fixture.h"

namespace offsim::report::json_test {
namespace {

using Json = nlohmann::json;

// A key that scripts read, as a pointer, and the type of its value.
struct Key {
  const char* pointer;
  const char* type;  // as nlohmann names it; a count is a number
};

constexpr Key kSchema[] = {
    {"/schema", "string"},
    {"/scenario/model", "string"},
    {"/scenario/parameters", "number"},
    {"/scenario/active_parameters", "number"},
    {"/scenario/trained_parameters", "number"},
    {"/scenario/hardware", "string"},
    {"/scenario/plan", "string"},
    {"/scenario/micro_batch", "number"},
    {"/scenario/sequence", "number"},
    {"/scenario/accumulation", "number"},
    {"/scenario/gpus", "number"},
    {"/scenario/checkpointing", "string"},
    {"/scenario/activation_offload", "string"},
    {"/scenario/precision", "string"},
    {"/scenario/lora_rank", "number"},
    {"/scenario/lora_targets", "null"},
    {"/scenario/base", "null"},
    {"/scenario/phase_sync", "boolean"},
    {"/scenario/loader_workers", "number"},
    {"/scenario/loader_bandwidth", "number"},
    {"/scenario/options", "object"},
    {"/feasible", "boolean"},
    {"/infeasible", "array"},
    {"/step_s", "number"},
    {"/step_s_range/0", "number"},
    {"/step_s_range/1", "number"},
    {"/tokens_per_s", "number"},
    {"/tflops/model", "number"},
    {"/tflops/hardware", "number"},
    {"/tflops/six_nd", "number"},
    {"/phases_s/forward", "number"},
    {"/phases_s/backward", "number"},
    {"/phases_s/optimizer", "number"},
    {"/critical_path_s/gpu_compute", "number"},
    {"/critical_path_s/h2d", "number"},
    {"/critical_path_s/d2h", "number"},
    {"/critical_path_s/cpu_optimizer", "number"},
    {"/critical_path_s/nvme", "number"},
    {"/critical_path_s/host", "number"},
    {"/critical_path_s/page_faults", "number"},
    {"/critical_path_s/collective", "number"},
    {"/critical_path_s/idle", "number"},
    {"/busy_s/gpu_compute", "number"},
    {"/by_label_s", "object"},
    {"/utilization", "object"},
    {"/bytes/h2d", "number"},
    {"/bytes/d2h", "number"},
    {"/bytes/nvme_read", "number"},
    {"/bytes/nvme_write", "number"},
    {"/bytes/dram", "number"},
    {"/memory/gpu/peak_bytes", "number"},
    {"/memory/gpu/reserved_bytes", "number"},
    {"/memory/gpu/fixed_bytes", "number"},
    {"/memory/gpu/capacity_bytes", "number"},
    {"/memory/gpu/phase", "string"},
    {"/memory/gpu/by_tag", "object"},
    {"/memory/host/capacity_bytes", "number"},
    {"/memory/host/may_swap", "boolean"},
    {"/memory/host_pinned/capacity_bytes", "null"},
    {"/cost/usd_per_hour", "number"},
    {"/cost/usd_per_step", "number"},
    {"/cost/usd_per_million_tokens", "number"},
    {"/sources/measured", "number"},
    {"/sources/datasheet", "number"},
    {"/sources/published", "number"},
    {"/sources/assumed", "number"},
    {"/supports/0/figure", "string"},
    {"/supports/0/share", "number"},
    {"/warnings", "array"},
    {"/activities", "number"},
    {"/simulate_s", "number"},
};

void expect_schema(const Json& json) {
  for (const Key& key : kSchema) {
    const Json::json_pointer pointer(key.pointer);
    ASSERT_TRUE(json.contains(pointer)) << key.pointer;
    EXPECT_STREQ(json.at(pointer).type_name(), key.type) << key.pointer;
  }
}

double sum(const Json& object) {
  return std::accumulate(object.begin(), object.end(), 0.0, [](double total, const Json& value) {
    return total + value.get<double>();
  });
}

TEST(PredictionJson, HasTheKeysAndTypesOfTheSchema) {
  expect_schema(Json::parse(prediction_json(made_up_job(), made_up_prediction())));
  const plans::Job job = real_job("qwen2.5-0.5b", "gh200-480gb", "megatrain", 4);
  expect_schema(Json::parse(prediction_json(job, study::predict(job))));
}

TEST(PredictionJson, PartsOfARealStepAddUpToIt) {
  for (const char* const plan : {"native", "zero2-offload", "megatrain"}) {
    const plans::Job job = real_job("qwen2.5-0.5b", "gh200-480gb", plan, 4);
    const Json json = Json::parse(prediction_json(job, study::predict(job)));
    const double step = json["step_s"];
    constexpr double kPicosecond = 1e-12;
    EXPECT_NEAR(sum(json["critical_path_s"]), step, kPicosecond);
    EXPECT_NEAR(sum(json["phases_s"]) + json["critical_path_s"]["idle"].get<double>(), step,
                kPicosecond);
    EXPECT_NEAR(sum(json["by_label_s"]) + json["critical_path_s"]["idle"].get<double>(), step,
                kPicosecond);
    EXPECT_NEAR(sum(json["sources"]), 1, 1e-9);
    for (const auto& pool : json["memory"]) {
      EXPECT_EQ(sum(pool["by_tag"]), pool["peak_bytes"].get<double>());
    }
    for (const auto& [cause, exposed] : json["critical_path_s"].items()) {
      if (cause != "idle" && cause != "join") {
        EXPECT_GE(json["busy_s"][cause].get<double>() + kPicosecond, exposed.get<double>())
            << cause;
      }
    }
  }
}

TEST(PredictionJson, SaysWhatWasAsked) {
  plans::Job job = made_up_job();
  job.workload.accumulation = 3;
  job.workload.precision = plans::Precision::kBf16;
  job.options.set("checkpoint_interval", "1e3", {});
  const Json scenario = Json::parse(prediction_json(job, made_up_prediction()))["scenario"];
  EXPECT_EQ(scenario["parameters"], 124'439'808);
  EXPECT_EQ(scenario["accumulation"], 3);
  EXPECT_EQ(scenario["precision"], "bf16");
  EXPECT_EQ(scenario["options"]["checkpoint_interval"], 1000);    // a count as a number
  EXPECT_EQ(scenario["options"]["gradient_clipping"], true);      // a flag as a boolean
  EXPECT_EQ(scenario["options"]["optimizer"], "deepspeed_adam");  // defaults too
}

TEST(PredictionJson, HasEveryOptionOfEveryPlanInItsType) {
  for (const plans::Plan& plan : plans::registry()) {
    const plans::Job job = make_job("gpt2", made_up_job().machine, std::string(plan.name));
    const Json scenario = Json::parse(prediction_json(job, made_up_prediction()))["scenario"];
    for (const plans::OptionSpec& spec : plan.options) {
      using Kind = plans::OptionSpec::Kind;
      const Json& value = scenario["options"][std::string(spec.name)];
      const bool number = spec.kind == Kind::kCount || spec.kind == Kind::kNumber;
      EXPECT_TRUE(value == "auto" || value == "by version" ||
                  (number                     ? value.is_number()
                   : spec.kind == Kind::kFlag ? value.is_boolean()
                                              : value.is_string()))
          << plan.name << "." << spec.name << " is " << value;
    }
  }
}

TEST(PredictionJson, AddsUpALabelOfSeveralCauses) {
  study::Prediction p = made_up_prediction();
  p.spent = {{runtime::Cause::kCpuClip, "clip", Seconds(2)},
             {runtime::Cause::kGpuCompute, "layer", Seconds(1.5)},
             {runtime::Cause::kPageFaults, "clip", Seconds(1)}};
  EXPECT_EQ(Json::parse(prediction_json(made_up_job(), p))["by_label_s"],
            Json({{"clip", 3.0}, {"layer", 1.5}}));
}

TEST(PredictionJson, ListsWhatDoesNotFit) {
  study::Prediction p = made_up_prediction();
  EXPECT_EQ(Json::parse(prediction_json(made_up_job(), p))["infeasible"], Json::array());
  p.pools[0].capacity = Bytes(p.pools[0].needed().value - 1);
  const Json json = Json::parse(prediction_json(made_up_job(), p));
  EXPECT_EQ(json["feasible"], false);
  const Json expected = {
      {{"pool", "gpu"},
       {"phase", "backward"},
       {"needed_bytes", 10 * kGiB + kGiB / 2},
       {"capacity_bytes", 10 * kGiB + kGiB / 2 - 1},
       {"largest",
        {{{"tag", "logits"}, {"bytes", 6 * kGiB}}, {{"tag", "weights"}, {"bytes", 4 * kGiB}}}}}};
  EXPECT_EQ(json["infeasible"], expected);
  EXPECT_TRUE(json["step_s"].is_number());
}

TEST(PredictionJson, LeavesTheCostNullWithoutAPrice) {
  study::Prediction p = made_up_prediction();
  p.cost.reset();
  EXPECT_TRUE(Json::parse(prediction_json(made_up_job(), p)).at("cost").is_null());
}

TEST(PredictionJson, IsJsonWhateverAFileIsCalled) {
  plans::Job job = made_up_job();
  job.shape.name = "a\"b\\c\n\xff";
  const Json json = Json::parse(prediction_json(job, made_up_prediction()));
  EXPECT_EQ(json["scenario"]["model"], "a\"b\\c\n\xef\xbf\xbd");
}

TEST(PredictionJson, NullsAreNamed) {
  // A number that is not finite would be written as null.
  const plans::Job job = real_job("qwen2.5-0.5b", "gh200-480gb", "native", 1);
  const Json json = Json::parse(prediction_json(job, study::predict(job)));
  const Json flat = json.flatten();  // of which empty lists and objects are null too
  for (const auto& [pointer, leaf] : flat.items()) {
    const bool named = pointer == "/memory/host_pinned/capacity_bytes" ||
                       pointer == "/scenario/lora_targets" || pointer == "/scenario/base";
    EXPECT_TRUE(named || !json.at(Json::json_pointer(pointer)).is_null()) << pointer;
  }
}

TEST(ComparisonJson, HoldsAPredictionForEachRow) {
  const plans::Job job = made_up_job();
  std::vector<ComparisonRow> rows(3);
  for (ComparisonRow& row : rows) {
    row.job = &job;
    row.prediction = made_up_prediction();
  }
  rows[1].published_tflops = 2.5;
  rows[1].published_from = "a paper";
  rows[2].prediction = {};
  rows[2].refused = "does not run in fp32";
  const Json json = Json::parse(comparison_json(rows));
  EXPECT_EQ(json["schema"], "offsim.comparison/1");
  ASSERT_EQ(json["predictions"].size(), 3u);
  expect_schema(json["predictions"][0]);
  EXPECT_FALSE(json["predictions"][0].contains("published"));
  EXPECT_EQ(json["predictions"][1]["published"], Json({{"tflops", 2.5}, {"from", "a paper"}}));
  const Json& refused = json["predictions"][2];
  EXPECT_EQ(refused["feasible"], false);
  EXPECT_EQ(refused["infeasible"], Json::array());
  EXPECT_EQ(refused["refused"], "does not run in fp32");
  EXPECT_EQ(refused["scenario"]["plan"], "megatrain");
}

TEST(ComparisonJson, IsAListWithNothingInIt) {
  EXPECT_EQ(Json::parse(comparison_json({}))["predictions"], Json::array());
}

}  // namespace
}  // namespace offsim::report::json_test
