// The repository's catalog with some files of a test in front of it.
#pragma once

#include <map>
#include <string>

#include "sim/machine/machine.h"

namespace offsim::machine {

inline Catalog test_catalog(std::map<std::string, std::string> files = {}) {
  Catalog catalog = folder_catalog(OFFSIM_SOURCE_DIR "/hardware");
  catalog.prefix = "";
  catalog.read = [files = std::move(files), below = catalog.read](const std::string& path) {
    const auto found = files.find(path);
    return found == files.end() ? below(path) : std::optional(found->second);
  };
  return catalog;
}

inline Machine load(const std::string& name) { return load_machine(test_catalog(), name); }

}  // namespace offsim::machine
