#include "sim/engine/sharing.h"

#include <algorithm>

#include "sim/base/error.h"

namespace offsim::engine {

Sharing::Sharing(std::span<const Resource> resources, std::span<const Demand> demands,
                 std::span<const Use> uses)
    : resources_(resources),
      demands_(demands),
      uses_(uses),
      states_(demands.size()),
      rooms_(resources.size()),
      users_(resources.size()),
      users_back_(resources.size()),
      place_of_use_(uses.size()),
      demand_of_use_(uses.size()) {
  for (std::size_t d = 0; d < demands.size(); ++d) {
    for (std::uint32_t i = 0; i < demands[d].use_count; ++i) {
      demand_of_use_[demands[d].first_use + i] = DemandId(d);
    }
  }
}

void Sharing::list(DemandId demand) {
  if (!states_[index(demand)].listed) {
    states_[index(demand)].listed = true;
    listed_.push_back(demand);
  }
}

std::span<const DemandId> Sharing::solve() {
  for (const DemandId d : listed_) {
    states_[index(d)].listed = false;
  }
  listed_.clear();
  for (const DemandId d : touched_) {
    list(d);
    const State& state = states_[index(d)];
    if (state.solved == 0 && state.members > 0) {
      attach(d);
    } else if (state.solved > 0 && state.members == 0) {
      detach(d);
    }
  }
  for (const DemandId d : touched_) {
    State& state = states_[index(d)];
    state.touched = false;
    if (state.members == state.solved) {
      continue;  // one left and another came: nobody's rate changes
    }
    state.solved = state.members;
    if (state.members > 0 && alone(d)) {
      state.rate = rate_alone(d);
      continue;
    }
    for (const Use& use : uses_of(d)) {
      if (!users_[index(use.resource)].empty() && !rooms_[index(use.resource)].gathered) {
        gather(use.resource);
        fill();
      }
    }
  }
  touched_.clear();
  for (const ResourceId r : gathered_) {
    rooms_[index(r)].gathered = false;
  }
  gathered_.clear();
  return listed_;
}

void Sharing::attach(DemandId demand) {
  const std::uint32_t first = demands_[index(demand)].first_use;
  for (std::uint32_t use = first; use < first + demands_[index(demand)].use_count; ++use) {
    auto& users = users_[index(uses_[use].resource)];
    place_of_use_[use] = static_cast<std::uint32_t>(users.size());
    users.push_back(use);
    users_back_[index(uses_[use].resource)] += uses_[use].way == Way::kBack ? 1 : 0;
  }
}

void Sharing::detach(DemandId demand) {
  const std::uint32_t first = demands_[index(demand)].first_use;
  for (std::uint32_t use = first; use < first + demands_[index(demand)].use_count; ++use) {
    auto& users = users_[index(uses_[use].resource)];
    const std::uint32_t hole = place_of_use_[use];
    users[hole] = users.back();
    place_of_use_[users[hole]] = hole;
    users.pop_back();
    users_back_[index(uses_[use].resource)] -= uses_[use].way == Way::kBack ? 1 : 0;
  }
}

bool Sharing::alone(DemandId demand) const {
  const auto mine = [this](const Use& use) { return users_[index(use.resource)].size() == 1; };
  return std::ranges::all_of(uses_of(demand), mine);
}

double Sharing::rate_alone(DemandId demand) const {
  double rate = demands_[index(demand)].rate_limit;
  const double members = states_[index(demand)].members;
  for (const Use& use : uses_of(demand)) {
    rate = std::min(rate, resources_[index(use.resource)].capacity / (members * use.per_unit));
  }
  return rate;
}

// Makes component_ the demands that share resources with those of `seed`, directly or through
// others.
void Sharing::gather(ResourceId seed) {
  component_.clear();
  first_gathered_ = gathered_.size();
  const auto visit = [this](ResourceId r) {
    if (!rooms_[index(r)].gathered) {
      rooms_[index(r)].gathered = true;
      gathered_.push_back(r);
    }
  };
  visit(seed);
  for (std::size_t next = first_gathered_; next < gathered_.size(); ++next) {
    for (const std::uint32_t use : users_[index(gathered_[next])]) {
      const DemandId d = demand_of_use_[use];
      if (!states_[index(d)].open) {
        states_[index(d)].open = true;
        component_.push_back(d);
        for (const Use& other : uses_of(d)) {
          visit(other.resource);
        }
      }
    }
  }
  std::ranges::sort(component_);  // the order of the sums must not depend on what came before
}

// Sets the rates of component_ by progressive filling.
void Sharing::fill() {
  for (const DemandId d : component_) {
    list(d);
  }
  if (component_.size() == 1) {
    State& state = states_[index(component_.front())];
    state.rate = rate_alone(component_.front());
    state.open = false;
    return;
  }
  double level = 0;
  for (std::size_t open = component_.size(); open > 0;) {
    level = std::max(level, next_level());  // it never falls but for rounding
    const std::size_t limited = close_limited(level);
    open -= limited > 0 ? limited : close_full(level);
  }
}

double Sharing::capacity(ResourceId resource) const {
  const Resource& r = resources_[index(resource)];
  const std::size_t back = users_back_[index(resource)];
  return back > 0 && back < users_[index(resource)].size() ? r.capacity * r.mixed : r.capacity;
}

// The level at which the first resource is full if no limit stops anybody before. Everything is
// summed anew: subtracting closed demands from running sums would leave rounding errors as large as
// the largest of them.
double Sharing::next_level() {
  const auto mine = std::span(gathered_).subspan(first_gathered_);
  for (const ResourceId r : mine) {
    rooms_[index(r)].left = capacity(r);
    rooms_[index(r)].weight = 0;
  }
  for (const DemandId d : component_) {
    const State& state = states_[index(d)];
    const double factor = state.members * (state.open ? demands_[index(d)].weight : state.rate);
    for (const Use& use : uses_of(d)) {
      Room& room = rooms_[index(use.resource)];
      if (state.open) {
        room.weight += factor * use.per_unit;
      } else {
        room.left -= factor * use.per_unit;
      }
    }
  }
  double level = kUnlimitedRate;
  for (const ResourceId r : mine) {
    if (rooms_[index(r)].weight > 0) {
      level = std::min(level, rooms_[index(r)].level());
    }
  }
  return level;
}

// Demands that reach their limit at or below `level` leave more for the others, so they can all be
// closed at once.
std::size_t Sharing::close_limited(double level) {
  std::size_t closed = 0;
  for (const DemandId d : component_) {
    State& state = states_[index(d)];
    const Demand& demand = demands_[index(d)];
    if (state.open && demand.rate_limit <= demand.weight * level) {
      state.rate = demand.rate_limit;
      state.open = false;
      ++closed;
    }
  }
  return closed;
}

// Requires: level is the last next_level(), or larger.
std::size_t Sharing::close_full(double level) {
  std::size_t closed = 0;
  const auto full = [&](const Use& use) {
    return rooms_[index(use.resource)].level() <=
           level;  // its weight is not 0: an open demand uses it
  };
  for (const DemandId d : component_) {
    State& state = states_[index(d)];
    if (state.open && std::ranges::any_of(uses_of(d), full)) {
      state.rate = demands_[index(d)].weight * level;
      state.open = false;
      ++closed;
    }
  }
  return closed;
}

}  // namespace offsim::engine
