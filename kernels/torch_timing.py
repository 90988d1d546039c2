"""Medians of what a call takes: by the wall, by events, inside a CUDA graph."""
import statistics
import time

import torch

DEV = "cuda"


def sync_time(fn, repeats=5, warm=2):
    """Wall seconds a call, synchronised, the launch queue kept full: median of repeats."""
    for _ in range(warm):
        fn()
    torch.cuda.synchronize()
    times = []
    for _ in range(repeats):
        t = time.perf_counter()
        fn()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - t)
    return statistics.median(times)


def gpu_time(fn, seconds=0.06, least=3):
    """GPU seconds a call by events around enough calls to fill `seconds` (no launch gap when a call is long)."""
    fn()
    torch.cuda.synchronize()
    t = time.perf_counter()
    fn()
    torch.cuda.synchronize()
    once = max(time.perf_counter() - t, 1e-6)
    n = max(least, min(2000, int(seconds / once)))
    a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    a.record()
    for _ in range(n):
        fn()
    b.record()
    torch.cuda.synchronize()
    return a.elapsed_time(b) / 1e3 / n


def graph_time(fn, n=20):
    """GPU seconds a call inside a CUDA graph: no host launch gaps, so kernels under 60 us are measured too."""
    fn()
    torch.cuda.synchronize()
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        for _ in range(n):
            fn()
    g.replay()
    torch.cuda.synchronize()
    times = []
    for _ in range(5):
        a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        a.record()
        g.replay()
        b.record()
        torch.cuda.synchronize()
        times.append(a.elapsed_time(b) / 1e3 / n)
    return statistics.median(times)
