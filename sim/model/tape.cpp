#include "sim/model/tape.h"

#include <algorithm>

namespace offsim::model {

void Tape::module(std::string name, std::vector<std::int64_t> elements, std::int32_t borders,
                  bool tied, Part part) {
  Module module;
  module.name = std::move(name);
  module.elements = std::move(elements);
  module.borders = borders;
  module.tied = tied;
  module.part = part;
  marks_.push_back({std::move(module), forward_.size(), backward_.size(), tensors_.size()});
}

std::vector<Module> Tape::modules(const std::string& kind) const {
  const auto part = [](const auto& list, std::size_t from, std::size_t to) {
    const auto at = [&](std::size_t i) { return list.begin() + static_cast<std::ptrdiff_t>(i); };
    return std::vector(at(std::min(from, to)), at(to));
  };
  std::vector<Module> modules;
  for (std::size_t i = 0; i < marks_.size(); ++i) {
    const bool last = i + 1 == marks_.size();
    const std::size_t forward = last ? forward_.size() : marks_[i + 1].forward;
    const std::size_t backward = last ? backward_.size() : marks_[i + 1].backward;
    const std::size_t saved = last ? tensors_.size() : marks_[i + 1].saved;
    Module module = marks_[i].module;
    module.forward = {module.name + " forward", part(forward_, marks_[i].forward, forward)};
    module.recompute = {module.name + " recompute",
                        part(forward_, marks_[i].forward, std::min(forward, recompute_kernels_))};
    module.backward = {kind + module.name + " backward",
                       part(backward_, marks_[i].backward, backward)};
    module.saved = part(tensors_, marks_[i].saved, saved);
    modules.push_back(std::move(module));
  }
  return modules;
}

void Tape::stream(std::vector<Kernel>& list, std::int64_t bytes, int count) {
  list.push_back({.bytes = bytes, .count = count});
}

void Tape::indexed(std::vector<Kernel>& list, std::int64_t elements, std::int64_t bytes,
                   int count) {
  list.push_back({.bytes = bytes, .indexed = elements, .count = count});
}

void Tape::tiny(std::vector<Kernel>& list, int count) { list.push_back({.count = count}); }

void Tape::product(std::vector<Kernel>& list, std::int64_t m, std::int64_t n,
                   std::int64_t k) const {
  list.push_back(
      {.kind = Kernel::Kind::kGemm, .m = m, .n = n, .k = k, .wide = numerics_ == Numerics::kFp32});
}

void Tape::rms_norm(std::int64_t rows, std::int64_t width, bool needed, bool narrow, bool late) {
  const std::int64_t n = rows * width;
  const std::int64_t in = narrow ? act() : residual();
  // Forward: to fp32; square; mean; epsilon and rsqrt (a number a row); scale; back; times the
  // weight.
  if (in == 2) {
    indexed(forward_, n, 6 * n);
  }
  stream(forward_, 8 * n);
  stream(forward_, 4 * n);
  tiny(forward_, 2);
  indexed(forward_, n, 8 * n);
  const bool casts_last = late && in == 2;
  if (in == 2 && !casts_last) {
    stream(forward_, 6 * n);
  }
  const std::int64_t scaled = casts_last ? 4 : in;
  const bool autocast = in == 2 && numerics_ == Numerics::kAutocast;  // fp32 weight times 16-bit
  indexed(forward_, autocast || casts_last ? converting(n) : n, 2 * scaled * n);
  if (casts_last) {
    stream(forward_, 6 * n);
  }
  if (!needed) {
    return;
  }
  // The fp32 input (a copy of a 16-bit one) and, for the weight, the scaled value stay; one rsqrt a
  // row.
  save(4 * n);  // of the square, and again of the scaling
  save_again(4 * n);
  save(4 * rows);
  save_again(4 * rows);
  if (!frozen_) {
    save(scaled * n);
  }
  save_parameter(in * width);
  // Backward of the weight's product: both factors' gradients and the sum over rows.
  if (casts_last) {
    indexed(backward_, n, 6 * n);
  }
  indexed(backward_, n, 2 * scaled * n);
  if (!frozen_) {
    stream(backward_, 3 * scaled * n);
    stream(backward_, scaled * n);
  }
  if (in == 2 && !casts_last) {
    indexed(backward_, n, 6 * n);
  }
  // Of the scaling: times rsqrt, times x, sum a row; of rsqrt and mean; of the square: x, 2x, times
  // the gradient; their sum.
  indexed(backward_, n, 8 * n);
  stream(backward_, 12 * n);
  stream(backward_, 4 * n);
  tiny(backward_, 4);
  indexed(backward_, n, 4 * n);
  stream(backward_, 8 * n, 2);
  stream(backward_, 12 * n, 2);
  if (in == 2) {
    stream(backward_, 6 * n);
  }
}

void Tape::one_plus_weight() { tiny(forward_, 2); }

void Tape::layer_norm(std::int64_t rows, std::int64_t width, bool needed) {
  const std::int64_t n = rows * width;
  const std::int64_t in = residual();
  stream(forward_, 2 * in * n);
  if (!needed) {
    return;
  }
  save(in * n);
  save(4 * rows);
  save(4 * rows);
  save_parameter(in * width);
  save_parameter(in * width);
  stream(backward_, 3 * in * n);  // gradient of the input
  if (!frozen_) {
    stream(backward_, 2 * in * n, 2);  // of weight and bias
  }
}

void Tape::linear(std::int64_t rows, std::int64_t in, std::int64_t out, bool bias, Input input,
                  bool needed) {
  if (frozen_) {
    frozen_linear(rows, in, out, input, needed, base_);
    return;
  }
  const bool autocast = numerics_ == Numerics::kAutocast;
  const bool cast_input = autocast && input != Input::kNarrow && input != Input::kKept;
  if (autocast) {
    stream(forward_, 6 * in * out);
    cast_weights_ += 2 * in * out;
    tiny(forward_, bias ? 1 : 0);
  }
  if (cast_input) {
    stream(forward_, 6 * rows * in);
  }
  if (cast_input || (input != Input::kWideAgain && input != Input::kKept)) {
    save(act() * rows * in);
  } else {
    save_again(act() * rows * in);
  }
  save_again(act() * in * out);  // the weight, under autocast its copy
  recompute_kernels_ = forward_.size();
  product(forward_, rows, out, in);
  product(backward_, rows, in, out);  // of the input
  product(backward_, in, out, rows);  // of the weight
  if (bias) {
    stream(backward_, act() * rows * out);
  }
  if (autocast) {
    indexed(backward_, in * out, 6 * in * out);
    tiny(backward_, bias ? 1 : 0);
  }
  if (cast_input) {
    indexed(backward_, rows * in, 6 * rows * in);
  }
  if (input == Input::kWideAgain) {
    stream(backward_, 3 * residual() * rows * in);
  }
}

// Its own weight is all that its backward needs.
void Tape::frozen_linear(std::int64_t rows, std::int64_t in, std::int64_t out, Input input,
                         bool needed, Base base) {
  if (input != Input::kWideAgain) {
    input_saved_ = input == Input::kKept;
  }
  recompute_kernels_ = forward_.size();
  if (base == Base::kInt8) {
    stream(forward_, 2 * act() * rows * in);    // to fp16
    stream(forward_, (act() + 1) * rows * in);  // to 8 bits
    product(forward_, rows, out, in);           // into 32 bits
    indexed(forward_, rows * out, (4 + act()) * rows * out);
    stream(forward_, 2 * act() * rows * out);  // from fp16
  } else {
    dequantise(forward_, in * out, base);
    product(forward_, rows, out, in);
  }
  if (needed) {
    if (base == Base::k16Bit) {
      save_again(act() * in * out);
    }
    dequantise(backward_, in * out, base);
    product(backward_, rows, in, out);
    if (input == Input::kWideAgain) {
      stream(backward_, 3 * residual() * rows * in);
    }
  }
}

void Tape::dequantise(std::vector<Kernel>& list, std::int64_t elements, Base base) const {
  constexpr std::int64_t kBlock = 64;
  const std::int64_t blocks = elements / kBlock;
  switch (base) {
    case Base::k16Bit:
      return;
    case Base::kInt8:
      indexed(list, elements, (1 + act()) * elements);
      tiny(list, 1);
      indexed(list, elements, 2 * act() * elements);
      return;
    case Base::kNf4Double:
      stream(list, 5 * blocks);
      stream(list, 8 * blocks);
      break;
    case Base::kNf4:
      break;
  }
  stream(list, elements / 2 + 4 * blocks + act() * elements);
}

// Autocast's 16-bit copy of a matrix, and its gradient back in fp32.
void Tape::cast_adapter(std::int64_t elements) {
  if (wide_adapters_) {
    stream(forward_, 6 * elements);
    cast_weights_ += 2 * elements;
    indexed(backward_, elements, 6 * elements);
  }
}

void Tape::adapter_down(std::int64_t rows, std::int64_t in, std::int64_t rank, bool needed) {
  const std::int64_t n = rows * in;
  if (wide_adapters_) {  // PEFT casts the input to the adapter's fp32, autocast casts that back
    indexed(forward_, n, 6 * n);
    stream(forward_, 6 * n);
  }
  if (wide_adapters_ || !input_saved_) {
    save(act() * n);
    input_saved_ = !wide_adapters_;
  } else {
    save_again(act() * n);
  }
  if (needed) {
    save_again(act() * rank * in);
  }
  cast_adapter(rank * in);
  product(forward_, rows, rank, in);
  product(backward_, in, rank, rows);  // of A
  if (needed) {
    product(backward_, rows, in, rank);
    if (wide_adapters_) {
      indexed(backward_, n, 6 * n);
      stream(backward_, 6 * n);
    }
    // The frozen product has a gradient of the same input; so have the Linears before this one,
    // whose sums are counted where they begin.
    stream(backward_, 3 * residual() * n);
  }
}

void Tape::adapter_up(std::int64_t rows, std::int64_t rank, std::int64_t out) {
  save(act() * rows * rank);
  save_again(act() * rank * out);
  cast_adapter(rank * out);
  recompute_kernels_ = forward_.size();
  product(forward_, rows, out, rank);
  stream(forward_, 2 * act() * rows * out);  // scaled
  stream(forward_, 3 * act() * rows * out);  // added
  stream(backward_, 2 * act() * rows * out);
  product(backward_, rows, rank, out);
  product(backward_, rank, out, rows);  // of B
}

void Tape::split(std::int64_t n) { stream(backward_, 2 * act() * n); }

void Tape::rotary(std::int64_t n, std::int64_t table, bool needed) {
  const bool autocast = numerics_ == Numerics::kAutocast;  // the table is fp32 there
  const std::int64_t wide = autocast ? 4 : act();
  indexed(forward_, autocast ? converting(n) : n, (act() + wide) * n, 2);  // x cos, rotated sin
  indexed(forward_, n / 2, act() * n);                                     // -x2
  indexed(forward_, concatenating(n), 2 * act() * n);
  indexed(forward_, three_operands(n), 3 * wide * n);
  if (autocast) {
    stream(forward_, 6 * n);  // 16 bits for the attention kernel
    indexed(backward_, n, 6 * n);
    stream(backward_, 6 * n, 2);
  }
  if (!needed) {
    return;
  }
  save_again(wide * table);  // no memory of this layer
  save_again(wide * table);
  indexed(backward_, n, 2 * wide * n, 2);
  indexed(backward_, n / 2, act() * n);
  stream(backward_, act() * n, 2);          // zeros for both halves
  indexed(backward_, n / 2, act() * n, 2);  // the halves into them
  stream(backward_, 3 * act() * n);
  indexed(backward_, three_operands(n), 3 * act() * n);  // both paths of x
  indexed(backward_, n, 2 * act() * n);                  // into the layout of the projection
}

// The untouched elements are split off and joined behind the turned ones.
void Tape::rejoin(std::int64_t n, bool needed) {
  indexed(forward_, concatenating(n), 2 * act() * n);
  if (needed) {
    indexed(backward_, concatenating(n), 2 * act() * n);
  }
}

void Tape::attention(Batch batch, const Heads& heads) {
  Kernel kernel{.kind = Kernel::Kind::kAttention,
                .batch = batch.samples,
                .heads = heads.count,
                .kv_heads = heads.kv_count,
                .sequence = batch.sequence,
                .head_dim = heads.width,
                .value_dim = heads.value_width,
                .wide = numerics_ == Numerics::kFp32};
  forward_.push_back(kernel);
  kernel.backward = true;
  backward_.push_back(kernel);
  tiny(backward_, 2);  // its row sums and conversion, timed within the kernel
  const std::int64_t tokens = batch.tokens();
  save(act() * tokens * heads.width * heads.count);  // q, k, v
  save(act() * tokens * heads.width * heads.kv_count);
  saved_ += act() * heads.value_held;
  save_again(act() * tokens * heads.value_width * heads.kv_count);
  save(act() * tokens * heads.value_width * heads.count);  // the result
  save(4 * tokens * heads.count);                          // log-sum-exp
}

void Tape::residual_add(std::int64_t n, bool needed) {
  if (numerics_ == Numerics::kAutocast) {
    indexed(forward_, three_operands(n), 10 * n);
    stream(backward_, 6 * n);  // the branch's gradient back to 16 bits
  } else {
    stream(forward_, 3 * residual() * n);
  }
  if (needed) {
    stream(backward_, 3 * residual() * n);
  }
}

void Tape::silu_and_product(std::int64_t n) {
  stream(forward_, 2 * act() * n);
  stream(forward_, 3 * act() * n);
  for (int i = 0; i < 3; ++i) {  // gate, silu(gate), up; the product is saved by the next Linear
    save(act() * n);
  }
  stream(backward_, 3 * act() * n, 3);
}

void Tape::activation(std::int64_t n, Activation function) {
  const std::int64_t w = act();
  switch (function) {
    case Activation::kGeluNew:
      return gelu_new(n);
    case Activation::kGeluBloom:  // a function of its own: seven products and sums, x saved
      stream(forward_, 2 * w * n, 5);
      stream(forward_, 3 * w * n, 2);
      save(w * n);
      stream(backward_, 2 * w * n, 9);
      stream(backward_, 3 * w * n, 7);
      return;
    case Activation::kRelu:  // its backward reads its result
      stream(forward_, 2 * w * n);
      save(w * n);
      stream(backward_, 3 * w * n);
      return;
    case Activation::kSilu:
    case Activation::kGelu:
      stream(forward_, 2 * w * n);
      save(w * n);
      stream(backward_, 3 * w * n);
      return;
  }
}

void Tape::scale(std::int64_t n) {
  stream(forward_, 2 * residual() * n);
  if (!frozen_) {
    stream(backward_, 2 * residual() * n);
  }
}

void Tape::cap(std::int64_t n) {
  stream(forward_, 2 * act() * n, 3);
  save(act() * n);  // the tanh
  stream(backward_, 2 * act() * n, 2);
  stream(backward_, 3 * act() * n);
}

void Tape::gelu_new(std::int64_t n) {
  // 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) as separate operations; autocast computes
  // powers in fp32.
  const bool autocast = numerics_ == Numerics::kAutocast;
  const std::int64_t wide = autocast ? 4 : act();
  stream(forward_, 2 * act() * n);  // half of x
  if (autocast) {
    indexed(forward_, n, 6 * n);
  }
  stream(forward_, 2 * wide * n, 2);  // cube, its factor
  if (autocast) {
    indexed(forward_, three_operands(n), 10 * n);
  } else {
    stream(forward_, 3 * wide * n);
  }
  stream(forward_, 2 * wide * n, 3);  // factor, tanh, plus one
  if (autocast) {
    indexed(forward_, three_operands(n), 10 * n);
    stream(forward_, 6 * n);
  } else {
    stream(forward_, 3 * wide * n);
  }
  save(act() * n);               // half of x
  for (int i = 0; i < 3; ++i) {  // x for the cube, tanh, one plus tanh
    save(wide * n);
  }
  if (autocast) {
    indexed(backward_, n, 6 * n, 2);
    stream(backward_, 6 * n, 2);
  }
  stream(backward_, 3 * wide * n, 4);   // of the product, tanh and the cube
  stream(backward_, 2 * wide * n, 5);   // factors
  stream(backward_, 3 * act() * n, 2);  // sums of the three paths of x
}

void Tape::embedding(std::int64_t rows, std::int64_t width, std::int64_t vocabulary,
                     bool positions) {
  const std::int64_t n = rows * width;
  stream(forward_, 2 * residual() * n, positions ? 2 : 1);
  if (positions) {
    stream(forward_, 3 * residual() * n);
  }
  tiny(forward_, positions ? 5 : 12);  // positions, rotary table, mask, labels
  if (frozen_) {
    return;
  }
  stream(backward_, residual() * vocabulary * width);  // zeros
  indexed(backward_, 2 * n, 3 * residual() * n, 2);    // sorted sums, scatter
  tiny(backward_, 10);
  if (positions) {  // a small table is summed by one kernel
    indexed(backward_, n, residual() * n);
  }
}

void Tape::loss(std::int64_t rows, std::int64_t vocabulary) {
  const std::int64_t n = rows * vocabulary;
  if (act() == 2) {
    indexed(forward_, n, 6 * n);  // fp32 logits
    stream(backward_, 6 * n);
  }
  stream(forward_, 12 * n);  // log-softmax reads twice
  tiny(forward_, 10);
  save(4 * n);
  save_again(4 * n);         // of the negative log-likelihood
  stream(backward_, 4 * n);  // zeros for the gradient of the picked logits
  stream(backward_, 16 * n);
  tiny(backward_, 6);
}

}  // namespace offsim::model
