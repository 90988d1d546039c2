// Hjson, in which DeepSpeed reads its configurations: JSON with comments (#, //, /* */), commas at
// the end or none, keys and texts without quotes, single quotes, texts of several lines ('''), and
// no braces around the whole.
//
// A text without quotes goes to the end of its line, comma and comment included, as hjson has it.
// Stricter than hjson, which would swallow them: such a text may hold no closing bracket, so that
// `{"size": SIZE}` is refused for its placeholder; and Python's True, False and None are no texts.
//
// YAML's flow style reads much of this, but takes // for a text, yes for true and a tab for a
// mistake, and needs its commas: a file that DeepSpeed reads would be refused, or read otherwise.
#pragma once

#include <string>

#include "sim/base/config.h"

namespace offsim {

// Bounds and refusals as parse_document. Numbers, true and false are plain scalars, all else is
// quoted: "5" and 5 differ.
Node parse_hjson(const std::string& text, const std::string& file);

}  // namespace offsim
