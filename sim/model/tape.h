// Eager operations of a transformer, each with what it launches forward and backward and what
// autograd saves.
//
// A Tape collects them in the order of the module's forward; work.cpp plays a layer on it. One
// function is one operation of the modelling code, with PyTorch's kernels for it: "vectorised"
// kernels stream bytes, "indexed" ones (broadcasts, transposed views, mixed types) compute an
// address per element and are slower than memory. Symbols: n elements of an activation tensor;
// 16-bit numbers have 2 bytes, fp32 ones 4.
//
// With adapters the model is frozen: an operation saves only what the gradients of its inputs need,
// and makes none for its parameters. What is below the first adapter has no gradient at all
// ("needed": the input of an operation has one). A frozen model that autocast runs is a 16-bit one,
// so that autocast casts nothing but its fp32 adapters and their inputs. Left out: layer norms and
// powers, which autocast computes in fp32 (gpt2).
//
// A quantised weight (bitsandbytes) becomes 16-bit numbers for its product, forward and again
// backward: 4 bits by one kernel (two more on a number a block for double quantisation), 8 bits by
// a cast and a scaling, backward only: forward it quantises the input and dequantises the product.
// Left out: the columns of outliers that LLM.int8 multiplies apart; its 8-bit products are counted
// as 16-bit ones. Experts and routers are parameters, no Linears, and stay 16-bit. Also left out:
// that autocast casts the fp32 copies of deepseek's router beside frozen weights back to 16 bits.
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
  Tape(Numerics numerics, const Adapters& adapters)
      : numerics_(adapters.any() && numerics == Numerics::kAutocast ? Numerics::kPure16 : numerics),
        frozen_(adapters.any()),
        base_(adapters.base),
        wide_adapters_(frozen_ && numerics == Numerics::kAutocast) {}

  std::int64_t act() const {
    return numerics_ == Numerics::kFp32 ? 4 : 2;
  }  // bytes: products' results
  std::int64_t residual() const {
    return numerics_ == Numerics::kPure16 ? 2 : 4;
  }  // bytes: residual stream

  // What follows belongs to this module.
  void module(std::string name, std::vector<std::int64_t> elements, std::int32_t borders = 1,
              bool tied = false, Part part = Part::kNone);

  // Norms over rows of `width`, from the residual stream (or from a product's result: `narrow`),
  // rows in all `rows`.
  // `late`: back to 16 bits only after the weight's product (gpt_oss).
  void rms_norm(std::int64_t rows, std::int64_t width, bool needed = true, bool narrow = false,
                bool late = false);
  void one_plus_weight();  // before the product with it, in fp32
  void layer_norm(std::int64_t rows, std::int64_t width, bool needed = true);
  // A Linear of rows x in -> rows x out. `input`: what it reads.
  enum class Input : std::uint8_t {
    kWide,       // the result of a norm: under autocast each Linear casts its own copy
    kWideAgain,  // the same tensor as the Linear before: its gradient is added to that one's
    kNarrow,     // a product's or activation's result, 16 bits already
    kKept        // the same, of an operation that saves it anyway
  };
  void linear(std::int64_t rows, std::int64_t in, std::int64_t out, bool bias, Input input,
              bool needed = true);
  // The adapter on the Linear before, in its three steps: B (A x), scaled and added. Dropout of
  // none is no kernel. Requires: `needed` as that Linear's.
  void adapter_down(std::int64_t rows, std::int64_t in, std::int64_t rank, bool needed);
  void adapter_up(std::int64_t rows, std::int64_t rank, std::int64_t out);
  // Views of a fused product of n elements; backward concatenates their gradients.
  void split(std::int64_t n);
  // rotate_half and its products on q or k of n elements.
  // `table`: elements of its cosines, and of its sines.
  void rotary(std::int64_t n, std::int64_t table, bool needed = true);
  // Of n elements of which rotary turned some: split before, joined again behind.
  void rejoin(std::int64_t n, bool needed = true);
  // rotary's result as products with each half of n elements: `strided`, the halves are the even
  // and the odd elements (deepseek_v3); otherwise they are as rotary's (gpt_oss).
  void rotary_halves(std::int64_t n, std::int64_t table, bool strided, bool needed = true);
  // As products of complex fp32 numbers (deepseek_v2).
  void rotary_complex(std::int64_t n, std::int64_t table);
  // Queries, keys and values from the products of the latent vectors: the rotary parts turned, the
  // key's copied to every head, both joined to the plain parts. `complex`: as rotary_complex.
  void latent_heads(Batch batch, std::int64_t heads, std::int64_t value_dim, const Latent& latent,
                    bool complex);
  // Fused. `value_held`: elements of the tensor of which v is a view and which stays with it.
  struct Heads {
    std::int64_t count, kv_count, width, value_width;
    std::int64_t value_held;
  };
  void attention(Batch batch, const Heads& heads);
  // With sinks, which no fused kernel that transformers uses unasked takes: keys and values copied
  // to every query head, all S x S scores written out, the mask added to them, a sink joined to
  // each row, the row's largest taken off, softmax. The mask is that of the window where there is
  // one: nothing is computed less. Left out: the masks, made once for all layers; that rows of
  // S + 1 elements slow the product with v.
  void attention_with_sinks(Batch batch, std::int64_t heads, std::int64_t kv_heads,
                            std::int64_t head_dim, bool k_needed = true);
  // Keys and values copied to each query head, for a fused kernel.
  void copy_to_heads(std::int64_t query, std::int64_t kv);
  // "Eager": keys and values copied to every query head, all S x S scores written out (`cap`:
  // through a tanh), masked, softmax in fp32, its result as the values are. `wide`: q, k and scores
  // in fp32 (gptj). Alibi costs nothing more: the product adds to it. Left out: the masks; that
  // bloom's product scales as well.
  void attention_with_scores(Batch batch, const Heads& heads, bool cap, bool wide);
  // n elements through a tanh between two factors.
  void cap(std::int64_t n);
  // `needed`: the residual has a gradient too, not only what is added to it.
  void residual_add(std::int64_t n, bool needed = true);
  void silu_and_product(std::int64_t n);
  // A mixture's router on rows of `in`: scores of all experts, the k best of each row. `first`: the
  // first reader of the norm's result. `wide`: the weights stay fp32 (mixtral).
  void route(std::int64_t rows, std::int64_t in, const Experts& experts, bool first, bool wide);
  // The same of deepseek: in 16 bits the product is of fp32 copies. `sigmoid`: scores of sigmoids
  // and a bias for the choice alone (v3), otherwise of a softmax.
  void route_wide(std::int64_t rows, std::int64_t in, const Experts& experts, bool sigmoid);
  // The same of gpt_oss: the k best scores as they are, a softmax of these.
  void route_best(std::int64_t rows, std::int64_t in, const Experts& experts);
  // transformers' grouped_mm: k copies of each row, sorted by expert, through two grouped products,
  // weighted, sorted back and summed. Under autocast all of it is fp32: grouped products are not
  // cast, and PyTorch loops over the experts. Cleared are rows that no expert here owns (expert
  // parallelism); it is done always. With bias it is gathered for each row, and the activation is
  // gpt_oss's. Left out: that the fp32 loop waits for the experts' sizes.
  void experts(std::int64_t rows, std::int64_t in, const Experts& experts, bool wide);
  // A shared expert's n-element result and theirs.
  void add_to_experts(std::int64_t n);
  // An n-element result times a gate of one number a row, added to another.
  void gate_and_add(std::int64_t rows, std::int64_t n);
  // What stands between the matrices of an MLP without a gate.
  void activation(std::int64_t n, Activation function);
  void scale(std::int64_t n);  // the residual stream times a number
  void embedding(std::int64_t rows, std::int64_t width, std::int64_t vocabulary, bool positions);
  // Shift, fp32 copy of the logits, log-softmax, negative log-likelihood over rows x vocabulary.
  void loss(std::int64_t rows, std::int64_t vocabulary);

  // A tensor that is saved; one that another operation saves too, or whose memory is counted
  // elsewhere; a norm's weight.
  void save(std::int64_t bytes) {
    saved_ += bytes;
    save_again(bytes);
  }
  void save_again(std::int64_t bytes) { tensors_.push_back({bytes, false}); }
  void save_parameter(std::int64_t bytes) { tensors_.push_back({bytes, true}); }
  std::int64_t saved() const { return saved_; }
  std::int64_t cast_weights() const { return cast_weights_; }
  // Up to the last Linear's product, which makes nothing that backward needs; its operands are
  // made. Of experts up to where their order back is known, or a shared expert's gate.
  std::vector<Kernel> recompute() const {
    return {forward_.begin(), forward_.begin() + static_cast<std::ptrdiff_t>(recompute_kernels_)};
  }
  // Requires: forward and backward are not taken yet.
  // Names of backward works begin with `kind`.
  std::vector<Module> modules(const std::string& kind = "") const;
  std::vector<Kernel> take_forward() { return std::move(forward_); }
  std::vector<Kernel> take_backward() { return std::move(backward_); }

 private:
  static void stream(std::vector<Kernel>& list, std::int64_t bytes, int count = 1);
  static void indexed(std::vector<Kernel>& list, std::int64_t elements, std::int64_t bytes,
                      int count = 1);
  static void tiny(std::vector<Kernel>& list, int count);
  void product(std::vector<Kernel>& list, std::int64_t m, std::int64_t n, std::int64_t k) const;
  void grouped_product(std::int64_t rows, std::int64_t in, std::int64_t out, std::int64_t experts);
  void add_expert_bias(std::int64_t n);
  void expert_bias_backward(std::int64_t n);
  void silu_of_halves(std::int64_t f);
  void silu_of_halves_backward(std::int64_t f);
  void gelu_new(std::int64_t n);
  void clamped_swiglu(std::int64_t f);
  void clamped_swiglu_backward(std::int64_t f);
  void best_groups(std::int64_t rows, const Experts& experts);
  void joined_heads(std::int64_t plain, std::int64_t rotary, bool wide_rotary);
  void cleared(std::vector<Kernel>& list, std::int64_t n);
  void frozen_linear(std::int64_t rows, std::int64_t in, std::int64_t out, Input input, bool needed,
                     Base base);
  void router(std::int64_t rows, std::int64_t in, const Experts& experts, Input input);
  void dequantise(std::vector<Kernel>& list, std::int64_t elements, Base base) const;
  void cast_adapter(std::int64_t elements);
  void scores_backward(std::int64_t rows, Batch batch, const Heads& heads, bool wide);

  // Indexed kernels of three full operands, and those that convert types per element or
  // concatenate, take longer an element than those of two (63, 88 and 70 us against 48 us on 16.8 M
  // elements, h200-layers.jsonl).
  static std::int64_t three_operands(std::int64_t n) { return n * 5 / 4; }
  static std::int64_t converting(std::int64_t n) { return n * 17 / 10; }
  static std::int64_t concatenating(std::int64_t n) { return n * 14 / 10; }

  // Where a module begins; of it only the names and sizes are filled in.
  struct Mark {
    Module module;
    std::size_t forward, backward, saved;
  };

  Numerics numerics_;
  bool frozen_;
  Base base_;
  bool wide_adapters_;
  bool input_saved_ = false;  // of the Linears that read it
  std::vector<Mark> marks_;
  std::vector<Kernel> forward_, backward_;
  std::vector<SavedTensor> tensors_;
  std::int64_t saved_ = 0;
  std::int64_t cast_weights_ = 0;
  std::size_t recompute_kernels_ = 0;
};

}  // namespace offsim::model
