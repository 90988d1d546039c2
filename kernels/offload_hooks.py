"""Host seconds that the hooks of DeepSpeed and of FSDP2 add, on a model so narrow that the GPU always waits for the host.

The same Llama (hidden 256, one sequence of 128 tokens) of 8 and of 24 layers under plain PyTorch in bf16 and under ZeRO: the
difference of two lengths is a layer's cost, the difference of two systems what the hooks of a layer cost. Under ZeRO-3 all
parameters are either persistent (hooks alone, no fetch) or none is (a fetch and a release for each). `methods` holds, from a
second pass, calls and seconds a step inside each method of DeepSpeed's classes, inner calls included.
"""
import functools
import statistics
import time
import types

import torch

LAYERS = (8, 24)
NARROW = dict(model_type="llama", hidden_size=256, intermediate_size=512, num_attention_heads=2, num_key_value_heads=2,
              vocab_size=512, max_position_embeddings=256, tie_word_embeddings=False)
CPU = dict(device="cpu", pin_memory=True)
VARIANTS = {
    "z2": dict(stage=2, offload_optimizer=CPU),
    "z2-gpu": dict(stage=2),
    "z3-persistent": dict(stage=3, offload_optimizer=CPU, offload_param=CPU, stage3_param_persistence_threshold=10**9),
    "z3-fetch": dict(stage=3, offload_optimizer=CPU, offload_param=CPU, stage3_param_persistence_threshold=0),
    "z3-fetch-prefetch0": dict(stage=3, offload_optimizer=CPU, offload_param=CPU, stage3_param_persistence_threshold=0,
                               stage3_prefetch_bucket_size=0),
    "z3-gpu-fetch": dict(stage=3, stage3_param_persistence_threshold=0),
}


def phases(system, ids, count):
    """Medians: forward, backward and step, synchronised, and the host's own time in each without synchronisation."""
    rows = []
    for synchronise in (True, False):
        times = []
        for _ in range(count):
            torch.cuda.synchronize()
            marks = [time.perf_counter()]
            loss = system.forward(ids)
            for work in (lambda: system.backward(loss), lambda: system.step(True), lambda: None):
                if synchronise:
                    torch.cuda.synchronize()
                marks.append(time.perf_counter())
                work()
            times.append([b - a for a, b in zip(marks, marks[1:])])
        rows.append([round(statistics.median(t[i] for t in times), 7) for i in range(3)])
    return dict(synchronised_s=rows[0], free_s=rows[1])


def watched_classes():
    from deepspeed.runtime.engine import DeepSpeedEngine
    from deepspeed.runtime.zero.parameter_offload import DeepSpeedZeRoOffload
    from deepspeed.runtime.zero.partitioned_param_coordinator import PartitionedParameterCoordinator
    from deepspeed.runtime.zero.stage3 import DeepSpeedZeroOptimizer_Stage3
    from deepspeed.runtime.zero.stage_1_and_2 import DeepSpeedZeroOptimizer
    return (DeepSpeedZeRoOffload, PartitionedParameterCoordinator, DeepSpeedZeroOptimizer_Stage3, DeepSpeedZeroOptimizer,
            DeepSpeedEngine)


class Watch:
    """Counts and times every method of some classes while it is on."""

    def __init__(self):
        self.spent, self.replaced = {}, []

    def __enter__(self):
        for owner in watched_classes():
            for name, method in list(vars(owner).items()):
                if isinstance(method, types.FunctionType) and not name.startswith("__"):
                    self.replaced.append((owner, name, method))
                    setattr(owner, name, self.timed(f"{owner.__name__}.{name}", method))
        return self

    def __exit__(self, *error):
        for owner, name, method in self.replaced:
            setattr(owner, name, method)

    def timed(self, key, method):
        entry = self.spent.setdefault(key, [0, 0.0])

        @functools.wraps(method)
        def call(*args, **kwargs):
            t = time.perf_counter()
            try:
                return method(*args, **kwargs)
            finally:
                entry[0] += 1
                entry[1] += time.perf_counter() - t

        return call

    def table(self, steps):
        rows = {k: [round(n / steps, 1), round(s / steps, 7)] for k, (n, s) in self.spent.items() if s / steps > 1e-5}
        return dict(sorted(rows.items(), key=lambda row: -row[1][1]))


def measure(name, options, layers, version, emit):
    from offload_systems import DEV, make
    system = "fsdp2-offload" if "fsdp2" in name else "native" if options is None else "deepspeed"
    c = dict(system=system, precision="bf16", b=1, s=128, k=1, options=options or {},
             config=dict(NARROW, num_hidden_layers=layers))
    model = make(c)
    ids = torch.randint(0, 512, (c["b"], c["s"]), device=DEV)
    modules = sum(1 for _ in model.model.modules())
    parameters = sum(1 for _ in model.model.parameters())
    phases(model, ids, 3)
    record = phases(model, ids, 9)
    if system == "deepspeed":
        with Watch() as watch:
            phases(model, ids, 2)  # four steps
        record["methods"] = watch.table(4)
    emit(kind="hooks", id=name, deepspeed=version, layers=layers, modules=modules, parameters=parameters, options=options,
         **record)


def tasks(version, emit):
    """One task a variant: both lengths in one process."""
    variants = VARIANTS if version else {"plain": None, "fsdp2": None}

    def task(name, options):
        for layers in LAYERS:
            measure(name, options, layers, version, emit)

    return {f"hooks-{name}": functools.partial(task, f"hooks-{name}", options) for name, options in variants.items()}
