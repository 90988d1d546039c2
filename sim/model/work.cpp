#include "sim/model/work.h"

#include <algorithm>
#include <map>
#include <utility>

#include "sim/base/error.h"
#include "sim/model/layout.h"
#include "sim/model/peaks.h"
#include "sim/model/tape.h"

namespace offsim::model {

namespace {

Work named(const char* name, std::vector<Kernel> kernels) { return {name, std::move(kernels)}; }

void any_rms_norm(Tape& tape, const Shape& shape, std::int64_t rows, std::int64_t width,
                  bool needed, bool narrow) {
  tape.rms_norm(rows, width, needed, narrow, shape.norm != Norm::kRms);
  if (shape.norm == Norm::kRmsOnePlus) {
    tape.one_plus_weight();
  }
}

// Over rows of h, of the residual stream; `narrow`: of a product's result.
void norm(Tape& tape, const Shape& shape, std::int64_t tokens, const std::string& name, int borders,
          bool needed = true, bool narrow = false) {
  const bool bias = shape.norm == Norm::kLayer;
  tape.module(name, std::vector<std::int64_t>(bias ? 2 : 1, shape.hidden), borders);
  if (bias) {
    tape.layer_norm(tokens, shape.hidden, needed);
  } else {
    any_rms_norm(tape, shape, tokens, shape.hidden, needed, narrow);
  }
}

void norm(Tape& tape, const Shape& shape, std::int64_t tokens, Part part, int borders,
          bool needed = true) {
  norm(tape, shape, tokens, layout(shape).module_name(part), borders, needed);
}

// Of what attention or the MLP adds.
void result_norm(Tape& tape, const Shape& shape, std::int64_t tokens, Part part) {
  if (shape.result_norms) {
    norm(tape, shape, tokens, layout(shape).module_name(part), 1, true, true);
  }
}

// A layer's Linear as a module, with its adapter: that is PEFT's module around it, with the Linear,
// the (absent) dropout, A and B as modules below.
struct Linear {
  std::string name;
  std::int64_t in, out;
  bool bias;
  Tape::Input input;
  int borders = 1;     // modules entered since the one before
  bool needed = true;  // its input has a gradient
  Part part = Part::kNone;
};
// Whether its result has one.
bool linear(Tape& tape, const Shape& shape, std::int64_t tokens, const Linear& l) {
  const std::string& name = l.name;
  const std::int64_t rank = shape.adapters.on(name) ? shape.adapters.rank : 0;
  std::vector<std::int64_t> elements{l.in * l.out};
  if (l.bias) {
    elements.push_back(l.out);
  }
  tape.module(rank > 0 ? name + ".base_layer" : name, std::move(elements),
              l.borders + (rank > 0 ? 1 : 0), false, l.part);
  tape.linear(tokens, l.in, l.out, l.bias, l.input, l.needed);
  if (rank > 0) {
    tape.module(name + ".lora_A.default", {rank * l.in}, 2);
    tape.adapter_down(tokens, l.in, rank, l.needed);
    tape.module(name + ".lora_B.default", {rank * l.out});
    tape.adapter_up(tokens, rank, l.out);
  }
  return l.needed || rank > 0;
}

// A Linear of a layer by its part.
bool linear(Tape& tape, const Shape& shape, std::int64_t tokens, Part part, Linear l) {
  l.name = layout(shape).module_name(part);
  l.part = part;
  return linear(tape, shape, tokens, l);
}

void head_norm(Tape& tape, const Shape& shape, const char* name, std::int64_t rows,
               std::int64_t width, bool needed) {
  tape.module(name, {width});
  any_rms_norm(tape, shape, rows, width, needed, true);
}

// Queries or keys of `heads` heads.
void turn(Tape& tape, const Shape& shape, Batch batch, std::int64_t heads, bool needed) {
  const std::int64_t turned = shape.turned(), rows = batch.tokens() * heads;
  if (turned > 0) {
    tape.rotary(rows * turned, batch.sequence * turned, needed);
  }
  if (turned > 0 && turned < shape.head_dim) {
    tape.rejoin(rows * shape.head_dim, needed);
  }
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
  turn(tape, shape, batch, shape.heads, q_needed);
  turn(tape, shape, batch, shape.kv_heads, k_needed);
  if (shape.writes_scores()) {
    tape.attention_with_scores(batch,
                               {.count = shape.heads,
                                .kv_count = shape.kv_heads,
                                .width = shape.head_dim,
                                .value_width = shape.head_dim,
                                .value_held = kv},
                               shape.capped_scores, shape.scores == Scores::kWrittenWide);
    return;
  }
  const bool copies = shape.scores == Scores::kFusedOfCopies && shape.kv_heads < shape.heads;
  if (copies) {
    tape.copy_to_heads(q, kv);
  }
  tape.attention(batch, {.count = shape.heads,
                         .kv_count = copies ? shape.heads : shape.kv_heads,
                         .width = shape.head_dim,
                         .value_width = shape.head_dim,
                         .value_held = copies ? q : kv});
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
    head_norm(tape, shape, "q_a_layernorm", tokens, of.q_rank, true);
    linear(tape, shape, tokens, {"q_b_proj", of.q_rank, q, false, Input::kWide});
  }
  linear(tape, shape, tokens,
         {"kv_a_proj_with_mqa", h, of.kv_rank + of.rotary, shape.qkv_bias, Input::kWideAgain, 1,
          needed});
  head_norm(tape, shape, "kv_a_layernorm", tokens, of.kv_rank, true);
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
    linear(tape, shape, tokens, Part::kQkv, {"", h, q + 2 * kv, bias, Input::kWide, 2, needed});
    tape.split(tokens * (q + 2 * kv));
  } else {
    if (shape.sinks) {  // the attention's own parameter, which its operations read
      tape.module("self_attn.sinks", {shape.heads});
    }
    const int borders = shape.sinks ? 1 : 2;
    q_needed =
        linear(tape, shape, tokens, Part::kQ, {"", h, q, bias, Input::kWide, borders, needed});
    k_needed =
        linear(tape, shape, tokens, Part::kK, {"", h, kv, bias, Input::kWideAgain, 1, needed});
    linear(tape, shape, tokens, Part::kV, {"", h, kv, bias, Input::kWideAgain, 1, needed});
  }
  if (shape.qk_norm) {
    head_norm(tape, shape, "q_norm", tokens * shape.heads, shape.head_dim, q_needed);
    head_norm(tape, shape, "k_norm", tokens * shape.kv_heads, shape.head_dim, k_needed);
  }
  attention(tape, shape, batch, q_needed, k_needed);
}

// `needed`: the layer's input has a gradient. Its result has one, since an attention projection is
// adapted if anything is. Of layers whose parts stand side by side the additions come last.
void attention_block(Tape& tape, const Shape& shape, Batch batch, bool needed) {
  const std::int64_t tokens = batch.tokens();
  if (!shape.norms_behind) {
    norm(tape, shape, tokens, Part::kAttentionNorm, 2, needed);  // the layer and it
  }
  if (shape.latent) {
    latent_attention(tape, shape, batch, needed);
  } else {
    grouped_attention(tape, shape, batch, needed);
  }
  linear(tape, shape, tokens, Part::kOut,
         {"", shape.value_width(), shape.hidden, shape.output_bias,
          shape.writes_scores() ? Tape::Input::kNarrow : Tape::Input::kKept});
  result_norm(tape, shape, tokens, Part::kAttentionResultNorm);
  if (!shape.parallel) {
    tape.residual_add(tokens * shape.hidden, needed);
  }
  if (shape.norms_behind) {
    norm(tape, shape, tokens, Part::kAttentionNorm, 1);
  }
}

void mlp_block(Tape& tape, const Shape& shape, std::int64_t f, std::int64_t tokens, bool needed) {
  using Input = Tape::Input;
  const std::int64_t h = shape.hidden;
  const bool bias = shape.mlp_bias;
  const bool reached = needed || !shape.parallel;  // its input has a gradient
  if (!shape.one_norm && !shape.norms_behind) {
    norm(tape, shape, tokens, Part::kMlpNorm, 1, reached);
  }
  const Input input = shape.one_norm ? Input::kWideAgain : Input::kWide;
  if (shape.fused_gate_up) {
    linear(tape, shape, tokens, Part::kGateUp, {"", h, 2 * f, bias, input, 2, reached});
    tape.split(2 * tokens * f);
  } else {
    linear(tape, shape, tokens, Part::kGate, {"", h, f, bias, input, 2, reached});
  }
  if (has(shape, Part::kUp)) {  // it comes after the activation function, a module too
    linear(tape, shape, tokens, Part::kUp, {"", h, f, bias, Input::kWideAgain, 2, reached});
  }
  shape.gated_mlp ? tape.silu_and_product(tokens * f)
                  : tape.activation(tokens * f, shape.activation);
  linear(tape, shape, tokens, Part::kDown,
         {"", f, h, bias, shape.activation == Activation::kRelu ? Input::kKept : Input::kNarrow});
  result_norm(tape, shape, tokens, Part::kMlpResultNorm);
  if (shape.parallel) {  // what both add; behind one norm their gradients meet before it
    tape.residual_add(tokens * h, needed && !shape.one_norm);
  }
  tape.residual_add(tokens * h, reached);
  if (shape.norms_behind) {
    norm(tape, shape, tokens, Part::kMlpNorm, 1);
  }
}

// `name`: of the module. `input`: of its gate, which is the first to keep the norm's result or not.
// `borders`: modules entered before that gate.
void shared_expert(Tape& tape, const Shape& shape, const std::string& name, std::int64_t f,
                   std::int64_t tokens, Tape::Input input, int borders) {
  using Input = Tape::Input;
  const std::int64_t h = shape.hidden;
  const bool bias = shape.mlp_bias;
  const std::string gate = name + ".gate_proj", up = name + ".up_proj", down = name + ".down_proj";
  linear(tape, shape, tokens, {gate, h, f, bias, input, borders});
  linear(tape, shape, tokens, {up, h, f, bias, Input::kWideAgain, 2});
  tape.silu_and_product(tokens * f);
  linear(tape, shape, tokens, {down, f, h, bias, Input::kNarrow});
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
  norm(tape, shape, tokens, Part::kMlpNorm, 1);
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
    mlp_block(tape, shape, kind.ffn, batch.tokens(), where.needed);
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
  const Layout& names = layout(shape);
  const std::string final_norm(names.final_norm);
  if (shape.final_norm) {
    norm(tape, shape, tokens, final_norm, 1);
  } else {
    tape.module(final_norm, {});  // not there
  }
  const std::int64_t width = shape.embedding_width();
  if (shape.embedded > 0) {
    tape.module("decoder.project_out", {shape.embedded * shape.hidden});
    tape.linear(tokens, shape.hidden, shape.embedded, false, Tape::Input::kWide);
  }
  std::vector<std::int64_t> elements{shape.vocabulary * width};
  if (shape.head_bias) {
    elements.push_back(shape.vocabulary);
  }
  tape.module(std::string(names.head), std::move(elements), 1, shape.tied);
  tape.linear(tokens, width, shape.vocabulary, shape.head_bias,
              shape.embedded > 0 ? Tape::Input::kNarrow : Tape::Input::kWide);
  if (shape.capped_logits) {
    tape.cap(tokens * shape.vocabulary);
  }
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
  const Layout& names = layout(shape);
  const std::int64_t tokens = batch.tokens(), width = shape.embedding_width();
  // A position table is a module of its own; its work is the token table's.
  if (shape.positions > 0) {
    tape.module(std::string(names.positions), {shape.positions * shape.hidden}, 1);
  }
  tape.module(std::string(names.embedding), {shape.vocabulary * width}, 3);
  tape.embedding(tokens, width, shape.vocabulary, shape.positions > 0);
  if (shape.embedded > 0) {
    tape.module("decoder.project_in", {shape.hidden * shape.embedded});
    tape.linear(tokens, shape.embedded, shape.hidden, false, Tape::Input::kNarrow);
  }
  if (shape.scaled_embedding) {
    tape.scale(tokens * shape.hidden);
  }
  if (shape.embedding_norm) {
    norm(tape, shape, tokens, std::string(names.embedding_norm), 1, !shape.adapters.any());
  }
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
