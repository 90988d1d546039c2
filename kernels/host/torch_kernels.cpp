#include "kernels/host/torch_kernels.h"

#include "kernels/host/host.h"
#include "kernels/host/pool.h"
#include "kernels/python.h"

namespace offsim::kernels {

namespace {

// Lists of tensors beyond the caches, as an optimizer's step or clipping runs over them; of the
// smallest size 256 tensors at most, since there the calls cost more than the bytes.
constexpr std::string_view kScript = R"(import json
import sys
import time

import torch

threads, list_bytes, most_bytes, budget = (int(a) for a in sys.argv[1:])
begin = time.perf_counter()
MI = 1 << 20


def timed(call):
    call()
    seconds = []
    start = time.perf_counter()
    while True:
        t = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - t)
        spent = time.perf_counter() - start
        if spent > 0.3 or len(seconds) == 15 or (spent > 0.05 and len(seconds) >= 3):
            return seconds


def point(kernel, elements, count, call, used):
    if time.perf_counter() - begin > budget:
        sys.exit(f"stopped after {budget} s, before {kernel} of {elements} elements")
    seconds = timed(call)
    print(json.dumps({"at": {"kernel": kernel, "elements": elements, "threads": used},
                      "samples": [s / count for s in seconds]}), flush=True)


def kernels(elements, dtype, short):
    """Names and calls over lists, those that make others' data invalid last."""
    size = 4 if short == "f32" else 2
    count = min(256, max(1, -(-list_bytes // (elements * size))))
    if 6 * count * elements * size > most_bytes:
        count = max(1, most_bytes // (6 * elements * size))
    drawn = torch.randn(min(elements, MI)).to(dtype)  # by one thread: slow for more
    base = drawn.repeat(elements // drawn.numel())
    ps = [torch.nn.Parameter(base.clone()) for _ in range(count)]
    for p in ps:
        p.grad = base.clone()
    gs = [p.grad for p in ps]
    outs = [torch.empty_like(p.data).copy_(p.data) for p in ps]
    other = torch.bfloat16 if short == "f32" else torch.float32
    casts = [torch.empty_like(g, dtype=other).copy_(g) for g in gs]
    yield count, f"norm_{short}", lambda: [torch.linalg.vector_norm(g) for g in gs]
    yield count, f"isinf_any_{short}", lambda: [torch.isinf(g).any() for g in gs]
    yield count, f"mul_{short}", lambda: [g.mul_(1.0) for g in gs]
    yield count, f"copy_{short}", lambda: [o.copy_(g) for o, g in zip(outs, gs)]
    cast = "cast_f32_bf16" if short == "f32" else "cast_bf16_f32"
    yield count, cast, lambda: [c.copy_(g) for c, g in zip(casts, gs)]
    yield count, f"add_{short}", lambda: [o.add_(g) for o, g in zip(outs, gs)]
    yield count, f"zero_{short}", lambda: [o.zero_() for o in outs]
    del outs, casts
    try:
        fused = torch.optim.AdamW(ps, lr=1e-5, fused=True)
        yield count, f"adam_torch_fused_{short}", fused.step
        del fused
    except (TypeError, RuntimeError):
        pass  # before 2.4 there is none on the CPU
    loop = torch.optim.AdamW(ps, lr=1e-5, foreach=False)
    yield count, f"adam_torch_loop_{short}", loop.step


DTYPES = ((torch.float32, "f32"), (torch.bfloat16, "bf16"))
BY_THREADS = ("adam_torch_fused_f32", "mul_f32", "norm_f32")
# Sizes on both sides of what the C library maps afresh: 32 MiB.
for elements in [16 * MI, 4096, MI, 4 * MI, 9 * MI, 256 * MI]:
    for dtype, short in DTYPES:
        if elements * 6 * (4 if short == "f32" else 2) > most_bytes:
            continue
        torch.set_num_threads(threads)
        for count, name, call in kernels(elements, dtype, short):
            point(name, elements, count, call, threads)
            if name in BY_THREADS and elements == 16 * MI:
                used = 1
                while used < threads:
                    torch.set_num_threads(used)
                    point(name, elements, count, call, used)
                    used *= 2
                torch.set_num_threads(threads)
)";

}  // namespace

std::optional<std::string> torch_cpu_unavailable(const Options& options) {
  return options.quick ? std::string("not with --quick: our kernels stand for PyTorch's")
                       : python_lacks("torch");
}

void torch_cpu_kernel(const Run& run) {
  constexpr int kBudget = 40;
  // Twice the budget and the import at most: a single call may take long.
  python_points(run, kScript,
                {std::to_string(usable_cores()), std::to_string(uncached_bytes()),
                 std::to_string(available_bytes() / 2), std::to_string(kBudget)},
                2.0 * kBudget + 30);
}

}  // namespace offsim::kernels
