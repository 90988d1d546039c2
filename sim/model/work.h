// The GPU kernels of a training step, by shape: what a framework launches, not how long it takes.
//
// A Kernel is one launch: a matrix product, fused attention, or something bound by the bytes it
// moves (elementwise, reduction, fused Adam). A Work is what one call of the training loop
// launches, for example a layer's forward. Activation bytes are those that autograd keeps from
// forward to backward counted tensor by tensor.
//
// Eager PyTorch with transformers' modules is modelled: each operation reads its inputs and writes
// its output through memory, norms compute in fp32, and under autocast the residual stream is fp32
// while matrix products take 16-bit copies. Counts and bytes were checked kernel by kernel against
// profiles (hardware/measured/raw/h200-layers.jsonl, h200-moe-2026-11-30.jsonl); those of latent
// attention, of attention with sinks and of deepseek's and gpt_oss's routers and experts were not:
// they follow the modelling code of transformers 5 operation by operation, at the rates of the
// others. Of latent attention the fused kernel is one that takes a v narrower than q and k (cuDNN's
// or the memory-efficient one; the flash kernel does not), at the rate of one of equal operations;
// v is a view of a wider product, which stays with it. gpt_oss has no fused attention unless asked
// for (_supports_sdpa is false): scores of all of S x S, in sliding layers too. So it is with
// bloom, gptj, gemma2 (whose cap no other has; transformers' default since its pull request 32865),
// baichuan's 13B and falcon where all heads have one key (PyTorch's fused kernels take no such). Of
// the architectures that came last (all but gpt2, llama, mistral, mixtral, qwen) no kernel was
// measured. Left out: what a norm of the embedding keeps (bloom).
// Kernels on scalars or one number a row count as launches of no bytes. Left out: memsets of matrix
// products.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/base/units.h"
#include "sim/model/flops.h"
#include "sim/model/layout.h"
#include "sim/model/shape.h"

namespace offsim::model {

// How the module computes: autocast casts fp32 parameters (of a model with adapters: those of the
// adapters) and activations to 16 bits for matrix products; pure16 has 16-bit parameters and
// activations (DeepSpeed's bf16, MegaTrain, a bf16 model); fp32 everywhere.
enum class Numerics : std::uint8_t { kAutocast, kPure16, kFp32 };

struct Kernel {
  enum class Kind : std::uint8_t { kGemm, kAttention, kElementwise, kAdam };
  Kind kind = Kind::kElementwise;
  std::int64_t m = 0, n = 0, k = 0;  // kGemm: C[m,n] = A[m,k] B[k,n]
  std::int64_t batch = 0, heads = 0, kv_heads = 0, sequence = 0,
               head_dim = 0;   // kAttention, causal; of q and k
  std::int64_t value_dim = 0;  // kAttention: of v
  bool backward = false;       // kAttention
  bool wide = false;           // fp32 operands where false means 16 bits (kGemm, kAdam)
  std::int64_t bytes = 0;      // kElementwise: read and written
  std::int64_t indexed =
      0;  // kElementwise: elements of a kernel that computes an address for each of them
          // (broadcast, strided or mixed types) where a vectorised one streams
  std::int64_t elements = 0;  // kAdam
  std::int32_t count = 1;     // this many alike, one after the other

  // Of all `count`; attention's backward as executed: two products over v's width and three over
  // q's for one of each (2.5 times its forward where these are alike).
  Flops flops() const;
  friend bool operator==(const Kernel&, const Kernel&) = default;
};

struct Work {
  std::string name;  // "layer forward"
  std::vector<Kernel> kernels;

  std::int64_t launches() const;
  Flops flops() const;
  friend bool operator==(const Work&, const Work&) = default;
};

// A tensor that an operation saves for its backward: each operation its own, though several may
// share the memory of one tensor.
struct SavedTensor {
  std::int64_t bytes = 0;
  bool parameter = false;  // itself, not a view of it as a Linear's transposed weight is
};

// A module with parameters of its own, as systems see it that hook into modules (DeepSpeed's stage
// 3 fetches and releases by them). Its works are its share of its piece's, by name.
struct Module {
  std::string name;                    // "q_proj": a part of its tensors' names
  std::vector<std::int64_t> elements;  // of each parameter, in the order of registration
  std::int32_t borders = 1;            // modules entered since the one before, containers included
  bool tied = false;                   // its weight is the embedding's
  Part part = Part::kNone;             // of a layer's matrices which
  Work forward, recompute, backward;
  std::vector<SavedTensor> saved;

  std::int64_t numel() const;
  bool linear() const;  // its forward is a product
};

// A piece of the model: what its forward and backward launch and what it holds in memory meanwhile.
struct Piece {
  Work forward;
  Work recompute;  // of a layer: forward again, up to the last tensor that backward needs
  Work backward;
  Bytes saved;                  // kept from forward to backward
  Bytes forward_extra;          // beside `saved`, at the worst moment of the forward
  Bytes forward_alone;          // at the worst moment of a forward that saves nothing
  Bytes backward_extra;         // at the worst moment of the backward, beside what is saved and the
                                // gradients of parameters
  Bytes cast;                   // autocast: 16-bit copies of its matrices, alive until the region
                                // ends, or until the backward that needs them
  std::vector<Module> modules;  // in the order of forward; their works add up to the piece's
};

// The pieces of one micro-batch.
struct Pieces {
  Piece embedding;            // and what comes before the first layer: rotary table, mask
  std::vector<Piece> layers;  // those that differ: kinds of layers; with adapters the first layer
                              // is one of its own, since nothing below it is trained
  std::vector<std::size_t> piece_of;  // by layer, which of these
  Piece head;                         // final norm, logits, loss
  Bytes hidden;                       // one tensor of the residual stream: a checkpoint

  std::size_t index(std::int64_t layer) const { return piece_of[static_cast<std::size_t>(layer)]; }
  const Piece& layer(std::int64_t layer) const { return layers[index(layer)]; }
};

// `input_gradients`: autograd is asked for the gradient of the embedding's result though nothing
// below needs it (PEFT does so for checkpointing: enable_input_require_grads).
Pieces pieces(const Shape& shape, Batch batch, Numerics numerics, bool input_gradients = false);

// Bytes-bound work on `elements` numbers: `launches` kernels that move `bytes_per_element` in all.
Work elementwise(std::string name, std::int64_t elements, double bytes_per_element, int launches);
// Fused Adam over `elements` parameters in `tensors` tensors.
Work gpu_adam(std::int64_t elements, std::int64_t tensors, bool wide);

}  // namespace offsim::model
