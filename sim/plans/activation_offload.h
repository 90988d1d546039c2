// Saved tensors in host memory, by hooks that autograd calls for each (torch.autograd.graph).
//
// Every tensor that an operation saves is copied on its own, also one that several save.
//   save_on_cpu          D2H into a new pageable tensor, H2D back; both keep the host
//   save_on_cpu_pinned   D2H into pinned memory, which keeps the host; H2D back on the compute
//                        stream, which does not. Weights are copied like everything else
//   streamed             both on a stream of their own (torchtune's OffloadActivations). Parameters
//                        stay (a Linear saves a view of its weight, which does not), and so does
//                        what is smaller than 1 KiB. A copy down starts when compute has come to
//                        its pack; five packs later compute waits for it and the tensor is
//                        dropped. A copy up for a module starts when compute has finished the one
//                        before the last: they overlap by one. What the first of a backward saved
//                        last is still there
// PyTorch's cache keeps pinned blocks: each is taken once and used in every step. With
// checkpointing it is the inputs of the layers that are saved under these hooks, since what a
// recomputation saves is not. Left out: the Python of the hooks beyond a copy's.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "sim/model/work.h"
#include "sim/plans/job.h"
#include "sim/runtime/recorder.h"

namespace offsim::plans {

class ActivationHooks {
 public:
  ActivationHooks(const Job& job, runtime::Recorder& gpu);

  bool active() const { return kind_ != ActivationOffload::kNone; }
  // What an operation, or several (a module of a piece), save; then the same for its backward, and
  // what happens to it after that.
  struct Place {
    std::int64_t piece;
    std::size_t module;
    auto operator<=>(const Place&) const = default;
  };
  void pack(Place place, const std::vector<model::SavedTensor>& tensors);
  void unpack(Place place);
  void drop(Place place);
  void end_backward();

 private:
  struct Tensor {
    std::int64_t bytes;
    std::optional<runtime::Buffer> host, gpu;
    runtime::Event sent{};
  };
  bool stays(const model::SavedTensor& tensor) const;
  void send(Tensor& tensor);
  void leave_behind(Tensor& tensor);
  void leave_all_behind_but(Place place);
  void free_after_use(Place place);

  runtime::Recorder& gpu_;
  ActivationOffload kind_;
  runtime::Lane stream_;
  std::map<Place, std::vector<Tensor>> tensors_;
  std::deque<std::pair<Place, std::size_t>> stash_;  // on their way, the oldest first
  struct Used {
    Place place;
    runtime::Event by;
  };
  std::optional<Used> used_;  // the last of the backward so far
};

}  // namespace offsim::plans
