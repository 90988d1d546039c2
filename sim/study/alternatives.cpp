#include "sim/study/alternatives.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <tuple>

#include "sim/base/error.h"
#include "sim/engine/memory.h"
#include "sim/plans/plan.h"
#include "sim/study/limits.h"
#include "sim/study/search.h"

namespace offsim::study {

namespace {

using plans::ActivationOffload;
using plans::Checkpointing;

constexpr std::int64_t kMostIdeal = 4096;  // GPUs; more are none
constexpr std::int64_t kMostTried = 256;   // micro-batches a step

std::optional<UsdPerHour> price_of(const machine::Machine& machine) {
  return machine.price ? std::optional(machine.price->per_gpu) : std::nullopt;
}

// The fewest GPUs that hold the step if they share its states; 0 where kMostIdeal do not.
std::int64_t fewest_gpus(const Prediction& prediction, const Run& run) {
  const engine::ActivityGraph& graph = run.lowered.graph;
  std::vector<engine::TagId> states;
  for (std::size_t tag = 0; tag < graph.tag_count(); ++tag) {
    const std::string_view name = graph.tag(engine::TagId(tag));
    if (name == "parameters" || name == "16-bit weights of autocast" || name == "gradients" ||
        name == "Adam states") {
      states.push_back(engine::TagId(tag));
    }
  }
  const PoolReport& gpu = prediction.pools.front();
  const auto fits = [&](std::int64_t gpus) {
    const Bytes peak(engine::peak_if_shared(graph, run.timeline, run.lowered.gpu, states, gpus));
    return peak + gpu.fixed <= *gpu.capacity;
  };
  if (!fits(kMostIdeal)) {
    return 0;
  }
  return 1 + last_good(0, kMostIdeal, [&](std::int64_t gpus) { return !fits(gpus); });
}

// Native on one GPU of the machine, or on as many as would do.
Alternative native_of(const plans::Job& asked, const MachineNamed& on,
                      std::optional<UsdPerHour> price, Checkpointing checkpointing) {
  const plans::Plan& native = plans::find_plan("native", {});
  plans::Job job{asked.shape, asked.workload, on.machine, &native,
                 plans::Options(native.options, native.name)};
  job.workload.gpus = 1;
  job.workload.activation_offload = ActivationOffload::kNone;
  job.workload.checkpointing = checkpointing;
  Alternative out{.way = Way::kOneGpu, .hardware = on.name, .job = std::move(job), .price = price};
  try {
    Run run;
    out.prediction = predict(out.job, price, &run);
    if (!out.prediction.feasible()) {
      out.way = Way::kIdeal;
      out.gpus = fewest_gpus(out.prediction, run);
    }
  } catch (const InputError& refusal) {
    out.refused = refusal.what();
    out.gpus = 0;
  }
  return out;
}

// As asked where that is possible: it is faster. Otherwise with full checkpointing where that is,
// and where neither is what needs fewer GPUs.
Alternative without_offload(const plans::Job& asked, const MachineNamed& on,
                            std::optional<UsdPerHour> price) {
  Alternative as_asked = native_of(asked, on, price, asked.workload.checkpointing);
  const bool full = asked.workload.checkpointing == Checkpointing::kFull;
  if (full || !as_asked.refused.empty() || as_asked.way == Way::kOneGpu) {
    return as_asked;
  }
  Alternative recomputed = native_of(asked, on, price, Checkpointing::kFull);
  const auto rank = [](const Alternative& a) {
    const bool one = a.way == Way::kOneGpu && a.refused.empty();
    const std::int64_t needed = a.possible() ? 0
                                : a.gpus > 0 ? a.gpus
                                             : std::numeric_limits<std::int64_t>::max();
    return std::tuple(!one, !a.possible(), needed);
  };
  return rank(recomputed) < rank(as_asked) ? recomputed : as_asked;
}

bool is_native_alone(const plans::Job& job) {
  return job.plan->name == "native" && job.workload.gpus == 1 &&
         job.workload.activation_offload == ActivationOffload::kNone;
}

// The search for the accumulation: both jobs at the same number of micro-batches a step.
class Balance {
 public:
  Balance(const Alternative& asked, const Alternative& other) : asked_(asked), other_(other) {}

  // How much dearer the job is, of the other's dollars; nothing where one of them does not fit:
  // unfit() says which.
  std::optional<double> dearer(std::int64_t accumulation) {
    plans::Job job = asked_.job;
    job.workload.accumulation = accumulation;
    Alternative asked = asked_;
    asked.job = job;
    asked.prediction = predict(job, asked_.price);
    const Alternative other =
        without_offload(job, {other_.hardware, other_.job.machine}, other_.price);
    unfit_ = !asked.possible() ? Unfit::kAsked : !other.possible() ? Unfit::kOther : Unfit::kNone;
    return unfit_ == Unfit::kNone
               ? std::optional(*asked.usd_per_token() / *other.usd_per_token() - 1)
               : std::nullopt;
  }
  Unfit unfit() const { return unfit_; }

 private:
  const Alternative& asked_;
  const Alternative& other_;
  Unfit unfit_ = Unfit::kNone;
};

void find_accumulation(const Alternative& asked, const Alternative& other, BreakEven& out) {
  Balance balance(asked, other);
  out.has_accumulation = true;
  out.most = most_accumulation(asked.job);
  try {
    // One micro-batch is a case of its own: with more, gradients are kept between them.
    const std::set<std::int64_t> ends{1, std::min<std::int64_t>(2, out.most), out.most};
    for (const std::int64_t tried : ends) {
      const std::optional<double> more = balance.dearer(tried);
      if (more && (!out.nearest || *more < out.dearer)) {
        out.nearest = tried;
        out.dearer = *more;
      }
      if (more && *more <= 0) {
        out.accumulation = tried;
        break;
      }
    }
    out.unfit = balance.unfit();
    if (!out.accumulation || *out.accumulation <= 2) {
      return;
    }
    std::int64_t too_few = 2, enough = out.most;
    while (enough - too_few > 1) {
      const std::int64_t middle = too_few + (enough - too_few) / 2;
      const std::optional<double> more = balance.dearer(middle);
      (more && *more <= 0 ? enough : too_few) = middle;
    }
    out.accumulation = enough;
  } catch (const InputError& refusal) {  // some plans do not accumulate
    out.refused = refusal.what();
  }
}

std::optional<BreakEven> break_even(const CostStudy& study) {
  const std::vector<Alternative>& rows = study.rows;
  const Alternative& asked = rows[study.asked];
  const auto other = std::ranges::find_if(rows, [](const Alternative& row) {
    return row.way != Way::kAsked && row.possible() && row.price;
  });
  if (!asked.possible() || other == rows.end()) {
    return std::nullopt;
  }
  BreakEven out;
  out.against = static_cast<std::size_t>(other - rows.begin());
  if (asked.price) {
    find_accumulation(asked, *other, out);
  }
  if (other->hardware != asked.hardware) {
    const double hours = bill(asked, study.tokens).time.value / 3600;
    out.price =
        UsdPerHour(bill(*other, study.tokens).usd->value / hours / static_cast<double>(asked.gpus));
  }
  return out;
}

// What a row is sorted by.
std::tuple<int, double> rank(const Alternative& row, double tokens) {
  if (!row.possible()) {
    return {2, 0};
  }
  const Bill of = bill(row, tokens);
  return of.usd ? std::tuple(0, of.usd->value) : std::tuple(1, of.time.value);
}

}  // namespace

bool Alternative::possible() const {
  if (!refused.empty()) {
    return false;
  }
  return way == Way::kIdeal ? gpus > 0 && gpus <= job.machine.gpus : prediction.feasible();
}

std::int64_t Alternative::machines() const {
  return (gpus + job.machine.gpus - 1) / job.machine.gpus;
}

double Alternative::tokens_per_s() const {
  return prediction.tokens_per_s * (way == Way::kIdeal ? static_cast<double>(gpus) : 1);
}

std::int64_t Alternative::tokens_per_step() const {
  return job.workload.tokens_per_step() * (way == Way::kIdeal ? gpus : 1);
}

std::optional<double> Alternative::usd_per_token() const {
  return price ? std::optional(price->value / 3600 * static_cast<double>(gpus) / tokens_per_s())
               : std::nullopt;
}

Bill bill(const Alternative& of, double tokens) {
  SIM_ASSERT(of.possible() && tokens > 0, "a bill is of what can run");
  Bill out;
  out.steps = std::ceil(tokens / static_cast<double>(of.tokens_per_step()));
  out.time = of.prediction.step * out.steps;
  if (of.price) {
    out.usd = Usd(of.price->value * out.time.value / 3600 * static_cast<double>(of.gpus));
  }
  return out;
}

std::int64_t most_accumulation(const plans::Job& asked) {
  plans::Workload one = asked.workload;
  one.accumulation = 1;
  // Half of the largest step that can be asked for, since there are some to predict.
  const double largest = 0.5 / step_size(asked.shape, one).share();
  const auto most = static_cast<std::int64_t>(std::min<double>(kMostTried, largest));
  return std::max({most, asked.workload.accumulation, std::int64_t{1}});
}

CostStudy cost_study(const plans::Job& asked, const std::string& here,
                     const std::vector<MachineNamed>& others, std::optional<UsdPerHour> price,
                     double tokens, const Progress& done) {
  SIM_ASSERT(tokens > 0, "a budget has tokens");
  CostStudy out;
  out.tokens = tokens;
  if (!price) {
    price = price_of(asked.machine);
  }
  Alternative own{.hardware = here, .job = asked, .gpus = asked.workload.gpus, .price = price};
  own.prediction = predict(asked, price);
  const bool same = is_native_alone(asked) && own.possible();
  out.rows.push_back(std::move(own));
  if (!same) {
    out.rows.push_back(without_offload(asked, {here, asked.machine}, price));
  }
  for (const MachineNamed& other : others) {
    out.rows.push_back(without_offload(asked, other, price_of(other.machine)));
    if (done) {
      done(static_cast<std::size_t>(&other - others.data()) + 1, others.size());
    }
  }
  std::ranges::stable_sort(out.rows, [&](const Alternative& a, const Alternative& b) {
    return rank(a, tokens) < rank(b, tokens);
  });
  const auto row = std::ranges::find(out.rows, Way::kAsked, &Alternative::way);
  out.asked = static_cast<std::size_t>(row - out.rows.begin());
  out.break_even = break_even(out);
  return out;
}

}  // namespace offsim::study
