// The event loop. Ties: at one instant
//
//   1. work that is done        what finishes has left its resources before anything begins on them
//   2. latencies that are over  they were promised earlier than what becomes ready now
//   3. activities made ready    in the order in which their last predecessor was taken; some finish
//                               at once
//
// and within each by id (of the demand, then of the activity). The rates are solved once, after all
// of it. No time depends on this order: marks are made from the clock at the instant, and sharing.h
// sums by id. It is fixed all the same, so that nothing has to be proved to know that two runs are
// equal.
//
// Each demand keeps a clock of the work that every one of its members has received. A member that
// begins at clock c with amount a is done at mark c + a, whoever comes and goes meanwhile; the
// smallest mark is the next to be done.
#include "sim/engine/simulate.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <tuple>

#include "sim/base/error.h"
#include "sim/engine/sharing.h"
#include "sim/engine/tournament.h"

namespace offsim::engine {

namespace {

struct Mark {
  double work;
  ActivityId activity;

  friend bool operator>(const Mark& a, const Mark& b) {
    return std::tie(a.work, a.activity) > std::tie(b.work, b.activity);
  }
};

template <class T>
using EarliestFirst = std::priority_queue<T, std::vector<T>, std::greater<>>;

// The members of a demand that are at work, and the work each has received: clock + rate * (now -
// since).
struct Running {
  double clock = 0;
  double rate = 0;
  Picoseconds since = 0;
  EarliestFirst<Mark> marks;

  double clock_at(Picoseconds now) const { return clock + rate * to_seconds(now - since).value; }
  void set_rate(double new_rate, Picoseconds now) {
    if (new_rate != rate) {
      clock = clock_at(now);
      since = now;
      rate = new_rate;
    }
  }
  // An empty demand starts its clock anew: small numbers are more precise.
  void begin(double amount, ActivityId activity, Picoseconds now) {
    if (marks.empty()) {
      clock = 0;
      since = now;
    }
    marks.push({clock_at(now) + amount, activity});
  }
  // When the next member is done: kEndOfTime without one.
  Picoseconds next() const {
    if (marks.empty()) {
      return kEndOfTime;
    }
    const double left = std::max(0.0, marks.top().work - clock);
    return later(since, to_picoseconds(Seconds(left / rate)));
  }
};

struct Waiting {
  Picoseconds until;
  ActivityId activity;

  friend bool operator>(const Waiting& a, const Waiting& b) {
    return std::tie(a.until, a.activity) > std::tie(b.until, b.activity);
  }
};

class Simulation {
 public:
  explicit Simulation(const ActivityGraph& graph)
      : graph_(graph),
        sharing_(graph.resources(), graph.demand_list(), graph.use_list()),
        predecessors_left_(graph.size(), 0),
        running_(graph.demand_list().size()),
        next_done_(graph.demand_list().size()),
        busy_since_(graph.resources().size(), kEndOfTime) {
    timeline_.start.resize(graph.size());
    timeline_.finish.resize(graph.size());
    timeline_.busy.resize(graph.resources().size());
  }

  Timeline run() {
    make_roots_ready();
    begin_ready();
    share();
    while (finished_ < graph_.size()) {
      now_ = next_instant();
      finish_done();
      end_latencies();
      begin_ready();
      share();
    }
    timeline_.makespan = now_;
    return std::move(timeline_);
  }

 private:
  void make_roots_ready() {
    for (std::size_t i = 0; i < graph_.size(); ++i) {
      for (const ActivityId after : graph_.successors(ActivityId(i))) {
        ++predecessors_left_[index(after)];
      }
    }
    for (std::size_t i = 0; i < graph_.size(); ++i) {
      if (predecessors_left_[i] == 0) {
        ready_.push_back(ActivityId(i));
      }
    }
  }

  Picoseconds next_instant() const {
    const Picoseconds latency = waiting_.empty() ? kEndOfTime : waiting_.top().until;
    const Picoseconds next = std::min(next_done_.time(), latency);
    if (next == kEndOfTime) {
      throw InputError({}, "the simulated time passes 106 days",
                       "expected less work, or faster resources");
    }
    return next;
  }

  void finish_done() {
    while (next_done_.time() == now_) {
      const std::size_t demand = next_done_.earliest();
      Running& running = running_[demand];
      do {
        const ActivityId done = running.marks.top().activity;
        running.marks.pop();
        sharing_.remove(DemandId(demand));
        finish(done);
      } while (running.next() <= now_);
      next_done_.set(demand, kEndOfTime);  // until share() knows its rate
    }
  }

  void end_latencies() {
    while (!waiting_.empty() && waiting_.top().until == now_) {
      const ActivityId activity = waiting_.top().activity;
      waiting_.pop();
      begin_work(activity);
    }
  }

  void begin_ready() {
    for (std::size_t i = 0; i < ready_.size(); ++i) {  // grows while it is walked
      const ActivityId activity = ready_[i];
      timeline_.start[index(activity)] = now_;
      const Picoseconds latency = graph_.latencies()[index(activity)];
      if (latency > 0) {
        waiting_.push({later(now_, latency), activity});
      } else {
        begin_work(activity);
      }
    }
    ready_.clear();
  }

  void begin_work(ActivityId activity) {
    const double amount = graph_.amounts()[index(activity)];
    if (amount == 0) {
      finish(activity);
      return;
    }
    const DemandId demand = graph_.demands()[index(activity)];
    running_[index(demand)].begin(amount, activity, now_);
    sharing_.add(demand);
  }

  void finish(ActivityId activity) {
    timeline_.finish[index(activity)] = now_;
    ++finished_;
    for (const ActivityId after : graph_.successors(activity)) {
      if (--predecessors_left_[index(after)] == 0) {
        ready_.push_back(after);
      }
    }
  }

  // Brings rates, next ends and busy times up to date with what runs from now on.
  void share() {
    for (const DemandId demand : sharing_.solve()) {
      Running& running = running_[index(demand)];
      running.set_rate(sharing_.rate(demand), now_);
      next_done_.set(index(demand), std::max(now_, running.next()));
      for (const Use& use : graph_.uses(demand)) {
        note_use(use.resource);
      }
    }
  }

  void note_use(ResourceId resource) {
    Picoseconds& since = busy_since_[index(resource)];
    if (sharing_.in_use(resource)) {
      since = std::min(since, now_);
    } else if (since != kEndOfTime) {
      timeline_.busy[index(resource)] += now_ - since;
      since = kEndOfTime;
    }
  }

  const ActivityGraph& graph_;
  Sharing sharing_;
  Timeline timeline_;
  Picoseconds now_ = 0;
  std::size_t finished_ = 0;
  std::vector<std::uint32_t> predecessors_left_;  // by ActivityId
  std::vector<Running> running_;                  // by DemandId
  Tournament next_done_;                          // by DemandId
  EarliestFirst<Waiting> waiting_;                // for the end of their latency
  std::vector<ActivityId> ready_;
  std::vector<Picoseconds> busy_since_;  // by ResourceId; kEndOfTime when idle
};

}  // namespace

Timeline simulate(const ActivityGraph& graph) { return Simulation(graph).run(); }

std::vector<double> resource_use(const ActivityGraph& graph, const Timeline& timeline,
                                 Window window) {
  std::vector<double> used(graph.resources().size(), 0.0);
  for (std::size_t i = 0; i < graph.size(); ++i) {
    if (graph.amounts()[i] == 0) {
      continue;
    }
    const Picoseconds begin = timeline.start[i] + graph.latencies()[i];
    const Picoseconds end = timeline.finish[i];
    const Picoseconds inside = std::min(end, window.to) - std::max(begin, window.from);
    if (inside < 0) {
      continue;
    }
    // Work shorter than the clock resolves is wholly inside or outside.
    const double part =
        end > begin ? static_cast<double>(inside) / static_cast<double>(end - begin) : 1.0;
    for (const Use& use : graph.uses(graph.demands()[i])) {
      used[index(use.resource)] += graph.amounts()[i] * part * use.per_unit;
    }
  }
  return used;
}

}  // namespace offsim::engine
