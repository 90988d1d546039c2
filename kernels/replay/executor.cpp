#include "kernels/replay/executor.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "kernels/bench.h"
#include "kernels/replay/host_limits.h"

namespace offsim::kernels {

namespace {

struct Block {
  explicit Block(std::int64_t size)
      : bytes(size), data(static_cast<std::byte*>(std::malloc(static_cast<std::size_t>(size)))) {
    if (data == nullptr && size > 0) {
      throw std::runtime_error("not enough memory for a block of " + std::to_string(size) +
                               " bytes");
    }
  }
  ~Block() { std::free(data); }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  std::int64_t bytes;
  std::byte* data;
};

bool is_thread(LaneKind kind) { return kind == LaneKind::kWorker || kind == LaneKind::kIo; }

class Executor {
 public:
  Executor(const Program& program, Device& device, HostWork& host,
           const std::map<std::string, double>& busy,
           const std::function<void(std::int64_t)>& issued)
      : program_(program),
        device_(device),
        host_(host),
        busy_(busy),
        issued_(issued),
        lanes_(program.lanes.size()),
        event_points_(program.event_lanes.size()),
        event_done_(program.event_lanes.size()),
        blocks_(program.buffers) {
    std::uint64_t points = program.lanes.size() * static_cast<std::uint64_t>(program.steps);
    for (const Call& call : program.calls) {
      const bool on_stream = call.kind == Call::Kind::kLaunch || call.kind == Call::Kind::kCopy;
      points += on_stream ? 2 : (call.kind == Call::Kind::kRecord ? 1 : 0);
    }
    device_.prepare(program, static_cast<std::uint32_t>(points),
                    static_cast<std::uint32_t>(event_done_.size()));
    host_.prepare(program);
  }

  Execution run() {
    if (issued_) {
      issued_(0);
    }
    device_.start();
    for (std::uint32_t lane = 0; lane < lanes_.size(); ++lane) {
      if (is_thread(program_.lanes[lane].kind)) {
        lanes_[lane].thread = std::thread([this, lane] { work(lane); });
      }
    }
    try {
      for (std::uint32_t call = 0; call < program_.calls.size(); ++call) {
        if (failed_) {
          break;
        }
        issue(call);
      }
      if (!failed_) {
        synchronize_streams();
      }
    } catch (...) {
      fail(std::current_exception());
    }
    for (LaneState& lane : lanes_) {
      if (lane.thread.joinable()) {
        push(lane, kStop);
        lane.thread.join();
      }
    }
    if (error_) {
      std::rethrow_exception(error_);
    }
    return collect();
  }

 private:
  static constexpr std::uint32_t kStop = ~std::uint32_t{0};

  struct StreamSpan {
    std::uint32_t call, lane, begin, end;  // points
  };
  struct LaneState {
    std::thread thread;
    std::mutex mutex;
    std::condition_variable more;
    std::deque<std::uint32_t> calls;
    std::vector<Span> spans;
    std::vector<double> step_ends;               // of threads
    std::vector<std::uint32_t> step_end_points;  // of streams
  };

  LaneKind kind(std::uint32_t lane) const { return program_.lanes[lane].kind; }

  void push(LaneState& lane, std::uint32_t call) {
    {
      const std::lock_guard lock(lane.mutex);
      lane.calls.push_back(call);
    }
    lane.more.notify_one();
  }

  // The first failure is kept; nobody waits any longer.
  void fail(std::exception_ptr error) {
    {
      const std::lock_guard lock(events_mutex_);
      error_ = error_ ? error_ : error;
      failed_ = true;
    }
    event_happened_.notify_all();
    for (std::uint32_t event = 0; event < event_done_.size(); ++event) {
      device_.set_flag(event);
    }
  }

  // A thread's loop.
  void work(std::uint32_t lane) {
    LaneState& state = lanes_[lane];
    while (true) {
      std::unique_lock lock(state.mutex);
      state.more.wait(lock, [&] { return !state.calls.empty(); });
      const std::uint32_t call = state.calls.front();
      state.calls.pop_front();
      lock.unlock();
      if (call == kStop) {
        return;
      }
      if (failed_) {
        continue;
      }
      try {
        perform(lane, call);
      } catch (...) {
        fail(std::current_exception());
      }
    }
  }

  // By the host thread: does a call, or hands it to its lane.
  void issue(std::uint32_t index) {
    const Call& call = program_.calls[index];
    switch (call.kind) {
      case Call::Kind::kLaunch:
        return launch(index, call);
      case Call::Kind::kCopy:
        return copy(index, call);
      case Call::Kind::kEndStep:
        for (std::uint32_t lane = 0; lane < lanes_.size(); ++lane) {
          end_step(lane, index);
        }
        ++steps_issued_;
        if (issued_) {
          issued_(steps_issued_);
        }
        return;
      case Call::Kind::kSynchronize:
        return synchronize_streams();
      case Call::Kind::kHost:
        return be_busy(index, call);
      case Call::Kind::kPhase: {
        const double at = now();
        lanes_[0].spans.push_back({index, 0, at, at});
        return;
      }
      case Call::Kind::kRecord:
      case Call::Kind::kWait:
        if (kind(call.lane) == LaneKind::kStream) {
          return on_stream(call);
        }
        break;
      case Call::Kind::kAllocate:
      case Call::Kind::kFree:
        if (kind(call.lane) == LaneKind::kStream) {
          return memory(0, index, call);  // the host's allocator, whatever the tensor's stream
        }
        break;
      default:
        break;
    }
    if (is_thread(kind(call.lane))) {
      push(lanes_[call.lane], index);
    } else {
      perform(0, index);
    }
  }

  // By the thread of a lane: the host's, a worker's or a queue's.
  void perform(std::uint32_t lane, std::uint32_t index) {
    const Call& call = program_.calls[index];
    switch (call.kind) {
      case Call::Kind::kCpu: {
        const std::shared_ptr<Block> into = block(call.into);
        return timed(lane, index, [&] {
          host_.compute(call, into ? into->data : nullptr, into ? into->bytes : 0);
        });
      }
      case Call::Kind::kRead:
      case Call::Kind::kWrite:
        return timed(lane, index, [&] { host_.transfer(call); });
      case Call::Kind::kAllocate:
      case Call::Kind::kFree:
        return memory(lane, index, call);
      case Call::Kind::kRecord:
        return happen(call.id);
      case Call::Kind::kWait:
        return wait(lane, call.id);
      case Call::Kind::kEndStep:
        lanes_[lane].step_ends.push_back(now());
        return;
      default:
        return;
    }
  }

  template <class Body>
  void timed(std::uint32_t lane, std::uint32_t index, Body&& body) {
    const double begin = now();
    body();
    lanes_[lane].spans.push_back({index, lane, begin, now()});
  }

  std::uint32_t mark(std::uint32_t stream) {
    device_.mark(stream, next_point_);
    return next_point_++;
  }

  void launch(std::uint32_t index, const Call& call) {
    timed(0, index, [&] {
      const std::uint32_t begin = mark(call.lane);
      const Work& work = program_.works[call.id];
      for (std::size_t kernel = 0; kernel < work.kernels.size(); ++kernel) {
        for (std::int64_t i = 0; i < work.kernels[kernel].count; ++i) {
          device_.launch(call.lane, call.id, kernel);
        }
      }
      stream_spans_.push_back({index, call.lane, begin, mark(call.lane)});
    });
  }

  // A copy of pageable memory keeps the host until it is done, which is no issuing.
  void copy(std::uint32_t index, const Call& call) {
    const bool to_gpu = call.to == Tier::kGpu;
    const bool pinned = (to_gpu ? call.from : call.to) == Tier::kPinned;
    const std::shared_ptr<Block> into = block(call.into);
    const double began = now();
    const std::uint32_t begin = mark(call.lane);
    std::int64_t done = 0, end = 0;
    for (std::int64_t piece = 0; piece < call.times; ++piece) {
      end += call.bytes / call.times + (piece < call.bytes % call.times ? 1 : 0);
      while (done < end) {
        const std::int64_t bytes = std::min(end - done, largest(pinned, into.get(), done));
        std::byte* const memory = pinned                       ? pinned_memory(bytes)
                                  : into && done < into->bytes ? into->data + done
                                                               : host_.pageable(bytes);
        to_gpu ? device_.copy_to_gpu(call.lane, memory, bytes)
               : device_.copy_to_host(call.lane, memory, bytes);
        done += bytes;
      }
    }
    stream_spans_.push_back({index, call.lane, begin, mark(call.lane)});
    if (pinned) {
      lanes_[0].spans.push_back({index, 0, began, now()});
    }
    if (call.blocking || !pinned) {
      device_.synchronize_stream(call.lane);
    }
  }

  // Bytes that can be copied at once from or to where a copy stands.
  std::int64_t largest(bool pinned, const Block* into, std::int64_t done) const {
    if (into != nullptr && !pinned && done < into->bytes) {
      return std::min(into->bytes - done, arena_limit());
    }
    return pinned ? device_.pinned_bytes() : host_.pageable_bytes();
  }

  std::byte* pinned_memory(std::int64_t bytes) {
    if (pinned_at_ + bytes > device_.pinned_bytes()) {
      pinned_at_ = 0;
    }
    std::byte* const at = device_.pinned() + pinned_at_;
    pinned_at_ += (bytes + 255) / 256 * 256;
    return at;
  }

  void be_busy(std::uint32_t index, const Call& call) {
    const auto found = busy_.find(call.what);
    const double seconds =
        found == busy_.end() ? 0 : found->second * static_cast<double>(call.times);
    timed(0, index, [&] {
      for (const double until = now() + seconds; now() < until && !failed_;) {
      }
    });
  }

  void on_stream(const Call& call) {
    if (call.kind == Call::Kind::kRecord) {
      event_points_[call.id] = mark(call.lane);
      return;
    }
    const std::uint32_t from = program_.event_lanes[call.id];
    if (from == call.lane || kind(from) == LaneKind::kHost) {
      return;
    }
    if (kind(from) == LaneKind::kStream) {
      device_.wait_point(call.lane, event_points_[call.id]);
    } else {
      device_.wait_flag(call.lane, call.id);
    }
  }

  // A thread has come to its event.
  void happen(std::uint32_t event) {
    {
      const std::lock_guard lock(events_mutex_);
      event_done_[event] = true;
    }
    device_.set_flag(event);
    event_happened_.notify_all();
  }

  void wait(std::uint32_t lane, std::uint32_t event) {
    const std::uint32_t from = program_.event_lanes[event];
    if (from == lane || kind(from) == LaneKind::kHost) {  // issued earlier: done
      return;
    }
    if (kind(from) == LaneKind::kStream) {
      device_.synchronize_point(event_points_[event]);
      return;
    }
    std::unique_lock lock(events_mutex_);
    event_happened_.wait(lock, [&] { return event_done_[event] || failed_; });
  }

  void synchronize_streams() {
    for (std::uint32_t lane = 0; lane < lanes_.size(); ++lane) {
      if (kind(lane) == LaneKind::kStream) {
        device_.synchronize_stream(lane);
      }
    }
  }

  void end_step(std::uint32_t lane, std::uint32_t index) {
    if (kind(lane) == LaneKind::kStream) {
      lanes_[lane].step_end_points.push_back(mark(lane));
    } else if (is_thread(kind(lane))) {
      push(lanes_[lane], index);
    } else {
      perform(lane, index);
    }
  }

  std::shared_ptr<Block> block(const std::optional<std::uint32_t>& buffer) {
    const std::lock_guard lock(blocks_mutex_);
    return buffer ? blocks_[*buffer] : nullptr;
  }

  // Blocks of pageable memory alone are real. One that another lane still writes stays until then.
  void memory(std::uint32_t lane, std::uint32_t index, const Call& call) {
    if (call.from != Tier::kPageable) {
      return;
    }
    if (call.kind == Call::Kind::kAllocate) {
      auto made = std::make_shared<Block>(call.bytes);
      const std::lock_guard lock(blocks_mutex_);
      blocks_[call.id] = std::move(made);
      return;
    }
    std::shared_ptr<Block> gone;
    {
      const std::lock_guard lock(blocks_mutex_);
      gone = std::move(blocks_[call.id]);
    }
    timed(lane, index, [&] { gone.reset(); });
  }

  Execution collect() {
    Execution execution;
    const std::vector<double> seconds = device_.seconds(next_point_);
    for (std::size_t step = 0; step < static_cast<std::size_t>(program_.steps); ++step) {
      double end = 0;
      for (const LaneState& lane : lanes_) {
        if (!lane.step_end_points.empty()) {
          end = std::max(end, seconds[lane.step_end_points[step]]);
        } else {
          end = std::max(end, lane.step_ends[step]);
        }
      }
      execution.step_ends.push_back(end);
    }
    for (const LaneState& lane : lanes_) {
      execution.spans.insert(execution.spans.end(), lane.spans.begin(), lane.spans.end());
    }
    for (const StreamSpan& span : stream_spans_) {
      execution.spans.push_back({span.call, span.lane, seconds[span.begin], seconds[span.end]});
    }
    return execution;
  }

  const Program& program_;
  Device& device_;
  HostWork& host_;
  const std::map<std::string, double>& busy_;
  const std::function<void(std::int64_t)>& issued_;
  std::int64_t steps_issued_ = 0;
  std::vector<LaneState> lanes_;
  std::vector<StreamSpan> stream_spans_;
  std::uint32_t next_point_ = 0;
  std::int64_t pinned_at_ = 0;

  std::vector<std::uint32_t>
      event_points_;  // by event, of streams'; written before it is handed on
  std::mutex events_mutex_;
  std::condition_variable event_happened_;
  std::vector<bool> event_done_;  // of threads' events
  std::atomic<bool> failed_ = false;
  std::exception_ptr error_;

  std::mutex blocks_mutex_;
  std::vector<std::shared_ptr<Block>> blocks_;  // by buffer
};

}  // namespace

Execution execute(const Program& program, Device& device, HostWork& host,
                  const std::map<std::string, double>& busy,
                  const std::function<void(std::int64_t)>& issued) {
  return Executor(program, device, host, busy, issued).run();
}

}  // namespace offsim::kernels
