// What PyTorch's Python takes on this host: a launch, bare and inside a transformer's layer.
#include <string>

#include "kernels/gpu/gpu_benches.h"
#include "kernels/python.h"

namespace offsim::kernels::gpu_bench {

namespace {

// A model so small that the GPU waits for the host. Of a layer: twelve layers less four, over the
// kernels that the profiler counts in them.
constexpr const char* kScript = R"(import json
import sys
import time

import torch

repeats = int(sys.argv[1])


def point(what, samples):
    print(json.dumps({"at": {"what": what}, "samples": samples}), flush=True)


def calls(fn, count):
    samples = []
    for _ in range(repeats + 1):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(count):
            fn()
        samples.append((time.perf_counter() - begin) / count)
    torch.cuda.synchronize()
    return samples[1:]


x = torch.randn(1024, device="cuda")
point("launch", calls(lambda: x.mul_(1.0), 500))
host, device = torch.randn(16384).pin_memory(), torch.randn(16384, device="cuda")
point("copy_call", calls(lambda: device.copy_(host, non_blocking=True), 300))


def fused_adam(dtype, name):
    """Seconds on the GPU of a step over 16 tensors of 16 Mi elements."""
    parameters = [torch.nn.Parameter(torch.randn(1 << 24, device="cuda").to(dtype))
                  for _ in range(16)]
    for p in parameters:
        p.grad = torch.randn_like(p)
    optimizer = torch.optim.AdamW(parameters, lr=1e-5, fused=True)
    optimizer.step()
    samples = []
    for _ in range(repeats):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        optimizer.step()
        end.record()
        torch.cuda.synchronize()
        samples.append(begin.elapsed_time(end) / 1e3)
    print(json.dumps({"at": {"what": name, "elements": 16 << 24}, "samples": samples}), flush=True)


fused_adam(torch.float32, "adam_f32")
fused_adam(torch.bfloat16, "adam_bf16")
if len(sys.argv) > 2:  # quick: transformers takes seconds to import
    sys.exit(0)
try:
    from transformers import LlamaConfig, LlamaForCausalLM
except ImportError:
    sys.exit(0)


def kernels(fn):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        fn()
        torch.cuda.synchronize()
    return sum(e.device_type == torch.autograd.DeviceType.CUDA for e in profile.events())


def layers(count):
    """Host seconds of forward, backward and step, a sample each a pass; kernels; parameters."""
    torch.manual_seed(0)
    config = LlamaConfig(num_hidden_layers=count, hidden_size=256, intermediate_size=512,
                         num_attention_heads=4, num_key_value_heads=4, vocab_size=512,
                         max_position_embeddings=256, tie_word_embeddings=False)
    model = LlamaForCausalLM(config).to("cuda", torch.bfloat16)
    ids = torch.randint(0, 512, (1, 64), device="cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    passes = []
    for _ in range(3 + 2 * repeats):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        loss = model(input_ids=ids, labels=ids).loss
        forward = time.perf_counter()
        torch.cuda.synchronize()
        before = time.perf_counter()
        loss.backward()
        backward = time.perf_counter()
        torch.cuda.synchronize()
        last = time.perf_counter()
        optimizer.step()
        step = time.perf_counter()
        optimizer.zero_grad()
        passes.append((forward - begin, backward - before, step - last))
    launched = [0, 0]

    def run_forward():
        launched.append(model(input_ids=ids, labels=ids).loss)

    counted = kernels(run_forward), kernels(lambda: launched.pop().backward())
    times = [sorted(p[i] for p in passes[3:]) for i in range(3)]
    return times, counted, len(list(model.parameters()))


(few, few_kernels, few_parameters), (many, many_kernels, many_parameters) = layers(4), layers(12)
for i, what in enumerate(("forward", "backward")):
    more = many_kernels[i] - few_kernels[i]
    if more > 0:
        point(what, [(b - a) / more for a, b in zip(few[i], many[i])])
tensors = many_parameters - few_parameters
point("optimizer_tensor", [(b - a) / tensors for a, b in zip(few[2], many[2])])
)";

}  // namespace

void torch_launch(const Run& run) {
  std::vector<std::string> arguments{"9"};
  if (run.quick()) {
    arguments = {"3", "quick"};
  }
  python_points(run, kScript, arguments, 120);
}

}  // namespace offsim::kernels::gpu_bench
