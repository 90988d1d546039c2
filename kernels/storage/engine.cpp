#include "kernels/storage/engine.h"

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#ifdef OFFSIM_URING
#include <liburing.h>
#endif
#ifdef OFFSIM_AIO
#include <libaio.h>
#endif

namespace offsim::kernels {

namespace {

[[maybe_unused]] std::runtime_error failed(const char* what, long error) {
  return std::runtime_error(std::string(what) + ": " + std::strerror(static_cast<int>(-error)));
}

// A result of the kernel: bytes, or an error below zero.
[[maybe_unused]] void expect_bytes(long long result, long long bytes, bool write) {
  // A full drive takes a part, or nothing.
  if (write && (result == -ENOSPC || result == -EDQUOT || (result >= 0 && result != bytes))) {
    throw std::runtime_error("the drive is full: a write to the file found no room");
  }
  if (result < 0) {
    throw failed(write ? "a write to the file" : "a read from the file", static_cast<long>(result));
  }
  if (result != bytes) {
    throw std::runtime_error("the drive moved " + std::to_string(result) + " B of " +
                             std::to_string(bytes));
  }
}

#ifdef OFFSIM_URING
class Uring final : public IoEngine {
 public:
  Uring(int descriptor, int depth)
      : descriptor_(descriptor), requests_(static_cast<std::size_t>(depth)) {
    if (const int error = io_uring_queue_init(static_cast<unsigned>(depth), &ring_, 0); error < 0) {
      throw failed("io_uring", error);
    }
    for (int i = depth; i-- > 0;) {
      free_.push_back(i);
    }
  }
  // What is in flight goes on by itself: its memory must not be freed before it ends.
  ~Uring() override {
    io_uring_cqe* entry = nullptr;
    while (free_.size() < requests_.size()) {
      if (io_uring_wait_cqe(&ring_, &entry) == 0) {
        free_.push_back(static_cast<int>(entry->user_data));
        io_uring_cqe_seen(&ring_, entry);
      }
    }
    io_uring_queue_exit(&ring_);
  }
  Uring(const Uring&) = delete;
  Uring& operator=(const Uring&) = delete;

  std::string_view name() const override { return "io_uring"; }

  void submit(const IoRequest& request) override {
    io_uring_sqe* entry = io_uring_get_sqe(&ring_);
    if (entry == nullptr || free_.empty()) {
      throw std::logic_error("more requests than the engine was made for");
    }
    const int slot = free_.back();
    requests_[static_cast<std::size_t>(slot)] = request;
    const auto bytes = static_cast<unsigned>(request.bytes);
    const auto offset = static_cast<__u64>(request.offset);
    if (request.write) {
      io_uring_prep_write(entry, descriptor_, request.buffer, bytes, offset);
    } else {
      io_uring_prep_read(entry, descriptor_, request.buffer, bytes, offset);
    }
    entry->user_data = static_cast<__u64>(slot);
    if (const int sent = io_uring_submit(&ring_); sent != 1) {
      throw failed("io_uring", sent);
    }
    free_.pop_back();
  }

  int wait() override {
    io_uring_cqe* entry = nullptr;
    int error = -EINTR;
    while (error == -EINTR) {
      error = io_uring_wait_cqe(&ring_, &entry);
    }
    if (error < 0) {
      throw failed("io_uring", error);
    }
    const int slot = static_cast<int>(entry->user_data);
    const int result = entry->res;
    io_uring_cqe_seen(&ring_, entry);
    free_.push_back(slot);
    const IoRequest& request = requests_[static_cast<std::size_t>(slot)];
    expect_bytes(result, request.bytes, request.write);
    return request.tag;
  }

 private:
  int descriptor_;
  io_uring ring_{};
  std::vector<IoRequest> requests_;
  std::vector<int> free_;
};
#endif

#ifdef OFFSIM_AIO
class Aio final : public IoEngine {
 public:
  Aio(int descriptor, int depth)
      : descriptor_(descriptor),
        blocks_(static_cast<std::size_t>(depth)),
        requests_(static_cast<std::size_t>(depth)) {
    if (const int error = io_setup(depth, &context_); error < 0) {
      throw failed("libaio", error);
    }
    for (std::size_t i = blocks_.size(); i-- > 0;) {
      free_.push_back(i);
    }
  }
  ~Aio() override { io_destroy(context_); }  // which waits for those in flight
  Aio(const Aio&) = delete;
  Aio& operator=(const Aio&) = delete;

  std::string_view name() const override { return "libaio"; }

  void submit(const IoRequest& request) override {
    if (free_.empty()) {
      throw std::logic_error("more requests than the engine was made for");
    }
    const std::size_t slot = free_.back();
    requests_[slot] = request;
    iocb* block = &blocks_[slot];
    const auto bytes = static_cast<std::size_t>(request.bytes);
    if (request.write) {
      io_prep_pwrite(block, descriptor_, request.buffer, bytes, request.offset);
    } else {
      io_prep_pread(block, descriptor_, request.buffer, bytes, request.offset);
    }
    if (const int sent = io_submit(context_, 1, &block); sent != 1) {
      throw failed("libaio", sent);
    }
    free_.pop_back();
  }

  int wait() override {
    io_event event{};
    int got = -EINTR;
    while (got == -EINTR) {
      got = io_getevents(context_, 1, 1, &event, nullptr);
    }
    if (got != 1) {
      throw failed("libaio", got);
    }
    const auto slot = static_cast<std::size_t>(event.obj - blocks_.data());
    free_.push_back(slot);
    const IoRequest& request = requests_[slot];
    expect_bytes(static_cast<long>(event.res), request.bytes, request.write);
    return request.tag;
  }

 private:
  int descriptor_;
  io_context_t context_ = nullptr;
  std::vector<iocb> blocks_;
  std::vector<IoRequest> requests_;
  std::vector<std::size_t> free_;
};
#endif

}  // namespace

std::unique_ptr<IoEngine> make_io_engine(int descriptor, int depth) {
  std::string reason = "built without liburing and libaio";
#ifdef OFFSIM_URING
  try {
    return std::make_unique<Uring>(descriptor, depth);
  } catch (const std::runtime_error& error) {
    reason = error.what();
  }
#endif
#ifdef OFFSIM_AIO
  try {
    return std::make_unique<Aio>(descriptor, depth);
  } catch (const std::runtime_error& error) {
    reason = error.what();
  }
#endif
  (void)descriptor;
  (void)depth;
  throw std::runtime_error(reason);
}

}  // namespace offsim::kernels
