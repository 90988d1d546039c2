#include "sim/study/catalog.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "sim/base/embedded.h"
#include "sim/model/folder.h"

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

std::string Catalog::place_of(const std::string& path) const {
  return folder_.empty() ? path : (fs::path(folder_) / path).string();
}

std::vector<std::string> Catalog::list(const std::string& folder, std::string_view ending) const {
  std::vector<std::string> names;
  const auto take = [&](const std::string& name) {
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
  return {[this](const std::string& path) { return read("hardware/" + path); },
          [this](const std::string& folder) { return list("hardware/" + folder, ".yaml"); },
          place_of("hardware/")};
}

std::vector<std::string> Catalog::machine_names() const {
  return machine::machine_names(hardware());
}

std::vector<std::string> Catalog::model_names() const { return list("models", ".json"); }

machine::Machine Catalog::machine(const std::string& name, const Place& asked_at,
                                  const std::string& framework) const {
  return machine::load_machine(hardware(), name, asked_at, framework);
}

model::Shape Catalog::model(const std::string& name, const Place& asked_at) const {
  if (is_path(name, ".json")) {
    std::error_code ignored;
    if (!fs::exists(name, ignored)) {
      // Names of a model hub have a slash too.
      const std::string near = nearest(fs::path(name).filename().string(), model_names());
      throw InputError(
          asked_at, fmt::format("there is no file '{}'", name),
          near.empty()
              ? "expected the path of a config.json or of a model's folder, or a name of the "
                "catalog"
              : fmt::format("did you mean '{}'?", near));
    }
    return model::read_model(name);
  }
  const std::string path = "models/" + name + ".json";
  const auto text = read(path);
  if (!text) {
    std::error_code ignored;
    if (fs::is_directory(name, ignored)) {
      return model::read_model(name);
    }
    // They are too many for one line.
    const std::string near = nearest(name, model_names());
    throw InputError(asked_at, fmt::format("there is no model '{}'", name),
                     near.empty() ? fmt::format("expected one that offsim catalog models lists, or "
                                                "a path such as ./{}.json",
                                                name)
                                  : fmt::format("did you mean '{}'?", near));
  }
  return model::read_config(parse_document(*text, place_of(path), Syntax::kJson), name);
}

}  // namespace offsim::study
