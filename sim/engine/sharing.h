// How fast does everything run that runs now? Weighted max-min fairness; no notion of time.
//
// Given resources with a capacity, and demands d with members(d) >= 0 activities running, find the
// rate of one activity of each demand with members such that
//
//   capacity   sum over d of members(d) * rate(d) * per_unit(d, r) <= capacity(r)  for every r;
//              of `mixed` of it where demands of both ways use r
//   limit      rate(d) <= rate_limit(d)  for every d
//   fairness   rate(d) / weight(d) cannot grow without lowering that of a demand where it is as
//              small or smaller
//
// There is one solution, found by progressive filling: rate(d) = weight(d) * level for all, raise
// the level; a demand whose limit is reached, and all demands that use a resource which is full,
// keep their rate; go on with the rest. So each rate is either its limit or set by a resource that
// is full ("exactly its bandwidth", to rounding).
//
// Sharing keeps the last solution and solves again only the connected component of what changed:
// the demands that share resources, directly or through others. Sums run in the order of ids, so
// equal situations give equal bits whatever came before. Cost of a solution: rounds * uses in the
// component, where a round fills a resource or reaches limits; a demand that shares with nobody
// takes one pass over its uses.
//
// Source: D. Bertsekas, R. Gallager, Data Networks, 2nd edition, section 6.5.2 (max-min flow
// control), with weights and limits.
// Left out: rates that depend on who runs in other ways than linear ones and this one; per_unit has
// to express that (a duplex limit is a resource of its own).
#pragma once

#include <span>
#include <vector>

#include "sim/engine/graph.h"

namespace offsim::engine {

class Sharing {
 public:
  // The spans must outlive the object. first_use and use_count of a demand refer to `uses`.
  Sharing(std::span<const Resource> resources, std::span<const Demand> demands,
          std::span<const Use> uses);

  void add(DemandId demand) {  // one more activity runs
    ++states_[index(demand)].members;
    touch(demand);
  }
  void remove(DemandId demand) {  // Requires: one does
    --states_[index(demand)].members;
    touch(demand);
  }

  // Brings the rates up to date. Returns, without repetition, the demands that were added to or
  // removed from since the last call and those whose rates were solved again; valid until the next
  // call.
  std::span<const DemandId> solve();

  // As of the last solve(); of one activity. Meaningless for a demand without members.
  double rate(DemandId demand) const { return states_[index(demand)].rate; }
  // Whether a demand with members uses it, as of the last solve().
  bool in_use(ResourceId resource) const { return !users_[index(resource)].empty(); }

 private:
  struct State {
    double rate = 0;
    std::uint32_t members = 0;  // now
    std::uint32_t solved = 0;   // as of the last solve()
    bool touched = false;       // added to or removed from since the last solve()
    bool listed = false;        // in listed_
    bool open = false;          // in component_, and its rate is not set yet
  };
  struct Room {             // of a resource, while its component is solved
    double left = 0;        // capacity not taken by the demands whose rate is set
    double weight = 0;      // what the open demands use of it at level 1
    bool gathered = false;  // in gathered_

    double level() const { return left / weight; }
  };

  void touch(DemandId demand) {
    if (!states_[index(demand)].touched) {
      states_[index(demand)].touched = true;
      touched_.push_back(demand);
    }
  }
  void list(DemandId demand);
  void attach(DemandId demand);
  void detach(DemandId demand);
  bool alone(DemandId demand) const;
  double rate_alone(DemandId demand) const;
  void gather(ResourceId seed);
  void fill();
  double next_level();
  double capacity(ResourceId resource) const;
  std::size_t close_limited(double level);
  std::size_t close_full(double level);
  std::span<const Use> uses_of(DemandId demand) const {
    return uses_.subspan(demands_[index(demand)].first_use, demands_[index(demand)].use_count);
  }

  std::span<const Resource> resources_;
  std::span<const Demand> demands_;
  std::span<const Use> uses_;
  std::vector<State> states_;                      // by demand
  std::vector<Room> rooms_;                        // by resource
  std::vector<std::vector<std::uint32_t>> users_;  // by resource: the uses of demands with members
  std::vector<std::uint32_t> users_back_;          // by resource: how many of them go back
  std::vector<std::uint32_t> place_of_use_;        // by use: where in users_ of its resource
  std::vector<DemandId> demand_of_use_;            // by use
  std::vector<DemandId> touched_;
  std::vector<DemandId> listed_;  // what solve() returns
  std::vector<DemandId> component_;
  std::vector<ResourceId> gathered_;  // the resources of all components of this solve()
  std::size_t first_gathered_ = 0;    // those of component_ begin here
};

}  // namespace offsim::engine
