// Parts of the reader of a config.json (shape.h): fields that may be absent, slips of a key, and
// what the file says of layer after layer.
#pragma once

#include <cstdint>
#include <initializer_list>
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
void read_layers(View& config, Shape& shape);

}  // namespace offsim::model
