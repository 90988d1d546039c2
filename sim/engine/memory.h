// What each memory pool holds over time, its peak, and the first allocation that does not fit.
//
// The changes of a graph take effect when their activity starts or finishes. They are applied in
// the order of time, and at one instant in issue order: an allocation issued before a free at the
// same instant counts before it. Holding exactly the capacity fits; one byte more does not.
//
// Bytes are exact integers. A pool or a tag in a pool that would hold less than nothing is a bug of
// the caller (InternalError). Left out: fragmentation and rounding, which the allocator of the
// layer above knows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "sim/engine/graph.h"
#include "sim/engine/simulate.h"

namespace offsim::engine {

struct TagBytes {
  TagId tag{};
  std::int64_t bytes = 0;

  friend bool operator==(const TagBytes&, const TagBytes&) = default;
};

struct PoolPeak {
  std::int64_t bytes = 0;
  Picoseconds time = 0;               // when it was first reached, within the window
  std::uint8_t phase = 0;             // of the activity whose change reached it
  std::vector<TagBytes> composition;  // at that moment, largest first, nothing that is zero
};

// An allocation that found too little room.
struct Violation {
  std::size_t change = 0;  // index into graph.changes(): which activity, pool, tag and bytes
  Picoseconds time = 0;
  std::uint8_t phase = 0;         // of the change's activity
  std::int64_t needed_bytes = 0;  // the pool would hold this; over capacity by needed - capacity
  std::vector<TagBytes> held;     // before it, largest first
};

struct MemoryLedger {
  std::vector<PoolPeak> peaks;         // by PoolId; within the window
  std::vector<std::int64_t> at_end;    // by PoolId: bytes held when the run is over
  std::optional<Violation> violation;  // the first of the whole run, in the order described above
};

// Peaks count what a pool holds when the window opens (before the changes at window.from) and every
// change within it, both ends included. The ledger goes on after a violation, as if the pool were
// larger: peaks say what would be needed.
MemoryLedger account_memory(const ActivityGraph& graph, const Timeline& timeline,
                            Window window = {});

// Peaks by section, then by pool. Section i begins with the first change of activity begins[i] or
// of one issued later, and with what is held then; section 0 with the run. A change of an earlier
// section that takes effect later counts to the section that has begun by then. Requires: begins
// ascend, and begins[0] is the first activity.
std::vector<std::vector<PoolPeak>> peaks_by_section(const ActivityGraph& graph,
                                                    const Timeline& timeline,
                                                    const std::vector<ActivityId>& begins);

// The peak of a pool over the whole run if `ways` of them shared what the tags `shared` hold: each
// an even part of it, rounded up, and all of the rest. Requires: at least one way.
std::int64_t peak_if_shared(const ActivityGraph& graph, const Timeline& timeline, PoolId pool,
                            const std::vector<TagId>& shared, std::int64_t ways);

struct PoolSample {
  Picoseconds time = 0;
  std::int64_t bytes = 0;  // held after all changes at `time`

  friend bool operator==(const PoolSample&, const PoolSample&) = default;
};

// One sample an instant at which something changed, in the order of time.
std::vector<PoolSample> pool_series(const ActivityGraph& graph, const Timeline& timeline,
                                    PoolId pool);

}  // namespace offsim::engine
