#include "sim/model/work.h"

#include <algorithm>
#include <map>
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
    const bool late = shape.architecture == Architecture::kGptOss;
    tape.rms_norm(tokens, shape.hidden, needed, false, late);
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

// Queries and keys turned by positions, scores, their sum of values.
void attention(Tape& tape, const Shape& shape, Batch batch, bool q_needed, bool k_needed) {
  const std::int64_t tokens = batch.tokens(), table = batch.sequence * shape.head_dim;
  const std::int64_t q = tokens * shape.query_width(), kv = tokens * shape.kv_width();
  if (shape.sinks) {
    tape.rotary_halves(q, table, false, q_needed);
    tape.rotary_halves(kv, table, false, k_needed);
    tape.attention_with_sinks(batch, shape.heads, shape.kv_heads, shape.head_dim, k_needed);
    return;
  }
  if (shape.positions == 0) {
    tape.rotary(q, table, q_needed);
    tape.rotary(kv, table, k_needed);
  }
  tape.attention(batch, {.count = shape.heads,
                         .kv_count = shape.kv_heads,
                         .width = shape.head_dim,
                         .value_width = shape.head_dim,
                         .value_held = kv});
}

// What q, k and v are made of is adapted if anything is.
void latent_attention(Tape& tape, const Shape& shape, Batch batch, bool needed) {
  using Input = Tape::Input;
  const Latent& of = *shape.latent;
  const std::int64_t tokens = batch.tokens(), h = shape.hidden, q = shape.query_width();
  const std::int64_t kv = shape.heads * of.plain + shape.value_width();
  if (of.q_rank == 0) {
    linear(tape, shape, tokens, {"q_proj", h, q, false, Input::kWide, 2, needed});
  } else {
    linear(tape, shape, tokens,
           {"q_a_proj", h, of.q_rank, shape.qkv_bias, Input::kWide, 2, needed});
    head_norm(tape, "q_a_layernorm", tokens, of.q_rank, true);
    linear(tape, shape, tokens, {"q_b_proj", of.q_rank, q, false, Input::kWide});
  }
  linear(tape, shape, tokens,
         {"kv_a_proj_with_mqa", h, of.kv_rank + of.rotary, shape.qkv_bias, Input::kWideAgain, 1,
          needed});
  head_norm(tape, "kv_a_layernorm", tokens, of.kv_rank, true);
  linear(tape, shape, tokens, {"kv_b_proj", of.kv_rank, kv, false, Input::kWide});
  tape.latent_heads(batch, shape.heads, shape.value_dim, of,
                    shape.architecture == Architecture::kDeepseekV2);
  tape.attention(batch, {.count = shape.heads,
                         .kv_count = shape.heads,
                         .width = shape.head_dim,
                         .value_width = shape.value_dim,
                         .value_held = tokens * kv});
}

void grouped_attention(Tape& tape, const Shape& shape, Batch batch, bool needed) {
  using Input = Tape::Input;
  const std::int64_t tokens = batch.tokens();
  const std::int64_t q = shape.query_width(), kv = shape.kv_width(), h = shape.hidden;
  const bool bias = shape.qkv_bias;
  bool q_needed = true, k_needed = true;
  if (shape.fused_qkv) {
    linear(tape, shape, tokens, {"c_attn", h, q + 2 * kv, bias, Input::kWide, 2, needed});
    tape.split(tokens * (q + 2 * kv));
  } else {
    if (shape.sinks) {  // the attention's own parameter, which its operations read
      tape.module("self_attn.sinks", {shape.heads});
    }
    const int borders = shape.sinks ? 1 : 2;
    q_needed = linear(tape, shape, tokens, {"q_proj", h, q, bias, Input::kWide, borders, needed});
    k_needed = linear(tape, shape, tokens, {"k_proj", h, kv, bias, Input::kWideAgain, 1, needed});
    linear(tape, shape, tokens, {"v_proj", h, kv, bias, Input::kWideAgain, 1, needed});
  }
  if (shape.qk_norm) {
    head_norm(tape, "q_norm", tokens * shape.heads, shape.head_dim, q_needed);
    head_norm(tape, "k_norm", tokens * shape.kv_heads, shape.head_dim, k_needed);
  }
  attention(tape, shape, batch, q_needed, k_needed);
}

// `needed`: the layer's input has a gradient. Its result has one, since an attention projection is
// adapted if anything is.
void attention_block(Tape& tape, const Shape& shape, Batch batch, bool needed) {
  const std::int64_t tokens = batch.tokens();
  const bool gpt2 = shape.architecture == Architecture::kGpt2;
  norm(tape, shape, tokens, gpt2 ? "ln_1" : "input_layernorm", 2, needed);  // the layer and it
  if (shape.latent) {
    latent_attention(tape, shape, batch, needed);
  } else {
    grouped_attention(tape, shape, batch, needed);
  }
  linear(tape, shape, tokens,
         {gpt2 ? "attn.c_proj" : "o_proj", shape.value_width(), shape.hidden, shape.output_bias,
          shape.sinks ? Tape::Input::kNarrow : Tape::Input::kKept});
  tape.residual_add(tokens * shape.hidden, needed);
}

void mlp_block(Tape& tape, const Shape& shape, std::int64_t f, std::int64_t tokens) {
  using Input = Tape::Input;
  const std::int64_t h = shape.hidden;
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

// `name`: of the module. `input`: of its gate, which is the first to keep the norm's result or not.
// `borders`: modules entered before that gate.
void shared_expert(Tape& tape, const Shape& shape, const std::string& name, std::int64_t f,
                   std::int64_t tokens, Tape::Input input, int borders) {
  using Input = Tape::Input;
  const std::int64_t h = shape.hidden;
  const bool bias = shape.mlp_bias;
  const std::string gate = name + ".gate_proj", up = name + ".up_proj", down = name + ".down_proj";
  linear(tape, shape, tokens, {gate.c_str(), h, f, bias, input, borders});
  linear(tape, shape, tokens, {up.c_str(), h, f, bias, Input::kWideAgain, 2});
  tape.silu_and_product(tokens * f);
  linear(tape, shape, tokens, {down.c_str(), f, h, bias, Input::kNarrow});
}

void all_experts(Tape& tape, const Shape& shape, const Experts& e, std::int64_t tokens, bool wide) {
  const std::int64_t h = shape.hidden;
  std::vector<std::int64_t> elements{e.count * 2 * e.width * h, e.count * h * e.width};
  if (e.bias) {
    elements = {elements[0], e.count * 2 * e.width, elements[1], e.count * h};
  }
  tape.module("mlp.experts", std::move(elements));
  tape.experts(tokens, h, e, wide);
}

// Its router, the experts, then the shared one.
void deepseek_mixture(Tape& tape, const Shape& shape, const Experts& e, std::int64_t tokens) {
  const std::int64_t h = shape.hidden;
  tape.module("mlp.gate", {e.count * h}, 2);
  tape.route_wide(tokens, h, e, shape.architecture == Architecture::kDeepseekV3);
  all_experts(tape, shape, e, tokens, true);
  const bool router_has_a_copy = tape.residual() == 2;
  shared_expert(tape, shape, "shared_experts", e.shared, tokens,
                router_has_a_copy ? Tape::Input::kWide : Tape::Input::kWideAgain, 2);
  tape.add_to_experts(tokens * h);
}

void mixture_block(Tape& tape, const Shape& shape, const Experts& e, std::int64_t tokens) {
  const std::int64_t h = shape.hidden;
  const bool mixtral = shape.architecture == Architecture::kMixtral;
  norm(tape, shape, tokens, "post_attention_layernorm", 1);
  if (shape.latent) {
    deepseek_mixture(tape, shape, e, tokens);
  } else if (shape.architecture == Architecture::kGptOss) {
    tape.module("mlp.router", {e.count * h, e.count}, 2);
    tape.route_best(tokens, h, e);
    all_experts(tape, shape, e, tokens, false);
  } else {
    if (e.shared > 0) {
      shared_expert(tape, shape, "shared_expert", e.shared, tokens, Tape::Input::kWide, 3);
    }
    tape.module("mlp.gate", {e.count * h}, e.shared > 0 ? 1 : 2);
    tape.route(tokens, h, e, e.shared == 0, mixtral);
    all_experts(tape, shape, e, tokens, mixtral);
    if (e.shared > 0) {
      linear(tape, shape, tokens, {"shared_expert_gate", h, 1, false, Tape::Input::kWideAgain});
      tape.gate_and_add(tokens, tokens * h);
    }
  }
  tape.residual_add(tokens * h);
}

struct Peaks {
  std::int64_t forward_extra, forward_alone, backward_extra;
};

Peaks mlp_peaks(const Tape& tape, const Shape& shape, std::int64_t ffn, std::int64_t tokens) {
  const std::int64_t wide_mlp = tape.act() * tokens * ffn;
  const std::int64_t hidden = tape.residual() * tokens * shape.hidden;
  // While the MLP runs: gated, silu(gate), up and their product; else the products of gelu_new. Its
  // input and the residual.
  const std::int64_t alive = shape.gated_mlp ? 3 : (tape.residual() > tape.act() ? 7 : 4);
  // A quantised weight as 16-bit numbers; of 8 bits forward the 32-bit product instead.
  const Base base = shape.adapters.base;
  const std::int64_t weight = base == Base::k16Bit ? 0 : tape.act() * shape.hidden * ffn;
  const std::int64_t forward = base == Base::kInt8 ? 4 * tokens * ffn : weight;
  // While the MLP's backward runs: the gradients of the product, gate and up, beside the
  // residual's.
  return {2 * hidden + forward, alive * wide_mlp + 3 * hidden + forward,
          3 * wide_mlp + hidden + weight};
}

Peaks mixture_peaks(const Tape& tape, const Shape& shape, const Experts& e, std::int64_t tokens) {
  const std::int64_t hidden = tape.residual() * tokens * shape.hidden;
  const std::int64_t rows = e.per_token * hidden;
  const std::int64_t wide = tape.residual() * tokens * e.per_token * e.width;
  const bool widens =
      (shape.architecture == Architecture::kMixtral || shape.latent) && tape.residual() == 2;
  const std::int64_t weighted = (widens ? 2 : 1) * rows;
  // Weighted rows and their order back; that, or both halves twice (cleared is a copy; gpt_oss's
  // activation has more), beside the sorted rows. Backward likewise.
  const std::int64_t last = 2 * weighted;
  const std::int64_t forward = e.bias ? 7 : 4, backward = e.bias ? 6 : 4;
  // Of frozen experts the sorted rows and the activation's result are there, but nobody saves them.
  const std::int64_t unsaved =
      shape.adapters.any() ? rows + std::max<std::int64_t>(wide - last, 0) : 0;
  return {2 * hidden + unsaved + last, std::max(forward * wide, rows + last) + rows + 3 * hidden,
          std::max(backward * wide, rows + last) + hidden};
}

// The same of the attention, beside what it saves itself. The usual one's stays below the MLP's.
Peaks attention_peaks(const Tape& tape, const Shape& shape, Batch batch) {
  const std::int64_t tokens = batch.tokens();
  const std::int64_t hidden = tape.residual() * tokens * shape.hidden;
  const std::int64_t q = tokens * shape.query_width();
  if (shape.latent) {
    const std::int64_t kv = tokens * (shape.heads * shape.latent->plain + shape.value_width());
    const std::int64_t value = tape.act() * tokens * shape.value_width();
    // The product of q, which is split and joined; both joined in fp32 under autocast. All of these
    // with k's and v's and the result. Gradients of q, k and v, and k's and v's joined and copied.
    const std::int64_t wide =
        tape.act() < tape.residual() && shape.architecture == Architecture::kDeepseekV3 ? 8 * q : 0;
    const std::int64_t extra = 2 * hidden + tape.act() * q + wide;
    return {extra, extra + tape.act() * (2 * q + kv) + value,
            hidden + 2 * tape.act() * (q + kv) + value};
  }
  if (shape.sinks) {
    const std::int64_t rows = tokens * shape.heads;
    // Masked scores, and these with the sinks, beside the probabilities; three of them backward.
    const std::int64_t scores = tape.residual() * rows * (batch.sequence + 1);
    const std::int64_t heads = 4 * tape.residual() * q;
    return {2 * hidden + 2 * scores, 2 * hidden + 3 * scores + heads, hidden + 3 * scores};
  }
  return {};
}

// Of the layer: each part's is beside what is saved by then.
Peaks largest(const Peaks& attention, const Peaks& mlp, std::int64_t saved_by_attention,
              std::int64_t saved) {
  const std::int64_t less = saved - saved_by_attention;
  return {std::max(mlp.forward_extra, attention.forward_extra - less),
          std::max(mlp.forward_alone, attention.forward_alone),
          std::max(mlp.backward_extra, attention.backward_extra - less)};
}

// Where the layer stands. `needed`: its input has a gradient.
struct Where {
  std::int64_t layer;
  bool needed;
};

// Works of layers that differ have names that do.
Piece layer_piece(const Shape& shape, Where where, Batch batch, Numerics numerics) {
  const LayerKind& kind = shape.kind(where.layer);
  Tape tape(numerics, shape.adapters);
  attention_block(tape, shape, batch, where.needed);
  const std::int64_t saved_by_attention = tape.saved();
  const Peaks attention = attention_peaks(tape, shape, batch);
  Peaks mlp{};
  if (kind.experts) {
    mixture_block(tape, shape, *kind.experts, batch.tokens());
    mlp = mixture_peaks(tape, shape, *kind.experts, batch.tokens());
  } else {
    mlp_block(tape, shape, kind.ffn, batch.tokens());
    mlp = mlp_peaks(tape, shape, kind.ffn, batch.tokens());
  }
  const Peaks peaks = largest(attention, mlp, saved_by_attention, tape.saved());
  Piece piece;
  piece.saved = Bytes(tape.saved());
  piece.cast = Bytes(tape.cast_weights());
  piece.forward_extra = Bytes(peaks.forward_extra);
  piece.forward_alone = Bytes(peaks.forward_alone);
  piece.backward_extra = Bytes(peaks.backward_extra);
  const std::string dense = shape.has_experts() && !kind.experts ? "dense " : "";
  const std::string first = where.needed ? "" : "first ";
  piece.modules = tape.modules(first);
  piece.recompute = {dense + "layer recompute", tape.recompute()};
  piece.forward = {dense + "layer forward", tape.take_forward()};
  piece.backward = {first + dense + "layer backward", tape.take_backward()};
  return piece;
}

Piece head_piece(const Shape& shape, Batch batch, Numerics numerics) {
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
  piece.cast = Bytes(tape.cast_weights());
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
      return Flops(d(batch) * d(heads) * d(sequence) * d(sequence) *
                   (backward ? 3 * d(head_dim) + 2 * d(value_dim) : d(head_dim) + d(value_dim)) *
                   count);
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
  std::map<std::pair<std::size_t, bool>, std::size_t> known;  // kind and whether its input needs
  for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
    const bool needed = layer > 0 || !shape.adapters.any() || input_gradients;
    const auto [at, fresh] = known.try_emplace({shape.kind_index(layer), needed}, known.size());
    if (fresh) {
      p.layers.push_back(layer_piece(shape, {layer, needed}, batch, numerics));
    }
    p.piece_of.push_back(at->second);
  }
  p.head = head_piece(shape, batch, numerics);
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
