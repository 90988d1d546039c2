// Eager operations of a transformer, each with what it launches forward and backward and what
// autograd saves.
//
// A Tape collects them in the order of the module's forward; work.cpp plays a layer on it. One
// function is one operation of the modelling code, with PyTorch's kernels for it: "vectorised"
// kernels stream bytes, "indexed" ones (broadcasts, transposed views, mixed types) compute an
// address per element and are slower than memory. Symbols: n elements of an activation tensor;
// 16-bit numbers have 2 bytes, fp32 ones 4.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "sim/model/work.h"

namespace offsim::model {

class Tape {
 public:
  explicit Tape(Numerics numerics) : numerics_(numerics) {}

  std::int64_t act() const {
    return numerics_ == Numerics::kFp32 ? 4 : 2;
  }  // bytes: products' results
  std::int64_t residual() const {
    return numerics_ == Numerics::kPure16 ? 2 : 4;
  }  // bytes: residual stream

  // What follows belongs to this module.
  void module(std::string name, std::vector<std::int64_t> elements, std::int32_t borders = 1,
              bool tied = false);

  // Norms over rows of `width`, from the residual stream (or from a product's result: `narrow`),
  // rows in all `rows`.
  void rms_norm(std::int64_t rows, std::int64_t width, bool narrow = false);
  void layer_norm(std::int64_t rows, std::int64_t width);
  // A Linear of rows x in -> rows x out. `input`: what it reads.
  enum class Input : std::uint8_t {
    kWide,       // the result of a norm: under autocast each Linear casts its own copy
    kWideAgain,  // the same tensor as the Linear before: its gradient is added to that one's
    kNarrow      // a product's or activation's result, 16 bits already
  };
  void linear(std::int64_t rows, std::int64_t in, std::int64_t out, bool bias, Input input);
  // Views of a fused product of n elements; backward concatenates their gradients.
  void split(std::int64_t n);
  // rotate_half and its products on q or k of n elements.
  void rotary(std::int64_t n);
  void attention(Batch batch, std::int64_t heads, std::int64_t kv_heads, std::int64_t head_dim);
  void residual_add(std::int64_t n);
  void silu_and_product(std::int64_t n);
  // A mixture's router on rows of `in`: scores of all experts, the k best of each row. `first`: the
  // first reader of the norm's result. `wide`: the weights stay fp32 (mixtral).
  void route(std::int64_t rows, std::int64_t in, const Experts& experts, bool first, bool wide);
  // transformers' grouped_mm: k copies of each row, sorted by expert, through two grouped products,
  // weighted, sorted back and summed. Under autocast all of it is fp32: grouped products are not
  // cast, and PyTorch loops over the experts. Cleared are rows that no expert here owns (expert
  // parallelism); it is done always. Left out: that the fp32 loop waits for the experts' sizes.
  void experts(std::int64_t rows, std::int64_t in, const Experts& experts, bool wide);
  // An n-element result times a gate of one number a row, added to another.
  void gate_and_add(std::int64_t rows, std::int64_t n);
  void gelu_new(std::int64_t n);
  void embedding(std::int64_t rows, std::int64_t width, std::int64_t vocabulary, bool positions);
  // Shift, fp32 copy of the logits, log-softmax, negative log-likelihood over rows x vocabulary.
  void loss(std::int64_t rows, std::int64_t vocabulary);

  void save(std::int64_t bytes) { saved_ += bytes; }
  std::int64_t saved() const { return saved_; }
  std::int64_t cast_weights() const { return cast_weights_; }
  // Up to the last Linear's product, which makes nothing that backward needs; its operands are
  // made.
  std::vector<Kernel> recompute() const {
    return {forward_.begin(), forward_.begin() + static_cast<std::ptrdiff_t>(recompute_kernels_)};
  }
  // Requires: forward and backward are not taken yet.
  std::vector<Module> modules() const;
  std::vector<Kernel> take_forward() { return std::move(forward_); }
  std::vector<Kernel> take_backward() { return std::move(backward_); }

 private:
  static void stream(std::vector<Kernel>& list, std::int64_t bytes, int count = 1);
  static void indexed(std::vector<Kernel>& list, std::int64_t elements, std::int64_t bytes,
                      int count = 1);
  static void tiny(std::vector<Kernel>& list, int count);
  void product(std::vector<Kernel>& list, std::int64_t m, std::int64_t n, std::int64_t k) const;
  void grouped_product(std::int64_t rows, std::int64_t in, std::int64_t out, std::int64_t experts);
  void cleared(std::vector<Kernel>& list, std::int64_t n);

  // Where a module begins; of it only the names and sizes are filled in.
  struct Mark {
    Module module;
    std::size_t forward, backward;
  };

  Numerics numerics_;
  std::vector<Mark> marks_;
  std::vector<Kernel> forward_, backward_;
  std::int64_t saved_ = 0;
  std::int64_t cast_weights_ = 0;
  std::size_t recompute_kernels_ = 0;
};

}  // namespace offsim::model
