// Does a plan of migrations keep memory below its capacity, within the time of drive and link, away
// from what is in use, and move no more than helps? Operations of one second, bytes one by one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <numeric>
#include <set>

#include "sim/plans/migration_planner.h"

namespace offsim::plans {

void PrintTo(const Migration& m, std::ostream* out) {
  *out << m.period << " to " << m.target << " from " << m.begin << ", away " << m.gone << " .. "
       << m.back - 1;
}
bool operator==(const Migration& a, const Migration& b) {
  return a.period == b.period && a.target == b.target && a.begin == b.begin && a.gone == b.gone &&
         a.back == b.back;
}

}  // namespace offsim::plans

namespace offsim::plans::migration_planner_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr Bytes kAny{1'000'000};

MigrationTarget drive(double rate) {
  return {BytesPerSecond(rate), BytesPerSecond(rate), true, kAny};
}
MigrationTarget host(double rate, Bytes room = kAny) {
  return {BytesPerSecond(rate), BytesPerSecond(rate), false, room};
}

MemoryDemand demand(const std::vector<std::int64_t>& resident, std::int64_t capacity,
                    std::vector<MigrationTarget> targets = {drive(10)}) {
  MemoryDemand d;
  for (const std::int64_t bytes : resident) {
    d.operations.emplace_back(1.0);
    d.resident.emplace_back(bytes);
  }
  d.capacity = Bytes(capacity);
  d.targets = std::move(targets);
  return d;
}

InactivePeriod period(std::int64_t size, std::int64_t from, std::int64_t to) {
  return {0, Bytes(size), from, to};
}

TEST(Migrations, AreNoneWhereAllFits) {
  const MigrationPlan plan = plan_migrations(demand({10, 10, 10, 10}, 10), {period(10, 1, 4)});
  EXPECT_THAT(plan.moves, IsEmpty());
  EXPECT_EQ(plan.stretch, 1);
  EXPECT_EQ(plan.excess, Bytes(0));
}

// Written during 1, away during 2, read during 3.
TEST(Migrations, WriteFirstAndReadLast) {
  const MigrationPlan plan = plan_migrations(demand({10, 10, 15, 10}, 10), {period(10, 1, 4)});
  EXPECT_THAT(plan.moves, ElementsAre(Migration{0, 0, 1, 2, 3}));
  EXPECT_THAT(plan.held, ElementsAre(Bytes(10)));
  EXPECT_EQ(plan.excess, Bytes(0));
}

// Over the end of the round: written in 3, away in 4 (the next 0), read in 5 (the next 1).
TEST(Migrations, GoOnInTheNextRound) {
  const MigrationPlan plan = plan_migrations(demand({15, 10, 10, 10}, 10), {period(10, 3, 6)});
  EXPECT_THAT(plan.moves, ElementsAre(Migration{0, 0, 3, 4, 5}));
}

// The write takes two seconds, so operations of two let it be done during 1.
TEST(Migrations, StretchTheOperationsOfADriveTooSlow) {
  MemoryDemand slow = demand({10, 10, 15, 10}, 10);
  slow.targets.front().write = BytesPerSecond(5);
  const MigrationPlan plan = plan_migrations(slow, {period(10, 1, 4)});
  EXPECT_EQ(plan.stretch, 2);
  EXPECT_THAT(plan.moves, ElementsAre(Migration{0, 0, 1, 2, 3}));
}

TEST(Migrations, LeaveWhatOperationsAloneNeed) {
  const MigrationPlan plan = plan_migrations(demand({10, 17, 15, 10}, 10), {period(10, 1, 4)});
  EXPECT_EQ(plan.excess, Bytes(7));
  EXPECT_THAT(plan.moves, ElementsAre(Migration{0, 0, 1, 2, 3}));
}

// Both are of ten bytes; the second is away twice as long while there is too much.
TEST(Migrations, BeginWithTheMostReliefASecondOfTheDrive) {
  const MigrationPlan plan =
      plan_migrations(demand({20, 20, 30, 30, 20, 20}, 20), {period(10, 1, 4), period(10, 1, 5)});
  EXPECT_THAT(plan.moves, ElementsAre(Migration{1, 0, 1, 2, 4}));
}

// The second write waits for the first, the first read makes room for the second.
TEST(Migrations, ShareTheTimeOfADrive) {
  const std::vector<InactivePeriod> both{period(10, 1, 6), period(10, 1, 6)};
  const MigrationPlan plan = plan_migrations(demand({20, 20, 20, 40, 20, 20, 20}, 20), both);
  EXPECT_THAT(plan.moves, ElementsAre(Migration{0, 0, 1, 2, 5}, Migration{1, 0, 2, 3, 4}));
}

// What the drive has no time for goes to the host while it has room; else operations stretch.
TEST(Migrations, GoToTheHostWhereTheDriveHasNoTime) {
  const std::vector<InactivePeriod> both{period(10, 1, 4), period(10, 1, 4)};
  const std::vector<std::int64_t> resident{20, 20, 40, 20};
  const MigrationPlan plan = plan_migrations(demand(resident, 20, {drive(10), host(20)}), both);
  EXPECT_THAT(plan.moves, ElementsAre(Migration{0, 0, 1, 2, 3}, Migration{1, 1, 1, 2, 3}));
  EXPECT_THAT(plan.held, ElementsAre(Bytes(10), Bytes(10)));
  EXPECT_EQ(plan.stretch, 1);
  const MigrationPlan full =
      plan_migrations(demand(resident, 20, {drive(10), host(20, Bytes(9))}), both);
  EXPECT_THAT(full.held, ElementsAre(Bytes(20), Bytes(0)));
  EXPECT_EQ(full.stretch, 2);
}

// Stretched 2.5 times, each takes one: the host 2 s each way at once, the drive 2.5 and 2.5. With
// more the host takes both, in 4 s.
TEST(Migrations, GoToTheHostWhereTheDriveWouldBeBusyForLonger) {
  const std::vector<InactivePeriod> both{period(10, 1, 4), period(10, 1, 4)};
  const MigrationPlan plan =
      plan_migrations(demand({20, 20, 40, 20}, 20, {drive(4), host(5)}), both);
  EXPECT_THAT(plan.held, ElementsAre(Bytes(0), Bytes(20)));
}

// A link carries a write and a read at once.
TEST(Migrations, ReadAndWriteAtOnceOverALink) {
  const std::vector<InactivePeriod> two{period(10, 1, 4), period(10, 3, 6)};
  const std::vector<std::int64_t> resident{20, 20, 30, 20, 30, 20, 20};
  EXPECT_EQ(plan_migrations(demand(resident, 20, {host(10)}), two).stretch, 1);
  EXPECT_GT(plan_migrations(demand(resident, 20, {drive(10)}), two).stretch, 1);
}

// --- random rounds of a few tensors, each used at some operations

struct Round {
  MemoryDemand demand;
  std::vector<InactivePeriod> periods;
};

Round any_round() {
  const auto count = *rc::gen::inRange<std::int64_t>(4, 30);
  const auto rate = [] { return static_cast<double>(*rc::gen::inRange(1, 100)); };
  Round round;
  round.demand = demand(std::vector<std::int64_t>(static_cast<std::size_t>(count), 0),
                        *rc::gen::inRange<std::int64_t>(1, 300),
                        {drive(rate()), host(rate(), Bytes(*rc::gen::inRange(0, 60)))});
  const auto tensors = *rc::gen::inRange(1, 12);
  for (int t = 0; t < tensors; ++t) {
    const auto size = *rc::gen::inRange<std::int64_t>(1, 50);
    const auto from = *rc::gen::inRange<std::int64_t>(0, count);
    round.periods.push_back(period(size, from, from + *rc::gen::inRange<std::int64_t>(1, count)));
    for (Bytes& bytes : round.demand.resident) {
      bytes += Bytes(size);
    }
  }
  return round;
}

// Seconds of a target that must lie in operations from .. to - 1.
struct Booking {
  std::int64_t from, to;
  double seconds;
};

// By Hall's theorem these can all be had when no stretch of operations must hold more than it has.
bool can_be_had(const std::vector<Booking>& bookings, std::int64_t count, double stretch) {
  for (std::int64_t start = 0; start < count; ++start) {
    for (std::int64_t length = 1; length <= count; ++length) {
      double wanted = 0;
      for (const Booking& b : bookings) {
        const std::int64_t after = ((b.from - start) % count + count) % count;
        wanted += after + b.to - b.from <= length ? b.seconds : 0;
      }
      if (wanted > static_cast<double>(length) * stretch * (1 + 1e-9)) {
        return false;
      }
    }
  }
  return true;
}

RC_GTEST_PROP(Migrations, StayBelowTheCapacityAtEveryMoment, ()) {
  const Round round = any_round();
  const MigrationPlan plan = plan_migrations(round.demand, round.periods);
  std::vector<Bytes> left = round.demand.resident;
  for (const Migration& move : plan.moves) {
    for (std::int64_t i = move.gone; i < move.back; ++i) {
      left[static_cast<std::size_t>(i) % left.size()] -= round.periods[move.period].size;
    }
  }
  RC_ASSERT(std::ranges::min(left) >= Bytes(0));
  RC_ASSERT(std::max(Bytes(0), std::ranges::max(left) - round.demand.capacity) == plan.excess);
  if (std::ranges::max(round.demand.resident) <= round.demand.capacity) {
    RC_ASSERT(plan.moves.empty() && plan.stretch == 1);
  }
}

RC_GTEST_PROP(Migrations, TouchNothingInUseAndNothingTwice, ()) {
  const Round round = any_round();
  std::set<std::size_t> seen;
  for (const Migration& move : plan_migrations(round.demand, round.periods).moves) {
    const InactivePeriod& p = round.periods[move.period];
    RC_ASSERT(seen.insert(move.period).second);
    RC_ASSERT(p.from <= move.begin && move.begin < move.gone);
    RC_ASSERT(move.gone < move.back && move.back < p.to);
  }
}

RC_GTEST_PROP(Migrations, UseNoMoreTimeAndRoomThanATargetHas, ()) {
  const Round round = any_round();
  const MigrationPlan plan = plan_migrations(round.demand, round.periods);
  const std::int64_t count = std::ssize(round.demand.operations);
  std::vector<Booking> on_drive, down, up;
  std::vector<std::vector<std::int64_t>> held(2, std::vector<std::int64_t>(count));
  for (const Migration& move : plan.moves) {
    const InactivePeriod& p = round.periods[move.period];
    const MigrationTarget& target = round.demand.targets[move.target];
    (target.shared ? on_drive : down)
        .push_back({move.begin, move.gone, (p.size / target.write).value});
    (target.shared ? on_drive : up).push_back({move.back, p.to, (p.size / target.read).value});
    for (std::int64_t i = move.begin; i < p.to; ++i) {
      held[move.target][static_cast<std::size_t>(i % count)] += p.size.value;
    }
  }
  for (const auto& bookings : {on_drive, down, up}) {
    RC_ASSERT(can_be_had(bookings, count, plan.stretch));
  }
  for (std::size_t target = 0; target < held.size(); ++target) {
    RC_ASSERT(Bytes(std::ranges::max(held[target])) == plan.held[target]);
    RC_ASSERT(plan.held[target] <= round.demand.targets[target].room);
  }
}

}  // namespace
}  // namespace offsim::plans::migration_planner_test
