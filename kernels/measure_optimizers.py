#!/usr/bin/env python3
"""Host seconds of torch's CPU optimizers, tensor by tensor: python3 kernels/measure_optimizers.py > OUT.jsonl

Lists of distinct tensors larger than the CPU's caches, so that every step comes from memory; the median of several
steps after a warm-up. `one_each`: an optimizer object for every tensor, as torchao's CPUOffloadOptimizer has them.
"""
import json
import statistics
import time

import torch


def timed(call, repeats=5):
    call()
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return {"s": round(statistics.median(seconds), 6), "all_s": [round(s, 6) for s in seconds]}


def parameters(elements, tensors, dtype):
    made = []
    for _ in range(tensors):
        p = torch.nn.Parameter(torch.randn(elements, dtype=torch.float32).to(dtype))
        p.grad = torch.randn(elements, dtype=torch.float32).to(dtype)
        made.append(p)
    return made


def distributed(tensors):
    """The same tensors as DTensors on a mesh of one, as FSDP2 keeps them."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Shard
    mesh = init_device_mesh("cpu", (1,))
    made = []
    for p in tensors:
        d = torch.nn.Parameter(DTensor.from_local(p.detach(), mesh, [Shard(0)]))
        d.grad = DTensor.from_local(p.grad, mesh, [Shard(0)])
        made.append(d)
    return made


def main():
    import os
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29511")
    torch.distributed.init_process_group("gloo", rank=0, world_size=1)
    print(json.dumps({"kind": "env", "torch": torch.__version__, "threads": torch.get_num_threads()}), flush=True)
    for dtype in (torch.float32, torch.bfloat16):
        for elements, tensors in ((2048, 400), (4194304, 48), (8388608, 24), (11272192, 24), (16777216, 16), (65536000, 4)):
            for kind in ("plain", "dtensor", "one_each"):
                for fused in (True, False):
                    if kind == "one_each" and not fused:
                        continue
                    ps = parameters(elements, tensors, dtype)
                    if kind == "dtensor":
                        ps = distributed(ps)
                    groups = [[p] for p in ps] if kind == "one_each" else [ps]
                    optimizers = [torch.optim.AdamW(g, lr=1e-4, fused=fused, foreach=False) for g in groups]
                    record = timed(lambda: [o.step() for o in optimizers], 3 if elements > 1 << 20 else 9)
                    print(json.dumps({"kind": "cpu_adamw", "dtype": str(dtype)[6:], "n": elements, "tensors": tensors,
                                      "as": kind, "fused": fused, **record}), flush=True)
                    del ps, optimizers, groups


if __name__ == "__main__":
    main()
