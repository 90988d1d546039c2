#include "kernels/replay/replay.h"

#include <stdexcept>

namespace offsim::kernels {

int replay(const ReplayOptions& options) {
  throw std::runtime_error(options.program + ": not yet");
}

}  // namespace offsim::kernels
