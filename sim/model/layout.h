// What an architecture calls the modules of its layers, and in which order it makes them.
//
// One list each: all modules that a layer of the architecture may have, in the order of its
// constructor, which is that of named_parameters(). Which of them a layer has, the Shape says
// (fused matrices, how many norms, gate or none). Source: transformers, src/transformers/models/*/
// modeling_*.py; of chatglm and baichuan the code beside their checkpoints.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "sim/model/shape.h"

namespace offsim::model {

// A module of a layer by what it is for.
enum class Part : std::uint8_t {
  kNone,  // of no layer, or none of these
  kSinks,
  kQ,
  kK,
  kV,
  kQkv,
  kOut,
  kQNorm,
  kKNorm,
  kGate,  // and the first matrix of an MLP without a gate
  kUp,
  kGateUp,
  kDown,
  kAttentionNorm,  // before attention; where it is the only one, before the MLP too
  kMlpNorm,
  kAttentionResultNorm,
  kMlpResultNorm
};

struct NamedPart {
  Part part;
  std::string_view inside;  // the module it is in: "self_attn.", or nothing
  std::string_view name;    // "q_proj"
};

struct Layout {
  std::string_view root;  // "model.": before embedding and final norm
  std::string_view embedding, positions;
  std::string_view embedding_norm;
  std::string_view layers;      // "model.layers."
  std::string_view final_norm;  // with its own root
  std::string_view head;
  std::span<const NamedPart> parts;

  // Requires: the architecture has the part.
  const NamedPart& of(Part part) const;
  // A module's name alone, or with what it is in where a layer has two of that name.
  std::string module_name(Part part) const;
};

const Layout& layout(const Shape& shape);

// Whether a layer has it, experts and latent attention apart.
bool has(const Shape& shape, Part part);

}  // namespace offsim::model
