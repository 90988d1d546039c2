// A GPU that does nothing, in the order in which it should: a thread a stream.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "kernels/bench.h"
#include "kernels/replay/device.h"
#include "kernels/replay/host_work.h"

namespace offsim::kernels {

class FakeDevice final : public Device {
 public:
  ~FakeDevice() override {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    for (Stream& stream : streams_) {
      if (stream.thread.joinable()) {
        stream.thread.join();
      }
    }
  }

  void prepare(const Program& program, std::uint32_t points, std::uint32_t flags) override {
    times_.resize(points);
    flags_.resize(flags);
    streams_.resize(program.lanes.size());
    for (std::size_t lane = 0; lane < streams_.size(); ++lane) {
      if (program.lanes[lane].kind == LaneKind::kStream) {
        streams_[lane].thread = std::thread([this, lane] { loop(streams_[lane]); });
      }
    }
  }
  void start() override {}
  void launch(std::uint32_t stream, std::uint32_t, std::size_t) override {
    queue(stream, [] { sleep(); });
  }
  void copy_to_gpu(std::uint32_t stream, const std::byte*, std::int64_t bytes) override {
    queue(stream, [] { sleep(); });
    copied_ += bytes;
  }
  void copy_to_host(std::uint32_t stream, std::byte* to, std::int64_t bytes) override {
    queue(stream, [to, bytes] {
      std::fill_n(to, bytes, std::byte{1});
      sleep();
    });
    copied_ += bytes;
  }
  void mark(std::uint32_t stream, std::uint32_t point) override {
    queue(stream, [this, point] {
      const std::lock_guard lock(mutex_);
      times_[point] = now();
    });
  }
  void wait_point(std::uint32_t stream, std::uint32_t point) override {
    queue(stream, [this, point] { wait([this, point] { return times_[point] > 0; }); });
  }
  void wait_flag(std::uint32_t stream, std::uint32_t flag) override {
    queue(stream, [this, flag] { wait([this, flag] { return flags_[flag]; }); });
  }
  void synchronize_stream(std::uint32_t stream) override {
    wait([this, stream] { return streams_[stream].done == streams_[stream].queued; });
  }
  void set_flag(std::uint32_t flag) override {
    {
      const std::lock_guard lock(mutex_);
      flags_[flag] = true;
    }
    changed_.notify_all();
  }
  void synchronize_point(std::uint32_t point) override {
    wait([this, point] { return times_[point] > 0; });
  }
  std::vector<double> seconds(std::uint32_t count) override {
    return {times_.begin(), times_.begin() + count};
  }
  std::byte* pinned() override { return pinned_.data(); }
  std::int64_t pinned_bytes() const override { return static_cast<std::int64_t>(pinned_.size()); }
  std::vector<MemoryUse> memory() const override { return {}; }

  std::int64_t copied() const { return copied_; }

 private:
  struct Stream {
    std::thread thread;
    std::deque<std::function<void()>> work;
    std::int64_t queued = 0, done = 0;
  };

  static void sleep() { std::this_thread::sleep_for(std::chrono::milliseconds(2)); }

  void queue(std::uint32_t stream, std::function<void()> body) {
    {
      const std::lock_guard lock(mutex_);
      streams_[stream].work.push_back(std::move(body));
      ++streams_[stream].queued;
    }
    changed_.notify_all();
  }

  void wait(const std::function<bool()>& happened) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return happened() || stop_; });
  }

  void loop(Stream& stream) {
    while (true) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stop_ || !stream.work.empty(); });
      if (stop_) {
        return;
      }
      const std::function<void()> body = std::move(stream.work.front());
      stream.work.pop_front();
      lock.unlock();
      body();
      lock.lock();
      ++stream.done;
      lock.unlock();
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;
  std::vector<Stream> streams_;
  std::vector<double> times_;
  std::vector<bool> flags_;
  std::vector<std::byte> pinned_ = std::vector<std::byte>(1 << 20);
  std::int64_t copied_ = 0;
};

}  // namespace offsim::kernels
