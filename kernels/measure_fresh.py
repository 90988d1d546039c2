#!/usr/bin/env python3
"""Measures what a new block of host memory costs: blocking copies from the GPU into one, its release, and the first writes by threads. One JSON object a line.

    measure_fresh.py OUT.jsonl

`copy_s` is tensor.to("cpu"); `again_s` the same copy into the same memory, so that the difference is what fresh pages cost; `release_s` is the deletion of the block;
`touch_s` the first write of a new block by all threads (`threads`), `warm_s` the second.
"""
import json
import statistics
import sys
import time

import torch


def seconds(call):
    begin = time.perf_counter()
    result = call()
    torch.cuda.synchronize()
    return time.perf_counter() - begin, result


def median(values):
    return round(statistics.median(values), 6)


def main(out):
    with open(out, "a", encoding="utf-8") as f:
        def emit(**record):
            f.write(json.dumps(record) + "\n")
        emit(kind="env", date=time.strftime("%Y-%m-%d"), torch=torch.__version__, gpu=torch.cuda.get_device_name(0), threads=torch.get_num_threads())
        for mib in (16, 43, 64, 128, 256, 512):
            source = torch.randn(mib * 2**18, device="cuda")
            source.to("cpu")
            copies, again, release = [], [], []
            for _ in range(12):
                t, host = seconds(lambda: source.to("cpu"))
                copies.append(t)
                again.append(seconds(lambda: host.copy_(source))[0])
                begin = time.perf_counter()
                del host
                release.append(time.perf_counter() - begin)
            emit(kind="fresh_copy", mib=mib, copy_s=median(copies), again_s=median(again), release_s=median(release), all_copy_s=[round(c, 6) for c in copies])
        for threads in (1, torch.get_num_threads()):
            torch.set_num_threads(threads)
            for mib in (43, 256):
                first, second = [], []
                for _ in range(8):
                    host = torch.empty(mib * 2**18)
                    first.append(seconds(lambda: host.fill_(1.0))[0])
                    second.append(seconds(lambda: host.fill_(2.0))[0])
                    del host
                emit(kind="fresh_write", mib=mib, threads=threads, touch_s=median(first), warm_s=median(second))


if __name__ == "__main__":
    main(sys.argv[1])
