// Attention that is not the usual: latent vectors, sinks, other ways to turn by positions.
#include "sim/model/tape.h"

namespace offsim::model {

void Tape::rotary_halves(std::int64_t n, std::int64_t table, bool strided, bool needed) {
  const bool autocast = numerics_ == Numerics::kAutocast;  // the table is fp32 there
  const std::int64_t wide = autocast ? 4 : act();
  const std::int64_t half = n / 2;
  // Each half times cosines and times sines, difference and sum, joined.
  indexed(forward_, autocast ? converting(half) : half, (act() + wide) * half, 4);
  stream(forward_, 3 * wide * half, 2);
  indexed(forward_, concatenating(n), 2 * wide * n);
  if (!needed) {
    return;
  }
  for (int i = 0; i < 4; ++i) {
    save_again(wide * table / 2);  // no memory of this layer
  }
  stream(backward_, 2 * wide * half);
  indexed(backward_, half, 2 * wide * half, 4);
  if (autocast) {
    stream(backward_, 6 * half, 4);
  }
  stream(backward_, 3 * act() * half, 2);  // both paths of each half
  if (!strided) {
    indexed(backward_, concatenating(n), 2 * act() * n);
    return;
  }
  stream(backward_, act() * n, 2);                // zeros for both
  indexed(backward_, half, 2 * act() * half, 2);  // the halves into them
  stream(backward_, 3 * act() * n);
}

void Tape::rotary_complex(std::int64_t n, std::int64_t table) {
  save_again(8 * table / 2);
  for (std::vector<Kernel>* list : {&forward_, &backward_}) {
    if (act() == 2) {
      indexed(*list, n, 6 * n);
    }
    indexed(*list, n / 2, 8 * n);
    if (act() == 2) {
      stream(*list, 6 * n);
    }
  }
}

// One tensor of `plain` and `rotary` elements for the fused kernel. `wide_rotary`: these are fp32.
void Tape::joined_heads(std::int64_t plain, std::int64_t rotary, bool wide_rotary) {
  const std::int64_t n = plain + rotary;
  if (wide_rotary) {
    stream(forward_, 6 * plain);
    indexed(forward_, concatenating(n), 8 * n);
    stream(forward_, 6 * n);
    indexed(backward_, n, 6 * n);
    stream(backward_, 6 * plain);
  } else {
    indexed(forward_, concatenating(n), 2 * act() * n);
  }
}

void Tape::latent_heads(Batch batch, std::int64_t heads, std::int64_t value_dim,
                        const Latent& latent, bool complex) {
  const std::int64_t tokens = batch.tokens();
  const std::int64_t table = batch.sequence * latent.rotary;
  const std::int64_t plain = tokens * heads * latent.plain;
  const std::int64_t rotary = tokens * heads * latent.rotary;
  const std::int64_t query = plain + rotary, kv = plain + tokens * heads * value_dim;
  const std::int64_t narrow = tokens * (latent.kv_rank + latent.rotary);
  for (const std::int64_t n : {rotary, tokens * latent.rotary}) {
    complex ? rotary_complex(n, table) : rotary_halves(n, table, true);
  }
  const bool wide_rotary = numerics_ == Numerics::kAutocast && !complex;
  joined_heads(plain, rotary, wide_rotary);
  joined_heads(plain, rotary, wide_rotary);
  // Backward: the heads' gradients of the one rotary key added up; parts joined to what they were
  // split from, and into the layout of the projections.
  indexed(backward_, rotary, (wide_rotary ? 4 : act()) * rotary);
  for (const std::int64_t n : {query, kv}) {
    indexed(backward_, concatenating(n), 2 * act() * n);
    indexed(backward_, n, 2 * act() * n);
  }
  indexed(backward_, concatenating(narrow), 2 * act() * narrow);
}

void Tape::attention_with_sinks(Batch batch, std::int64_t heads, std::int64_t kv_heads,
                                std::int64_t head_dim, bool k_needed) {
  const bool autocast = numerics_ == Numerics::kAutocast;
  const std::int64_t rows = batch.tokens() * heads;
  const std::int64_t n = rows * head_dim, kv = batch.tokens() * kv_heads * head_dim;
  const std::int64_t s = rows * batch.sequence, full = s + rows;  // scores; and the sinks
  const std::int64_t wide = autocast ? 4 : act();  // what the fp32 table and mask make of it
  indexed(forward_, n, wide * (n + kv));
  indexed(forward_, n, act() * (n + kv));
  if (autocast) {
    stream(forward_, 6 * n, 2);
  }
  product(forward_, rows, batch.sequence, head_dim);
  stream(forward_, 2 * act() * s);           // scaled
  indexed(forward_, s, (act() + wide) * s);  // masked
  indexed(forward_, concatenating(full), wide * (s + full));
  stream(forward_, wide * full);  // the largest
  indexed(forward_, full, 2 * wide * full);
  stream(forward_, 2 * wide * full);  // softmax
  if (autocast) {
    indexed(forward_, s, 6 * s);
  }
  product(forward_, rows, head_dim, batch.sequence);
  indexed(forward_, n, 2 * act() * n);
  // q, k of every head; where the largest are; probabilities, as the product reads them; v.
  if (k_needed) {
    save(act() * n);
  }
  save(act() * n);
  save(8 * rows);
  save(wide * full);
  autocast ? save(act() * s) : save_again(act() * s);
  save(act() * n);

  indexed(backward_, n, 2 * act() * n);
  product(backward_, rows, batch.sequence, head_dim);  // of the probabilities
  product(backward_, rows, head_dim, batch.sequence);  // of v
  if (autocast) {
    stream(backward_, 6 * s);
  }
  stream(backward_, wide * full);  // zeros, for the sinks' column
  indexed(backward_, s, 2 * wide * s);
  stream(backward_, 3 * wide * full);  // softmax
  stream(backward_, wide * full, 2);   // of the largest: a sum a row, zeros
  tiny(backward_, 4);                  // into these; of the sinks
  stream(backward_, 3 * wide * full);
  if (autocast) {
    indexed(backward_, s, 6 * s);
  }
  indexed(backward_, s, 2 * act() * s);                // scaled
  product(backward_, rows, head_dim, batch.sequence);  // of q
  if (k_needed) {
    product(backward_, rows, head_dim, batch.sequence);
  }
  if (autocast) {
    indexed(backward_, n, 6 * n, 2);
  }
  if (k_needed) {
    indexed(backward_, n, wide * (n + kv));  // heads of a key added up
  }
  indexed(backward_, n, act() * (n + kv));
  indexed(backward_, kv, 2 * act() * kv);  // v into the layout of its projection
}

void Tape::copy_to_heads(std::int64_t query, std::int64_t kv) {
  for (int i = 0; i < 2; ++i) {
    indexed(forward_, query, act() * (query + kv));
    indexed(backward_, query, act() * (query + kv));  // heads of a key added up
  }
}

void Tape::attention_with_scores(Batch batch, const Heads& heads, bool cap_them, bool wide) {
  const std::int64_t rows = batch.tokens() * heads.count;
  const std::int64_t n = rows * heads.width, kv = batch.tokens() * heads.kv_count * heads.width;
  const std::int64_t s = rows * batch.sequence;
  const std::int64_t w = wide ? 4 : act();
  if (kv < n) {
    copy_to_heads(n, kv);
  }
  const bool converts = wide && act() == 2;
  if (converts) {
    indexed(forward_, n, 6 * n, 2);
  }
  const auto scores_product = [&](std::vector<Kernel>& list, std::int64_t columns, std::int64_t k) {
    list.push_back({.kind = Kernel::Kind::kGemm, .m = rows, .n = columns, .k = k, .wide = w == 4});
  };
  scores_product(forward_, batch.sequence, heads.width);
  stream(forward_, 2 * w * s);  // scaled
  if (cap_them) {
    cap(s);
  }
  indexed(forward_, s, 2 * w * s);  // masked
  stream(forward_, (w + 4) * s);    // softmax
  if (act() == 2) {
    stream(forward_, 6 * s);
  }
  product(forward_, rows, heads.width, batch.sequence);
  indexed(forward_, n, 2 * act() * n);
  // q, k and v of every head; softmax's result in fp32, and as the product reads it.
  save(w * n);
  save(w * n);
  save(act() * n);
  save(4 * s);
  act() == 2 ? save(act() * s) : save_again(act() * s);
  scores_backward(rows, batch, heads, wide);
}

void Tape::scores_backward(std::int64_t rows, Batch batch, const Heads& heads, bool wide) {
  const std::int64_t n = rows * heads.width, s = rows * batch.sequence;
  const std::int64_t w = wide ? 4 : act();
  indexed(backward_, n, 2 * act() * n);
  product(backward_, rows, batch.sequence, heads.width);  // of the probabilities
  product(backward_, rows, heads.width, batch.sequence);  // of v
  if (act() == 2) {
    stream(backward_, 6 * s);
  }
  stream(backward_, (8 + w) * s);  // softmax
  stream(backward_, 2 * w * s);    // scaled
  for (int i = 0; i < 2; ++i) {    // of q and k
    backward_.push_back({.kind = Kernel::Kind::kGemm,
                         .m = rows,
                         .n = heads.width,
                         .k = batch.sequence,
                         .wide = w == 4});
    if (w > act()) {
      indexed(backward_, n, 6 * n);
    }
  }
}

}  // namespace offsim::model
