#include "sim/study/advise.h"

#include <algorithm>
#include <cmath>

#include "sim/plans/plan.h"

namespace offsim::study {

namespace {

constexpr std::size_t kPaired = 4;        // best edits that are tried two by two
constexpr std::size_t kPairedToFit = 10;  // and nearest ones, where none fits

// What is too much, in all pools: what does not fit, or would swap.
double excess(const Prediction& p) {
  double sum = 0;
  for (const PoolReport& pool : p.pools) {
    if (pool.capacity && !pool.fits()) {
      sum += static_cast<double>((pool.needed() - *pool.capacity).value);
    } else if (pool.may_swap()) {
      sum += static_cast<double>((pool.needed() - *pool.swaps_from).value);
    }
  }
  return sum;
}

bool good(const Prediction& p) { return p.feasible() && !p.may_swap(); }

// The largest micro-batch that fits, doubled until it does not, then by bisection down to an
// eighth of it: more digits gain nothing. 0 when not even the job's own fits.
std::int64_t largest_that_fits(plans::Job job, std::int64_t from) {
  const auto fits = [&job](std::int64_t micro_batch) {
    job.workload.micro_batch = micro_batch;
    return good(predict(job));
  };
  std::int64_t low = from, high = from;
  if (!fits(low)) {
    return 0;
  }
  const std::int64_t most = kMostTokensOfMicroBatch / job.workload.sequence;
  do {
    low = high;
    high *= 2;
  } while (high <= most && fits(high));
  high = std::min(high, most + 1);
  while (high - low > std::max<std::int64_t>(1, low / 8)) {
    const std::int64_t middle = low + (high - low) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return low;
}

Tried try_edit(Edit edit, const Prediction& now) {
  Tried tried{std::move(edit), "", {}, 0};
  try {
    plans::Job& job = tried.edit.job;
    if (tried.edit.largest) {
      job.plan->check(job);
      const std::int64_t before = job.workload.micro_batch;
      const std::int64_t largest = largest_that_fits(job, before);
      if (largest > before) {
        job.workload.micro_batch = largest;
        tried.edit.changes.push_back(
            {"micro_batch", std::to_string(before), std::to_string(largest)});
      }
    }
    tried.prediction = predict(job);
    tried.gain = tried.prediction.tokens_per_s / now.tokens_per_s - 1;
  } catch (const InputError& error) {
    tried.refused = error.what();
  }
  return tried;
}

// Those that fit by gain, the smaller edit first among equals; then the others, nearest first.
bool before(const Tried& a, const Tried& b) {
  if (a.fits() != b.fits()) {
    return a.fits();
  }
  if (!a.fits()) {
    return a.refused.empty() != b.refused.empty()
               ? a.refused.empty()
               : a.refused.empty() && excess(a.prediction) < excess(b.prediction);
  }
  const double difference = a.gain - b.gain;
  return std::abs(difference) > 1e-3 ? difference > 0 : a.edit.size < b.edit.size;
}

// Two gains that differ by no more than a thousandth are equal, which is no order by itself.
void rank(std::vector<Tried>& tried) {
  std::ranges::stable_sort(tried, [](const Tried& a, const Tried& b) { return a.gain > b.gain; });
  for (std::size_t i = 1; i < tried.size(); ++i) {
    for (std::size_t j = i; j > 0 && before(tried[j], tried[j - 1]); --j) {
      std::swap(tried[j], tried[j - 1]);
    }
  }
}

// Of `tried`, ranked: those to be tried together, by index.
std::vector<std::size_t> to_pair(const Advice& advice) {
  const bool fits = good(advice.now);
  std::vector<std::size_t> chosen;
  for (std::size_t i = 0; i < advice.tried.size(); ++i) {
    const Tried& t = advice.tried[i];
    const bool nearer =
        t.refused.empty() && !t.fits() && excess(t.prediction) < excess(advice.now) * 0.98;
    const bool better = t.fits() && t.gain >= kWorthIt;
    if (t.edit.kind == Edit::Kind::kSetting && (fits ? better : nearer)) {
      chosen.push_back(i);
    }
  }
  chosen.resize(std::min(chosen.size(), fits ? kPaired : kPairedToFit));
  return chosen;
}

void try_pairs(Advice& advice, const Prediction& now) {
  const std::vector<std::size_t> chosen = to_pair(advice);
  for (std::size_t a = 0; a < chosen.size(); ++a) {
    for (std::size_t b = a + 1; b < chosen.size(); ++b) {
      const Tried& first = advice.tried[chosen[a]];
      const Tried& second = advice.tried[chosen[b]];
      const std::optional<Edit> both = together(first.edit, second.edit);
      if (!both) {
        continue;
      }
      Tried pair = try_edit(*both, now);
      const bool better = !first.fits() || pair.gain > std::max(first.gain, second.gain) + kWorthIt;
      if (pair.fits() && better) {
        advice.pairs.push_back(std::move(pair));
      }
    }
  }
  rank(advice.pairs);
}

}  // namespace

const Tried* Advice::best() const {
  const bool fits = good(now);
  const auto worth = [fits](const std::vector<Tried>& of) {
    return !of.empty() && of.front().fits() && (!fits || of.front().gain >= kWorthIt);
  };
  if (!worth(tried)) {
    return worth(pairs) ? &pairs.front() : nullptr;
  }
  return &tried.front();
}

std::optional<Edit> together(const Edit& first, const Edit& second) {
  if (first.kind != Edit::Kind::kSetting || second.kind != Edit::Kind::kSetting) {
    return std::nullopt;
  }
  Edit both = first;
  for (const Change& change : second.changes) {
    if (first.changes_setting(change.setting)) {
      return std::nullopt;
    }
    both.changes.push_back(change);
    if (both.job.options.has(change.setting)) {
      both.job = with_option(both.job, change.setting, change.to);
    }
  }
  const plans::Workload& from = second.job.workload;
  plans::Workload& to = both.job.workload;
  for (const Change& change : second.changes) {
    if (change.setting == "micro_batch") {
      to.micro_batch = from.micro_batch;
    } else if (change.setting == "accumulation") {
      to.accumulation = from.accumulation;
    } else if (change.setting == "checkpointing") {
      to.checkpointing = from.checkpointing;
    } else if (change.setting == "activation_offload") {
      to.activation_offload = from.activation_offload;
    } else if (change.setting == "loader_workers") {
      to.loader_workers = from.loader_workers;
    } else if (change.setting == "loader_bandwidth") {
      to.loader_bandwidth = from.loader_bandwidth;
    } else if (change.setting == "phase_sync") {
      to.phase_sync = from.phase_sync;
    } else if (change.setting == "gpus") {
      to.gpus = from.gpus;
    } else {
      SIM_ASSERT(both.job.options.has(change.setting),
                 "an edit's setting is the work's or a plan's");
    }
  }
  both.size += second.size;
  both.why = "";
  both.largest = false;  // found already
  return both;
}

Advice advise(const plans::Job& job, const std::vector<machine::Machine>& machines,
              const AdviceProgress& progress) {
  Advice advice;
  advice.now = predict(job);
  const std::vector<Edit> edits = edits_of(job, machines);
  for (std::size_t i = 0; i < edits.size(); ++i) {
    if (progress) {
      progress(i + 1, edits.size());
    }
    Tried tried = try_edit(edits[i], advice.now);
    const bool again = std::ranges::any_of(advice.tried, [&](const Tried& t) {
      return t.edit.changes == tried.edit.changes;  // the largest may be twice as large
    });
    if (!tried.edit.changes.empty() && !again) {  // or it is the one that there is
      advice.tried.push_back(std::move(tried));
    }
  }
  rank(advice.tried);
  const bool single = std::ranges::any_of(
      advice.tried, [](const Tried& t) { return t.fits() && t.edit.kind == Edit::Kind::kSetting; });
  if (good(advice.now) || !single) {
    try_pairs(advice, advice.now);
  }
  for (const auto& [resource, share] : advice.now.utilization) {
    advice.bounds.emplace_back(resource, advice.now.step * share);
  }
  std::ranges::stable_sort(advice.bounds, std::ranges::greater{},
                           [](const auto& bound) { return bound.second.value; });
  return advice;
}

}  // namespace offsim::study
