// The parameters that DeepSpeed's stage 3 has gathered on the GPU: fetched, prefetched, kept and
// released (source: runtime/zero/partitioned_param_coordinator.py and partition_parameters.py, one
// GPU).
//
// Hooks enter and leave every module, in forward, recomputation and backward. *Enter* fetches the
// module's parameters that are not there, one H2D copy a parameter on the gather stream; for any
// of its parameters still in flight the host synchronises the whole gather stream, copies for later
// modules included (NoGatherHandle.wait); then the next parameters of the trace are prefetched, at
// most `prefetch_bucket` elements a hook (the last may overshoot) and never beyond `max_live`
// gathered elements. *Leave* drops a module's parameters unless they are persistent, a prefetch
// already counted on them, or the trace uses them again within `max_reuse_distance` elements.
// A Linear saves a view of its weight for its backward: where DeepSpeed's own Linear does not
// replace it (zero.Init, memory_efficient_linear), what was gathered stays until then (`saved`).
// The trace is that of the first micro-step, which therefore prefetches and keeps nothing.
// A parameter whose home is the GPU costs nothing to fetch, but where gathers have no stream of
// their own the host waits for compute all the same; one on a drive is read first, with the
// host waiting (ParameterSwapper). Behind each prefetch reads are submitted for what follows in the
// trace, of as many elements as twice those in flight to the GPU.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "sim/plans/job.h"
#include "sim/plans/nvme.h"
#include "sim/runtime/recorder.h"

namespace offsim::plans {

class GatherWindow {
 public:
  using ParameterId = std::int32_t;
  struct Parameter {
    std::int64_t elements = 0;
    bool persistent = false;  // small: never released between optimizer steps
    runtime::Space home = runtime::Space::kPinned;
  };
  struct Limits {
    std::int64_t prefetch_bucket = 0, max_live = 0, max_reuse_distance = 0;  // elements
  };

  // `swapper`: of the parameters whose home is the drive, or nothing.
  GatherWindow(runtime::Recorder& gpu, runtime::Lane gather, runtime::HostTask hook, Limits limits,
               std::vector<Parameter> parameters, ParameterSwapper* swapper);

  void begin_micro_step();
  // A module with these parameters, entered through `borders` modules.
  void enter(const std::vector<ParameterId>& module, std::int32_t borders);
  // `saved`: autograd keeps what was gathered until the module's backward has run.
  void leave(const std::vector<ParameterId>& module, bool saved = false);
  // Before the optimizer everything is dropped, after it the persistent parameters come back.
  void release_all();
  void gather_persistent();

 private:
  static constexpr std::int64_t kNever = -1;
  struct State {
    std::optional<runtime::Buffer> buffer;
    std::optional<runtime::Buffer> view;  // released, and still saved by autograd
    bool saved = false;
    bool available = false;            // gathered, or on its way
    bool in_flight = false;            // and no module that uses it was entered yet
    std::size_t group = 0;             // the fetch that brought it
    std::int64_t counted_on = kNever;  // the last visit for which the prefetcher has passed it
    std::vector<std::int64_t> visits;  // of the trace that use it
  };
  struct Use {
    ParameterId parameter;
    std::int64_t visit;
  };

  static std::size_t index(ParameterId id) { return static_cast<std::size_t>(id); }
  State& state(ParameterId id) { return states_[index(id)]; }
  const Parameter& parameter(ParameterId id) const { return parameters_[index(id)]; }
  void record(const std::vector<ParameterId>& module, std::int32_t borders);
  std::vector<ParameterId> missing(const std::vector<ParameterId>& module);
  void fetch(std::vector<ParameterId> ids);
  void wait_for(const std::vector<ParameterId>& module);
  void take_from_queue(const std::vector<ParameterId>& module);
  bool first_wait(const State& state);
  void arrived(ParameterId id);
  void prefetch();
  bool on_drive(ParameterId id) const;  // and no read of it was submitted
  void read_ahead();
  bool used_again_soon(ParameterId id) const;
  void release(ParameterId id);
  void free(std::optional<runtime::Buffer>& buffer);

  runtime::Recorder& gpu_;
  runtime::Lane gather_;
  runtime::HostTask hook_;  // which version's
  Limits limits_;
  std::vector<Parameter> parameters_;
  std::vector<State> states_;
  ParameterSwapper* swapper_;

  bool recording_ = true;
  std::vector<Use> trace_;               // uses in order
  std::vector<std::int64_t> traversed_;  // by visit: elements of all visits before it
  std::int64_t recorded_ = 0;            // elements of all visits so far
  std::vector<bool> in_flight_;          // by fetch: nobody has waited for it
  std::int64_t elements_in_flight_ = 0;
  std::size_t next_ = 0;    // the first use of the trace that nobody has fetched for
  std::int64_t visit_ = 0;  // modules entered in this micro-step
  std::int64_t live_ = 0;   // gathered elements, in flight included
};

}  // namespace offsim::plans
