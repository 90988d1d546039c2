#include "sim/study/catalog.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "sim/study/embedded.h"

namespace offsim::study {

namespace fs = std::filesystem;

namespace {

// A name is a path when it has a slash or the ending of a file.
bool is_path(const std::string& name, std::string_view ending) {
  return name.find('/') != std::string::npos || name.ends_with(ending);
}

}  // namespace

Catalog Catalog::embedded() { return {}; }

Catalog Catalog::folder(const std::string& path) {
  std::error_code ignored;
  if (!fs::is_directory(fs::path(path) / "hardware", ignored)) {
    throw InputError({path, 0, 0}, "is not a catalog",
                     "expected a folder with hardware/ and models/ in it");
  }
  Catalog catalog;
  catalog.folder_ = path;
  return catalog;
}

std::optional<std::string> Catalog::read(const std::string& path) const {
  if (!folder_.empty()) {
    const std::string full = (fs::path(folder_) / path).string();
    std::error_code ignored;
    if (!fs::exists(full, ignored)) {
      return std::nullopt;
    }
    return read_file(full);
  }
  for (const EmbeddedFile& file : embedded_files()) {
    if (file.path == path) {
      return std::string(file.text);
    }
  }
  return std::nullopt;
}

std::vector<std::string> Catalog::list(const std::string& folder, std::string_view ending) const {
  std::vector<std::string> names;
  const auto take = [&](std::string name) {
    if (name.ends_with(ending)) {
      names.push_back(name.substr(0, name.size() - ending.size()));
    }
  };
  if (!folder_.empty()) {
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(fs::path(folder_) / folder, ignored)) {
      take(entry.path().filename().string());
    }
  } else {
    for (const EmbeddedFile& file : embedded_files()) {
      const std::string path(file.path);
      const auto slash = path.rfind('/');
      if (slash != std::string::npos && path.substr(0, slash) == folder) {
        take(path.substr(slash + 1));
      }
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

machine::Catalog Catalog::hardware() const {
  const std::string prefix =
      folder_.empty() ? "hardware/" : (fs::path(folder_) / "hardware/").string();
  return {[this](const std::string& path) { return read("hardware/" + path); },
          [this](const std::string& folder) { return list("hardware/" + folder, ".yaml"); },
          prefix};
}

std::vector<std::string> Catalog::machine_names() const {
  return machine::machine_names(hardware());
}

std::vector<std::string> Catalog::model_names() const { return list("models", ".json"); }

machine::Machine Catalog::machine(const std::string& name, const Place& asked_at) const {
  return machine::load_machine(hardware(), name, asked_at);
}

model::Shape Catalog::model(const std::string& name, const Place& asked_at) const {
  if (is_path(name, ".json")) {
    return model::read_config(name);
  }
  const auto text = read("models/" + name + ".json");
  if (!text) {
    throw InputError(asked_at, fmt::format("there is no model '{}'", name),
                     suggest(name, model_names()) + ", or the path of a config.json");
  }
  return model::read_config(parse_document(*text, "models/" + name + ".json", Syntax::kJson), name);
}

}  // namespace offsim::study
