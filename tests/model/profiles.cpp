#include "tests/model/profiles.h"

#include <nlohmann/json.hpp>
#include <sstream>

#include "sim/base/config.h"

namespace offsim::model {

Shape shape_of(const std::string& name) {
  Shape s;
  s.layers = kLayers;
  s.hidden = 2048;
  s.heads = 16;
  s.kv_heads = name == "llama-2048" ? 16 : 4;
  s.head_dim = 128;
  s.kinds.front().ffn = 5504;
  s.vocabulary = 32000;
  s.qkv_bias = name.starts_with("qwen2");
  s.qk_norm = name.starts_with("qwen3");
  if (name == "llama-3072-gqa") {
    s.hidden = 3072;
    s.heads = 24;
    s.kv_heads = 8;
    s.kinds.front().ffn = 8192;
  } else if (name == "mixtral-2048") {
    s.architecture = Architecture::kMixtral;
    s.kinds.front().experts =
        Experts{.count = 8, .per_token = 2, .width = 5504, .normalized = true};
  } else if (name == "qwen2_moe-2048") {
    s.architecture = Architecture::kQwen2Moe;
    s.kv_heads = 16;
    s.kinds.front().experts = Experts{.count = 60, .per_token = 4, .width = 1408, .shared = 5632};
  } else if (name == "qwen3_moe-2048") {
    s.architecture = Architecture::kQwen3Moe;
    s.heads = 32;
    s.kinds.front().experts = Experts{.count = 64, .per_token = 8, .width = 768};
  } else if (name == "gpt2-1024") {
    s.hidden = 1024;
    s.kv_heads = 16;
    s.head_dim = 64;
    s.kinds.front().ffn = 4096;
    s.positions = 1024;
    s.architecture = Architecture::kGpt2;
    s.activation = Activation::kGeluNew;
    s.norm = Norm::kLayer;
    s.gated_mlp = false;
    s.tied = s.fused_qkv = s.qkv_bias = s.output_bias = s.mlp_bias = true;
  }
  if (s.kinds.front().experts) {
    s.kinds.front().ffn = s.kinds.front().experts->per_token * s.kinds.front().experts->width +
                          s.kinds.front().experts->shared;
  }
  return s;
}

namespace {

enum class Family { kProduct, kAttention, kOther };

Family family_of(const std::string& kernel) {
  if (kernel.starts_with("nvjet") || kernel.find("cutlass") != std::string::npos) {
    return Family::kProduct;
  }
  const bool attention =
      kernel.starts_with("cudnn_generated") || kernel.find("cudnn::fusion") != std::string::npos;
  return attention ? Family::kAttention : Family::kOther;
}

Profile profile(const nlohmann::json& rows) {
  Profile p;
  for (const nlohmann::json& row : rows) {
    const std::string kernel = row[0];
    if (kernel.starts_with("Memset")) {  // of matrix products, left out
      continue;
    }
    p.launches += row[1].get<double>();
    p.products += family_of(kernel) == Family::kProduct ? row[1].get<double>() : 0;
    p.other_s += family_of(kernel) == Family::kOther ? row[2].get<double>() * 1e-6 : 0;
  }
  return p;
}

}  // namespace

std::int64_t Case::least_step() const {
  std::int64_t least = marks[1] - marks[0];
  for (std::size_t i = 2; i <= kLayers; ++i) {  // behind them come those of a recomputation
    least = std::min(least, marks[i] - marks[i - 1]);
  }
  return least;
}

std::vector<Case> profiled(const std::string& file, bool checkpointing) {
  std::istringstream lines(read_file(OFFSIM_SOURCE_DIR "/hardware/measured/raw/" + file));
  std::vector<Case> out;
  for (std::string line; std::getline(lines, line);) {
    const nlohmann::json record = nlohmann::json::parse(line);
    if (record["kind"] != "layers" || record["ckpt"] != checkpointing) {
      continue;
    }
    const std::string model = record["model"], mode = record["mode"];
    const nlohmann::json& memory = record["memory"];
    out.push_back({model + " " + mode, mode, memory["marks"], memory["before"],
                   memory["after_forward"], profile(record["forward_kernels"]),
                   profile(record["backward_kernels"]),
                   pieces(shape_of(model), kBatch,
                          mode == "autocast" ? Numerics::kAutocast : Numerics::kPure16)});
  }
  return out;
}

double other_seconds(const Work& work) {
  constexpr double kBytesPerS = 4.2e12;
  constexpr double kIndexedPerS = 330e9;
  constexpr double kFloorS = 1e-6;
  double sum = 0;
  for (const Kernel& kernel : work.kernels) {
    if (kernel.kind == Kernel::Kind::kElementwise) {
      sum += kernel.count * std::max({kFloorS, static_cast<double>(kernel.bytes) / kBytesPerS,
                                      static_cast<double>(kernel.indexed) / kIndexedPerS});
    }
  }
  return sum;
}

std::int64_t products(const Work& work) {
  std::int64_t sum = 0;
  for (const Kernel& kernel : work.kernels) {
    sum += kernel.kind == Kernel::Kind::kGemm ? kernel.count : 0;
  }
  return sum;
}

}  // namespace offsim::model
