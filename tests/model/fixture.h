// Files of the repository for the tests of sim/model.
#pragma once

#include <string>

#include "sim/model/shape.h"

namespace offsim::model {

inline std::string models_folder() { return OFFSIM_SOURCE_DIR "/models/"; }

inline Shape load(const std::string& name) { return read_config(models_folder() + name + ".json"); }

}  // namespace offsim::model
