#include "sim/model/work.h"

#include <utility>

#include "sim/base/error.h"
#include "sim/model/tape.h"

namespace offsim::model {

namespace {

Work named(const char* name, std::vector<Kernel> kernels) { return {name, std::move(kernels)}; }

void norm(Tape& tape, const Shape& shape, std::int64_t tokens) {
  if (shape.norm == Norm::kRms) {
    tape.rms_norm(tokens, shape.hidden);
  } else {
    tape.layer_norm(tokens, shape.hidden);
  }
}

void attention_block(Tape& tape, const Shape& shape, Batch batch) {
  const std::int64_t tokens = batch.tokens();
  const std::int64_t q = shape.query_width();
  const std::int64_t kv = shape.kv_width();
  norm(tape, shape, tokens);
  if (shape.fused_qkv) {
    tape.linear(tokens, shape.hidden, q + 2 * kv, shape.qkv_bias, Tape::Input::kWide);
    tape.split(tokens * (q + 2 * kv));
    tape.save(tape.act() * tokens * (q + kv));  // q and k: views of the fused product
  } else {
    tape.linear(tokens, shape.hidden, q, shape.qkv_bias, Tape::Input::kWide);
    tape.linear(tokens, shape.hidden, kv, shape.qkv_bias, Tape::Input::kWideAgain);
    tape.linear(tokens, shape.hidden, kv, shape.qkv_bias, Tape::Input::kWideAgain);
  }
  if (shape.qk_norm) {
    tape.rms_norm(tokens * shape.heads, shape.head_dim, true);
    tape.rms_norm(tokens * shape.kv_heads, shape.head_dim, true);
  }
  if (shape.positions == 0) {
    tape.rotary(tokens * q);
    tape.rotary(tokens * kv);
  }
  tape.attention(batch, shape.heads, shape.kv_heads, shape.head_dim);
  tape.linear(tokens, q, shape.hidden, shape.output_bias, Tape::Input::kNarrow);
  tape.residual_add(tokens * shape.hidden);
}

void mlp_block(Tape& tape, const Shape& shape, std::int64_t tokens) {
  norm(tape, shape, tokens);
  tape.linear(tokens, shape.hidden, shape.ffn, shape.mlp_bias, Tape::Input::kWide);
  if (shape.gated_mlp) {
    tape.linear(tokens, shape.hidden, shape.ffn, shape.mlp_bias, Tape::Input::kWideAgain);
    tape.silu_and_product(tokens * shape.ffn);
  } else {
    tape.gelu_new(tokens * shape.ffn);
  }
  tape.linear(tokens, shape.ffn, shape.hidden, shape.mlp_bias, Tape::Input::kNarrow);
  tape.residual_add(tokens * shape.hidden);
}

Piece layer_piece(const Shape& shape, Batch batch, Numerics numerics, Bytes& cast,
                  Work& recompute) {
  Tape tape(numerics);
  attention_block(tape, shape, batch);
  mlp_block(tape, shape, batch.tokens());
  Piece piece;
  piece.saved = Bytes(tape.saved());
  cast = Bytes(tape.cast_weights());
  const std::int64_t wide_mlp = tape.act() * batch.tokens() * shape.ffn;
  const std::int64_t hidden = tape.residual() * batch.tokens() * shape.hidden;
  // While the MLP runs: gated, silu(gate), up and their product; else the products of gelu_new. Its
  // input and the residual.
  const std::int64_t alive = shape.gated_mlp ? 3 : (numerics == Numerics::kAutocast ? 7 : 4);
  piece.forward_extra = Bytes(2 * hidden);
  piece.forward_alone = Bytes(alive * wide_mlp + 3 * hidden);
  piece.backward_extra = Bytes(3 * wide_mlp + 2 * hidden);
  recompute = named("layer recompute", tape.recompute());
  piece.forward = named("layer forward", tape.take_forward());
  piece.backward = named("layer backward", tape.take_backward());
  return piece;
}

Piece head_piece(const Shape& shape, Batch batch, Numerics numerics, Bytes& cast) {
  const std::int64_t tokens = batch.tokens();
  Tape tape(numerics);
  norm(tape, shape, tokens);
  tape.linear(tokens, shape.hidden, shape.vocabulary, false, Tape::Input::kWide);
  tape.loss(tokens, shape.vocabulary);
  Piece piece;
  piece.saved = Bytes(tape.saved());
  cast = Bytes(tape.cast_weights());
  const std::int64_t logits = tokens * shape.vocabulary;
  // The 16-bit logits and their fp32 copy; the norm's result. Backward: the gradient of the
  // log-softmax's result and of its input.
  const std::int64_t copies = tape.act() == 2 ? 6 : 4;
  piece.forward_extra = Bytes(copies * logits + tape.residual() * tokens * shape.hidden);
  piece.forward_alone = Bytes(piece.saved.value + piece.forward_extra.value);
  piece.backward_extra = Bytes(8 * logits);
  piece.forward = named("head and loss forward", tape.take_forward());
  piece.backward = named("head and loss backward", tape.take_backward());
  return piece;
}

Piece embedding_piece(const Shape& shape, Batch batch, Numerics numerics) {
  Tape tape(numerics);
  tape.embedding(batch.tokens(), shape.hidden, shape.vocabulary, shape.positions > 0);
  Piece piece;
  piece.forward = named("embedding forward", tape.take_forward());
  piece.backward = named("embedding backward", tape.take_backward());
  return piece;
}

}  // namespace

Flops Kernel::flops() const {
  const auto d = [](std::int64_t v) { return static_cast<double>(v); };
  switch (kind) {
    case Kind::kGemm:
      return Flops(2 * d(m) * d(n) * d(k) * count);
    case Kind::kAttention:
      return Flops(2 * d(batch) * d(heads) * d(sequence) * d(sequence) * d(head_dim) *
                   (backward ? kBackwardOfFlashAttention : 1.0) * count);
    case Kind::kElementwise:
    case Kind::kAdam:
      break;
  }
  return Flops(0);
}

std::int64_t Work::launches() const {
  std::int64_t sum = 0;
  for (const Kernel& kernel : kernels) {
    sum += kernel.count;
  }
  return sum;
}

Flops Work::flops() const {
  Flops sum;
  for (const Kernel& kernel : kernels) {
    sum += kernel.flops();
  }
  return sum;
}

Pieces pieces(const Shape& shape, Batch batch, Numerics numerics) {
  SIM_ASSERT(batch.samples > 0 && batch.sequence > 0, "a micro-batch has tokens");
  Pieces p;
  p.numerics = numerics;
  p.embedding = embedding_piece(shape, batch, numerics);
  p.layer = layer_piece(shape, batch, numerics, p.cast_layer, p.recompute);
  p.head = head_piece(shape, batch, numerics, p.cast_head);
  const std::int64_t width = numerics == Numerics::kPure16 ? 2 : 4;
  p.hidden = Bytes(width * batch.tokens() * shape.hidden);
  return p;
}

Work elementwise(std::string name, std::int64_t elements, double bytes_per_element, int launches) {
  const auto bytes = static_cast<std::int64_t>(static_cast<double>(elements) * bytes_per_element);
  Kernel kernel{.bytes = bytes / launches, .count = launches};
  return {std::move(name), {kernel}};
}

Work gpu_adam(std::int64_t elements, std::int64_t tensors, bool wide) {
  constexpr std::int64_t kTensorsALaunch = 60;
  const auto launches =
      static_cast<std::int32_t>((tensors + kTensorsALaunch - 1) / kTensorsALaunch);
  Kernel kernel{.kind = Kernel::Kind::kAdam,
                .wide = wide,
                .elements = elements / launches,
                .count = launches};
  return {"Adam", {kernel}};
}

}  // namespace offsim::model
