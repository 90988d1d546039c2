// A graph of activities: what is to be done, in which order, and what it needs while it runs.
// No simulated time is in it.
//
// An *activity* becomes ready when all its predecessors have finished, waits its latency, then does
// `amount` units of work at the rate its demand gets (sharing.h). An activity of amount 0 takes its
// latency only: a join, a host call, an event. A *resource* has a capacity per second and nothing
// else. A *demand* says what one unit of work uses of each resource:
//
//   sum over running activities of rate * per_unit(resource) <= capacity(resource)
//   rate <= rate_limit
//
// A resource may have less while uses of both its ways run (`mixed` of its capacity): a drive that
// reads and writes.
//
//   a copy     units are bytes:       uses {link.h2d 1, link.total 1, dram 1}
//   CPU Adam   units are parameters:  uses {dram 28}, rate_limit = threads * rate of a core
//   a kernel   units are seconds:     uses {gpu.sm 1}, rate_limit 1
//
// Demands are interned by value: activities with the same demand always run at the same rate, so
// the simulation works on the few demands that are running and not on every activity. Use the same
// numbers for the same thing.
//
// A *pool* is a memory with a capacity in bytes; a change adds to it or takes from it when its
// activity starts or finishes (memory.h). Cause and phase are small numbers of the caller's,
// carried for reports; label and tag are interned text.
//
// Left out: queues, streams and threads (they are edges), priorities, preemption, choices taken at
// run time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "sim/engine/interner.h"
#include "sim/engine/time.h"

namespace offsim::engine {

enum class ActivityId : std::uint32_t {};
enum class ResourceId : std::uint32_t {};
enum class DemandId : std::uint32_t {};
enum class PoolId : std::uint32_t {};
enum class LabelId : std::uint32_t {};  // LabelId{0} is the empty text
enum class TagId : std::uint32_t {};

template <class Id>
constexpr std::size_t index(Id id) {
  return static_cast<std::size_t>(id);
}

// Of activities of amount 0.
inline constexpr DemandId kNoDemand{std::numeric_limits<std::uint32_t>::max()};
inline constexpr double kUnlimitedRate = std::numeric_limits<double>::infinity();
inline constexpr std::int64_t kUnlimitedBytes = std::numeric_limits<std::int64_t>::max();

// Capacities, weights, per-unit uses and finite rate limits lie in this range, so that no sum or
// quotient of them overflows.
inline constexpr double kSmallestNumber = 1e-30;
inline constexpr double kLargestNumber = 1e30;

struct Resource {
  std::string name;
  double capacity = 0;  // units a second
  double mixed = 1;     // share of it that is left while uses of both ways run
};

// Of a use; only resources that lose by a mixture care.
enum class Way : std::uint8_t { kForth, kBack };

struct Pool {
  std::string name;
  std::int64_t capacity_bytes = kUnlimitedBytes;
};

struct Use {
  ResourceId resource{};
  double per_unit = 0;  // of the resource, per unit of the activity's work
  Way way = Way::kForth;

  friend bool operator==(const Use&, const Use&) = default;
};

struct Demand {
  double rate_limit = kUnlimitedRate;  // units a second for one activity
  double weight = 1;                   // twice the weight, twice the rate where they compete
  std::uint32_t first_use = 0;         // its uses are use_list[first_use, first_use + use_count)
  std::uint32_t use_count = 0;
};

struct Activity {
  double amount = 0;  // units of work, finite, not negative
  DemandId demand = kNoDemand;
  Picoseconds latency = 0;
  LabelId label{};
  std::uint8_t cause = 0;
  std::uint8_t phase = 0;
};

// kStart: when the activity is ready, before its latency.
enum class At : std::uint8_t { kStart, kFinish };

struct MemoryChange {
  std::int64_t delta_bytes = 0;
  ActivityId activity{};
  PoolId pool{};
  TagId tag{};
  At at = At::kStart;
};

// Immutable; made by GraphBuilder. Arrays are indexed by id, one value an activity.
class ActivityGraph {
 public:
  std::size_t size() const { return amounts_.size(); }
  std::size_t edge_count() const { return successors_.size(); }

  std::span<const double> amounts() const { return amounts_; }
  std::span<const DemandId> demands() const { return demands_; }
  std::span<const Picoseconds> latencies() const { return latencies_; }
  std::span<const LabelId> labels() const { return labels_; }
  std::span<const std::uint8_t> causes() const { return causes_; }
  std::span<const std::uint8_t> phases() const { return phases_; }
  Activity activity(ActivityId id) const;

  std::span<const ActivityId> successors(ActivityId id) const {
    return std::span(successors_).subspan(first_successor_[index(id)], out_degree(id));
  }
  std::size_t out_degree(ActivityId id) const {
    return first_successor_[index(id) + 1] - first_successor_[index(id)];
  }

  std::span<const Resource> resources() const { return resources_; }
  std::span<const Pool> pools() const { return pools_; }
  std::span<const Demand> demand_list() const { return demand_list_; }
  std::span<const Use> use_list() const { return use_list_; }
  std::span<const Use> uses(DemandId id) const {
    const Demand& demand = demand_list_[index(id)];
    return std::span(use_list_).subspan(demand.first_use, demand.use_count);
  }

  std::span<const MemoryChange> changes() const { return changes_; }  // in issue order
  std::string_view label(LabelId id) const { return label_texts_.text(index(id)); }
  std::string_view label(ActivityId id) const { return label(labels_[index(id)]); }
  std::string_view tag(TagId id) const { return tag_texts_.text(index(id)); }
  std::size_t tag_count() const { return tag_texts_.size(); }
  std::size_t label_count() const { return label_texts_.size(); }

 private:
  friend class GraphBuilder;
  ActivityGraph() = default;

  std::vector<double> amounts_;
  std::vector<DemandId> demands_;
  std::vector<Picoseconds> latencies_;
  std::vector<LabelId> labels_;
  std::vector<std::uint8_t> causes_;
  std::vector<std::uint8_t> phases_;
  std::vector<std::uint32_t> first_successor_;  // size() + 1 offsets into successors_
  std::vector<ActivityId> successors_;
  std::vector<Resource> resources_;
  std::vector<Pool> pools_;
  std::vector<Demand> demand_list_;
  std::vector<Use> use_list_;
  std::vector<MemoryChange> changes_;
  Interner label_texts_;
  Interner tag_texts_;
};

// Collects a graph. Ids are dense and count from 0 in the order of the calls; that order is the
// issue order. What a caller gets wrong is a bug of the program that calls: InternalError with the
// reason, at the call or in build().
class GraphBuilder {
 public:
  GraphBuilder();

  ResourceId add_resource(std::string_view name, double capacity_per_second, double mixed = 1);
  PoolId add_pool(std::string_view name, std::int64_t capacity_bytes = kUnlimitedBytes);
  LabelId label(std::string_view text);
  TagId tag(std::string_view text);

  // Requires: a finite rate limit or at least one use; no resource twice.
  DemandId demand(double rate_limit, double weight, std::span<const Use> uses);

  ActivityId add(const Activity& activity);
  // `after` is not ready before `before` has finished. Either may have the larger id; repeating an
  // edge changes nothing.
  void edge(ActivityId before, ActivityId after);
  // Changes at one instant apply in the order of these calls.
  void change(ActivityId activity, At at, PoolId pool, TagId tag, std::int64_t delta_bytes);

  std::size_t size() const { return graph_.size(); }
  void reserve(std::size_t activities, std::size_t edges);

  // Throws InternalError, naming an activity, when the edges form a cycle.
  ActivityGraph build() &&;

 private:
  struct Edge {
    std::uint32_t before;
    std::uint32_t after;
  };

  ActivityGraph graph_;
  std::vector<Edge> edges_;
  std::unordered_multimap<std::size_t, DemandId> demands_by_hash_;
};

}  // namespace offsim::engine
