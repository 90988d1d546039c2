// Direct reads and writes of a file, several in flight at once: through io_uring, or through libaio
// where the system refuses io_uring (containers often do) or the program was built without it.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

namespace offsim::kernels {

struct IoRequest {
  bool write = false;
  void* buffer = nullptr;  // aligned to 4096, as are offset and bytes
  std::int64_t offset = 0;
  std::int64_t bytes = 0;
  int tag = 0;  // given back by wait()
};

class IoEngine {
 public:
  virtual ~IoEngine() = default;              // waits for those in flight
  virtual std::string_view name() const = 0;  // "io_uring", "libaio"
  // Requires: fewer than `depth` are in flight. Throws std::runtime_error when it is refused.
  virtual void submit(const IoRequest& request) = 0;
  // Waits for one of those in flight, whichever is first, and returns its tag. Throws
  // std::runtime_error when it failed or moved fewer bytes.
  virtual int wait() = 0;
};

// For a file and at most `depth` requests in flight, of one thread. Throws std::runtime_error where
// neither can be had.
std::unique_ptr<IoEngine> make_io_engine(int descriptor, int depth);

}  // namespace offsim::kernels
