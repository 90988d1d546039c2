#include "sim/model/work.h"

#include <algorithm>
#include <utility>

#include "sim/base/error.h"
#include "sim/model/tape.h"

namespace offsim::model {

namespace {

Work named(const char* name, std::vector<Kernel> kernels) { return {name, std::move(kernels)}; }

void norm(Tape& tape, const Shape& shape, std::int64_t tokens, const char* name, int borders) {
  const bool bias = shape.norm == Norm::kLayer;
  tape.module(name, std::vector<std::int64_t>(bias ? 2 : 1, shape.hidden), borders);
  if (shape.norm == Norm::kRms) {
    tape.rms_norm(tokens, shape.hidden);
  } else {
    tape.layer_norm(tokens, shape.hidden);
  }
}

// A Linear that is a module. `borders`: modules entered since the one before.
void linear(Tape& tape, const char* name, std::int64_t tokens, std::int64_t in, std::int64_t out,
            bool bias, Tape::Input input, int borders = 1) {
  std::vector<std::int64_t> elements{in * out};
  if (bias) {
    elements.push_back(out);
  }
  tape.module(name, std::move(elements), borders);
  tape.linear(tokens, in, out, bias, input);
}

void head_norm(Tape& tape, const char* name, std::int64_t rows, std::int64_t width) {
  tape.module(name, {width});
  tape.rms_norm(rows, width, true);
}

void attention_block(Tape& tape, const Shape& shape, Batch batch) {
  const std::int64_t tokens = batch.tokens();
  const std::int64_t q = shape.query_width();
  const std::int64_t kv = shape.kv_width();
  const bool gpt2 = shape.architecture == Architecture::kGpt2;
  norm(tape, shape, tokens, gpt2 ? "ln_1" : "input_layernorm", 2);  // the layer and its norm
  if (shape.fused_qkv) {
    linear(tape, "c_attn", tokens, shape.hidden, q + 2 * kv, shape.qkv_bias, Tape::Input::kWide, 2);
    tape.split(tokens * (q + 2 * kv));
    tape.save(tape.act() * tokens * (q + kv));  // q and k: views of the fused product
  } else {
    linear(tape, "q_proj", tokens, shape.hidden, q, shape.qkv_bias, Tape::Input::kWide, 2);
    linear(tape, "k_proj", tokens, shape.hidden, kv, shape.qkv_bias, Tape::Input::kWideAgain);
    linear(tape, "v_proj", tokens, shape.hidden, kv, shape.qkv_bias, Tape::Input::kWideAgain);
  }
  if (shape.qk_norm) {
    head_norm(tape, "q_norm", tokens * shape.heads, shape.head_dim);
    head_norm(tape, "k_norm", tokens * shape.kv_heads, shape.head_dim);
  }
  if (shape.positions == 0) {
    tape.rotary(tokens * q);
    tape.rotary(tokens * kv);
  }
  tape.attention(batch, shape.heads, shape.kv_heads, shape.head_dim);
  linear(tape, gpt2 ? "attn.c_proj" : "o_proj", tokens, q, shape.hidden, shape.output_bias,
         Tape::Input::kNarrow);
  tape.residual_add(tokens * shape.hidden);
}

void mlp_block(Tape& tape, const Shape& shape, std::int64_t tokens) {
  const bool gpt2 = shape.architecture == Architecture::kGpt2;
  norm(tape, shape, tokens, gpt2 ? "ln_2" : "post_attention_layernorm", 1);
  linear(tape, gpt2 ? "c_fc" : "gate_proj", tokens, shape.hidden, shape.ffn, shape.mlp_bias,
         Tape::Input::kWide, 2);
  if (shape.gated_mlp) {
    linear(tape, "up_proj", tokens, shape.hidden, shape.ffn, shape.mlp_bias,
           Tape::Input::kWideAgain, 2);  // after the activation function, a module too
    tape.silu_and_product(tokens * shape.ffn);
  } else {
    tape.gelu_new(tokens * shape.ffn);
  }
  linear(tape, gpt2 ? "mlp.c_proj" : "down_proj", tokens, shape.ffn, shape.hidden, shape.mlp_bias,
         Tape::Input::kNarrow);
  tape.residual_add(tokens * shape.hidden);
}

void mixture_block(Tape& tape, const Shape& shape, std::int64_t tokens) {
  const Experts& e = *shape.experts;
  const std::int64_t h = shape.hidden;
  const bool mixtral = shape.architecture == Architecture::kMixtral;
  norm(tape, shape, tokens, "post_attention_layernorm", 1);
  if (e.shared > 0) {
    linear(tape, "shared_expert.gate_proj", tokens, h, e.shared, false, Tape::Input::kWide, 3);
    linear(tape, "shared_expert.up_proj", tokens, h, e.shared, false, Tape::Input::kWideAgain, 2);
    tape.silu_and_product(tokens * e.shared);
    linear(tape, "shared_expert.down_proj", tokens, e.shared, h, false, Tape::Input::kNarrow);
  }
  tape.module("mlp.gate", {e.count * h}, e.shared > 0 ? 1 : 2);
  tape.route(tokens, h, e, e.shared == 0, mixtral);
  tape.module("mlp.experts", {e.count * 2 * e.width * h, e.count * h * e.width});
  tape.experts(tokens, h, e, mixtral);
  if (e.shared > 0) {
    linear(tape, "shared_expert_gate", tokens, h, 1, false, Tape::Input::kWideAgain);
    tape.gate_and_add(tokens, tokens * h);
  }
  tape.residual_add(tokens * h);
}

struct Peaks {
  std::int64_t forward_extra, forward_alone, backward_extra;
};

Peaks mlp_peaks(const Tape& tape, const Shape& shape, std::int64_t tokens) {
  const std::int64_t wide_mlp = tape.act() * tokens * shape.ffn;
  const std::int64_t hidden = tape.residual() * tokens * shape.hidden;
  // While the MLP runs: gated, silu(gate), up and their product; else the products of gelu_new. Its
  // input and the residual.
  const std::int64_t alive = shape.gated_mlp ? 3 : (tape.residual() > tape.act() ? 7 : 4);
  // While the MLP's backward runs: the gradients of the product, gate and up, beside the
  // residual's.
  return {2 * hidden, alive * wide_mlp + 3 * hidden, 3 * wide_mlp + hidden};
}

Peaks mixture_peaks(const Tape& tape, const Shape& shape, std::int64_t tokens) {
  const Experts& e = *shape.experts;
  const std::int64_t hidden = tape.residual() * tokens * shape.hidden;
  const std::int64_t rows = e.per_token * hidden;
  const std::int64_t wide = tape.residual() * tokens * e.per_token * e.width;
  const bool widens = shape.architecture == Architecture::kMixtral && tape.residual() == 2;
  const std::int64_t weighted = (widens ? 2 : 1) * rows;
  // Weighted rows and their order back; that, or both halves twice (cleared is a copy), beside the
  // sorted rows. Backward likewise.
  const std::int64_t last = 2 * weighted;
  return {2 * hidden + last, std::max(4 * wide, rows + last) + rows + 3 * hidden,
          std::max(4 * wide, rows + last) + hidden};
}

Piece layer_piece(const Shape& shape, Batch batch, Numerics numerics, Bytes& cast,
                  Work& recompute) {
  Tape tape(numerics);
  attention_block(tape, shape, batch);
  if (shape.experts) {
    mixture_block(tape, shape, batch.tokens());
  } else {
    mlp_block(tape, shape, batch.tokens());
  }
  Piece piece;
  piece.saved = Bytes(tape.saved());
  cast = Bytes(tape.cast_weights());
  const Peaks peaks = shape.experts ? mixture_peaks(tape, shape, batch.tokens())
                                    : mlp_peaks(tape, shape, batch.tokens());
  piece.forward_extra = Bytes(peaks.forward_extra);
  piece.forward_alone = Bytes(peaks.forward_alone);
  piece.backward_extra = Bytes(peaks.backward_extra);
  piece.modules = tape.modules();
  recompute = named("layer recompute", tape.recompute());
  piece.forward = named("layer forward", tape.take_forward());
  piece.backward = named("layer backward", tape.take_backward());
  return piece;
}

Piece head_piece(const Shape& shape, Batch batch, Numerics numerics, Bytes& cast) {
  const std::int64_t tokens = batch.tokens();
  Tape tape(numerics);
  norm(tape, shape, tokens, shape.architecture == Architecture::kGpt2 ? "ln_f" : "norm", 1);
  tape.module("lm_head", {shape.vocabulary * shape.hidden}, 1, shape.tied);
  tape.linear(tokens, shape.hidden, shape.vocabulary, false, Tape::Input::kWide);
  tape.loss(tokens, shape.vocabulary);
  Piece piece;
  piece.modules = tape.modules();
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
  // gpt2's position table is a module of its own; its work is the token table's.
  if (shape.positions > 0) {
    tape.module("wpe", {shape.positions * shape.hidden}, 1);
  }
  tape.module(shape.positions > 0 ? "wte" : "embed_tokens", {shape.vocabulary * shape.hidden}, 3);
  tape.embedding(batch.tokens(), shape.hidden, shape.vocabulary, shape.positions > 0);
  Piece piece;
  piece.modules = tape.modules();
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

std::int64_t Module::numel() const {
  std::int64_t sum = 0;
  for (const std::int64_t n : elements) {
    sum += n;
  }
  return sum;
}

bool Module::linear() const {
  return std::ranges::any_of(
      forward.kernels, [](const Kernel& kernel) { return kernel.kind == Kernel::Kind::kGemm; });
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
