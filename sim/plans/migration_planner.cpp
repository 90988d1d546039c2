#include "sim/plans/migration_planner.h"

#include <algorithm>
#include <optional>
#include <queue>

#include "sim/base/error.h"

namespace offsim::plans {

namespace {

class Greedy {
 public:
  Greedy(const MemoryDemand& demand, const std::vector<InactivePeriod>& periods, double stretch)
      : demand_(demand), periods_(periods), operations_(demand.operations.size()) {
    for (std::size_t i = 0; i < operations_; ++i) {
      excess_.push_back((demand.resident[i] - demand.capacity).value);
      above_ += excess_.back() > 0 ? 1 : 0;
    }
    std::vector<double> free;
    for (const Seconds seconds : demand.operations) {
      free.push_back(seconds.value * stretch);
    }
    for (const MigrationTarget& target : demand.targets) {
      ways_.push_back({free, target.shared ? std::vector<double>() : free,
                       std::vector<std::int64_t>(operations_)});
    }
    plan_.stretch = stretch;
  }

  MigrationPlan run() && {
    std::priority_queue<Ranked> queue;
    for (std::size_t i = 0; above_ > 0 && i < periods_.size(); ++i) {
      if (const std::optional<Placed> placed = place(i)) {
        queue.push({placed->score, i});
      }
    }
    while (above_ > 0 && !queue.empty()) {
      const std::size_t period = queue.top().period;
      queue.pop();
      const std::optional<Placed> placed = place(period);
      if (!placed) {
        continue;
      }
      if (const Ranked now{placed->score, period}; !queue.empty() && now < queue.top()) {
        queue.push(now);
      } else {
        take(placed->move);
      }
    }
    for (const Way& way : ways_) {
      plan_.held.emplace_back(std::ranges::max(way.held));
    }
    plan_.excess = Bytes(std::max<std::int64_t>(0, std::ranges::max(excess_)));
    return std::move(plan_);
  }

 private:
  // Seconds that are free and bytes that are held, by operation.
  struct Way {
    std::vector<double> write, own_read;
    std::vector<std::int64_t> held;
    std::vector<double>& read() { return own_read.empty() ? write : own_read; }
    const std::vector<double>& read() const { return own_read.empty() ? write : own_read; }
  };
  struct Ranked {
    double score;
    std::size_t period;
    bool operator<(const Ranked& other) const {  // of equal ones the first
      return score != other.score ? score < other.score : period > other.period;
    }
  };
  struct Placed {
    Migration move;
    double score;
  };

  std::size_t at(std::int64_t operation) const {
    const auto i = static_cast<std::size_t>(operation);
    return i < operations_ ? i : i - operations_;
  }
  double write_seconds(const Migration& move) const {
    return (periods_[move.period].size / demand_.targets[move.target].write).value;
  }
  double read_seconds(const Migration& move) const {
    return (periods_[move.period].size / demand_.targets[move.target].read).value;
  }

  // On the first target where it helps; when operations stretch, the last is asked first.
  std::optional<Placed> place(std::size_t period) const {
    for (std::size_t asked = 0; asked < ways_.size(); ++asked) {
      const std::size_t target = plan_.stretch > 1 ? ways_.size() - 1 - asked : asked;
      if (const std::optional<Migration> move = place_on(target, period)) {
        if (const double benefit = score(*move); benefit > 0) {
          return Placed{*move, benefit};
        }
      }
    }
    return std::nullopt;
  }

  std::optional<Migration> place_on(std::size_t target, std::size_t period) const {
    const InactivePeriod& p = periods_[period];
    const Way& way = ways_[target];
    Migration move{period, target, p.from, p.from, p.to};
    while (move.begin < p.to && way.write[at(move.begin)] <= 0) {
      ++move.begin;
    }
    move.gone = move.begin;
    double left = write_seconds(move);
    while (left > 0 && move.gone < p.to) {
      left -= way.write[at(move.gone++)];
    }
    if (left > 0) {
      return std::nullopt;
    }
    left = read_seconds(move);
    while (left > 0 && move.back > move.gone) {
      left -= way.read()[at(--move.back)];
    }
    if (left > 0 || move.back <= move.gone) {
      return std::nullopt;
    }
    const std::int64_t room = demand_.targets[target].room.value - p.size.value;
    for (std::int64_t i = move.begin; i < p.to; ++i) {
      if (way.held[at(i)] > room) {
        return std::nullopt;
      }
    }
    return move;
  }

  double score(const Migration& move) const {
    const std::int64_t size = periods_[move.period].size.value;
    double benefit = 0;
    for (std::int64_t i = move.gone; i < move.back; ++i) {
      const std::int64_t relieved = std::clamp<std::int64_t>(excess_[at(i)], 0, size);
      benefit += static_cast<double>(relieved) * demand_.operations[at(i)].value;
    }
    return benefit / (write_seconds(move) + read_seconds(move));
  }

  void take(const Migration& move) {
    const InactivePeriod& p = periods_[move.period];
    Way& way = ways_[move.target];
    double left = write_seconds(move);
    for (std::int64_t i = move.begin; i < move.gone; ++i) {
      use(way.write[at(i)], left);
    }
    left = read_seconds(move);
    for (std::int64_t i = p.to - 1; i >= move.back; --i) {
      use(way.read()[at(i)], left);
    }
    for (std::int64_t i = move.gone; i < move.back; ++i) {
      std::int64_t& excess = excess_[at(i)];
      above_ -= excess > 0 && excess <= p.size.value ? 1 : 0;
      excess -= p.size.value;
    }
    for (std::int64_t i = move.begin; i < p.to; ++i) {
      way.held[at(i)] += p.size.value;
    }
    plan_.moves.push_back(move);
  }

  static void use(double& free, double& wanted) {
    const double used = std::min(wanted, free);
    free -= used;
    wanted -= used;
  }

  const MemoryDemand& demand_;
  const std::vector<InactivePeriod>& periods_;
  std::size_t operations_;
  std::vector<Way> ways_;             // by target
  std::vector<std::int64_t> excess_;  // by operation
  std::int64_t above_ = 0;            // operations with excess
  MigrationPlan plan_;
};

// What exceeds most must go out and in once a round.
double least_stretch(const MemoryDemand& demand) {
  const double excess =
      static_cast<double>((std::ranges::max(demand.resident) - demand.capacity).value);
  double round = 0, rate = 0;
  for (const Seconds seconds : demand.operations) {
    round += seconds.value;
  }
  for (const MigrationTarget& target : demand.targets) {
    const double write = target.write.value, read = target.read.value;
    rate += target.shared ? 1 / (1 / write + 1 / read) : std::min(write, read);
  }
  return std::max(1.0, excess / (rate * round));
}

// Seconds a round of the target that is busy longest.
double busiest(const MemoryDemand& demand, const std::vector<InactivePeriod>& periods,
               const MigrationPlan& plan) {
  std::vector<Bytes> moved(demand.targets.size());
  for (const Migration& move : plan.moves) {
    moved[move.target] += periods[move.period].size;
  }
  double most = 0;
  for (std::size_t i = 0; i < moved.size(); ++i) {
    const MigrationTarget& target = demand.targets[i];
    const double write = (moved[i] / target.write).value, read = (moved[i] / target.read).value;
    most = std::max(most, target.shared ? write + read : std::max(write, read));
  }
  return most;
}

}  // namespace

MigrationPlan plan_migrations(const MemoryDemand& demand,
                              const std::vector<InactivePeriod>& periods) {
  constexpr double kMostStretch = 1e9;
  constexpr int kHalvings = 6;
  SIM_ASSERT(demand.operations.size() == demand.resident.size() && !demand.operations.empty(),
             "every operation holds memory");
  const auto at = [&](double stretch) { return Greedy(demand, periods, stretch).run(); };
  double fails = least_stretch(demand);
  MigrationPlan plan = at(fails);
  if (plan.excess == Bytes(0)) {
    return plan;
  }
  plan = at(kMostStretch);
  if (plan.excess > Bytes(0)) {
    return plan;
  }
  for (double fits = 2 * fails; fits < kMostStretch; fits *= 2) {
    if (MigrationPlan smaller = at(fits); smaller.excess == Bytes(0)) {
      plan = std::move(smaller);
      break;
    }
    fails = fits;
  }
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (fails + plan.stretch) / 2;
    if (MigrationPlan better = at(middle); better.excess == Bytes(0)) {
      plan = std::move(better);
    } else {
      fails = middle;
    }
  }
  for (double busy = busiest(demand, periods, plan);;) {
    MigrationPlan other = at(2 * plan.stretch);
    const double now = busiest(demand, periods, other);
    if (other.excess > Bytes(0) || now >= busy) {
      return plan;
    }
    busy = now;
    plan = std::move(other);
  }
}

}  // namespace offsim::plans
