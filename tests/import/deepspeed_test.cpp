// Does each oddity of a DeepSpeed configuration come out as DeepSpeed takes it, or refused with its
// place?
#include <gtest/gtest.h>

#include "tests/import/answer.h"

namespace offsim::imports::deepspeed_test {
namespace {

// The inner part stands alone on line 2.
std::string stage(int n, const std::string& inner) {
  return "{\"train_batch_size\": 1, \"bf16\": {\"enabled\": true}, \"zero_optimization\": "
         "{\"stage\": " +
         std::to_string(n) + (inner.empty() ? "" : ",\n" + inner) + "}}";
}
std::string top(const std::string& inner) {
  return "{\"bf16\": {\"enabled\": true},\n" + inner + "}";
}

struct Case {
  const char* what;
  std::string text, expected;
};

class Refuses : public testing::TestWithParam<Case> {};
TEST_P(Refuses, WithPlaceAndReason) {
  const Answer a = answer(GetParam().text);
  ASSERT_EQ(a.refusals.size(), 1U) << a.asked;
  EXPECT_EQ(a.refusals[0].substr(0, GetParam().expected.size()), GetParam().expected);
}
INSTANTIATE_TEST_SUITE_P(
    DeepSpeed, Refuses,
    testing::Values(
        Case{"2 twice", "{\"fp16\": {}, \"fp16\": {}}", "ds.json:1:14: key 'fp16' is given twice"},
        Case{"5 hole", "{\"train_batch_size\": SIZE}",
             "ds.json:1:22: not JSON or Hjson: 'SIZE' is neither"},
        Case{"8 nested", top("\"train_batch_size\": 1, \"deepspeed\": {\"zero_optimization\": {}}"),
             "ds.json:2:38: zero_optimization is inside 'deepspeed'"},
        Case{"23 no batch", top("\"gradient_accumulation_steps\": 4"),
             "ds.json:1:1: neither train_batch_size nor"},
        Case{"31 both",
             stage(2, "\"cpu_offload\": true, \"offload_optimizer\": {\"device\": \"cpu\"}"),
             "ds.json:2:1: cpu_offload stands beside the block that replaces it"},
        Case{"32 plural", stage(3, "\"cpu_offload_params\": true"),
             "ds.json:2:1: there is no 'cpu_offload_params' in zero_optimization; did you mean "
             "'cpu_offload_param'?"},
        Case{"37 both precisions",
             "{\"train_batch_size\": 1, \"fp16\": {\"enabled\": true}, \"bf16\": {\"enabled\": "
             "true}}",
             "ds.json:1:45: fp16 and bf16 are both enabled; expected one of them"},
        Case{"39", stage(3, "\"offload_optimizer\": {\"device\": \"cpu\", \"buffer_size\": 1e8}"),
             "ds.json:2:40: there is no 'buffer_size' in zero_optimization.offload_optimizer; it "
             "belongs in zero_optimization.offload_param"},
        Case{"40", stage(3, "\"offload_param\": {\"device\": \"cpu\", \"ratio\": 0.5}"),
             "ds.json:2:36: there is no 'ratio' in zero_optimization.offload_param; it belongs in "
             "zero_optimization.offload_optimizer"},
        Case{"43", stage(3, "\"offload_optimizer\": {\"device\": \"gpu\"}"), "ds.json:2:33: "},
        Case{"44 null", stage(3, "\"offload_optimizer\": {\"device\": null}"),
             "ds.json:2:23: zero_optimization.offload_optimizer.device is null"},
        Case{"45", stage(4, ""), "ds.json:1:83: zero_optimization.stage is '4'; expected one of"},
        Case{"48", stage(3, "\"offload_optimizer\": {\"device\": \"nvme\"}"),
             "ds.json:2:33: zero_optimization.offload_optimizer.device is nvme, without nvme_path"},
        Case{"54", stage(2, "\"offload_optimizer\": {\"device\": \"cpu\", \"ratio\": 0.3}"),
             "ds.json:2:49: ratio is 0.3 at stage 2"},
        Case{"56", stage(3, "\"offload_optimizer\": {\"device\": \"cpu\", \"ratio\": 30}"),
             "ds.json:2:49: zero_optimization.offload_optimizer.ratio is '30'; expected a share "
             "from 0 to 1; did you mean 0.3?"},
        Case{"68", stage(3, "\"mics_shard_size\": 8"), "ds.json:2:1: MiCS is not modelled"},
        Case{"72", stage(3, "\"aio\": {}"),
             "ds.json:2:1: there is no 'aio' in zero_optimization; it belongs at the top level"},
        Case{"74", stage(3, "\"reduce_bucket_size\": \"5e8\""),
             "ds.json:2:23: zero_optimization.reduce_bucket_size is the text '5e8'; expected a "
             "number without quotes"},
        Case{
            "76", stage(3, "\"reduce_bucket_size\": 2.5"),
            "ds.json:2:23: zero_optimization.reduce_bucket_size is '2.5'; expected a whole number"},
        Case{"78", stage(3, "\"sub_group_size\": 0"), "ds.json:2:19: sub_group_size is 0"},
        Case{
            "82",
            "{\"train_batch_size\": 1, \"fp16\": {\"enabled\": true, \"loss_scale\": \"dynamic\"}}",
            "ds.json:1:65: fp16.loss_scale is the text 'dynamic'; expected a number"},
        Case{"94", top("\"train_batch_size\": 1, \"compile\": {\"deepcompile\": true}"),
             "ds.json:2:51: DeepCompile has a schedule of its own"},
        Case{"95", top("\"train_batch_size\": 1, \"elasticity\": {\"enabled\": true}"),
             "ds.json:2:24: elastic batches are not modelled"}));

class Warns : public testing::TestWithParam<Case> {};
TEST_P(Warns, AndTakesIt) {
  const Answer a = answer(GetParam().text);
  EXPECT_TRUE(a.refusals.empty()) << a.refusals[0];
  EXPECT_TRUE(a.warns(GetParam().expected)) << testing::PrintToString(a.warnings);
}
INSTANTIATE_TEST_SUITE_P(
    DeepSpeed, Warns,
    testing::Values(
        Case{"28", top("\"train_batch_size\": 1, \"zero_optimization\": true"),
             "ds.json:2:45: zero_optimization: true is the old form of stage 1"},
        Case{"29", top("\"train_batch_size\": 1"), "there is no zero_optimization"},
        Case{"30", stage(2, "\"cpu_offload\": true"), "is the old spelling of offload_optimizer"},
        Case{"42", top("\"train_batch_size\": 1, \"zero_optimisation\": {}"), "NOTHING of it"},
        Case{"46", stage(2, "\"offload_param\": {\"device\": \"cpu\"}"),
             "ds.json:2:1: offload_param has NO EFFECT below stage 3"},
        Case{"58",
             stage(2, "\"offload_optimizer\": {\"device\": \"cpu\", \"super_offload\": true}"),
             "super_offload has no effect below stage 3"},
        Case{"70", top("\"train_batch_size\": 1, \"aio\": {\"thread_count\": 8}"),
             "intra_op_parallelism is what thread_count is meant for"}));

class Accepts : public testing::TestWithParam<Case> {};
TEST_P(Accepts, AsThePlan) {
  const Answer a = answer(GetParam().text);
  EXPECT_TRUE(a.refusals.empty()) << a.refusals[0];
  EXPECT_EQ(a.asked, GetParam().expected);
}
INSTANTIATE_TEST_SUITE_P(
    DeepSpeed, Accepts,
    testing::Values(
        Case{
            "7 floats", stage(3, "\"sub_group_size\": 1.000000e+09"),
            "zero3-offload offload_optimizer=none offload_param=none sub_group_size=1000000000 | 1 "
            "x 1 x 1 bf16-mixed"},
        Case{"30", stage(2, "\"cpu_offload\": true"), "zero2-offload | 1 x 1 x 1 bf16-mixed"},
        Case{
            "35", stage(3, "\"prefetch_bucket_size\": 5"),
            "zero3-offload offload_optimizer=none offload_param=none stage3_prefetch_bucket_size=5 "
            "| 1 x 1 x 1 bf16-mixed"},
        Case{"62 63 65",
             stage(
                 2,
                 "\"offload_optimizer\": {\"device\": \"cpu\"}, \"zenflow\": {\"topk_ratio\": 0.1, "
                 "\"update_interval\": \"auto\", \"pt_reserved_cores_perc\": 1}"),
             "zenflow topk_ratio=0.1 pt_reserved_cores_perc=1 | 1 x 1 x 1 bf16-mixed"},
        Case{"75", stage(3, "\"reduce_bucket_size\": \"500000000\""),
             "zero3-offload offload_optimizer=none offload_param=none reduce_bucket_size=500000000 "
             "| 1 x 1 x 1 bf16-mixed"}));

}  // namespace
}  // namespace offsim::imports::deepspeed_test
