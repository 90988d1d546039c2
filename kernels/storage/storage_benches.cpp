// The benches of a drive: direct I/O on a new file (scratch_file.h), filled with random data first,
// so that reads find data and writes go over blocks that exist.
#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <random>
#include <stdexcept>

#include "kernels/bench.h"
#include "kernels/host/host.h"
#include "kernels/host/pool.h"
#include "kernels/storage/engine.h"
#include "kernels/storage/scratch_file.h"

namespace offsim::kernels {

namespace {

constexpr std::int64_t kKiB = std::int64_t{1} << 10;
constexpr std::int64_t kMebibyte = std::int64_t{1} << 20;
constexpr std::int64_t kPage = 4096;
constexpr std::int64_t kFillBlock = 8 * kMebibyte;

enum class Op : std::uint8_t { kRead, kWrite, kMixed };
constexpr std::array kOps{Op::kRead, Op::kWrite, Op::kMixed};

const char* word(Op op) { return op == Op::kRead ? "read" : op == Op::kWrite ? "write" : "mixed"; }

// Memory whose pages are there, with random data where that is asked for.
Mapping touched(std::int64_t bytes, bool random) {
  Mapping mapping(bytes);
  std::mt19937_64 generator(5);
  const std::int64_t step = random ? static_cast<std::int64_t>(sizeof generator()) : kPage;
  for (std::int64_t at = 0; at < mapping.bytes(); at += step) {
    const auto number = random ? generator() : 1;
    std::memcpy(mapping.data() + at, &number, sizeof number);
  }
  return mapping;
}

// The file and what is written to it.
class Drive {
 public:
  Drive(const Run& run, double fill_seconds)
      : file_(run.options().file), random_(touched(64 * kMebibyte, true)) {
    constexpr std::int64_t kQuick = 1024 * kMebibyte, kFull = 8192 * kMebibyte;
    fill(scratch_bytes(run.options().file, run.options().file_bytes, run.quick() ? kQuick : kFull),
         fill_seconds);
    verify();
  }

  int descriptor() const { return file_.descriptor(); }
  std::int64_t bytes() const { return bytes_; }
  // Memory to read into, its pages there.
  std::byte* buffers(std::int64_t bytes) {
    if (!buffers_ || buffers_->bytes() < bytes) {
      buffers_ = std::make_unique<Mapping>(touched(bytes, false));
    }
    return buffers_->data();
  }
  // Random data for request `index`: another place for the next, so that no block of the file is
  // written twice with the same.
  std::byte* data(std::int64_t index, std::int64_t block) const {
    const std::int64_t places = (random_.bytes() - block) / kPage + 1;
    return random_.data() + index * 7919 % places * kPage;
  }

 private:
  static constexpr int kFillDepth = 8;

  // Block b holds the random data, and at each page's begin where that page lies.
  void stamp(std::byte* buffer, std::int64_t offset) const {
    std::memcpy(buffer, data(offset / kFillBlock, kFillBlock), kFillBlock);
    for (std::int64_t at = 0; at < kFillBlock; at += kPage) {
      const std::int64_t place = offset + at;
      std::memcpy(buffer + at, &place, sizeof place);
    }
  }

  void fill(std::int64_t most, double seconds) {
    const Mapping buffers(kFillDepth * kFillBlock);
    const auto engine = make_io_engine(descriptor(), kFillDepth);
    const double begin = now();
    int in_flight = 0;
    while (bytes_ < most && now() - begin < seconds) {
      const int slot = in_flight < kFillDepth ? in_flight++ : engine->wait();
      std::byte* buffer = buffers.data() + slot * kFillBlock;
      stamp(buffer, bytes_);
      engine->submit({true, buffer, bytes_, kFillBlock, slot});
      bytes_ += kFillBlock;
    }
    for (; in_flight > 0; --in_flight) {
      engine->wait();
    }
    if (bytes_ < 8 * kFillBlock) {
      throw std::runtime_error("the drive is too slow to measure: it took " +
                               std::to_string(bytes_) + " B in " + std::to_string(seconds) + " s");
    }
  }

  // That what was written is there: a few blocks from the whole file.
  void verify() const {
    const Mapping found(kFillBlock), expected(kFillBlock);
    const auto engine = make_io_engine(descriptor(), 1);
    for (std::int64_t i = 0; i < 8; ++i) {
      const std::int64_t offset = bytes_ / kFillBlock * i / 8 * kFillBlock;
      engine->submit({false, found.data(), offset, kFillBlock, 0});
      engine->wait();
      stamp(expected.data(), offset);
      if (std::memcmp(found.data(), expected.data(), kFillBlock) != 0) {
        throw std::runtime_error("the drive gives back other bytes than were written");
      }
    }
  }

  ScratchFile file_;
  Mapping random_;
  std::unique_ptr<Mapping> buffers_;  // grown when more are asked for
  std::int64_t bytes_ = 0;            // filled
};

struct Load {
  Op op;
  std::int64_t block;
  int depth;
  int threads;
};

struct Done {
  double time;
  std::int64_t bytes;
};

// One thread's share: its part of the file in order, again from its begin at its end, `depth` in
// flight for so many seconds (longer where that gives too few).
std::vector<Done> work(const Drive& drive, const Load& load, int thread, std::byte* buffers,
                       double seconds) {
  const std::int64_t blocks = drive.bytes() / load.block / load.threads;
  const std::int64_t first = blocks * thread;
  const auto engine = make_io_engine(drive.descriptor(), load.depth);
  std::vector<Done> done;
  std::int64_t sent = 0;
  const auto send = [&](int slot) {
    const bool write = load.op == Op::kWrite || (load.op == Op::kMixed && sent % 2 == 1);
    std::byte* buffer = write ? drive.data(first + sent, load.block) : buffers + slot * load.block;
    engine->submit({write, buffer, (first + sent % blocks) * load.block, load.block, slot});
    ++sent;
  };
  const double begin = now();
  for (int slot = 0; slot < load.depth; ++slot) {
    send(slot);
  }
  while (true) {
    const int slot = engine->wait();
    const double time = now() - begin;
    done.push_back({time, load.block});
    const bool enough = done.size() > 4 * static_cast<std::size_t>(load.depth);
    if ((time >= seconds && enough) || time >= 4 * seconds) {
      return done;  // the engine waits for the others
    }
    send(slot);
  }
}

// Completions of all threads in order of time.
std::vector<Done> run_load(Drive& drive, const Load& load, double seconds) {
  std::byte* buffers = drive.buffers(load.block * load.depth * load.threads);
  Pool pool(load.threads);
  std::vector<std::vector<Done>> each(static_cast<std::size_t>(load.threads));
  pool.run(load.threads, [&](int i) {
    each[static_cast<std::size_t>(i)] =
        work(drive, load, i, buffers + i * load.block * load.depth, seconds);
  });
  std::vector<Done> all;
  double end = 1e9;  // when the first thread stopped: from then on the others have more
  for (const auto& part : each) {
    end = std::min(end, part.back().time);
    all.insert(all.end(), part.begin(), part.end());
  }
  std::erase_if(all, [&](const Done& one) { return one.time > end; });
  std::sort(all.begin(), all.end(), [](const Done& a, const Done& b) { return a.time < b.time; });
  return all;
}

// Bytes a second of up to five stretches of the completions, at least `least` in each; what comes
// before the first `least` is the start and does not count.
std::vector<double> rates(const std::vector<Done>& done, std::size_t least) {
  if (done.size() < 2) {
    throw std::runtime_error("the drive is too slow to measure");
  }
  const std::size_t start = std::min(least, done.size() / 2) - 1;
  const std::size_t count = done.size() - 1 - start;
  const std::size_t stretches = std::clamp<std::size_t>(count / least, 1, 5);
  std::vector<double> out;
  std::size_t from = start;
  for (std::size_t i = 1; i <= stretches; ++i) {
    const std::size_t to = start + count * i / stretches;
    std::int64_t bytes = 0;
    for (std::size_t k = from + 1; k <= to; ++k) {
      bytes += done[k].bytes;
    }
    out.push_back(static_cast<double>(bytes) / std::max(done[to].time - done[from].time, 1e-9));
    from = to;
  }
  return out;
}

double drive_point(const Run& run, Drive& drive, const Load& load) {
  const double seconds = run.quick() ? 0.08 : 0.4;
  const auto least = static_cast<std::size_t>(load.depth * load.threads);
  const auto samples = rates(run_load(drive, load, seconds), least);
  run.point({{"op", word(load.op)},
             {"block", load.block},
             {"depth", load.depth},
             {"threads", load.threads},
             {"engine", std::string(make_io_engine(drive.descriptor(), 1)->name())}},
            samples, Unit::kBytesPerSecond);
  return median_of(samples).value;
}

void drive(const Run& run) {
  Drive drive(run, run.quick() ? 4 : 20);
  for (const Op op : kOps) {
    Load best{op, kMebibyte, 1, 4};
    double most = 0;
    for (const std::int64_t block : {128 * kKiB, kMebibyte, 8 * kMebibyte}) {
      for (const int depth : {1, 8, 32}) {
        if (run.quick() && (depth == 1 || block == kMebibyte)) {
          continue;
        }
        const double rate = drive_point(run, drive, {op, block, depth, 1});
        if (rate > most) {
          most = rate;
          best = {op, block, depth, 4};
        }
      }
    }
    drive_point(run, drive, best);
  }
}

void drive_latency(const Run& run) {
  const Drive drive(run, run.quick() ? 1 : 3);
  const Mapping buffer = touched(kPage, false);
  const auto engine = make_io_engine(drive.descriptor(), 1);
  std::mt19937_64 random(3);
  const auto pages = static_cast<std::uint64_t>(drive.bytes() / kPage);
  const auto read = [&] {
    const auto offset = static_cast<std::int64_t>(random() % pages) * kPage;
    engine->submit({false, buffer.data(), offset, kPage, 0});
    engine->wait();
  };
  run.point({{"op", "read"}, {"block", kPage}},
            time_host(read, {5, 20, run.quick() ? 500 : 5000, run.quick() ? 0.5 : 2}));
}

void drive_space(const Run& run) {
  const Space space = space_at(run.options().file);
  run.point({{"what", "total"}}, {static_cast<double>(space.total)}, Unit::kBytes);
  run.point({{"what", "free"}}, {static_cast<double>(space.free)}, Unit::kBytes);
}

// Drives take the first gigabytes into a faster part of theirs: the last third of ten seconds.
void drive_sustained(const Run& run) {
  constexpr int kSeconds = 10, kDepth = 8;
  Drive drive(run, 10);
  auto done = run_load(drive, {Op::kWrite, 8 * kMebibyte, kDepth, 1}, kSeconds);
  const double from = done.back().time * 2 / 3;
  std::erase_if(done, [&](const Done& one) { return one.time < from; });
  run.point({{"op", "write"}, {"seconds", kSeconds}}, rates(done, kDepth), Unit::kBytesPerSecond);
}

std::optional<std::string> unavailable(const Options& options) {
  return options.file.empty() ? "no --file given"
                              : scratch_refused(options.file, options.file_bytes);
}

std::optional<std::string> sustained_unavailable(const Options& options) {
  return options.quick ? "not with --quick" : unavailable(options);
}

}  // namespace

std::vector<Bench> storage_benches() {
  return {
      {"drive_space", Group::kStorage, "how large the drive is, and how much is free", unavailable,
       drive_space},
      {"drive", Group::kStorage, "direct reads and writes by size, depth and threads", unavailable,
       drive},
      {"drive_latency", Group::kStorage, "one small read", unavailable, drive_latency},
      {"drive_sustained", Group::kStorage, "writes once the drive's cache is full",
       sustained_unavailable, drive_sustained},
  };
}

}  // namespace offsim::kernels
