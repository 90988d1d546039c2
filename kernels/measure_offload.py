#!/usr/bin/env python3
"""Measures whole training steps of offload systems on a GPU host. One JSON object a line, appended as it goes.

    measure_offload.py OUT.jsonl --cases GLOB[,GLOB] [--deepspeed FOLDER] [--ops FOLDER] [--budget SECONDS]

Each case runs in a process of its own, forked after the imports, so that what one leaves in host memory is not charged to
the next. A step runs with a device synchronisation after forward, backward and step (what each part costs), then without
any but the one at its end (what a training loop does; there the parts are the host's time to issue them). Times are of
every repeat after the warm-up. `host_resident` is the process's resident memory at the end, `gpu_peak` what torch counts as
allocated. Needs transformers; --deepspeed names a folder that holds the package (pip install --target, with what it needs), of
which CPU Adam is compiled into --ops.
"""
import argparse
import fnmatch
import gc
import json
import os
import signal
import statistics
import sys
import time
import traceback

os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")  # asking for the device must not start CUDA before a fork
t_begin = time.time()


def case(system, b=4, s=1024, k=1, ckpt=False, precision="bf16-mixed", model="llama-1b-24x2048", **options):
    return dict(system=system, model=model, b=b, s=s, k=k, ckpt=ckpt, precision=precision, options=options)


def zero(stage, optimizer="none", parameters="none", b=4, k=1, ckpt=False, s=1024, **options):
    """A DeepSpeed case; the devices of offload_optimizer and offload_param by name."""
    for key, device in (("offload_optimizer", optimizer), ("offload_param", parameters)):
        if device != "none":
            options[key] = dict(device=device, pin_memory=True, **options.get(key, {}))
    return case("deepspeed", b=b, k=k, ckpt=ckpt, s=s, stage=stage, **options)


HIDDEN = 2048
AUTO = dict(reduce_bucket_size=HIDDEN * HIDDEN, stage3_prefetch_bucket_size=int(0.9 * HIDDEN * HIDDEN),
            stage3_param_persistence_threshold=10 * HIDDEN)
ZENFLOW = dict(topk_ratio=0.1, select_strategy="step", select_interval=4, update_interval=4, full_warm_up_rounds=0)

TORCH_CASES = {
    "torchao-bf16-b8": case("torchao-offload", b=8, precision="bf16"),
    "torchao-mixed-b8": case("torchao-offload", b=8),
    "fsdp2-b1-s512": case("fsdp2-offload", b=1, s=512, fused=True),
    "fsdp2-b8": case("fsdp2-offload", b=8, fused=True),
    "fsdp2-b8-k2": case("fsdp2-offload", b=8, k=2, fused=True),
    "fsdp2-b4-ckpt-3b": case("fsdp2-offload", b=4, ckpt=True, model="llama-3b-28x3072", fused=True),
    "lora-b8": case("native", b=8, precision="bf16", lora=16),
    "lora-b8-ckpt": case("native", b=8, precision="bf16", ckpt=True, lora=16),
    "save-on-cpu-b2": case("native", b=2, precision="bf16", save_on_cpu=True),
    "torchao-bf16-b1-s512": case("torchao-offload", b=1, s=512, precision="bf16"),
}

# Of any DeepSpeed; those of the newest alone have names that begin with new.
DEEPSPEED_CASES = {
    "z3-cpu-cpu-b4": zero(3, "cpu", "cpu"),
    "z3-cpu-none-b8": zero(3, "cpu", "none", b=8),
    "z3-cpu-cpu-b4-k2": zero(3, "cpu", "cpu", k=2),
    "z3-none-none-b8": zero(3, b=8),
    "z3-cpu-cpu-b4-prefetch0": zero(3, "cpu", "cpu", stage3_prefetch_bucket_size=0),
    "z3-cpu-cpu-b4-auto": zero(3, "cpu", "cpu", **AUTO),
    "z3-none-cpu-b4": zero(3, "none", "cpu"),
    "z2-cpu-b8": zero(2, "cpu", b=8),
    "z2-cpu-b8-overlap": zero(2, "cpu", b=8, overlap_comm=True),
    "new-superoffload-b8": zero(3, "cpu", b=8, gradient_clipping=0.0, sub_group_size=int(1e8),
                                offload_optimizer=dict(super_offload=True)),
    "new-zenflow-b8": zero(2, "cpu", b=8, zenflow=dict(ZENFLOW, overlap_step=True)),
    "new-zenflow-b8-wait": zero(2, "cpu", b=8, zenflow=dict(ZENFLOW, overlap_step=False)),
    "new-nvme": dict(zero(3, "nvme", sub_group_size=int(1e8), offload_optimizer=dict(nvme_path="/tmp/offload_nvme")),
                     model="qwen2.5-0.5b"),
}


def now(synchronise):
    import torch
    if synchronise:
        torch.cuda.synchronize()
    return time.perf_counter()


def timed_step(system, batches, synchronise):
    """Seconds of a step and of (forward, backward, step) of each micro-batch."""
    start = now(True)
    parts = []
    for m, ids in enumerate(batches):
        t0 = now(synchronise)
        loss = system.forward(ids)
        t1 = now(synchronise)
        system.backward(loss)
        t2 = now(synchronise)
        del loss
        system.step(m == len(batches) - 1)
        parts.append([round(x, 5) for x in (t1 - t0, t2 - t1, now(synchronise) - t2)])
    return round(now(True) - start, 5), parts


def repeats(system, batches, synchronise, count):
    import torch
    torch.cuda.reset_peak_memory_stats()
    steps = [timed_step(system, batches, synchronise) for _ in range(count)]
    median = sorted(steps, key=lambda s: s[0])[count // 2]
    parts = [round(statistics.median(sum(micro[i] for micro in step[1]) for step in steps), 5) for i in range(3)]
    return dict(step_s=round(statistics.median(s[0] for s in steps), 5), all_steps_s=[s[0] for s in steps],
                forward_s=parts[0], backward_s=parts[1], optimizer_s=parts[2], median_step_micro_s=median[1],
                gpu_peak=torch.cuda.max_memory_allocated(), gpu_peak_reserved=torch.cuda.max_memory_reserved())


def take_gpu(rank):
    import torch
    torch.cuda.set_device(rank)


def kib_of(path, key):
    with open(path, encoding="utf-8") as f:
        return next((int(line.split()[1]) for line in f if line.startswith(key + ":")), 0)


def host_memory():
    """Resident bytes of this process, and proportional ones of it and its workers (pages that they share count once)."""
    group = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.getpgid(int(pid)) == os.getpgid(0):
                group.append(kib_of(f"/proc/{pid}/smaps_rollup", "Pss") * 1024)
        except OSError:
            pass  # it has ended
    return dict(host_resident=kib_of("/proc/self/status", "VmRSS") * 1024, processes=len(group), host_proportional=sum(group))


def run_case(name, c, most, emit):
    import torch
    from offload_systems import DEV, make, model_config
    t0 = time.time()
    system = make(c)
    vocabulary = model_config(c).vocab_size
    batches = [torch.randint(0, vocabulary, (c["b"], c["s"]), device=DEV) for _ in range(c["k"])]
    t1 = time.time()
    warm = [timed_step(system, batches, True)[0] for _ in range(2)]
    alone = os.environ["WORLD_SIZE"] == "1"  # ranks must take as many steps as one another
    if most > 2 and (warm[-1] < 7 or not alone):
        warm.append(timed_step(system, batches, True)[0])
    count = most if not alone else 8 if "zenflow" in name else 1 if warm[-1] > 7 else min(most, 2 if warm[-1] > 2.5 else 4)
    separate = repeats(system, batches, True, count)
    free = repeats(system, batches, False, count)
    emit(kind="step", id=name, **c, setup_s=round(t1 - t0, 1), warm_up_s=warm, synchronised=separate, free=free,
         **host_memory(), parameters=sum(getattr(p, "ds_numel", p.numel()) for p in system.model.parameters()),
         seconds=round(time.time() - t0, 1))


def in_child(name, task, limit):
    """Runs task() in a forked process group of its own; False when it failed or outlived its limit."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        os.setsid()
        try:
            import torch
            if torch.cuda._is_in_bad_fork():  # an import started CUDA: begin anew with this case alone
                os.execv(sys.executable, [sys.executable, *sys.argv, "--here", name])
            task()
            sys.stdout.flush()
            os._exit(0)
        except BaseException:  # noqa: B902  whatever happened, the child must not return into the parent's loop
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
    end = time.time() + limit
    while time.time() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return status == 0
        time.sleep(0.05)
    os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return False


def environment(emit, version):
    import platform
    import shutil
    import subprocess

    import torch
    import transformers
    smi = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"],
                         capture_output=True, text=True, check=False).stdout.strip()
    emit(kind="env", date=time.strftime("%Y-%m-%d"), torch=torch.__version__, transformers=transformers.__version__,
         deepspeed=version, gpu=smi, threads=torch.get_num_threads(), cores=os.cpu_count(), kernel=platform.release(),
         memory=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), shm=shutil.disk_usage("/dev/shm").total,
         disk_free=shutil.disk_usage("/tmp").free)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--cases", default="*", help="names or patterns, in the order in which they shall run")
    parser.add_argument("--deepspeed", default="", help="folder with the package deepspeed")
    parser.add_argument("--ops", default="build/deepspeed_ops", help="folder for what is compiled")
    parser.add_argument("--models", default="", help="folder of the models' configurations")
    parser.add_argument("--budget", type=float, default=500, help="seconds after which no case begins")
    parser.add_argument("--limit", type=float, default=90, help="seconds after which a case is ended")
    parser.add_argument("--repeats", type=int, default=4, help="steps of each kind after the warm-up, at most")
    parser.add_argument("--build", action="store_true", help="compile what DeepSpeed needs and stop")
    parser.add_argument("--nvme", action="store_true", help="compile and load asynchronous I/O too")
    parser.add_argument("--ranks", type=int, default=1, help="GPUs; each rank has its share of the cores and writes a record")
    parser.add_argument("--here", default="", help="run one case in this process")
    args = parser.parse_args()
    if "RANK" not in os.environ:  # else this is one of several
        os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="29500")

    version = ""
    if args.deepspeed:
        os.environ.setdefault("DS_ACCELERATOR", "cuda")
        sys.path.insert(0, os.path.abspath(args.deepspeed))
        from offload_systems import load_deepspeed
        version = load_deepspeed(os.path.abspath(args.ops), args.nvme)
        if args.build:
            return
    import transformers.models.llama.modeling_llama  # noqa: F401  here, so that no case pays for it

    import offload_hooks
    from measure_ranks import start_ranks

    def emit(**record):
        if args.ranks > 1:
            record.update(ranks=args.ranks, rank=int(os.environ["RANK"]))
        with open(args.out, "a", encoding="utf-8") as f:
            f.write(json.dumps(record) + "\n")

    cases = dict(DEEPSPEED_CASES if version else TORCH_CASES)
    tasks = {name: (lambda name=name, c=c: run_case(name, c, args.repeats, emit)) for name, c in cases.items()}
    tasks.update(offload_hooks.tasks(version, emit))
    for c in cases.values():
        c.update(deepspeed=version, **(dict(models=args.models) if args.models else {}))
    if args.here:
        take_gpu(int(os.environ["LOCAL_RANK"]))
        tasks[args.here]()
        return
    chosen = [name for glob in args.cases.split(",") for name in tasks if fnmatch.fnmatch(name, glob)]
    environment(emit, version)
    gc.freeze()  # DeepSpeed collects garbage a dozen times when it starts: not that of the imports
    for i, name in enumerate(dict.fromkeys(chosen)):
        if time.time() - t_begin > args.budget:
            emit(kind="skipped", id=name)
            continue
        os.environ["MASTER_PORT"] = str(29501 + i)
        t = time.time()
        if args.ranks > 1:
            ok = start_ranks(args.ranks, [*sys.argv, "--here", name], 29501 + i, args.limit)
        else:
            ok = in_child(name, tasks[name], args.limit)
        if not ok:
            emit(kind="failed", id=name, deepspeed=version)
        print(f"{time.time() - t_begin:6.1f} s  {name}: {'ok' if ok else 'FAILED'} in {time.time() - t:.1f} s", flush=True)


if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    main()
