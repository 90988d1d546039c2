// The operations of a mixture of experts; checked against h200-moe-2026-11-30.jsonl.
#include <algorithm>

#include "sim/model/tape.h"

namespace offsim::model {

void Tape::route(std::int64_t rows, std::int64_t in, const Experts& experts, bool first,
                 bool wide) {
  linear(rows, in, experts.count, false, first ? Input::kWide : Input::kWideAgain);
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
    loop(backward_, out, in, each);
    return;
  }
  const std::int64_t padded = rows + kHalfTile * experts;
  tiny(forward_, 1);  // the experts' pointers and sizes
  product(forward_, padded, out, in);
  tiny(backward_, 2);
  product(backward_, padded, in, out);
  product(backward_, experts * out, in, each);
}

// masked_fill of a copy.
void Tape::cleared(std::vector<Kernel>& list, std::int64_t n) {
  stream(list, 2 * residual() * n);
  indexed(list, n, 2 * residual() * n);
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
  indexed(forward_, f, 2 * w * f);  // silu of the first half of each row, times the second
  indexed(forward_, f, 3 * w * f);
  grouped_product(pairs, experts.width, in, experts.count);
  cleared(forward_, n);
  indexed(forward_, widens ? converting(n) : n, (w + sum) * n);
  tiny(forward_, 2);  // the order back
  recompute_kernels_ = forward_.size();
  stream(forward_, 2 * sum * n);
  stream(forward_, sum * (n + rows * in));
  if (widens) {
    stream(forward_, 6 * rows * in);
    stream(backward_, 6 * rows * in);
  }
  // Three lists of indices, the mask, the weights; the rows; gate and up, silu, product; what comes
  // out before it is weighted.
  for (const std::int64_t bytes : {8 * pairs, 8 * pairs, 8 * pairs, pairs, sum * pairs, w * n,
                                   2 * w * f, w * f, w * f, w * n}) {
    save(bytes);
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
  cleared(backward_, n);
  stream(backward_, 3 * w * f);
  indexed(backward_, f, 3 * w * f, 2);
  stream(backward_, 4 * w * f);  // both halves into one
  cleared(backward_, 2 * f);
  cleared(backward_, n);
  stream(backward_, w * rows * in);
  tiny(backward_, 10);
  stream(backward_, 3 * w * n);
  stream(backward_, 3 * w * rows * in);  // to what the router left
}

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
