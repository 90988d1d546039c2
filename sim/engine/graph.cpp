#include "sim/engine/graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "sim/base/error.h"
#include "sim/engine/graph_tools.h"

namespace offsim::engine {

namespace {

constexpr std::size_t kMostIds = std::numeric_limits<std::uint32_t>::max();

bool in_range(double x) { return x >= kSmallestNumber && x <= kLargestNumber; }

std::size_t mix(std::size_t hash, std::uint64_t bits) {  // FNV-1a, a word at a time
  return (hash ^ bits) * 0x100000001b3;
}

}  // namespace

Activity ActivityGraph::activity(ActivityId id) const {
  const std::size_t i = index(id);
  return {amounts_[i], demands_[i], latencies_[i], labels_[i], causes_[i], phases_[i]};
}

GraphBuilder::GraphBuilder() { label(""); }

ResourceId GraphBuilder::add_resource(std::string_view name, double capacity_per_second,
                                      double mixed) {
  SIM_ASSERT(in_range(capacity_per_second),
             "a capacity is positive and of a size that can be summed");
  SIM_ASSERT(mixed > 0 && mixed <= 1 && in_range(capacity_per_second * mixed),
             "a mixture leaves some of a capacity");
  graph_.resources_.push_back({std::string(name), capacity_per_second, mixed});
  return ResourceId(graph_.resources_.size() - 1);
}

PoolId GraphBuilder::add_pool(std::string_view name, std::int64_t capacity_bytes) {
  SIM_ASSERT(capacity_bytes >= 0, "a memory cannot hold less than nothing");
  graph_.pools_.push_back({std::string(name), capacity_bytes});
  return PoolId(graph_.pools_.size() - 1);
}

LabelId GraphBuilder::label(std::string_view text) {
  return LabelId(graph_.label_texts_.intern(text));
}

TagId GraphBuilder::tag(std::string_view text) { return TagId(graph_.tag_texts_.intern(text)); }

DemandId GraphBuilder::demand(double rate_limit, double weight, std::span<const Use> uses) {
  SIM_ASSERT(in_range(rate_limit) || rate_limit == kUnlimitedRate, "a rate limit is positive");
  SIM_ASSERT(in_range(weight), "a weight is positive");
  SIM_ASSERT(!uses.empty() || rate_limit != kUnlimitedRate, "something must bound the rate");
  auto& all = graph_.use_list_;
  const auto first = static_cast<std::ptrdiff_t>(all.size());
  all.insert(all.end(), uses.begin(), uses.end());  // taken back if the demand is known
  const std::span mine(all.begin() + first, all.end());
  std::ranges::sort(mine, {}, &Use::resource);

  std::size_t hash = mix(mix(0xcbf29ce484222325, std::bit_cast<std::uint64_t>(rate_limit)),
                         std::bit_cast<std::uint64_t>(weight));
  for (std::size_t i = 0; i < mine.size(); ++i) {
    SIM_ASSERT(index(mine[i].resource) < graph_.resources_.size(),
               "a use names a resource that was added");
    SIM_ASSERT(in_range(mine[i].per_unit), "a use is positive");
    SIM_ASSERT(i == 0 || mine[i].resource != mine[i - 1].resource,
               "a demand names a resource once");
    hash = mix(mix(hash, 2 * index(mine[i].resource) + index(mine[i].way)),
               std::bit_cast<std::uint64_t>(mine[i].per_unit));
  }
  const auto [from, to] = demands_by_hash_.equal_range(hash);
  for (auto known = from; known != to; ++known) {
    const Demand& other = graph_.demand_list_[index(known->second)];
    if (other.rate_limit == rate_limit && other.weight == weight &&
        std::ranges::equal(graph_.uses(known->second), mine)) {
      all.resize(static_cast<std::size_t>(first));
      return known->second;
    }
  }
  const auto id = DemandId(graph_.demand_list_.size());
  graph_.demand_list_.push_back({rate_limit, weight, static_cast<std::uint32_t>(first),
                                 static_cast<std::uint32_t>(mine.size())});
  demands_by_hash_.emplace(hash, id);
  return id;
}

ActivityId GraphBuilder::add(const Activity& activity) {
  SIM_ASSERT(std::isfinite(activity.amount) && activity.amount >= 0,
             "an amount is finite and not negative");
  SIM_ASSERT(activity.latency >= 0, "a latency is not negative");
  SIM_ASSERT(index(activity.demand) < graph_.demand_list_.size() ||
                 (activity.amount == 0 && activity.demand == kNoDemand),
             "work needs a demand that was made before");
  SIM_ASSERT(index(activity.label) < graph_.label_texts_.size(), "a label was made before");
  SIM_ASSERT(size() < kMostIds, "ids have 32 bits");
  graph_.amounts_.push_back(activity.amount);
  graph_.demands_.push_back(activity.demand);
  graph_.latencies_.push_back(activity.latency);
  graph_.labels_.push_back(activity.label);
  graph_.causes_.push_back(activity.cause);
  graph_.phases_.push_back(activity.phase);
  return ActivityId(size() - 1);
}

void GraphBuilder::edge(ActivityId before, ActivityId after) {
  SIM_ASSERT(index(before) < size() && index(after) < size(),
             "an edge joins activities that were added");
  SIM_ASSERT(edges_.size() < kMostIds, "offsets into the edges have 32 bits");
  edges_.push_back({static_cast<std::uint32_t>(before), static_cast<std::uint32_t>(after)});
}

void GraphBuilder::change(ActivityId activity, At at, PoolId pool, TagId tag,
                          std::int64_t delta_bytes) {
  SIM_ASSERT(index(activity) < size(), "a change belongs to an activity that was added");
  SIM_ASSERT(index(pool) < graph_.pools_.size(), "a change names a pool that was added");
  SIM_ASSERT(index(tag) < graph_.tag_texts_.size(), "a change has a tag that was made before");
  graph_.changes_.push_back({delta_bytes, activity, pool, tag, at});
}

void GraphBuilder::reserve(std::size_t activities, std::size_t edges) {
  graph_.amounts_.reserve(activities);
  graph_.demands_.reserve(activities);
  graph_.latencies_.reserve(activities);
  graph_.labels_.reserve(activities);
  graph_.causes_.reserve(activities);
  graph_.phases_.reserve(activities);
  edges_.reserve(edges);
}

ActivityGraph GraphBuilder::build() && {
  auto& first = graph_.first_successor_;
  first.assign(size() + 1, 0);
  for (const Edge& edge : edges_) {
    ++first[edge.before + 1];
  }
  for (std::size_t i = 0; i < size(); ++i) {
    first[i + 1] += first[i];
  }
  graph_.successors_.resize(edges_.size());
  bool forward = true;
  for (const Edge& edge :
       edges_) {  // first[i] runs to the end of i's successors, which is where those of i + 1 begin
    graph_.successors_[first[edge.before]++] = ActivityId(edge.after);
    forward = forward && edge.before < edge.after;
  }
  std::shift_right(first.begin(), first.end(), 1);
  first.front() = 0;
  edges_ = {};
  // When every edge leads to a larger id the ids are an order; else one has to be found.
  if (!forward) {
    topological_order(graph_);
  }
  return std::move(graph_);
}

}  // namespace offsim::engine
