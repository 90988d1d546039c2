// The earliest of a fixed number of times, each of which changes often: a complete binary tree of
// minima. O(log n) to set one, O(log n) to find the earliest; of equals the one with the lowest
// number.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <vector>

#include "sim/engine/time.h"

namespace offsim::engine {

class Tournament {
 public:
  explicit Tournament(std::size_t players)
      : leaves_(std::bit_ceil(std::max<std::size_t>(players, 1))), tree_(2 * leaves_, kEndOfTime) {}

  Picoseconds time() const { return tree_[1]; }

  std::size_t earliest() const {
    std::size_t node = 1;
    while (node < leaves_) {
      node *= 2;
      node += tree_[node] <= tree_[node + 1] ? 0 : 1;
    }
    return node - leaves_;
  }

  void set(std::size_t player, Picoseconds time) {
    std::size_t node = player + leaves_;
    tree_[node] = time;
    while (node > 1) {
      node /= 2;
      tree_[node] = std::min(tree_[2 * node], tree_[2 * node + 1]);
    }
  }

 private:
  std::size_t leaves_;
  std::vector<Picoseconds> tree_;
};

}  // namespace offsim::engine
