#include "kernels/gpu/attention.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>
#include <vector>

namespace offsim::kernels::gpu {

namespace {

constexpr std::int64_t kScoreBytes = std::int64_t{32} << 20;
constexpr std::int64_t kElement = 2;  // bytes of a bf16

std::int64_t tile_rows(const AttentionShape& s) {
  const std::int64_t tiles = s.sequence >= 8192 ? 16 : 8;
  return ((s.sequence + tiles - 1) / tiles + 63) / 64 * 64;
}

// Heads whose scores of a tile fit: a divisor of all, so every part is of one shape.
std::int64_t heads_at_once(const AttentionShape& s) {
  const std::int64_t all = s.batch * s.heads;
  const std::int64_t one = std::min(tile_rows(s), s.sequence) * s.sequence * kElement;
  std::int64_t heads = std::clamp<std::int64_t>(kScoreBytes / one, 1, all);
  while (all % heads != 0) {
    --heads;
  }
  return heads;
}

std::size_t score_bytes(const AttentionShape& s) {
  const std::int64_t rows = std::min(tile_rows(s), s.sequence);
  const std::int64_t bytes = heads_at_once(s) * rows * s.sequence * kElement;
  return static_cast<std::size_t>((bytes + 255) / 256 * 256);
}

// Query rows [begin, begin + rows) of all heads of a part against the keys before the last row.
class Tile {
 public:
  Tile(const Lt& lt, const AttentionShape& s, std::int64_t begin) : begin_(begin) {
    const std::int64_t rows = std::min(tile_rows(s), s.sequence - begin);
    const std::int64_t keys = begin + rows;
    const std::int64_t heads = heads_at_once(s), head = s.sequence * s.head_dim;
    const std::int64_t scores = rows * keys;
    const auto plan = [&](std::int64_t m, std::int64_t n, std::int64_t k, Layout layout,
                          std::int64_t a, std::int64_t b, std::int64_t c) {
      products_.emplace_back(lt, GemmShape{m, n, k, Type::kBf16, layout, heads, a, b, c});
    };
    plan(rows, keys, s.head_dim, Layout::kNt, head, head, scores);  // rows of Q or dO by K or V
    plan(rows, s.head_dim, keys, Layout::kNn, scores, head, head);  // scores by V or K
    if (s.backward) {
      plan(keys, s.head_dim, rows, Layout::kTn, scores, head, head);  // scores turned by dO or Q
    }
  }

  // `at` is the part's first head in each tensor; the last tile, the first to run, covers all keys
  // and so writes what the others add to.
  void queue(const AttentionShape& s, const AttentionBuffers& at, cudaStream_t stream,
             bool first) const {
    const std::int64_t skip = begin_ * s.head_dim * kElement;
    const float scale = 1.0F / std::sqrt(static_cast<float>(s.head_dim));
    std::byte* scores = at.scratch;
    products_[0].run(at.q + skip, at.k, scores, stream, scale);
    if (!s.backward) {
      products_[1].run(scores, at.v, at.o + skip, stream);
      return;
    }
    std::byte* gradient = at.scratch + score_bytes(s);
    const float old = first ? 0.0F : 1.0F;
    products_[0].run(at.o + skip, at.v, gradient, stream, scale);
    products_[1].run(gradient, at.k, at.dq + skip, stream);
    products_[2].run(scores, at.o + skip, at.dv, stream, 1, old);
    products_[2].run(gradient, at.q + skip, at.dk, stream, 1, old);
  }

 private:
  std::int64_t begin_;
  std::vector<Gemm> products_;
};

AttentionBuffers from_head(const AttentionBuffers& all, std::size_t bytes) {
  const auto moved = [&](std::byte* at) { return at == nullptr ? nullptr : at + bytes; };
  return {moved(all.q),  moved(all.k),  moved(all.v),  moved(all.o),
          moved(all.dq), moved(all.dk), moved(all.dv), all.scratch};
}

}  // namespace

std::size_t attention_tensor_bytes(const AttentionShape& s) {
  return static_cast<std::size_t>(s.batch * s.heads * s.sequence * s.head_dim * kElement);
}

std::size_t attention_scratch_bytes(const AttentionShape& s) {
  return score_bytes(s) * (s.backward ? 2 : 1);
}

Attention::Attention(const Lt& lt, const AttentionShape& shape, const AttentionBuffers& buffers,
                     cudaStream_t stream) {
  if (shape.head_dim % 8 != 0) {
    throw std::runtime_error("attention with a head dimension of " +
                             std::to_string(shape.head_dim) + "; expected a multiple of 8");
  }
  std::vector<Tile> tiles;
  const std::int64_t rows = tile_rows(shape);
  for (std::int64_t begin = (shape.sequence - 1) / rows * rows; begin >= 0; begin -= rows) {
    tiles.emplace_back(lt, shape, begin);
  }
  const std::int64_t heads = heads_at_once(shape);
  const std::size_t part =
      static_cast<std::size_t>(heads * shape.sequence * shape.head_dim * kElement);
  const auto queue = [&](std::int64_t parts) {
    for (std::int64_t i = 0; i < parts; ++i) {
      const AttentionBuffers at = from_head(buffers, static_cast<std::size_t>(i) * part);
      for (std::size_t tile = 0; tile < tiles.size(); ++tile) {
        tiles[tile].queue(shape, at, stream, tile == 0);
      }
    }
  };
  queue(1);  // the library loads its kernels, which a capture does not like
  check(cudaStreamSynchronize(stream), "running attention");
  graph_ = std::make_unique<Graph>(stream, [&] { queue(shape.batch * shape.heads / heads); });
}

}  // namespace offsim::kernels::gpu
