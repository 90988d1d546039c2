#include "sim/model/work.h"

#include <algorithm>
#include <utility>

#include "sim/base/error.h"
#include "sim/model/tape.h"

namespace offsim::model {

namespace {

Work named(const char* name, std::vector<Kernel> kernels) { return {name, std::move(kernels)}; }

void norm(Tape& tape, const Shape& shape, std::int64_t tokens, const char* name, int borders,
          bool needed = true) {
  const bool bias = shape.norm == Norm::kLayer;
  tape.module(name, std::vector<std::int64_t>(bias ? 2 : 1, shape.hidden), borders);
  if (shape.norm == Norm::kRms) {
    tape.rms_norm(tokens, shape.hidden, needed);
  } else {
    tape.layer_norm(tokens, shape.hidden, needed);
  }
}

// A layer's Linear as a module, with its adapter: that is PEFT's module around it, with the Linear,
// the (absent) dropout, A and B as modules below.
struct Linear {
  const char* name;
  std::int64_t in, out;
  bool bias;
  Tape::Input input;
  int borders = 1;     // modules entered since the one before
  bool needed = true;  // its input has a gradient
};
// Whether its result has one.
bool linear(Tape& tape, const Shape& shape, std::int64_t tokens, const Linear& l) {
  const std::string name = l.name;
  const std::int64_t rank = shape.adapters.on(name) ? shape.adapters.rank : 0;
  std::vector<std::int64_t> elements{l.in * l.out};
  if (l.bias) {
    elements.push_back(l.out);
  }
  tape.module(rank > 0 ? name + ".base_layer" : name, std::move(elements),
              l.borders + (rank > 0 ? 1 : 0));
  tape.linear(tokens, l.in, l.out, l.bias, l.input, l.needed);
  if (rank > 0) {
    tape.module(name + ".lora_A.default", {rank * l.in}, 2);
    tape.adapter_down(tokens, l.in, rank, l.needed);
    tape.module(name + ".lora_B.default", {rank * l.out});
    tape.adapter_up(tokens, rank, l.out);
  }
  return l.needed || rank > 0;
}

void head_norm(Tape& tape, const char* name, std::int64_t rows, std::int64_t width, bool needed) {
  tape.module(name, {width});
  tape.rms_norm(rows, width, needed, true);
}

// `needed`: the layer's input has a gradient. Its result has one, since an attention projection is
// adapted if anything is.
void attention_block(Tape& tape, const Shape& shape, Batch batch, bool needed) {
  using Input = Tape::Input;
  const std::int64_t tokens = batch.tokens();
  const std::int64_t q = shape.query_width();
  const std::int64_t kv = shape.kv_width();
  const std::int64_t h = shape.hidden;
  const bool gpt2 = shape.architecture == Architecture::kGpt2;
  const bool bias = shape.qkv_bias;
  bool q_needed = true, k_needed = true;
  norm(tape, shape, tokens, gpt2 ? "ln_1" : "input_layernorm", 2, needed);  // the layer and it
  if (shape.fused_qkv) {
    linear(tape, shape, tokens, {"c_attn", h, q + 2 * kv, bias, Input::kWide, 2, needed});
    tape.split(tokens * (q + 2 * kv));
  } else {
    q_needed = linear(tape, shape, tokens, {"q_proj", h, q, bias, Input::kWide, 2, needed});
    k_needed = linear(tape, shape, tokens, {"k_proj", h, kv, bias, Input::kWideAgain, 1, needed});
    linear(tape, shape, tokens, {"v_proj", h, kv, bias, Input::kWideAgain, 1, needed});
  }
  if (shape.qk_norm) {
    head_norm(tape, "q_norm", tokens * shape.heads, shape.head_dim, q_needed);
    head_norm(tape, "k_norm", tokens * shape.kv_heads, shape.head_dim, k_needed);
  }
  if (shape.positions == 0) {
    const std::int64_t table = batch.sequence * shape.head_dim;
    tape.rotary(tokens * q, table, q_needed);
    tape.rotary(tokens * kv, table, k_needed);
  }
  tape.attention(batch, shape.heads, shape.kv_heads, shape.head_dim);
  linear(tape, shape, tokens,
         {gpt2 ? "attn.c_proj" : "o_proj", q, h, shape.output_bias, Input::kKept});
  tape.residual_add(tokens * h, needed);
}

void mlp_block(Tape& tape, const Shape& shape, std::int64_t tokens) {
  using Input = Tape::Input;
  const std::int64_t h = shape.hidden, f = shape.ffn;
  const bool gpt2 = shape.architecture == Architecture::kGpt2;
  const bool bias = shape.mlp_bias;
  norm(tape, shape, tokens, gpt2 ? "ln_2" : "post_attention_layernorm", 1);
  linear(tape, shape, tokens, {gpt2 ? "c_fc" : "gate_proj", h, f, bias, Input::kWide, 2});
  if (shape.gated_mlp) {  // up_proj comes after the activation function, a module too
    linear(tape, shape, tokens, {"up_proj", h, f, bias, Input::kWideAgain, 2});
    tape.silu_and_product(tokens * f);
  } else {
    tape.gelu_new(tokens * f);
  }
  linear(tape, shape, tokens, {gpt2 ? "mlp.c_proj" : "down_proj", f, h, bias, Input::kNarrow});
  tape.residual_add(tokens * h);
}

void mixture_block(Tape& tape, const Shape& shape, std::int64_t tokens) {
  using Input = Tape::Input;
  const Experts& e = *shape.experts;
  const std::int64_t h = shape.hidden;
  const bool mixtral = shape.architecture == Architecture::kMixtral;
  norm(tape, shape, tokens, "post_attention_layernorm", 1);
  if (e.shared > 0) {
    const std::int64_t f = e.shared;
    linear(tape, shape, tokens, {"shared_expert.gate_proj", h, f, false, Input::kWide, 3});
    linear(tape, shape, tokens, {"shared_expert.up_proj", h, f, false, Input::kWideAgain, 2});
    tape.silu_and_product(tokens * f);
    linear(tape, shape, tokens, {"shared_expert.down_proj", f, h, false, Input::kNarrow});
  }
  tape.module("mlp.gate", {e.count * h}, e.shared > 0 ? 1 : 2);
  tape.route(tokens, h, e, e.shared == 0, mixtral);
  tape.module("mlp.experts", {e.count * 2 * e.width * h, e.count * h * e.width});
  tape.experts(tokens, h, e, mixtral);
  if (e.shared > 0) {
    linear(tape, shape, tokens, {"shared_expert_gate", h, 1, false, Input::kWideAgain});
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
  // A quantised weight as 16-bit numbers; of 8 bits forward the 32-bit product instead.
  const Base base = shape.adapters.base;
  const std::int64_t weight = base == Base::k16Bit ? 0 : tape.act() * shape.hidden * shape.ffn;
  const std::int64_t forward = base == Base::kInt8 ? 4 * tokens * shape.ffn : weight;
  // While the MLP's backward runs: the gradients of the product, gate and up, beside the
  // residual's.
  return {2 * hidden + forward, alive * wide_mlp + 3 * hidden + forward,
          3 * wide_mlp + hidden + weight};
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

// `needed`: its input has a gradient; `kind` of the names of what it launches backward.
Piece layer_piece(const Shape& shape, Batch batch, Numerics numerics, bool needed,
                  const std::string& kind, Bytes& cast, Work& recompute) {
  Tape tape(numerics, shape.adapters);
  attention_block(tape, shape, batch, needed);
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
  piece.modules = tape.modules(kind);
  recompute = named("layer recompute", tape.recompute());
  piece.forward = named("layer forward", tape.take_forward());
  piece.backward = named((kind + "layer backward").c_str(), tape.take_backward());
  return piece;
}

Piece head_piece(const Shape& shape, Batch batch, Numerics numerics, Bytes& cast) {
  const std::int64_t tokens = batch.tokens();
  Adapters adapters = shape.adapters;
  adapters.base = Base::k16Bit;  // the head is not quantised
  Tape tape(numerics, adapters);
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
  Tape tape(numerics, shape.adapters);
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

Pieces pieces(const Shape& shape, Batch batch, Numerics numerics, bool input_gradients) {
  SIM_ASSERT(batch.samples > 0 && batch.sequence > 0, "a micro-batch has tokens");
  Pieces p;
  p.embedding = embedding_piece(shape, batch, numerics);
  p.layer = layer_piece(shape, batch, numerics, true, "", p.cast_layer, p.recompute);
  p.first_layer = p.layer;
  if (shape.adapters.any() && !input_gradients) {
    Bytes same_cast;
    Work same_recompute;
    p.first_layer = layer_piece(shape, batch, numerics, false, "first ", same_cast, same_recompute);
  }
  p.head = head_piece(shape, batch, numerics, p.cast_head);
  p.hidden = Bytes(Tape(numerics, shape.adapters).residual() * batch.tokens() * shape.hidden);
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
