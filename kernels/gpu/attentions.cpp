// Attention: what PyTorch's fused kernels take, and what the replay's stand-in takes.
#include <array>
#include <string>

#include "kernels/gpu/attention.h"
#include "kernels/gpu/gpu_benches.h"
#include "kernels/python.h"

namespace offsim::kernels::gpu_bench {

namespace {

struct Point {
  std::int64_t batch, heads, sequence, head_dim;
};
// Those of the models' layers that were measured before, and short and long sequences.
constexpr std::array<Point, 11> kPoints{{{8, 16, 1024, 128},
                                         {1, 32, 512, 128},
                                         {1, 32, 16384, 128},
                                         {8, 12, 1024, 64},
                                         {2, 40, 4096, 128},
                                         {1, 16, 1024, 128},
                                         {1, 32, 4096, 128},
                                         {4, 32, 2048, 128},
                                         {16, 14, 1024, 64},
                                         {32, 24, 1024, 128},
                                         {64, 40, 1024, 128}}};

std::size_t points_of(const Run& run) { return run.quick() ? 3 : kPoints.size(); }

At place(const Point& p) {
  return {
      {"batch", p.batch}, {"heads", p.heads}, {"sequence", p.sequence}, {"head_dim", p.head_dim}};
}

// A graph of calls, so that the host's launches do not count. Backward is a pass of both less the
// median of the forward one.
constexpr const char* kScript = R"(import json
import statistics
import sys

import torch
import torch.nn.functional as F


def graph_samples(fn, repeats):
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(2):
            fn()
    side.synchronize()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record(side)
    with torch.cuda.stream(side):
        fn()
    end.record(side)
    side.synchronize()
    calls = max(1, min(20, int(10 / max(begin.elapsed_time(end), 1e-3))))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            fn()
    graph.replay()
    torch.cuda.synchronize()
    samples = []
    for _ in range(repeats):
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        samples.append(begin.elapsed_time(end) / 1e3 / calls)
    return samples


repeats = int(sys.argv[1])
for shape in sys.argv[2:]:
    b, h, s, d = (int(x) for x in shape.split(","))
    torch.manual_seed(0)
    q, k, v, g = (torch.randn(b, h, s, d, device="cuda", dtype=torch.bfloat16) for _ in range(4))

    def forward():
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    def both():
        return torch.autograd.grad(forward(), (q, k, v), g)

    at = {"batch": b, "heads": h, "sequence": s, "head_dim": d}
    print(json.dumps({"at": at | {"backward": 0}, "samples": graph_samples(forward, repeats)}))
    for x in (q, k, v):
        x.requires_grad_(True)
    less = statistics.median(graph_samples(forward, repeats))  # it saves its statistics now
    samples = [x - less for x in graph_samples(both, repeats)]
    print(json.dumps({"at": at | {"backward": 1}, "samples": samples}), flush=True)
)";

}  // namespace

void attention(const Run& run) {
  std::vector<std::string> arguments{run.quick() ? "3" : "7"};
  for (std::size_t i = 0; i < points_of(run); ++i) {
    const Point& p = kPoints[i];
    arguments.push_back(std::to_string(p.batch) + "," + std::to_string(p.heads) + "," +
                        std::to_string(p.sequence) + "," + std::to_string(p.head_dim));
  }
  python_points(run, kScript, arguments, 120);
}

void standin_attention(const Run& run) {
  gpu::Timer timer;
  const gpu::Lt lt;
  gpu::Timing timing;
  timing.graph_below = 0;  // it is a graph, of up to 2560 products
  timing.hold = false;
  for (std::size_t i = 0; i < points_of(run); ++i) {
    const Point& p = kPoints[i];
    for (const bool backward : {false, true}) {
      const gpu::AttentionShape shape{p.batch, p.heads, p.sequence, p.head_dim, backward};
      const std::size_t tensor = gpu::attention_tensor_bytes(shape);
      const gpu::DeviceBuffer tensors(7 * tensor), scratch(gpu::attention_scratch_bytes(shape));
      gpu::fill_normal(tensors.data(), gpu::Type::kBf16, tensors.size() / 2, 1, timer.stream());
      gpu::AttentionBuffers buffers;
      std::byte* next = tensors.data();
      for (std::byte** at : {&buffers.q, &buffers.k, &buffers.v, &buffers.o, &buffers.dq,
                             &buffers.dk, &buffers.dv}) {
        *at = next;
        next += tensor;
      }
      buffers.scratch = scratch.data();
      const gpu::Attention attention(lt, shape, buffers, timer.stream());
      At at = place(p);
      at.emplace_back("backward", std::int64_t{backward ? 1 : 0});
      run.point(std::move(at), timer.per_call([&](int) { attention.run(timer.stream()); }, timing));
    }
  }
}

}  // namespace offsim::kernels::gpu_bench
