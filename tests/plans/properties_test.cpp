// What holds of every plan, whatever is asked?
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>

#include "tests/plans/invariants.h"

namespace offsim::plans::properties_test {
namespace {

bool coin() { return *rc::gen::arbitrary<bool>(); }
std::string flag() { return coin() ? "true" : "false"; }

model::Shape any_shape() {
  model::Shape s = tiny_shape(*rc::gen::inRange(1, 9));
  s.kv_heads = *rc::gen::inRange(1, 3);
  s.heads = s.kv_heads * *rc::gen::inRange(1, 4);
  s.head_dim = 8 * *rc::gen::inRange(1, 5);
  s.hidden = 16 * *rc::gen::inRange(1, 9);
  s.kinds.front().ffn = 16 * *rc::gen::inRange(1, 17);
  s.vocabulary = *rc::gen::inRange(2, 3000);
  s.gated_mlp = coin();
  s.qk_norm = coin();
  s.tied = coin();
  return s;
}

// Of plans that have adapters: now and then the model has some.
model::Shape with_adapters(model::Shape s) {
  if (coin() && coin()) {
    s.adapters = {
        *rc::gen::inRange(1, 65), static_cast<model::AdapterTargets>(*rc::gen::inRange(0, 3)),
        *rc::gen::element(model::Base::k16Bit, model::Base::kNf4, model::Base::kNf4Double)};
  }
  return s;
}

Workload any_workload() {
  Workload w;
  w.micro_batch = *rc::gen::inRange(1, 5);
  w.sequence = *rc::gen::inRange(2, 300);
  w.accumulation = *rc::gen::inRange(1, 4);
  w.checkpointing = coin() ? Checkpointing::kFull : Checkpointing::kNone;
  w.phase_sync = coin();
  return w;
}

Workload with_activation_offload(Workload w) {
  w.activation_offload = static_cast<ActivationOffload>(*rc::gen::inRange(0, 4));
  return w;
}

// Rates over four decades, so that now the host, now the link, now the drive, now the GPU
// decides.
machine::Machine any_machine() {
  machine::Machine m = coin() && coin() ? runtime::unified_machine() : runtime::synthetic_machine();
  const auto scale = [] { return std::pow(10.0, *rc::gen::inRange(-2, 3)); };
  m.accelerator.kernel_floor = runtime::known<Seconds>(1e-6 * scale());
  m.host.dram.value = m.host.dram.value * scale();
  m.host.dma_weight = runtime::known<double>(scale());
  m.framework.launch_queue = *rc::gen::inRange(1, 2000);
  m.framework.map_threshold = runtime::known_bytes(*rc::gen::inRange(1, 200'000));
  if (m.link) {
    m.link->h2d.value = m.link->h2d.value * scale();
    m.link->d2h.value = m.link->d2h.value * scale();
    m.link->total.value = (m.link->h2d.value + m.link->d2h.value) * 0.8;
  }
  machine::Drive& drive = m.drives.front();
  drive.read.value = drive.read.value * scale();
  drive.write.value = drive.read.value * *rc::gen::element(0.2, 0.5, 1.0);
  runtime::connect(m);
  return m;
}

// A host with room for all activations, or for none.
Job any_ratel(const model::Shape& shape) {
  machine::Machine m = any_machine();
  m.host.memory = runtime::known_bytes(coin() ? 1'000'000'000'000 : 20'000'000'000);
  return job("ratel", any_workload(),
             {{"planner", coin() ? "convex" : "ordered"},
              {"swap_ratio", coin() ? "0.2" : "1000"},
              {"is_mp", flag()},
              {"is_grad_async", flag()},
              {"is_nvme_rearrange", flag()},
              {"sub_group_size", std::to_string(*rc::gen::inRange(1, 200'000))}},
             shape, m);
}

// On the drive, or its form whose states stay on the CPU.
Job any_memascend(const model::Shape& shape) {
  Given options{{"engine", coin() ? "raw" : "filesystem"},
                {"pool", coin() ? "equal" : "adaptive"},
                {"allocator", coin() ? "torch" : "exact"},
                {"overflow_check", coin() ? "chain" : "fused"},
                {"max_in_cpu", coin() ? "0" : "1e9"},
                {"sub_group_size", std::to_string(*rc::gen::inRange(1, 200'000))}};
  if (coin()) {
    options["offload_optimizer"] = "cpu";
    options["offload_param"] = *rc::gen::element("none", "cpu", "nvme");
  } else {
    options["optimizer_states"] = coin() ? "bf16" : "fp32";
  }
  Workload w = any_workload();
  w.precision = coin() ? Precision::kBf16Mixed : Precision::kFp16Mixed;
  return job("memascend", w, options, shape, any_machine());
}

std::string any_count(std::int64_t most) {
  return std::to_string(*rc::gen::inRange<std::int64_t>(1, most));
}
const char* any_version() { return *rc::gen::element("0.14.5", "0.16.9", "0.19.3", "0.19.6"); }

// `most`: elements of limits and sub-groups.
Given any_of_stage3(std::int64_t most) {
  Given options{{"deepspeed_version", any_version()},
                {"pin_memory", flag()},
                {"overlap_comm", flag()},
                {"contiguous_gradients", flag()},
                {"cpu_checkpointing", flag()},
                {"partition_activations", flag()},
                {"reduce_bucket_size", any_count(most)},
                {"sub_group_size", any_count(most)},
                {"stage3_param_persistence_threshold", any_count(most / 10)},
                {"stage3_max_live_parameters", any_count(most)},
                {"stage3_max_reuse_distance", any_count(most)},
                {"stage3_prefetch_bucket_size", coin() ? "0" : any_count(most)}};
  return options;
}

Job any_zero3(const model::Shape& shape) {
  Given options = any_of_stage3(200'000);
  options["offload_optimizer"] = coin() ? "cpu" : "none";
  options["offload_param"] = coin() ? "cpu" : "none";
  if (options["offload_optimizer"] == "cpu") {
    options["ratio"] = *rc::gen::element("0", "0.3", "0.8", "1");
  }
  Workload w = any_workload();
  w.precision = coin() ? Precision::kBf16Mixed : Precision::kFp16Mixed;
  return job("zero3-offload", w, options, shape, any_machine());
}

// Some of whose matrices are worth a request, and buffers enough.
Job any_zero_infinity() {
  model::Shape shape = shape_of_large_matrices(*rc::gen::inRange(1, 4));
  shape.kinds.front().ffn = 256 * *rc::gen::inRange(1, 9);
  shape.kv_heads = *rc::gen::element(1, 4, 16);
  shape.tied = coin();
  Given options = any_of_stage3(30'000'000);
  options["offload_optimizer"] = *rc::gen::element("none", "cpu", "nvme");
  options["offload_param"] = *rc::gen::element("none", "cpu", "nvme");
  options["max_in_cpu"] = coin() ? "0" : any_count(30'000'000);
  options["param_buffer_count"] = "1000";
  options["buffer_count"] = "12";
  options["pipeline_read"] = flag();
  options["pipeline_write"] = flag();
  return job("zero-infinity", any_workload(), options, shape, any_machine());
}

Job any_fsdp2(const model::Shape& shape) {
  Workload w = any_workload();
  w.precision = coin() ? Precision::kBf16Mixed : Precision::kBf16;
  return job("fsdp2-offload", w,
             {{"fused", flag()}, {"pin_memory", flag()}, {"gradient_clipping", flag()}}, shape,
             any_machine());
}

// offload_gradients is refused with accumulation.
Job any_torchao(const model::Shape& shape) {
  Workload w = any_workload();
  w.precision = *rc::gen::element(Precision::kBf16Mixed, Precision::kBf16, Precision::kFp32);
  return job("torchao-offload", w, {{"minimal_size", any_count(20'000)}}, shape, any_machine());
}

Job any_zero2(const model::Shape& shape) {
  return coin() ? job("zero2-offload", any_workload(),
                      {{"deepspeed_version", any_version()},
                       {"pin_memory", flag()},
                       {"overlap_comm", flag()},
                       {"contiguous_gradients", flag()},
                       {"cpu_checkpointing", flag()},
                       {"partition_activations", flag()},
                       {"reduce_bucket_size", any_count(200'000)}},
                      shape, any_machine())
                : job("zero2-offload", any_workload(),
                      {{"variant", "paper"}, {"reduce_bucket_size", any_count(200'000)}}, shape,
                      any_machine());
}

// With room for everything, or not.
Job any_teraio(const model::Shape& shape) {
  machine::Machine m = any_machine();
  while (!m.link) {
    m = any_machine();
  }
  m.accelerator.gpudirect = coin();
  Job of =
      job("teraio", any_workload(),
          {{"path", coin() ? "auto" : "host"}, {"host_memory", coin() ? "0" : "1e7"}}, shape, m);
  const Bytes needed = study::predict(of).pool("gpu")->needed();
  const std::int64_t percent = *rc::gen::inRange(45, 110);
  of.machine.accelerator.memory = runtime::known_bytes(needed.value / 100 * percent);
  return of;
}

Job any_zenflow(const model::Shape& shape) {
  return job("zenflow", any_workload(),
             {{"topk_ratio", *rc::gen::element("0", "0.1", "1")},
              {"overlap_step", flag()},
              {"pt_reserved_cores_perc", *rc::gen::element("0", "0.3", "1")},
              {"full_warm_up_rounds", coin() ? "0" : "3"},
              {"pin_memory", flag()},
              {"overlap_comm", flag()},
              {"reduce_bucket_size", any_count(200'000)}},
             shape, any_machine());
}

// With clipping, which holds Adam back, and without.
Job any_superoffload(const model::Shape& shape) {
  Given options{{"variant", "paper"}};
  if (coin()) {
    options = any_of_stage3(200'000);
    options["offload_param"] = coin() ? "cpu" : "none";
    options["gradient_clipping"] = coin() ? "0" : "1";
    options["cpuadam_cores_perc"] = *rc::gen::element("0.1", "0.8", "1");
  }
  return job("superoffload", any_workload(), options, shape, any_machine());
}

Job any_coherent(const model::Shape& shape) {
  machine::Machine m = any_machine();
  while (!m.link) {
    m = any_machine();
  }
  m.link->page_fault = runtime::known<Seconds>(1e-6 * *rc::gen::inRange(1, 100));
  return job("coherent-offload", any_workload(),
             {{"access", coin() ? "direct" : "managed"}, {"gradients", coin() ? "cpu" : "gpu"}},
             shape, m);
}

Job any_mlx(const model::Shape& shape) {
  machine::Machine m = any_machine();
  while (m.link) {
    m = any_machine();
  }
  Workload w = any_workload();
  w.precision = coin() ? Precision::kBf16 : Precision::kFp32;
  return job("mlx", w, {{"compile", flag()}, {"donation", flag()}}, shape, m);
}

Job any_native(const model::Shape& shape) {
  return job("native", with_activation_offload(any_workload()), {{"gradient_clipping", flag()}},
             shape, any_machine());
}

Job any_megatrain(const model::Shape& shape) {
  return job("megatrain", any_workload(),
             {{"checkpoint_interval", std::to_string(*rc::gen::inRange(1, 10))},
              {"num_grad_slabs", std::to_string(*rc::gen::inRange(1, 13))},
              {"optimizer", coin() ? "deepspeed_adam" : "torch_fused"},
              {"variant", coin() ? "code" : "paper"}},
             shape, any_machine());
}

// A plan of the registry that is not here fails whatever draws it.
Job any_job() {
  using Draw = Job (*)(const model::Shape&);
  static const std::map<std::string_view, Draw> kDraws{
      {"native", [](const model::Shape& s) { return any_native(with_adapters(s)); }},
      {"zero2-offload", [](const model::Shape& s) { return any_zero2(with_adapters(s)); }},
      {"zenflow", any_zenflow},
      {"zero3-offload", [](const model::Shape& s) { return any_zero3(with_adapters(s)); }},
      {"zero-infinity", [](const model::Shape&) { return any_zero_infinity(); }},
      {"memascend", any_memascend},
      {"ratel", any_ratel},
      {"teraio", any_teraio},
      {"superoffload", any_superoffload},
      {"fsdp2-offload", [](const model::Shape& s) { return any_fsdp2(with_adapters(s)); }},
      {"torchao-offload", [](const model::Shape& s) { return any_torchao(with_adapters(s)); }},
      {"megatrain", any_megatrain},
      {"coherent-offload", any_coherent},
      {"mlx", any_mlx}};
  const auto plan = *rc::gen::inRange<std::size_t>(0, registry().size());
  return kDraws.at(registry()[plan].name)(any_shape());
}

RC_GTEST_PROP(PlanProperty, KeepsTheRulesOfEveryPrediction, ()) {
  const Job asked = any_job();
  RC_ASSERT(broken_rule(asked, predicted(asked)) == "");
}

RC_GTEST_PROP(PlanProperty, MoreAccumulationTakesMoreTimeAndMovesNoLess, ()) {
  Job asked = any_job();
  const study::Prediction few = study::predict(asked);
  asked.workload.accumulation += *rc::gen::inRange(1, 3);
  const study::Prediction many = study::predict(asked);
  RC_ASSERT(many.totals.executed > few.totals.executed);
  // teraio's greedy plan of more operations has more time for the drive: less needs the host, and
  // now and then fewer bytes leave, or they meet others less often.
  const bool moves = few.totals.nvme_write_bytes + few.totals.d2h_bytes > 0;
  if (asked.plan->name != "teraio" || !moves) {
    RC_ASSERT(many.step > few.step);
    RC_ASSERT(many.totals.h2d_bytes >= few.totals.h2d_bytes);
    RC_ASSERT(many.totals.d2h_bytes >= few.totals.d2h_bytes);
  }
}

// Steady: a step amid training, with another behind it. The next ones take as long; where steps
// meet and may take turns, in the mean of two. Rounding and the order of equal times may differ a
// little.
RC_GTEST_PROP(PlanProperty, TheReportedStepIsSteady, ()) {
  constexpr std::size_t kFollowing = 4;
  const Job asked = any_job();
  const double step = study::predict(asked).step.value;
  const study::Run run = study::simulate(asked, asked.plan->steps + int{kFollowing});
  const auto end = [&](std::size_t i) {
    return engine::to_seconds(run.timeline.finish[engine::index(run.lowered.step_ends[i])]).value;
  };
  for (std::size_t i = run.reported - kFollowing; i <= run.reported; ++i) {
    const double mean = (end(i) - end(i - run.turns)) / static_cast<double>(run.turns);
    RC_ASSERT(std::abs(mean / step - 1) < 1e-6);
  }
}

RC_GTEST_PROP(PlanProperty, CheckpointingNeverNeedsMoreGpuMemoryForManyLayers, ()) {
  model::Shape shape = any_shape();
  shape.layers = 32;
  Workload w = any_workload();
  w.sequence = 256;
  w.checkpointing = Checkpointing::kNone;
  const Bytes without = study::predict(job("native", w, {}, shape)).pool("gpu")->peak;
  w.checkpointing = Checkpointing::kFull;
  RC_ASSERT(study::predict(job("native", w, {}, shape)).pool("gpu")->peak <= without);
}

}  // namespace
}  // namespace offsim::plans::properties_test
