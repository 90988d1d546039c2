#!/usr/bin/env python3
"""Measures what the GPUs of one host share: NCCL's collectives by size, alone and beside matrix products, and the ranks' CPU kernels.

    measure_ranks.py OUT.jsonl [--ranks N]

One process a GPU, its share of the cores each. `bytes` is the whole tensor (what every rank holds after an all-gather); `seconds` is the median of rank 0,
timed by events around many calls. `slower` is how much longer a product takes while the collective repeats.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

MIB = 2**20
SIZES = [MIB // 16, MIB // 4, MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB, 1024 * MIB]


def collectives():
    import torch.distributed as dist
    return {
        "all_gather": lambda whole, part: dist.all_gather_into_tensor(whole, part),
        "reduce_scatter": lambda whole, part: dist.reduce_scatter_tensor(part, whole, op=dist.ReduceOp.AVG),
        "all_reduce": lambda whole, part: dist.all_reduce(whole),
    }


def timed(call, count):
    """Seconds of one call on the current stream."""
    import torch
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(count):
        call()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / 1000 / count


def measure(ranks, emit):
    import torch
    import torch.distributed as dist
    for name, call in collectives().items():
        for size in SIZES:
            whole = torch.randn(size // 2, device="cuda", dtype=torch.bfloat16)
            part = torch.empty(size // 2 // ranks, device="cuda", dtype=torch.bfloat16)
            run = lambda: call(whole, part)  # noqa: E731
            for _ in range(3):
                run()
            torch.cuda.synchronize()
            count = max(4, min(200, 4 * 1024 * MIB // size))
            seconds = [timed(run, count) for _ in range(5)]
            emit(kind="collective", name=name, bytes=size, ranks=ranks, seconds=statistics.median(seconds), spread=max(seconds) - min(seconds))
            dist.barrier()


def beside_products(ranks, emit):
    """A product alone and while a collective repeats on a stream of its own."""
    import torch
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    whole = torch.randn(128 * MIB, device="cuda", dtype=torch.bfloat16)
    part = torch.empty(128 * MIB // ranks, device="cuda", dtype=torch.bfloat16)
    side = torch.cuda.Stream()
    for _ in range(3):
        a @ b
    torch.cuda.synchronize()
    alone = statistics.median(timed(lambda: a @ b, 100) for _ in range(3))
    for name, call in collectives().items():
        call(whole, part)
        torch.cuda.synchronize()
        free = timed(lambda: call(whole, part), 40)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with torch.cuda.stream(side):
            begin.record()
            for _ in range(200):
                call(whole, part)
            end.record()
        beside = timed(lambda: a @ b, 60)  # shorter than the 200 collectives
        torch.cuda.synchronize()
        emit(kind="collective_beside_product", name=name, bytes=2 * 128 * MIB, ranks=ranks, product_alone_s=alone, product_beside_s=beside, slower=beside / alone,
             collective_alone_s=free, collective_beside_s=begin.elapsed_time(end) / 1000 / 200)


def host_kernels(rank, ranks, emit):
    """CPU kernels of every rank on its cores: of rank 0 alone, then of all at once. Volumes are those of one rank."""
    import torch
    import torch.distributed as dist
    n = 2**28
    big = [torch.randn(n) for _ in range(4)]
    p = torch.nn.Parameter(big[0])
    p.grad = big[1]
    opt = torch.optim.AdamW([p], lr=1e-5, fused=True)
    opt.step()
    kernels = {"adam_f32": (opt.step, 28 * n), "copy_f32": (lambda: big[2].copy_(big[3]), 8 * n), "mul_f32": (lambda: big[2].mul_(1.0), 8 * n)}
    for name, (call, volume) in kernels.items():
        for together in (False, True):
            dist.barrier()
            torch.cuda.synchronize()
            times = []
            end = time.perf_counter() + 1.5
            while (together or rank == 0) and time.perf_counter() < end:
                begin = time.perf_counter()
                call()
                times.append(time.perf_counter() - begin)
            if rank == 0:
                seconds = statistics.median(times)
                emit(kind="host_kernel", name=name, ranks_at_once=ranks if together else 1, threads=torch.get_num_threads(), kernel_s=seconds,
                     kernel_gbs=round(volume / seconds / 1e9, 1))


def rank_main(out, ranks):
    import torch
    import torch.distributed as dist
    rank = int(os.environ["RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", device_id=torch.device("cuda", rank))

    def emit(**record):
        if rank == 0:
            with open(out, "a", encoding="utf-8") as f:
                f.write(json.dumps(record) + "\n")
    emit(kind="env", date=time.strftime("%Y-%m-%d"), torch=torch.__version__, nccl=".".join(map(str, torch.cuda.nccl.version())), gpu=torch.cuda.get_device_name(0),
         ranks=ranks, cores=os.cpu_count())
    measure(ranks, emit)
    beside_products(ranks, emit)
    host_kernels(rank, ranks, emit)
    dist.destroy_process_group()


def start_ranks(ranks, command, port=29400, limit=600):
    """One process a GPU, each with its share of the cores, as DeepSpeed's --bind_cores_to_rank does.

    False when one failed or outlived its limit: the others, who would wait for it, are ended.
    """
    share = os.cpu_count() // ranks
    processes = []
    for rank in range(ranks):
        env = dict(os.environ, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
                   OMP_NUM_THREADS=str(share))
        cores = f"{rank * share}-{(rank + 1) * share - 1}"
        processes.append(subprocess.Popen(["taskset", "-c", cores, sys.executable, *command], env=env))
    end = time.time() + limit
    while time.time() < end and any(p.poll() is None for p in processes) and not any(p.poll() for p in processes):
        time.sleep(0.1)
    good = all(p.poll() == 0 for p in processes)
    for p in processes:
        if p.poll() is None:
            p.kill()
        p.wait()
    return good


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--ranks", type=int, default=2)
    arguments = parser.parse_args()
    if "RANK" in os.environ:
        rank_main(arguments.out, arguments.ranks)
    else:
        sys.exit(not start_ranks(arguments.ranks, sys.argv))
