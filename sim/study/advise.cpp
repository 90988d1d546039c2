#include "sim/study/advise.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "sim/plans/checks.h"
#include "sim/plans/plan.h"
#include "sim/study/limits.h"
#include "sim/study/search.h"

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

// In tiers: fits, does not, says nothing. In the first by gain, in the second by what is missing.
bool before(const Tried& a, const Tried& b) {
  const auto tier = [](const Tried& t) {
    return t.fits() ? 0 : t.refused.empty() && !t.idle ? 1 : 2;
  };
  if (tier(a) != tier(b)) {
    return tier(a) < tier(b);
  }
  if (tier(a) == 0) {
    return a.prediction.tokens_per_s > b.prediction.tokens_per_s;
  }
  return tier(a) == 1 && excess(a.prediction) < excess(b.prediction);
}

// Gains that differ by no more than a thousandth of the next are equal: the smaller edit is first.
void rank(std::vector<Tried>& tried) {
  std::ranges::stable_sort(tried, before);
  for (auto first = tried.begin(); first != tried.end();) {
    auto last = std::next(first);
    while (last != tried.end() && first->fits() && last->fits() &&
           last->prediction.tokens_per_s > (1 - 1e-3) * first->prediction.tokens_per_s) {
      ++last;
    }
    std::stable_sort(first, last,
                     [](const Tried& a, const Tried& b) { return a.edit.size < b.edit.size; });
    first = last;
  }
}

// Tries edits of one job until there has been enough of it.
class Trials {
 public:
  Trials(const plans::Job& job, Advice& advice) : job_(job), advice_(advice) {}

  // Nothing for want of time, or where the edit changes nothing.
  std::optional<Tried> run(Edit edit) {
    Tried tried{.edit = std::move(edit), .job = job_, .refused = ""};
    try {
      tried.job = tried.edit.of(job_);
      const std::vector<std::string> warnings = tried.job.plan->check(tried.job);
      tried.idle = !tried.edit.largest &&
                   std::ranges::all_of(tried.edit.changes, [&warnings](const Change& change) {
                     return plans::without_effect(warnings, change.setting);
                   });
      if (tried.idle) {
        return tried;
      }
      if (tried.edit.largest) {
        search(tried);
      }
      if (tried.edit.changes.empty()) {
        return std::nullopt;  // the largest micro-batch is the one that there is
      }
      if (!take(tried.job)) {
        ++advice_.untried;
        return std::nullopt;
      }
      tried.prediction = predict(tried.job);
      if (tried.fits() && advice_.now.tokens_per_s > 0) {
        tried.gain = tried.prediction.tokens_per_s / advice_.now.tokens_per_s - 1;
      }
    } catch (const InputError& error) {
      tried.refused = error.what();
    }
    return tried.edit.changes.empty() ? std::nullopt : std::optional(std::move(tried));
  }

 private:
  bool take(const plans::Job& job) {
    const double work = work_ + step_size(job.shape, job.workload).share();
    if (work > kMostWork || !can_be_asked(job)) {
      return false;
    }
    work_ = work;
    return true;
  }

  // The micro-batch becomes the largest that fits, to an eighth: more digits gain nothing.
  void search(Tried& tried) {
    plans::Job job = tried.job;
    const std::int64_t now = job.workload.micro_batch;
    const auto fits = [&](std::int64_t micro_batch) {
      job.workload.micro_batch = micro_batch;
      return take(job) && predict(job).fits();
    };
    const std::int64_t eighths = 8;
    const std::int64_t doubled = [&] {
      std::int64_t good = now;
      while (good <= kMostBatch / 2 && fits(2 * good)) {
        good *= 2;
      }
      return good;
    }();
    const std::int64_t step = std::max<std::int64_t>(1, doubled / eighths);
    const std::int64_t more = last_good(
        0, doubled / step, [&](std::int64_t steps) { return fits(doubled + steps * step); });
    const std::int64_t largest = doubled + more * step;
    tried.edit.largest = false;
    if (largest > now) {
      tried.edit.changes.push_back({"micro_batch", std::to_string(now), std::to_string(largest)});
      tried.edit.apply.emplace_back(
          [largest](plans::Job& changed) { changed.workload.micro_batch = largest; });
      tried.job.workload.micro_batch = largest;
    }
  }

  const plans::Job& job_;
  Advice& advice_;
  double work_ = 0;
};

// Which of the ranked edits to try together.
std::vector<Edit> pairs_of(const Advice& advice) {
  const bool fits = advice.now.fits();
  std::vector<const Edit*> settings, plans, machines;
  for (const Tried& t : advice.tried) {
    const bool nearer = t.refused.empty() && !t.idle && !t.fits() &&
                        excess(t.prediction) < 0.98 * excess(advice.now);
    const bool better = t.fits() && t.gain >= kWorthIt;
    if (t.edit.of_settings() && (fits ? better : nearer)) {
      settings.push_back(&t.edit);
    } else if (t.edit.changes_setting("plan") && t.refused.empty()) {
      plans.push_back(&t.edit);
    } else if (t.edit.changes_setting("hardware")) {
      machines.push_back(&t.edit);
    }
  }
  settings.resize(std::min(settings.size(), fits ? kPaired : kPairedToFit));
  std::vector<Edit> out;
  const auto add = [&out](const Edit& first, const Edit& second) {
    if (std::optional<Edit> both = together(first, second)) {
      out.push_back(std::move(*both));
    }
  };
  for (std::size_t a = 0; a < settings.size(); ++a) {
    for (std::size_t b = a + 1; b < settings.size(); ++b) {
      add(*settings[a], *settings[b]);
    }
  }
  for (std::size_t a = 0; !fits && a < plans.size(); ++a) {
    for (const Edit* const machine : machines) {
      add(*plans[a], *machine);
    }
  }
  return out;
}

// Better than each of its edits, of which it has all changes.
bool is_better(const Tried& pair, const std::vector<Tried>& tried) {
  return std::ranges::none_of(tried, [&pair](const Tried& one) {
    const bool part = std::ranges::all_of(one.edit.changes, [&pair](const Change& change) {
      return std::ranges::find(pair.edit.changes, change) != pair.edit.changes.end();
    });
    return part && one.fits() && pair.gain <= one.gain + kWorthIt;
  });
}

}  // namespace

const Tried* Advice::best() const {
  const auto worth = [this](const std::vector<Tried>& of) {
    return !of.empty() && of.front().fits() && (!now.fits() || of.front().gain >= kWorthIt);
  };
  return worth(tried) ? &tried.front() : worth(pairs) ? &pairs.front() : nullptr;
}

Advice advise(const plans::Job& job, const std::vector<machine::Machine>& machines,
              const AdviceProgress& progress) {
  Advice advice;
  advice.now = predict(job);
  Trials trials(job, advice);
  std::vector<Edit> edits = edits_of(job, machines);
  // Searches last: they take as long as many others.
  std::stable_partition(edits.begin(), edits.end(), [](const Edit& edit) { return !edit.largest; });
  for (std::size_t i = 0; i < edits.size(); ++i) {
    if (progress) {
      progress(i + 1, edits.size());
    }
    std::optional<Tried> tried = trials.run(edits[i]);
    const bool again =
        tried && std::ranges::any_of(advice.tried, [&](const Tried& t) {
          return t.edit.changes == tried->edit.changes;  // the largest may be twice as large
        });
    if (tried && !again) {
      advice.tried.push_back(std::move(*tried));
    }
  }
  rank(advice.tried);
  const bool setting_fits = std::ranges::any_of(
      advice.tried, [](const Tried& t) { return t.fits() && t.edit.of_settings(); });
  if (advice.now.fits() || !setting_fits) {
    for (const Edit& edit : pairs_of(advice)) {
      std::optional<Tried> pair = trials.run(edit);
      if (pair && pair->fits() && is_better(*pair, advice.tried)) {
        advice.pairs.push_back(std::move(*pair));
      }
    }
    rank(advice.pairs);
  }
  for (const auto& [resource, share] : advice.now.utilization) {
    advice.bounds.emplace_back(resource, advice.now.step * share);
  }
  std::ranges::stable_sort(advice.bounds, std::ranges::greater{},
                           [](const auto& bound) { return bound.second.value; });
  return advice;
}

}  // namespace offsim::study
