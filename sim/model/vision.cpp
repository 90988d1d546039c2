// Models that also see: their text part, which a step here has, and how many parameters see.
//
// Counted from the modules of transformers: SigLIP and a projection with a norm (gemma3), CLIP and
// two Linears (llava), qwen2.5-vl's own tower and its merger. w wide, f between the MLP's matrices,
// L layers, p pixels a patch's side, s an image's.
#include <fmt/format.h>

#include <initializer_list>

#include "sim/model/config_fields.h"

namespace offsim::model {

namespace {

constexpr std::int64_t kMostPixels = 100'000;

// What a class assumes where the text part of a file is silent: transformers writes only what
// differs.
struct Usual {
  const char* key;
  const char* value;
};
constexpr std::initializer_list<Usual> kGemma3Text = {{"model_type", "gemma3_text"},
                                                      {"vocab_size", "262208"},
                                                      {"hidden_size", "2304"},
                                                      {"intermediate_size", "9216"},
                                                      {"num_hidden_layers", "26"},
                                                      {"num_attention_heads", "8"},
                                                      {"num_key_value_heads", "4"},
                                                      {"head_dim", "256"},
                                                      {"max_position_embeddings", "131072"},
                                                      {"sliding_window", "4096"}};
constexpr std::initializer_list<Usual> kLlamaText = {{"model_type", "llama"},
                                                     {"vocab_size", "32000"},
                                                     {"hidden_size", "4096"},
                                                     {"intermediate_size", "11008"},
                                                     {"num_hidden_layers", "32"},
                                                     {"num_attention_heads", "32"},
                                                     {"max_position_embeddings", "2048"}};

Node completed(const Node& text, std::initializer_list<Usual> usual) {
  Node out = text;
  for (const Usual& one : usual) {
    if (out.find(one.key) == nullptr) {
      out.keys.emplace_back(one.key);
      out.key_places.push_back(text.place);
      out.items.push_back({.kind = Node::Kind::kScalar, .place = text.place, .scalar = one.value});
    }
  }
  return out;
}

// In floating point, because sizes allowed one by one could overflow together; exact below 2^53.
struct Tower {
  double width, ffn, layers, patch;
};
double size(View& config, const char* key, std::int64_t most) {
  return static_cast<double>(config.integer(key, 1, most));
}
Tower tower(View& vision, const char* layers) {
  return {size(vision, "hidden_size", kWidest), size(vision, "intermediate_size", kWidestFfn),
          size(vision, layers, kMostLayers), size(vision, "patch_size", kMostPixels)};
}
double patches(View& vision) {
  const std::int64_t patch = vision.integer("patch_size", 1, kMostPixels);
  const std::int64_t side = vision.integer("image_size", patch, kMostPixels) / patch;
  return static_cast<double>(side * side);
}
// q, k, v, o, two norms and two matrices, all with biases.
double layers_of(const Tower& t) {
  return t.layers *
         (4 * t.width * (t.width + 1) + 4 * t.width + 2 * t.width * t.ffn + t.ffn + t.width);
}

double gemma3_vision(View& vision, double text_width) {
  const Tower t = tower(vision, "num_hidden_layers");
  const double patch = 3 * t.patch * t.patch * t.width + t.width;
  return patch + patches(vision) * t.width + layers_of(t) + 2 * t.width + t.width * text_width +
         t.width;
}

// A position more than there are patches, for the class; norms before and behind the layers.
double llava_vision(View& vision, double text_width) {
  const Tower t = tower(vision, "num_hidden_layers");
  const double patch = 3 * t.patch * t.patch * t.width;
  return patch + t.width + (patches(vision) + 1) * t.width + layers_of(t) + 4 * t.width +
         t.width * text_width + text_width + text_width * text_width + text_width;
}

// Two images a patch; RMS norms; the MLP has a gate. The merger joins m x m patches.
double qwen_vision(View& vision, double text_width) {
  const Tower t = tower(vision, "depth");
  const double pair = static_cast<double>(vision.integer("temporal_patch_size", 1, 64, 2));
  const double merge = size(vision, "spatial_merge_size", 64);
  const double joined = merge * merge * t.width;
  const double out =
      present(vision, "out_hidden_size") ? size(vision, "out_hidden_size", kWidest) : text_width;
  const double layer =
      4 * t.width * t.width + 4 * t.width + 2 * t.width + 3 * t.width * t.ffn + 2 * t.ffn + t.width;
  return 3 * pair * t.patch * t.patch * t.width + t.layers * layer + t.width + joined * joined +
         joined + joined * out + out;
}

}  // namespace

std::optional<TextPart> text_part(View& config, const Node& document) {
  const std::string type = present(config, "model_type") ? config.text("model_type") : "";
  if (type != "gemma3" && type != "llava" && type != "qwen2_5_vl") {
    return std::nullopt;
  }
  const bool nested = present(config, "text_config");
  TextPart part{document};
  if (type != "qwen2_5_vl" || nested) {
    View text = config.map("text_config");
    part.config = completed(
        config.need("text_config"),
        type == "gemma3" ? kGemma3Text
        : type == "llava" && (!present(text, "model_type") || text.text("model_type") == "llama")
            ? kLlamaText
            : std::initializer_list<Usual>{});
    for (const char* of_all : {"quantization_config", "tie_word_embeddings"}) {
      const Node* node = document.find(of_all);
      if (node != nullptr && part.config.find(of_all) == nullptr) {
        part.config.keys.emplace_back(of_all);
        part.config.key_places.push_back(node->place);
        part.config.items.push_back(*node);
      }
    }
  }
  View text(part.config, "");
  const double width = size(text, "hidden_size", kWidest);
  View vision = config.map("vision_config");
  const double outside = type == "gemma3"  ? gemma3_vision(vision, width)
                         : type == "llava" ? llava_vision(vision, width)
                                           : qwen_vision(vision, width);
  if (outside > kMostParameters) {
    throw InputError(config.place_of("vision_config"),
                     fmt::format("the vision part has {:.3g} parameters", outside),
                     fmt::format("expected at most {:g}", kMostParameters));
  }
  part.outside = static_cast<std::int64_t>(outside);
  return part;
}

}  // namespace offsim::model
