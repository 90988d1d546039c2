// What a reader finds on its way: settings, warnings, refusals. Refusals are collected, so that a
// person sees all of them at once.
#pragma once

#include <string>
#include <vector>

#include "sim/import/import.h"

namespace offsim::imports {

class Findings {
 public:
  // Returns where it is, for what is found out later.
  std::size_t add(Setting setting) {
    settings.push_back(std::move(setting));
    return settings.size() - 1;
  }
  void warn(const Place& place, const std::string& text) {
    warnings.push_back(place.file.empty() ? text : place.text() + ": " + text);
  }
  void refuse(const Place& place, const std::string& wrong, const std::string& expected) {
    refusals.emplace_back(place, wrong, expected);
  }
  // Throws Refused where anything was; of a file that is refused nothing is warned of.
  void settle() const;

  std::vector<Setting> settings;
  std::vector<std::string> warnings;
  std::vector<InputError> refusals;
  Names names;
};

}  // namespace offsim::imports
