#ifndef OFFSIM_CUDA
#include <stdexcept>

#include "kernels/replay/device.h"
namespace offsim::kernels {
std::unique_ptr<Device> make_cuda_device() {
  throw std::runtime_error("no GPU: this program was built without CUDA");
}
}  // namespace offsim::kernels
#endif
