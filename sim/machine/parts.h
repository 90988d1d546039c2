// Reads the parts of a machine from maps: one function a part. Not public.
//
// Each function refuses keys that it does not know and returns plain values; what the keys mean is
// in hardware/README.md. `measured` stands for the accelerator whose measured points a map with
// `like` takes over.
#pragma once

#include <functional>
#include <string>

#include "sim/machine/machine.h"
#include "sim/machine/reader.h"

namespace offsim::machine {

// The accelerator map of the machine that `like` names; `at` is where it is named.
using FindLike = std::function<Node(const std::string& machine, const Place& at)>;

Accelerator read_accelerator(View map, FigureReader& figures, const FindLike& find_like);
Host read_host(View map, FigureReader& figures);
Link read_link(View map, FigureReader& figures);
Uplink read_uplink(View map, FigureReader& figures);
Drive read_drive(View map, FigureReader& figures);
Framework read_framework(View map, FigureReader& figures);
Price read_price(View map, FigureReader& figures);

}  // namespace offsim::machine
