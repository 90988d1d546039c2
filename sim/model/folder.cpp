#include "sim/model/folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <optional>

#include "sim/base/quantity.h"
#include "sim/base/text.h"
#include "sim/model/config_fields.h"
#include "sim/model/tensors.h"

namespace offsim::model {

namespace fs = std::filesystem;

namespace {

constexpr const char* kConfig = "config.json";
constexpr const char* kIndex = "model.safetensors.index.json";
constexpr const char* kWeights = "model.safetensors";
constexpr std::int64_t kMostElements = 1'000'000'000'000'000;  // of one side of a tensor
constexpr double kMostBytes = 1e16;

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

// The hub's cache has models--OWNER--NAME/snapshots/COMMIT.
std::string name_of_folder(const fs::path& folder) {
  std::error_code failed;
  fs::path whole = fs::weakly_canonical(folder, failed);
  if (failed || whole.filename().empty()) {
    whole = folder;
  }
  const std::string cache = whole.parent_path().parent_path().filename().string();
  if (whole.parent_path().filename() == "snapshots" && cache.starts_with("models--")) {
    return printable(cache.substr(cache.rfind("--") + 2));
  }
  return printable(whole.filename().string());
}

[[noreturn]] void refuse_folder(const fs::path& folder) {
  const Place place{folder.string(), 0, 0};
  if (is_file(folder / "adapter_config.json")) {
    const Node adapter = load_document((folder / "adapter_config.json").string());
    View of(adapter, "");
    const std::string base = present(of, "base_model_name_or_path")
                                 ? printable(of.text("base_model_name_or_path"), 100)
                                 : "its base model";
    throw InputError(place, "this folder holds an adapter alone",
                     fmt::format("expected the folder of {}, and --lora-rank", base));
  }
  if (is_file(folder / "model_index.json")) {
    throw InputError(place, "this folder holds a diffusion model", "expected a language model");
  }
  if (is_file(folder / "params.json")) {
    throw InputError(place, "this folder holds params.json of the original Llama release",
                     "expected a Hugging Face config.json");
  }
  throw InputError(place, "there is no config.json in this folder",
                   "expected a folder of a model, as the hub stores it");
}

// What the files hold: numbers, or bytes.
struct Stored {
  std::string file;
  double numbers = 0;
  double bytes = 0;
  bool quantised = false;
};

std::optional<Stored> stored_in_index(const fs::path& path) {
  std::error_code failed;
  if (!is_file(path) || fs::file_size(path, failed) > kLargestFile || failed) {
    return std::nullopt;
  }
  const Node index = load_document(path.string());
  View whole(index, "");
  std::optional<View> metadata = whole.find_map("metadata");
  if (!metadata) {
    return std::nullopt;
  }
  Stored stored{.file = path.filename().string()};
  if (present(*metadata, "total_parameters")) {
    stored.numbers = metadata->number("total_parameters");
  } else if (present(*metadata, "total_size")) {
    stored.bytes = metadata->number("total_size");
  } else {
    return std::nullopt;
  }
  return stored;
}

// The header of the format: its length in 8 bytes, then JSON of each tensor's type and sizes.
std::optional<Stored> stored_in_header(const fs::path& path) {
  if (!is_file(path)) {  // before it is opened: a pipe would wait
    return std::nullopt;
  }
  const auto refuse = [&path] {
    throw InputError({path.string(), 0, 0}, "the file ends within its header",
                     "expected a whole .safetensors file");
  };
  std::ifstream in(path, std::ios::binary);
  std::array<unsigned char, 8> prefix{};
  if (!in.read(reinterpret_cast<char*>(prefix.data()), prefix.size())) {
    refuse();
  }
  std::uint64_t length = 0;
  for (std::size_t i = prefix.size(); i-- > 0;) {
    length = length << 8U | prefix[i];
  }
  std::error_code failed;
  const std::uintmax_t whole = fs::file_size(path, failed);
  if (failed || whole < prefix.size() || length > whole - prefix.size()) {
    refuse();
  }
  if (length > static_cast<std::uint64_t>(kLargestFile)) {
    return std::nullopt;
  }
  std::string text(static_cast<std::size_t>(length), '\0');
  if (!in.read(text.data(), static_cast<std::streamsize>(length))) {
    refuse();
  }
  const Node header = parse_document(text, path.string(), Syntax::kJson);
  View tensors(header, "");
  Stored stored{.file = path.filename().string()};
  for (const std::string& name : tensors.keys()) {
    if (name == "__metadata__") {
      continue;
    }
    View tensor = tensors.map(name);
    const std::string type = tensor.text("dtype");
    stored.quantised |= type != "BF16" && type != "F16" && type != "F32" && type != "BOOL";
    double numbers = type == "BOOL" ? 0 : 1;  // masks
    for (const Node& size : tensor.need("shape").items) {
      numbers *= static_cast<double>(to_integer(size, 0, kMostElements, "shape"));
    }
    stored.numbers += numbers;
  }
  return stored;
}

// Buffers that older files hold: gpt2's masks, rotary frequencies.
double most_buffers(const Shape& shape) {
  const auto d = [](std::int64_t n) { return static_cast<double>(n); };
  return d(shape.layers) * (d(shape.positions) * d(shape.positions) + d(shape.head_dim) + 2);
}

bool holds(const Stored& stored, double parameters, double buffers) {
  if (stored.numbers > 0) {
    return stored.numbers >= parameters && stored.numbers <= parameters + buffers;
  }
  for (const double width : {2.0, 4.0}) {
    if (stored.bytes >= width * parameters &&
        stored.bytes <= width * (parameters + buffers) + 4096) {
      return true;
    }
  }
  return false;
}

void compare(Shape& shape, const Stored& stored, const fs::path& folder) {
  const double says = std::max(stored.numbers, stored.bytes);
  if (!(says > 0) || says > kMostBytes) {
    throw InputError({(folder / stored.file).string(), 0, 0},
                     fmt::format("{:g} numbers or bytes are not a model's", says),
                     fmt::format("expected more than 0 and at most {:g}", kMostBytes));
  }
  const auto d = [](std::int64_t n) { return static_cast<double>(n); };
  const double expected = d(parameters(shape)) + d(shape.outside);
  const double tied = shape.tied ? d(shape.vocabulary) * d(shape.embedding_width()) : 0;
  const double buffers = most_buffers(shape);
  if (stored.quantised || holds(stored, expected, buffers) ||
      holds(stored, expected + tied, buffers)) {
    return;
  }
  const bool counted = stored.numbers > 0;
  shape.notes.push_back(fmt::format(
      "{} holds {}, and config.json describes {} parameters: is it of another model?", stored.file,
      counted ? fmt::format("{} numbers", with_commas(std::round(stored.numbers)))
              : fmt::format("{} bytes", with_commas(std::round(stored.bytes))),
      with_commas(expected)));
}

Shape read_folder(const fs::path& folder) {
  const fs::path path = folder / kConfig;
  if (!is_file(path)) {
    refuse_folder(folder);
  }
  const Node document = load_document(path.string());
  Shape shape = read_config(document, name_of_folder(folder));
  if (document.find("quantization_config") != nullptr) {
    return shape;
  }
  std::optional<Stored> stored = stored_in_index(folder / kIndex);
  if (!stored) {
    stored = stored_in_header(folder / kWeights);
  }
  if (stored) {
    compare(shape, *stored, folder);
  }
  return shape;
}

}  // namespace

Shape read_model(const std::string& path) {
  const fs::path given(path);
  std::error_code ignored;
  if (fs::is_directory(given, ignored)) {
    return read_folder(given);
  }
  if (path.ends_with(".safetensors") || path.ends_with(".safetensors.index.json")) {
    require_file(path);
    return read_folder(given.has_parent_path() ? given.parent_path() : fs::path("."));
  }
  for (const char* ending : {".gguf", ".bin", ".pt", ".pth", ".ckpt"}) {
    if (path.ends_with(ending)) {
      throw InputError({path, 0, 0}, "these are weights in a format that says no shape here",
                       "expected a config.json, or the folder of a model");
    }
  }
  return read_config(path);
}

}  // namespace offsim::model
