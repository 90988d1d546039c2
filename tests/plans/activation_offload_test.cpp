// Do saved tensors go to host memory and come back as autograd's hooks send them?
//
// Every operation's own: a tensor that three Linears save crosses three times, and so does the
// weight of each.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/base/message_of.h"
#include "tests/plans/calls.h"
#include "tests/plans/held.h"
#include "tests/plans/on_paper.h"

namespace offsim::plans::activation_offload_test {
namespace {

using Kind = ActivationOffload;

Workload asked(Kind kind, Checkpointing checkpointing = Checkpointing::kNone) {
  return {.micro_batch = 2,
          .sequence = 128,
          .checkpointing = checkpointing,
          .precision = Precision::kBf16,
          .activation_offload = kind};
}
model::Pieces pieces_of(const Workload& w) {
  return model::pieces(tiny_shape(), w.batch(), model::Numerics::kPure16);
}

// Of a piece's tensors, those that a rule takes.
template <class Rule>
std::int64_t bytes_of(const model::Piece& piece, Rule rule) {
  std::int64_t sum = 0;
  for (const model::Module& module : piece.modules) {
    for (const model::SavedTensor& tensor : module.saved) {
      sum += rule(module, tensor);
    }
  }
  return sum;
}
std::int64_t all_bytes(const model::Module&, const model::SavedTensor& t) { return t.bytes; }
std::int64_t streamed_bytes(const model::Module&, const model::SavedTensor& t) {
  return t.parameter || t.bytes < 1024 ? 0 : t.bytes;
}
template <class Rule>
std::int64_t of_model(const Workload& w, Rule rule) {
  const model::Pieces p = pieces_of(w);
  return 2 * bytes_of(p.layers.back(), rule) + bytes_of(p.head, rule);
}

std::pair<double, double> moved(const Job& of) {
  const runtime::StepTotals totals = study::predict(of).totals;
  return {totals.d2h_bytes, totals.h2d_bytes};
}
std::pair<double, double> bytes(std::int64_t down, std::int64_t up) {
  return {static_cast<double>(down), static_cast<double>(up)};
}

// h 64, q 64, k and v 32, f 128, heads 4 of 16; T tokens in sequences of S.
TEST(SavedTensors, OfALayerAreThoseOfItsOperations) {
  const Workload w = asked(Kind::kNone);
  constexpr std::int64_t h = 64, q = 64, kv = 32, f = 128, T = 256, S = 128;
  const std::int64_t norm = 2 * 4 * T * h + 2 * 4 * T + 2 * T * h + 2 * h;
  const std::int64_t qkv = 3 * 2 * T * h + 2 * h * (q + 2 * kv);
  const std::int64_t rotary = 4 * 2 * S * 16;
  const std::int64_t attention = 2 * T * (2 * q + 2 * kv) + 4 * T * 4;
  const std::int64_t o = 2 * T * q + 2 * q * h;
  const std::int64_t mlp = 2 * (2 * T * h + 2 * h * f) + 3 * 2 * T * f + 2 * T * f + 2 * f * h;
  EXPECT_EQ(bytes_of(pieces_of(w).layers.back(), all_bytes),
            2 * norm + qkv + rotary + attention + o + mlp);
}

// --- what crosses

TEST(SaveOnCpu, MovesEverySavedTensorDownAndUp) {
  for (const Kind kind : {Kind::kSaveOnCpu, Kind::kSaveOnCpuPinned}) {
    const Workload w = asked(kind);
    const std::int64_t all = of_model(w, all_bytes);
    EXPECT_EQ(moved(job("native", w)), bytes(all, all));
  }
}

// Under checkpointing the layers' inputs, and what the head saves.
TEST(SaveOnCpu, MovesCheckpoints) {
  const Workload w = asked(Kind::kSaveOnCpuPinned, Checkpointing::kFull);
  const std::int64_t all = 2 * pieces_of(w).hidden.value + bytes_of(pieces_of(w).head, all_bytes);
  EXPECT_EQ(moved(job("native", w)), bytes(all, all));
}

// Not norms' weights, 128 bytes. The head's product saves its input, its weight and twice the
// result of the loss: four of the last five that were packed, which the backward finds still there.
TEST(Streamed, LeavesTheLastTensorsWhereTheyAre) {
  const Workload w = asked(Kind::kStreamed);
  const std::int64_t all = of_model(w, streamed_bytes);
  const std::int64_t last = bytes_of(pieces_of(w).head, [](const auto& module, const auto& t) {
    return module.name == "lm_head" ? t.bytes : 0;
  });
  EXPECT_EQ(moved(job("native", w)), bytes(all, all - last));
}

// As in native with the modules' numerics: 16-bit modules where the system has them.
TEST(ActivationOffload, IsTheSameInEveryPlanThatHasIt) {
  for (const std::string_view plan : {"zero2-offload", "fsdp2-offload", "torchao-offload"}) {
    Workload w = asked(Kind::kNone);
    w.precision = usual_precision(plan);
    const auto without = moved(job(plan, w));
    w.activation_offload = Kind::kSaveOnCpuPinned;
    const auto with = moved(job(plan, w));
    w.precision = plan == "torchao-offload" ? usual_precision(plan) : Precision::kBf16;
    EXPECT_EQ(std::pair(with.first - without.first, with.second - without.second),
              moved(job("native", w)))
        << plan;
  }
}

// --- what is held

// Each in a pinned block, taken once: as much after three steps and with accumulation.
TEST(SaveOnCpu, PinsABlockATensor) {
  Workload w = asked(Kind::kSaveOnCpuPinned);
  const std::int64_t blocks =
      of_model(w, [](const auto&, const model::SavedTensor& t) { return p2(t.bytes); });
  EXPECT_EQ(peak(job("native", w), "host"), blocks);
  w.accumulation = 3;
  EXPECT_EQ(peak(job("native", w), "host"), blocks);
  EXPECT_EQ(peak(job("native", asked(Kind::kSaveOnCpu)), "host"), of_model(w, all_bytes));
}

TEST(ActivationOffload, FreesTheGpu) {
  Workload w = asked(Kind::kNone);
  w.micro_batch = 64;
  const std::int64_t kept = peak(job("native", w), "gpu");
  const auto with = [&](Kind kind) {
    w.activation_offload = kind;
    return peak(job("native", w, {}, tiny_shape(8)), "gpu");
  };
  EXPECT_LT(with(Kind::kSaveOnCpuPinned), kept);  // eight layers in less than two took
  EXPECT_LT(with(Kind::kStreamed), with(Kind::kNone));
}

// --- who waits

// The host is kept by every copy down, so that nothing overlaps: a module's kernels, after the
// first launch of the idle GPU, then its copies, of which all but the first wait for the host's
// call. The embedding saves nothing: behind it the first norm is launched in time.
TEST(SaveOnCpu, PinnedKeepsTheHostForEveryCopyDown) {
  Workload w = sixteen_tokens();
  w.precision = Precision::kBf16;
  w.activation_offload = Kind::kSaveOnCpuPinned;
  w.phase_sync = true;
  const model::Pieces p = pieces_of(w);
  double us = kLaunch + kKernel * static_cast<double>(p.embedding.forward.launches()) - kLaunch;
  const auto add = [&](const model::Piece& piece) {
    for (const model::Module& module : piece.modules) {
      us += kLaunch + kKernel * static_cast<double>(module.forward.launches());
      us += kCall * (static_cast<double>(module.saved.size()) - 1);
      for (const model::SavedTensor& tensor : module.saved) {
        us += kLatency + link(static_cast<double>(tensor.bytes));
      }
    }
  };
  add(p.layers.back());
  add(p.layers.back());
  add(p.head);
  const study::Prediction prediction =
      study::predict(job("native", w, {}, tiny_shape(), paper_machine()));
  EXPECT_NEAR(prediction.phases.at("forward").value / runtime::kMicro, us, kExact);
}

// The host issues a step without waiting for anything.
TEST(Streamed, KeepsNobody) {
  const runtime::Program program = recorded(job("native", asked(Kind::kStreamed)));
  for (const Call& call : step_of(program)) {
    const auto* wait = std::get_if<runtime::Wait>(&call);
    const auto* copy = std::get_if<runtime::Copy>(&call);
    EXPECT_FALSE(wait != nullptr && wait->lane == runtime::kHost);
    EXPECT_FALSE(copy != nullptr && copy->blocking);
  }
}

// Embeddings of another width than the layers' (opt-350m) are a Linear, which saves its input: it
// goes and comes back as a layer's do, also in the steps after the first.
TEST(Streamed, TakesWhatProjectionsOfTheEmbeddingSave) {
  model::Shape shape = tiny_shape();
  shape.embedded = 32;
  const Workload w = asked(Kind::kStreamed);
  const model::Pieces p = model::pieces(shape, w.batch(), model::Numerics::kPure16);
  const std::int64_t embedding = bytes_of(p.embedding, streamed_bytes);
  ASSERT_GT(embedding, 0);
  const std::int64_t down =
      embedding + 2 * bytes_of(p.layers.back(), streamed_bytes) + bytes_of(p.head, streamed_bytes);
  EXPECT_EQ(moved(job("native", w, {}, shape)).first, static_cast<double>(down));
  for (const char* plan : {"zero2-offload", "fsdp2-offload", "torchao-offload"}) {
    Workload usual = w;
    usual.precision = usual_precision(plan);
    EXPECT_GT(moved(job(plan, usual, {}, shape)).first, 0) << plan;
  }
}

// --- who has it

TEST(OneMemory, IsNotRelievedByCopies) {
  const Workload w{.precision = Precision::kBf16, .activation_offload = Kind::kSaveOnCpu};
  const study::Prediction p =
      study::predict(job("native", w, {}, tiny_shape(), runtime::unified_machine()));
  EXPECT_THAT(p.warnings,
              testing::Contains(testing::HasSubstr("activation_offload frees nothing")));
}

TEST(EveryPlan, OffloadsActivationsOrSaysWhyNot) {
  const std::set<std::string_view> have{"native", "zero2-offload", "fsdp2-offload",
                                        "torchao-offload"};
  for (const Plan& plan : registry()) {
    const Job of = job(
        plan.name, {.precision = usual_precision(plan.name), .activation_offload = Kind::kStreamed},
        {}, tiny_shape(), usual_machine(plan.name));
    const std::string refused = message_of([&] { plan.check(of); });
    EXPECT_EQ(refused.find("does not run with activation_offload: ") == std::string::npos,
              have.contains(plan.name))
        << plan.name << ": " << refused;
  }
}

}  // namespace
}  // namespace offsim::plans::activation_offload_test
