// Parts of the reader of a config.json (shape.h): fields that may be absent, slips of a key, and
// what the file says of layer after layer.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/config.h"
#include "sim/model/shape.h"

namespace offsim::model {

// The most that a file may ask for, far above every model.
inline constexpr std::int64_t kMostLayers = 100'000;
inline constexpr std::int64_t kWidest = 1'000'000;
inline constexpr std::int64_t kMostHeads = 100'000;
inline constexpr std::int64_t kWidestFfn = 10'000'000;
inline constexpr std::int64_t kMostTokens = 100'000'000;  // vocabulary
inline constexpr std::int64_t kLongest = 1'000'000'000;   // positions, windows

// null is as absent.
bool present(View& config, std::string_view key);
bool flag(View& config, std::string_view key, bool fallback);
// The texts of a list; none where the key is absent.
std::vector<const Node*> texts(View& config, std::string_view key);

// Unknown keys pass, except one that reads like a slip of a key that is not there.
void refuse_slips(const View& config, const std::vector<std::string>& known);

struct Count {
  const char* key;
  std::int64_t value;
};
void refuse_remainder(const View& config, Count whole, Count part, const char* expected);

bool is_mixture(Architecture architecture);
bool is_deepseek(Architecture architecture);

// Of a Shape that has its layers: their windows, MLPs and experts. One kind for each combination.
// `ffn`: of dense ones, 0: the file says it as intermediate_size.
void read_layers(View& config, Shape& shape, std::int64_t ffn = 0);

// Everything of the architectures whose keys are not llama's or deepseek's; false of these.
bool read_family(View& config, Shape& shape);

// Refuses by name what is no decoder that can be trained: other formats, recurrent models,
// encoders, encoder-decoders, quantised checkpoints, models cut down for tests. Otherwise which it
// is.
Architecture recognise(View& config);
std::string_view name_of(Architecture architecture);
// The text part of a model that also sees, with the sizes of its class where it is silent, and how
// many parameters are outside it; nothing where the model is text alone.
struct TextPart {
  Node config;
  std::int64_t outside = 0;
};
std::optional<TextPart> text_part(View& config, const Node& document);

}  // namespace offsim::model
