// The repository's data files as they were at build time; embedded.cmake writes the table.
#pragma once

#include <span>
#include <string_view>

namespace offsim {

struct EmbeddedFile {
  std::string_view path;  // "hardware/systems/dgx-h100.yaml"
  std::string_view text;
};

std::span<const EmbeddedFile> embedded_files();

}  // namespace offsim
