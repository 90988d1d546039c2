// An offloaded job beside what else its tokens could be trained on, in dollars and hours.
//
//   asked     the job itself
//   one GPU   without offload (plan native) with the same model, micro-batch, sequence,
//             accumulation and precision, on one GPU of this machine and of others; with full
//             checkpointing where it does not fit without
//   ideal     where that does not fit: the fewest GPUs of one machine on which it would if they
//             shared parameters with autocast's copies of them, gradients and optimizer states
//             evenly (engine::peak_if_shared, so at every instant; with what is fixed) and
//             exchanged them in no time. A step takes what it would on one GPU with enough
//             memory, and k of them have k times its tokens. No prediction: real ones communicate
//             and need more memory, and each updates its part of the states only. Its
//             dollars a token do not depend on k, so k is any whole number, not a power of two
//             alone.
//   bill      whole steps for the tokens; dollars are hours x GPUs x the price of a GPU
//   break-even, against the cheapest that is not the job itself:
//     accumulation  the smallest at which the job is not dearer a token, both at the same number of
//                   micro-batches a step, the other with checkpointing or shared where it does not
//                   fit then; 1 and 2 are tried (more than 1 keep gradients between them), then by
//                   bisection: a token costs (A + B a) / a with a of them, so the two cross once
//     price         of a GPU of this machine at which both bills are the same
// Left out: what shards and gathers take in memory and time, host memory of several processes,
// whole machines that must be rented together, discounts, storage, failures.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/plans/job.h"
#include "sim/study/predict.h"
#include "sim/study/scenario.h"

namespace offsim::study {

enum class Way : std::uint8_t { kAsked, kOneGpu, kIdeal };

struct Alternative {
  Way way = Way::kAsked;
  std::string hardware;                  // as named
  plans::Job job;                        // kIdeal: of each GPU
  std::int64_t gpus = 1;                 // kIdeal: how many it takes; 0 where no number would do
  std::optional<UsdPerHour> price = {};  // of one GPU
  Prediction prediction = {};            // kIdeal: of each GPU
  std::string refused = {};              // why there is no prediction

  bool possible() const;
  std::int64_t machines() const;  // that so many GPUs are
  double tokens_per_s() const;    // of all GPUs
  std::int64_t tokens_per_step() const;
  std::optional<double> usd_per_token() const;
};

struct Bill {
  double steps = 0;
  Seconds time;
  std::optional<Usd> usd;
};
// Requires: it is possible, tokens > 0.
Bill bill(const Alternative& of, double tokens);

struct MachineNamed {
  std::string name;
  machine::Machine machine;
};

// The most micro-batches a step that break_even() tries: more would take minutes.
std::int64_t most_accumulation(const plans::Job& asked);

enum class Unfit : std::uint8_t { kNone, kAsked, kOther };

struct BreakEven {
  std::size_t against = 0;  // which row
  // Of micro-batches a step, where both have a price.
  bool has_accumulation = false;
  std::optional<std::int64_t> accumulation = {};  // nothing: at none up to `most`
  std::int64_t most = 1;
  std::optional<std::int64_t> nearest = {};  // of 1, 2 and `most` where it is least dear
  double dearer = 0;                         // then, of the other's dollars a token
  Unfit unfit = Unfit::kNone;                // with `most`
  std::string refused = {};                  // why the job does not accumulate
  std::optional<UsdPerHour> price = {};      // nothing where both are on one machine
};

struct CostStudy {
  double tokens = 0;
  std::vector<Alternative> rows;  // by dollars; then those without a price, by hours; then the rest
  std::size_t asked = 0;          // which row
  std::optional<BreakEven> break_even;  // nothing: the job is impossible, or none has a price
};

// `asked` runs on `here`; `price` is of one GPU of it, in place of its own. Throws InputError for
// what the asked plan refuses; refused alternatives are rows with the reason.
CostStudy cost_study(const plans::Job& asked, const std::string& here,
                     const std::vector<MachineNamed>& others, std::optional<UsdPerHour> price,
                     double tokens, const Progress& done = {});

}  // namespace offsim::study
