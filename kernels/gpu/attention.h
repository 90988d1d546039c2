// The products of causal attention, in place of a fused kernel: what a replay runs.
//
//   forward    scores = Q K^T / sqrt(d), O = scores V
//   backward   scores again, dP = dO V^T / sqrt(d), dQ = dP K, dV = scores^T dO, dK = dP^T Q
//
// in bf16 through cuBLASLt, by tiles of query rows, each with the keys up to its last row: of n
// tiles, (n + 1) / (2 n) of all scores where the causal half is a half (0.56 with 8, 0.53 with the
// 16 from 8192 positions on). The scores of a tile are those of as many heads as take 32 MiB, which
// an L2 holds; no more memory is used. Q, K, V, O and their gradients are read and written as
// in a fused kernel; the softmax, which is no product, is left out. All of it is one graph:
// the host launches it once, as it would the fused kernel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "kernels/gpu/cuda.h"
#include "kernels/gpu/gemm.h"

namespace offsim::kernels::gpu {

struct AttentionShape {
  std::int64_t batch = 1, heads = 1, sequence = 1, head_dim = 1;
  bool backward = false;
};
// Of Q, and so of K, V, O and each gradient: batch x heads x sequence x head_dim of bf16.
std::size_t attention_tensor_bytes(const AttentionShape& shape);
std::size_t attention_scratch_bytes(const AttentionShape& shape);

// Forward uses q, k, v, o; backward q, k, v, o (as the gradient of the output), dq, dk, dv.
struct AttentionBuffers {
  std::byte *q = nullptr, *k = nullptr, *v = nullptr, *o = nullptr;
  std::byte *dq = nullptr, *dk = nullptr, *dv = nullptr;
  std::byte* scratch = nullptr;
};

class Attention {
 public:
  // Plans it, runs a part of it and captures it on `stream`. Requires: the buffers and `lt` outlive
  // it; head_dim is a multiple of 8.
  Attention(const Lt& lt, const AttentionShape& shape, const AttentionBuffers& buffers,
            cudaStream_t stream);
  void run(cudaStream_t stream) const { graph_->launch(stream); }

 private:
  std::unique_ptr<Graph> graph_;
};

}  // namespace offsim::kernels::gpu
