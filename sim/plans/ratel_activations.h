// Ratel's activations: what of the forward is kept, where it waits, and how it leaves the GPU and
// comes back (plan: ratel.cpp, planner: ratel_planner.h).
//
// A block has two checkpoints, before attention and before the MLP, T h elements each, which always
// leave. Candidates to be kept are the outputs of its four products, in the code's order: MLP out
// (T h), attention out (T h), q, k and v, MLP in (T f, twice that when gated); all blocks of the
// first before any of the second. What is kept need not be multiplied again.
// Two buffers on the GPU: block i leaves from, and comes back to, buffer i mod 2, once what used it
// before is done. In the host to the byte; the first blocks, which are needed last, go on to the
// drive where the host has no room, through four buffers.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "sim/model/work.h"
#include "sim/plans/job.h"
#include "sim/plans/ratel_planner.h"
#include "sim/runtime/recorder.h"

namespace offsim::plans {

class RatelActivations {
 public:
  // `pinned`: what else is pinned on the host.
  RatelActivations(const Job& job, runtime::Recorder& gpu, const model::Pieces& pieces,
                   Bytes pinned, Bytes in_flight);

  // Blocks are numbered from 1. Forward: compute waits for its buffer; then it leaves.
  void wait_for_room(std::int64_t block);
  void leave(std::int64_t block);
  // Backward: blocks come back two ahead; compute waits for the one it needs.
  void begin_backward();
  void wait_for(std::int64_t block);
  void used(std::int64_t block);

  // A block's forward but for the products whose outputs were kept.
  runtime::WorkId recompute(std::int64_t block) const;

 private:
  static constexpr std::size_t kKinds = 4, kSpillBuffers = 4;
  struct Kind {
    std::string_view name;
    std::vector<model::Part> parts;
    std::int64_t bytes = 0;
    Seconds saved;
  };
  struct Block {
    std::array<bool, kKinds> kept{};
    std::int64_t bytes = 0;
    bool spilled = false;
    runtime::WorkId recompute{};
  };

  void measure_kinds(const Job& job, const model::Pieces& pieces);
  SwapProfile profile(const Job& job, const model::Pieces& pieces, Bytes pinned) const;
  void plan(const Job& job, const SwapProfile& profile);
  void place(const SwapProfile& profile);
  void bring(std::int64_t block);
  model::Work recomputation(const model::Piece& layer, const Block& block) const;

  Block& at(std::int64_t block) { return blocks_[static_cast<std::size_t>(block - 1)]; }
  const Block& at(std::int64_t block) const { return blocks_[static_cast<std::size_t>(block - 1)]; }
  static std::size_t parity(std::int64_t block) { return static_cast<std::size_t>(block % 2); }

  runtime::Recorder& gpu_;
  Bytes in_flight_;
  std::int64_t checkpoints_;  // bytes of a block's two
  std::array<Kind, kKinds> kinds_;
  std::vector<Block> blocks_;
  runtime::Lane stream_;
  std::optional<runtime::Lane> io_;
  std::array<runtime::Event, 2> free_{}, ready_{};
  std::array<runtime::Event, kSpillBuffers> written_{};
  std::size_t spills_ = 0;
};

}  // namespace offsim::plans
