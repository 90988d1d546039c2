// Records as offsim-kernels writes them: JSON lines, each an object {"record": KIND, ...}. The
// first is of the kind "env" and names its schema; the last is an "end", which an interrupted run
// lacks.
//
// Refused with a place: other lines, another schema, records out of this order, lines above 1 MiB.
#pragma once

#include <functional>
#include <iosfwd>
#include <string>
#include <string_view>

#include "sim/base/config.h"

namespace offsim {

// `take` is given all records but the end, in order, each with its kind.
void read_record_lines(std::istream& in, const std::string& file, std::string_view schema,
                       const std::function<void(const std::string& kind, View& record)>& take);

// One line of a file as a document, its places in that line.
Node parse_json_line(const std::string& text, const std::string& file, int line);

}  // namespace offsim
