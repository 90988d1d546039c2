// The operations of a mixture of experts; those of mixtral and qwen checked against
// h200-moe-2026-11-30.jsonl.
#include <algorithm>

#include "sim/model/tape.h"

namespace offsim::model {

// Its weight is a parameter of a module of its own: no Linear that is quantised or adapted.
void Tape::router(std::int64_t rows, std::int64_t in, const Experts& experts, Input input) {
  if (frozen_) {
    frozen_linear(rows, in, experts.count, input, true, Base::k16Bit);
  } else {
    linear(rows, in, experts.count, experts.bias, input);
  }
}

void Tape::route(std::int64_t rows, std::int64_t in, const Experts& experts, bool first,
                 bool wide) {
  router(rows, in, experts, first ? Input::kWide : Input::kWideAgain);
  const std::int64_t n = rows * experts.count;
  if (act() == 2) {
    stream(forward_, 6 * n);
  }
  stream(forward_, 8 * n);                                            // softmax
  tiny(forward_, 2 + (experts.normalized ? 2 : 0) + (wide ? 0 : 1));  // the k best; their sum
  save(4 * n);
  save(8 * rows * experts.per_token);
  tiny(backward_, (experts.normalized ? 5 : 0) + (wide ? 0 : 1) + 2);  // scattered into zeros
  stream(backward_, 12 * n);
  if (act() == 2) {
    stream(backward_, 6 * n);
  }
}

// Scores masked by groups: the best two of each, the best groups, all others' scores cleared. No
// gradient.
void Tape::best_groups(std::int64_t rows, const Experts& experts) {
  const std::int64_t n = rows * experts.count;
  stream(forward_, 4 * n);
  tiny(forward_, 4);
  indexed(forward_, n, 4 * n);  // a mask of groups to one of experts, as truth values, negated
  stream(forward_, 5 * n);
  stream(forward_, 2 * n);
  stream(forward_, 8 * n);
  indexed(forward_, n, 8 * n);
}

void Tape::route_wide(std::int64_t rows, std::int64_t in, const Experts& experts, bool sigmoid) {
  const std::int64_t count = experts.count, n = rows * count;
  const bool copies = numerics_ == Numerics::kPure16;
  if (copies) {
    stream(forward_, 6 * rows * in);
    stream(forward_, 6 * count * in);
    if (!frozen_) {
      save(4 * rows * in);
    }
    save(4 * count * in);
    const auto wide_product = [](std::vector<Kernel>& list, std::int64_t m, std::int64_t columns,
                                 std::int64_t k) {
      list.push_back({.kind = Kernel::Kind::kGemm, .m = m, .n = columns, .k = k, .wide = true});
    };
    wide_product(forward_, rows, count, in);
    wide_product(backward_, rows, in, count);
    if (!frozen_) {
      wide_product(backward_, count, in, rows);
      indexed(backward_, count * in, 6 * count * in);
    }
    indexed(backward_, rows * in, 6 * rows * in);
    stream(backward_, 3 * residual() * rows * in);
  } else {
    router(rows, in, experts, Input::kWide);
  }
  const bool narrow = numerics_ == Numerics::kAutocast;  // logits
  if (narrow && !sigmoid) {
    stream(forward_, 6 * n);
    stream(backward_, 6 * n);
  }
  const std::int64_t width = narrow && sigmoid ? 2 : 4;
  stream(forward_, 2 * width * n);
  save(width * n);
  if (sigmoid) {
    indexed(forward_, n, (width + 4) * n);  // the bias, for the choice
  }
  if (experts.grouped) {
    best_groups(rows, experts);
  }
  stream(forward_, 4 * n);                               // the k best
  tiny(forward_, 2 + (experts.normalized ? 3 : 0) + 1);  // theirs; their sum; scaled
  save(8 * rows * experts.per_token);
  tiny(backward_, 1 + (experts.normalized ? 5 : 0) + 1);  // scattered into zeros
  stream(backward_, width * n);
  stream(backward_, 3 * width * n);
}

void Tape::route_best(std::int64_t rows, std::int64_t in, const Experts& experts) {
  router(rows, in, experts, Input::kWide);
  const std::int64_t n = rows * experts.count, chosen = rows * experts.per_token;
  stream(forward_, act() * n);
  tiny(forward_, 2);
  save(8 * chosen);
  save(act() * chosen);
  tiny(backward_, 3);  // softmax, scattered into zeros
  stream(backward_, act() * n);
}

// 16 bits: one launch for all experts, in tiles of 128 rows; half a tile of each is not used. fp32:
// an expert after the other.
void Tape::grouped_product(std::int64_t rows, std::int64_t in, std::int64_t out,
                           std::int64_t experts) {
  constexpr std::int64_t kHalfTile = 64;
  const std::int64_t each = std::max<std::int64_t>(rows / experts, 1);
  if (numerics_ != Numerics::kPure16) {
    const auto count = static_cast<std::int32_t>(experts);
    const auto loop = [&](std::vector<Kernel>& list, std::int64_t m, std::int64_t n,
                          std::int64_t k) {
      list.push_back(
          {.kind = Kernel::Kind::kGemm, .m = m, .n = n, .k = k, .wide = true, .count = count});
    };
    loop(forward_, each, out, in);
    loop(backward_, each, in, out);
    if (!frozen_) {
      loop(backward_, out, in, each);
    }
    return;
  }
  const std::int64_t padded = rows + kHalfTile * experts;
  tiny(forward_, 1);  // the experts' pointers and sizes
  product(forward_, padded, out, in);
  tiny(backward_, frozen_ ? 1 : 2);
  product(backward_, padded, in, out);
  if (!frozen_) {
    product(backward_, experts * out, in, each);
  }
}

// masked_fill of a copy.
void Tape::cleared(std::vector<Kernel>& list, std::int64_t n) {
  stream(list, 2 * residual() * n);
  indexed(list, n, 2 * residual() * n);
}

void Tape::add_expert_bias(std::int64_t n) {
  indexed(forward_, n, residual() * n);  // that of each row
  stream(forward_, 3 * residual() * n);
}

void Tape::expert_bias_backward(std::int64_t n) {
  if (frozen_) {
    return;
  }
  tiny(backward_, 8);  // rows sorted by expert, zeros
  indexed(backward_, n, residual() * n);
}

void Tape::silu_of_halves(std::int64_t f) {
  const std::int64_t w = residual();
  indexed(forward_, f, 2 * w * f);  // silu of the first half of each row, times the second
  indexed(forward_, f, 3 * w * f);
  save(2 * w * f);  // both halves, silu, product
  save(w * f);
  if (!frozen_) {
    save(w * f);
  }
}

void Tape::silu_of_halves_backward(std::int64_t f) {
  const std::int64_t w = residual();
  stream(backward_, 3 * w * f);
  indexed(backward_, f, 3 * w * f, 2);
  stream(backward_, 4 * w * f);  // both halves into one
}

// gate = min(even, 7), up = clamp(odd, -7, 7); (up + 1) gate sigmoid(1.702 gate).
void Tape::clamped_swiglu(std::int64_t f) {
  const std::int64_t w = residual();
  indexed(forward_, f, 2 * w * f, 2);
  stream(forward_, 2 * w * f, 2);  // factor, sigmoid
  stream(forward_, 3 * w * f);
  stream(forward_, 2 * w * f);  // one more
  stream(forward_, 3 * w * f);
  saved_ += 2 * w * f;  // of which gate and up before the clamps are views
  save_again(w * f);
  save_again(w * f);
  for (int i = frozen_ ? 1 : 0; i < 5; ++i) {  // gate, sigmoid, up + 1, their products
    save(w * f);
  }
  save_again(w * f);
}

void Tape::clamped_swiglu_backward(std::int64_t f) {
  const std::int64_t w = residual();
  stream(backward_, 3 * w * f, 2);  // of the product
  stream(backward_, 3 * w * f, 2);  // of gate times sigmoid
  stream(backward_, 3 * w * f);     // of the sigmoid
  stream(backward_, 2 * w * f);
  stream(backward_, 3 * w * f);         // both paths of gate
  indexed(backward_, f, 3 * w * f, 2);  // of the clamps
  stream(backward_, 2 * w * f, 2);      // zeros for both
  indexed(backward_, f, 2 * w * f, 2);  // the halves into them
  stream(backward_, 6 * w * f);
}

void Tape::experts(std::int64_t rows, std::int64_t in, const Experts& experts, bool wide) {
  const std::int64_t pairs = rows * experts.per_token;  // of a row and its expert
  const std::int64_t n = pairs * in, f = pairs * experts.width;
  const std::int64_t w = residual();
  const bool widens = wide && w == 2;  // fp32 weights times 16-bit rows
  const std::int64_t sum = widens ? 4 : w;
  // Sorted by expert: keys and order, counts and offsets.
  tiny(forward_, 22);
  stream(forward_, 2 * w * n);
  indexed(forward_, n, 2 * w * n);  // cleared in place
  grouped_product(pairs, in, 2 * experts.width, experts.count);
  cleared(forward_, 2 * f);
  // Three lists of indices, the mask, the weights; the rows, for the experts' gradients; what the
  // activation keeps; what comes out before it is weighted.
  for (const std::int64_t bytes : {8 * pairs, 8 * pairs, 8 * pairs, pairs, sum * pairs}) {
    save(bytes);
  }
  if (!frozen_) {
    save(w * n);
  }
  if (experts.bias) {
    add_expert_bias(2 * f);
    clamped_swiglu(f);
  } else {
    silu_of_halves(f);
  }
  save(w * n);
  grouped_product(pairs, experts.width, in, experts.count);
  cleared(forward_, n);
  if (experts.bias) {
    add_expert_bias(n);
  }
  indexed(forward_, widens ? converting(n) : n, (w + sum) * n);
  tiny(forward_, 2);  // the order back
  recompute_kernels_ = forward_.size();
  stream(forward_, 2 * sum * n);
  stream(forward_, sum * (n + rows * in));
  if (widens) {
    stream(forward_, 6 * rows * in);
    stream(backward_, 6 * rows * in);
  }

  indexed(backward_, n, sum * n);  // a row's gradient for each of its k
  stream(backward_, sum * n);      // zeros, into which they are sorted
  tiny(backward_, 10);
  stream(backward_, 3 * sum * n);
  indexed(backward_, n, 2 * sum * n);  // of the result and of the weights
  stream(backward_, 3 * sum * n);
  stream(backward_, sum * n);
  if (widens) {
    stream(backward_, 6 * n);
  }
  tiny(backward_, 10);  // weights sorted back
  if (experts.bias) {
    expert_bias_backward(n);
  }
  cleared(backward_, n);
  if (experts.bias) {
    clamped_swiglu_backward(f);
    expert_bias_backward(2 * f);
  } else {
    silu_of_halves_backward(f);
  }
  cleared(backward_, 2 * f);
  cleared(backward_, n);
  stream(backward_, w * rows * in);
  tiny(backward_, 10);
  stream(backward_, 3 * w * n);
  stream(backward_, 3 * w * rows * in);  // to what the router left
}

void Tape::add_to_experts(std::int64_t n) { stream(forward_, 3 * residual() * n); }

void Tape::gate_and_add(std::int64_t rows, std::int64_t n) {
  const std::int64_t w = act();
  tiny(forward_, 1);  // sigmoid, which is saved
  recompute_kernels_ = forward_.size();
  indexed(forward_, n, 2 * w * n);
  stream(forward_, 3 * residual() * n);
  save(w * n);
  save(2 * w * rows);
  indexed(backward_, n, 2 * w * n);
  stream(backward_, 3 * w * n);
  stream(backward_, w * n);
  tiny(backward_, 1);
}

}  // namespace offsim::model
