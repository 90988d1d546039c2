#!/usr/bin/env python3
"""Do gradients below the C library's map threshold get new pages in each step of a real process?

`python3 kernels/measure_heap.py > heap.jsonl`, with PyTorch. A thread (or the main one) makes the
bf16 gradients of a model, tensor by tensor, as MegaTrain's worker does; the main thread frees them
all after a pass over them. A line a step: page faults in making them, of how many pages they have,
milliseconds of freeing them. Nothing but what PyTorch itself allocates lies in between.
"""
import json
import queue
import resource
import threading
import time

import torch

SMALL = [4194304] * 4 + [11272192] * 3 + [2048] * 2  # a layer, 2048 wide
WIDE = [9437184] * 4 + [25165824] * 3 + [3072] * 2  # 3072 wide


def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def run(name, layer, layers, tail, worker, steps):
    sizes = layer * layers + tail
    params = [torch.zeros(n, dtype=torch.bfloat16) for n in sizes]
    stage = torch.ones(max(sizes), dtype=torch.bfloat16)

    def make():
        for p, n in zip(params, sizes):
            grad = torch.empty(n, dtype=torch.bfloat16)
            grad.copy_(stage[:n])
            p.grad = grad

    tasks = queue.Queue()

    def loop():
        while (task := tasks.get()) is not None:
            task()
            tasks.task_done()

    thread = threading.Thread(target=loop)
    thread.start()
    for step in range(steps):
        before = faults()
        if worker:
            tasks.put(make)
            tasks.join()
        else:
            make()
        made = faults()
        for p in params:
            torch.linalg.vector_norm(p.grad)
        begin = time.perf_counter()
        for p in params:
            p.grad = None
        print(json.dumps({"run": name, "worker": worker, "step": step, "faults": made - before,
                          "pages": sum(-(-2 * n // 4096) for n in sizes),
                          "free_ms": round(1e3 * (time.perf_counter() - begin), 1)}), flush=True)
    tasks.put(None)
    thread.join()


run("first", SMALL, 24, [65536000] * 2, True, 9)
run("wide", WIDE, 28, [98304000] * 2, True, 6)
run("again", SMALL, 24, [65536000] * 2, True, 6)
run("main thread", SMALL, 24, [65536000] * 2, False, 8)
