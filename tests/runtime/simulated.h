// A program recorded in a test, lowered and run: asks when a call's work was done and what memory
// held.
#pragma once

#include <gtest/gtest.h>

#include <string_view>
#include <utility>

#include "sim/engine/memory.h"
#include "sim/engine/simulate.h"
#include "sim/runtime/lower.h"
#include "sim/runtime/recorder.h"
#include "tests/runtime/synthetic.h"

namespace offsim::runtime {

inline Recorder recorder() { return Recorder({.gpu = 512, .pinned_power_of_two = true}); }

// A work of `launches` kernels that take so many microseconds in all on the synthetic GPU.
inline model::Work kernels(std::string_view name, std::int64_t launches, double microseconds) {
  constexpr double kBytesPerMicrosecond = 1e6;
  return model::elementwise(std::string(name), 1, microseconds * kBytesPerMicrosecond,
                            static_cast<int>(launches));
}

class Simulated {
 public:
  explicit Simulated(Recorder recorded, machine::Machine machine = synthetic_machine())
      : machine_(std::move(machine)),
        program_(finished(std::move(recorded))),
        lowered_(lower(program_, machine_)),
        timeline_(engine::simulate(lowered_.graph)) {}

  const Lowered& lowered() const { return lowered_; }
  const engine::Timeline& timeline() const { return timeline_; }

  // Microseconds at which the `nth` activity of this label and cause starts or finishes.
  double start_us(std::string_view label, Cause cause, int nth = 0) const {
    return us(timeline_.start[find(label, cause, nth)]);
  }
  double finish_us(std::string_view label, Cause cause, int nth = 0) const {
    return us(timeline_.finish[find(label, cause, nth)]);
  }
  int count(Cause cause) const {
    int n = 0;
    for (const std::uint8_t c : lowered_.graph.causes()) {
      n += c == static_cast<std::uint8_t>(cause) ? 1 : 0;
    }
    return n;
  }
  double end_us() const { return us(timeline_.finish[engine::index(lowered_.step_ends.back())]); }

  std::vector<engine::PoolSample> series(engine::PoolId pool) const {
    return engine::pool_series(lowered_.graph, timeline_, pool);
  }
  std::int64_t peak(engine::PoolId pool) const {
    return engine::account_memory(lowered_.graph, timeline_).peaks[engine::index(pool)].bytes;
  }
  // Microseconds at which the pool last changed: of a program that frees one buffer last, when that
  // happened.
  double last_change_us(engine::PoolId pool) const { return us(series(pool).back().time); }

 private:
  static Program finished(Recorder recorded) {
    recorded.end_step();
    return std::move(recorded).finish();
  }
  static double us(engine::Picoseconds time) { return static_cast<double>(time) * 1e-6; }

  std::size_t find(std::string_view label, Cause cause, int nth) const {
    for (std::size_t i = 0; i < lowered_.graph.size(); ++i) {
      const auto id = engine::ActivityId(i);
      if (lowered_.graph.causes()[i] == static_cast<std::uint8_t>(cause) &&
          lowered_.graph.label(id) == label && nth-- == 0) {
        return i;
      }
    }
    ADD_FAILURE() << "no activity '" << label << "' of " << cause_key(cause);
    return 0;
  }

  machine::Machine machine_;
  Program program_;
  Lowered lowered_;
  engine::Timeline timeline_;
};

}  // namespace offsim::runtime
