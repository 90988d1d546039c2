#include "sim/plans/tensor_lifetimes.h"

#include "sim/plans/common.h"
#include "sim/plans/gpu_model.h"

namespace offsim::plans {

using model::Piece;
using model::Work;
using runtime::Phase;

namespace {

using Ids = std::vector<std::size_t>;

std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

class Lifetimes {
 public:
  explicit Lifetimes(const Job& job)
      : job_(job),
        numerics_(numerics_of(job.workload.precision, false)),
        pieces_(model::pieces(job.shape, job.workload.batch(), numerics_)),
        head_(job.shape.layers + 1),
        wide_(job.workload.precision != Precision::kBf16),
        width_(wide_ ? 4 : 2),
        checkpointing_(job.workload.checkpointing == Checkpointing::kFull),
        autocast_(numerics_ == model::Numerics::kAutocast) {}

  StepLifetimes run() && {
    for (std::int64_t piece = 0; piece <= head_; ++piece) {
      const Bytes one = rounded(Bytes(width_ * elements(piece)));
      parameters_.push_back(add("parameters", one, true));
      gradients_.push_back(add("gradients", one, false));
      states_.push_back(add("Adam states", rounded(2 * one), true));
    }
    for (std::int64_t micro = 0; micro < job_.workload.accumulation; ++micro) {
      saved_.clear();
      for (std::int64_t piece = 0; piece <= head_; ++piece) {
        forward(piece);
      }
      for (std::int64_t piece = head_; piece >= 0; --piece) {
        backward(piece, micro > 0);
      }
    }
    for (std::int64_t piece = 0; piece <= head_; ++piece) {
      Work adam = model::gpu_adam(elements(piece), tensors(piece), wide_);
      adam.name = sized("Adam", elements(piece));
      step({Phase::kOptimizer, {std::move(adam)}, Bytes()},
           {parameters_[index(piece)], gradients_[index(piece)], states_[index(piece)]});
    }
    return std::move(step_);
  }

 private:
  bool is_layer(std::int64_t piece) const { return piece > 0 && piece < head_; }
  const Piece& piece(std::int64_t piece) const {
    return is_layer(piece) ? pieces_.layer(piece - 1)
                           : (piece == 0 ? pieces_.embedding : pieces_.head);
  }
  Bytes rounded(Bytes bytes) const {
    return round_up(bytes, job_.machine.framework.gpu_rounding.value.value);
  }
  std::int64_t elements(std::int64_t piece) const {
    const model::Shape& s = job_.shape;
    return is_layer(piece) ? model::layer_parameters(s, piece - 1)
           : piece == 0    ? model::embedding_parameters(s)
                           : model::final_norm_parameters(s) + model::head_parameters(s);
  }
  std::int64_t tensors(std::int64_t piece) const {
    const model::Shape& s = job_.shape;
    return std::ssize(is_layer(piece) ? model::layer_tensors(s, piece - 1)
                      : piece == 0    ? model::embedding_tensors(s)
                                      : model::tail_tensors(s));
  }
  // The head computes with the embedding.
  Ids parameters_of(std::int64_t piece) const {
    Ids list{parameters_[index(piece)]};
    if (piece == head_ && job_.shape.tied) {
      list.push_back(parameters_.front());
    }
    return list;
  }

  std::size_t add(std::string_view tag, Bytes size, bool lasts) {
    step_.tensors.push_back({tag, size, lasts});
    return step_.tensors.size() - 1;
  }
  void step(Operation operation, Ids uses) {
    for (const std::size_t tensor : uses) {
      step_.tensors[tensor].used.push_back(std::ssize(step_.operations));
    }
    operation.uses = std::move(uses);
    step_.operations.push_back(std::move(operation));
  }

  void forward(std::int64_t number) {
    const Piece& p = piece(number);
    Ids uses = parameters_of(number);
    Bytes transient = p.forward_extra;
    if (is_layer(number)) {
      const Bytes cast = autocast_ ? p.cast : Bytes();
      transient = checkpointing_ ? p.forward_alone + cast : transient;
      saved_.push_back(checkpointing_ ? add("checkpoints", rounded(pieces_.hidden), false)
                                      : add("activations", rounded(p.saved + cast), false));
      uses.push_back(saved_.back());
    } else if (number == head_) {
      const Bytes cast = autocast_ ? p.cast : Bytes();
      saved_.push_back(add("logits and loss", rounded(p.saved + cast), false));
      uses.push_back(saved_.back());
    }
    step({Phase::kForward, {p.forward}, rounded(transient)}, std::move(uses));
  }

  void backward(std::int64_t number, bool accumulate) {
    const Piece& p = piece(number);
    Ids uses = parameters_of(number);
    uses.push_back(gradients_[index(number)]);
    if (number > 0) {
      uses.push_back(saved_[index(number - 1)]);
    }
    Bytes transient = rounded(p.backward_extra);
    std::vector<Work> works{p.backward};
    if (is_layer(number) && checkpointing_) {
      works.insert(works.begin(), p.recompute);
      transient += rounded(p.saved + (autocast_ ? p.cast : Bytes()));
    }
    if (job_.shape.tied && (number == head_ || number == 0)) {
      const std::int64_t bytes = width_ * job_.shape.head_elements();
      if (number == head_) {
        heads_share_ = add("gradients", rounded(Bytes(bytes)), false);
      } else {
        works.push_back(add_tied_gradient(Bytes(bytes)));
      }
      uses.push_back(heads_share_);
    }
    if (accumulate) {
      works.push_back(add_gradients(elements(number), index(tensors(number)), width_));
      transient += rounded(Bytes(width_ * elements(number)));
    }
    step({Phase::kBackward, std::move(works), transient}, std::move(uses));
  }

  const Job& job_;
  model::Numerics numerics_;
  model::Pieces pieces_;
  std::int64_t head_;
  bool wide_;
  std::int64_t width_;
  bool checkpointing_, autocast_;
  Ids parameters_, gradients_, states_;  // by piece
  Ids saved_;                            // of a micro-batch, from the first layer on
  std::size_t heads_share_ = 0;          // of a tied matrix's gradient, of a micro-batch
  StepLifetimes step_;
};

}  // namespace

StepLifetimes step_lifetimes(const Job& job) { return Lifetimes(job).run(); }

std::vector<InactivePeriod> inactive_periods(const StepLifetimes& step) {
  constexpr std::int64_t kLeast = 3;  // written, away, read
  std::vector<InactivePeriod> periods;
  const std::int64_t round = std::ssize(step.operations);
  for (std::size_t tensor = 0; tensor < step.tensors.size(); ++tensor) {
    const TensorLife& life = step.tensors[tensor];
    for (std::size_t use = 0; use < life.used.size(); ++use) {
      const bool last = use + 1 == life.used.size();
      if (last && !life.lasts) {
        continue;
      }
      const std::int64_t from = life.used[use] + 1;
      const std::int64_t to = last ? life.used.front() + round : life.used[use + 1];
      if (to - from >= kLeast) {  // one that begins with the next round is counted from there
        const std::int64_t shift = from < round ? 0 : round;
        periods.push_back({tensor, life.size, from - shift, to - shift});
      }
    }
  }
  return periods;
}

std::vector<Bytes> resident_bytes(const StepLifetimes& step) {
  std::vector<Bytes> bytes;
  for (const Operation& operation : step.operations) {
    bytes.push_back(operation.transient);
  }
  for (const TensorLife& life : step.tensors) {
    const std::size_t first = life.lasts ? 0 : index(life.used.front());
    const std::size_t last = life.lasts ? bytes.size() - 1 : index(life.used.back());
    for (std::size_t i = first; i <= last; ++i) {
      bytes[i] += life.size;
    }
  }
  return bytes;
}

}  // namespace offsim::plans
