// The catalog: hardware, models, scenarios and measured steps, compiled into the program or read
// from a folder.
//
// The embedded one is the repository's hardware/, models/, scenarios/ and validation/ as they were
// at build time, so the program runs from anywhere; a folder with the same layout replaces it
// (--catalog DIR).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/config.h"
#include "sim/machine/machine.h"
#include "sim/model/shape.h"

namespace offsim::study {

class Catalog {
 public:
  static Catalog embedded();
  // Throws InputError when the folder has no hardware/.
  static Catalog folder(const std::string& path);

  // The text of a file by its path in the catalog ("models/gpt2.json"); nothing when there is none.
  std::optional<std::string> read(const std::string& path) const;
  // How messages name such a file: with the folder of the catalog, if it has one.
  std::string place_of(const std::string& path) const;
  // File names in a folder ("models") that end in `ending` (".json"), without it, sorted.
  std::vector<std::string> list(const std::string& folder, std::string_view ending) const;

  std::vector<std::string> machine_names() const;
  std::vector<std::string> model_names() const;

  // A name of the catalog, or the path of a file. Throws InputError with the nearest name.
  // `framework` as in machine::load_machine.
  machine::Machine machine(const std::string& name, const Place& asked_at,
                           const std::string& framework = "") const;
  model::Shape model(const std::string& name, const Place& asked_at) const;

  // The files of hardware/.
  machine::Catalog hardware() const;

 private:
  std::string folder_;  // empty: embedded
};

}  // namespace offsim::study
