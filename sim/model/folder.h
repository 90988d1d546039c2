// A model as the hub stores it: a folder with config.json and the weights' files.
//
// The shape is config.json's. What the files hold is read where it is said in a few bytes, in the
// index of several (model.safetensors.index.json: total_parameters, or total_size in bytes) or in
// the header of one (model.safetensors), and compared: another count is a warning of the shape's,
// for a config.json may lie beside another model's weights. Files may hold a tied head apart,
// numbers of 2 or 4 bytes, and buffers (gpt2's masks); quantised ones are not compared, nor an
// index or a header above 4 MiB. No weights are read.
#pragma once

#include <string>

#include "sim/model/shape.h"

namespace offsim::model {

// The path of a folder, of an index or a .safetensors file in it, or of a config.json alone. Throws
// InputError where there is no config.json, naming an adapter or another format that is.
Shape read_model(const std::string& path);

}  // namespace offsim::model
