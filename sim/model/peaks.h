// What a layer holds at its worst moments, beside what its operations save (work.h, Piece).
#pragma once

#include "sim/model/tape.h"

namespace offsim::model {

// Bytes.
struct Peaks {
  std::int64_t forward_extra, forward_alone, backward_extra;
};

Peaks mlp_peaks(const Tape& tape, const Shape& shape, std::int64_t ffn, std::int64_t tokens);
Peaks mixture_peaks(const Tape& tape, const Shape& shape, const Experts& e, std::int64_t tokens);
// Of the attention, beside what it saves itself. The usual one's stays below the MLP's.
Peaks attention_peaks(const Tape& tape, const Shape& shape, Batch batch);
// Of the layer: each part's is beside what is saved by then.
Peaks largest(const Peaks& attention, const Peaks& mlp, std::int64_t saved_by_attention,
              std::int64_t saved);

}  // namespace offsim::model
