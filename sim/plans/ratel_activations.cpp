#include "sim/plans/ratel_activations.h"

#include <algorithm>

#include "sim/machine/cost.h"
#include "sim/model/tensors.h"
#include "sim/plans/common.h"
#include "sim/runtime/price.h"

namespace offsim::plans {

using model::Kernel;
using runtime::Event;
using runtime::kCompute;
using runtime::Recorder;
using runtime::Space;

namespace {

runtime::Half half_of(const Job& job) {
  return job.workload.precision == Precision::kFp16Mixed ? runtime::Half::kFp16
                                                         : runtime::Half::kBf16;
}

bool is_product(const Kernel& kernel) { return kernel.kind == Kernel::Kind::kGemm; }

}  // namespace

RatelActivations::RatelActivations(const Job& job, Recorder& gpu, const model::Pieces& pieces,
                                   Bytes pinned, Bytes in_flight)
    : gpu_(gpu),
      in_flight_(in_flight),
      checkpoints_(2 * pieces.hidden.value),
      blocks_(static_cast<std::size_t>(job.shape.layers)),
      stream_(gpu.stream("activations")) {
  measure_kinds(job, pieces);
  const SwapProfile measured = profile(job, pieces, pinned);
  plan(job, measured);
  place(measured);
  for (Block& block : blocks_) {
    block.recompute = gpu.work(recomputation(pieces.layers.front(), block));
  }
  free_.fill(gpu.record(kCompute));
  written_.fill(gpu.record(kCompute));
}

void RatelActivations::measure_kinds(const Job& job, const model::Pieces& pieces) {
  using model::Part;
  kinds_[0].name = "down_proj";
  kinds_[0].parts = {Part::kDown};
  kinds_[1].name = "o_proj";
  kinds_[1].parts = {Part::kOut};
  kinds_[2].name = "q_proj";
  kinds_[2].parts = {Part::kQ, Part::kK, Part::kV, Part::kQkv};
  kinds_[3].name = "gate_proj";
  kinds_[3].parts = {Part::kGate, Part::kUp, Part::kGateUp};
  for (Kind& kind : kinds_) {
    for (const model::Module& module : pieces.layers.front().modules) {
      if (std::ranges::find(kind.parts, module.part) == kind.parts.end()) {
        continue;
      }
      model::Work products{"products", {}};
      std::ranges::copy_if(module.forward.kernels, std::back_inserter(products.kernels),
                           is_product);
      for (const Kernel& product : products.kernels) {
        kind.bytes += 2 * product.m * product.n * product.count;
      }
      kind.saved += runtime::price_work(job.machine, products, half_of(job)).seconds;
    }
    SIM_ASSERT(kind.bytes > 0, "a block has these four products");
  }
}

// What iteration 0 would measure, and what memory is left.
SwapProfile RatelActivations::profile(const Job& job, const model::Pieces& pieces,
                                      Bytes pinned) const {
  const machine::Machine& m = job.machine;
  const auto seconds = [&](const model::Work& work, std::int64_t times = 1) {
    return runtime::price_work(m, work, half_of(job)).seconds * static_cast<double>(times);
  };
  const std::int64_t n = model::parameters(job.shape), layers = job.shape.layers;
  const model::Piece& layer = pieces.layers.front();
  std::int64_t block = checkpoints_;
  for (const Kind& kind : kinds_) {
    block += kind.bytes;
  }
  const auto left = [](Bytes of, std::int64_t taken) {
    return std::max(Bytes(0), of - Bytes(taken));
  };
  const machine::Drive& drive = m.drives.front();
  SwapProfile p;
  p.forward = seconds(pieces.embedding.forward) + seconds(layer.forward, layers) +
              seconds(pieces.head.forward);
  p.backward = seconds(pieces.head.backward) + seconds(layer.forward, layers) +
               seconds(layer.backward, layers) + seconds(pieces.embedding.backward);
  p.weights = Bytes(2 * n);
  p.checkpoints = Bytes(layers * checkpoints_);
  p.host_room = left(m.host.memory.value, m.framework.process_resident.value.value + pinned.value +
                                              static_cast<std::int64_t>(kSpillBuffers) * block);
  p.drive_room = left(drive.capacity.value, 14 * n);
  p.to_host = runtime::price_copy(m, false, false, Bytes(kGiB), 1).rate;
  p.to_gpu = runtime::price_copy(m, true, false, Bytes(kGiB), 1).rate;
  p.read = machine::drive_read(drive, in_flight_, 1).rate;
  p.write = machine::drive_write(drive, in_flight_, 1).rate;
  return p;
}

void RatelActivations::plan(const Job& job, const SwapProfile& profile) {
  std::vector<SwapCandidate> candidates;
  for (const Kind& kind : kinds_) {
    candidates.insert(candidates.end(), blocks_.size(), {Bytes(kind.bytes), kind.saved});
  }
  const std::vector<std::size_t> chosen =
      job.options.text("planner") == "convex"
          ? convex_swap(profile, candidates)
          : ordered_swap(profile, job.options.number("swap_ratio"), candidates);
  for (Block& block : blocks_) {
    block.bytes = checkpoints_;
  }
  for (const std::size_t candidate : chosen) {
    const std::size_t kind = candidate / blocks_.size();
    Block& block = blocks_[candidate % blocks_.size()];
    block.kept[kind] = true;
    block.bytes += kinds_[kind].bytes;
  }
}

void RatelActivations::place(const SwapProfile& profile) {
  std::int64_t held = 0, spilled = 0, largest = 0;
  for (const Block& block : blocks_) {
    held += block.bytes;
    largest = std::max(largest, block.bytes);
  }
  for (int buffer = 0; buffer < 2; ++buffer) {
    gpu_.allocate(Space::kGpu, Bytes(largest), "activations on their way");
  }
  for (Block& block : blocks_) {
    if (held > profile.host_room.value) {
      block.spilled = true;
      held -= block.bytes;
      spilled += block.bytes;
    }
  }
  gpu_.allocate_exact(Space::kPinned, Bytes(held), "activations");
  if (spilled > 0) {
    io_ = gpu_.io_queue("activations");
    gpu_.allocate_exact(Space::kPinned, Bytes(static_cast<std::int64_t>(kSpillBuffers) * largest),
                        "buffers of spilled activations");
    gpu_.allocate_exact(Space::kNvme, Bytes(spilled), "activations");
  }
}

model::Work RatelActivations::recomputation(const model::Piece& layer, const Block& block) const {
  model::Work work{"layer recompute", {}};
  for (const model::Module& module : layer.modules) {
    std::size_t kind = 0;
    while (kind < kKinds &&
           std::ranges::find(kinds_[kind].parts, module.part) == kinds_[kind].parts.end()) {
      ++kind;
    }
    const bool kept = kind < kKinds && block.kept[kind];
    std::ranges::copy_if(module.forward.kernels, std::back_inserter(work.kernels),
                         [&](const Kernel& kernel) { return !(kept && is_product(kernel)); });
  }
  for (std::size_t kind = 0; kind < kKinds; ++kind) {
    if (block.kept[kind]) {
      work.name += fmt::format("{} {}", work.name.ends_with("recompute") ? " (without" : ",",
                               kinds_[kind].name);
    }
  }
  if (!work.name.ends_with("recompute")) {
    work.name += ")";
  }
  return work;
}

runtime::WorkId RatelActivations::recompute(std::int64_t block) const {
  return at(block).recompute;
}

void RatelActivations::wait_for_room(std::int64_t block) {
  gpu_.wait(kCompute, free_[parity(block)]);
}

void RatelActivations::leave(std::int64_t block) {
  gpu_.wait(stream_, gpu_.record(kCompute));
  Event& written = written_[spills_ % kSpillBuffers];
  if (at(block).spilled) {
    gpu_.wait(stream_, written);
  }
  gpu_.copy_d2h(stream_, Space::kPinned, Bytes(at(block).bytes), "activations");
  free_[parity(block)] = gpu_.record(stream_);
  if (at(block).spilled) {
    gpu_.wait(*io_, free_[parity(block)]);
    gpu_.write(*io_, Bytes(at(block).bytes), in_flight_, "activations to the drive");
    written = gpu_.record(*io_);
    ++spills_;
  }
}

void RatelActivations::begin_backward() {
  const auto last = static_cast<std::int64_t>(blocks_.size());
  bring(last);
  bring(last - 1);
}

void RatelActivations::bring(std::int64_t block) {
  if (block < 1) {
    return;
  }
  if (at(block).spilled) {
    gpu_.read(*io_, Bytes(at(block).bytes), in_flight_, "activations from the drive");
    gpu_.wait(stream_, gpu_.record(*io_));
  }
  gpu_.wait(stream_, free_[parity(block)]);
  gpu_.copy_h2d(stream_, Space::kPinned, Bytes(at(block).bytes), "activations");
  ready_[parity(block)] = gpu_.record(stream_);
}

void RatelActivations::wait_for(std::int64_t block) { gpu_.wait(kCompute, ready_[parity(block)]); }

void RatelActivations::used(std::int64_t block) {
  free_[parity(block)] = gpu_.record(kCompute);
  bring(block - 2);
}

}  // namespace offsim::plans
