"""The training systems that measure_offload.py times, one class each, all with the same loop.

    system = make(case)              # model, optimizer, engine
    loss = system.forward(ids)       # a micro-batch
    system.backward(loss)
    system.step(last)                # last: of the micro-batches of a step

A case is a dictionary: model (a name of models/), b, s, k (accumulation), ckpt, precision and the system with its options.
"""
import contextlib
import importlib.machinery
import importlib.util
import json
import os
import shutil
import subprocess
import sys

import torch

DEV = os.environ.get("DEVICE", "cuda")
MODELS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "models")
MIB = 2**20


def model_config(case):
    """The Hugging Face configuration of models/NAME.json, or of a case that gives one."""
    from transformers import AutoConfig
    given = case.get("config")
    if given is None:
        with open(os.path.join(case.get("models", MODELS), case["model"] + ".json"), encoding="utf-8") as f:
            given = json.load(f)
    given = dict(given)
    config = AutoConfig.for_model(given.pop("model_type"), **given)
    config._attn_implementation = "sdpa"
    config.use_cache = False
    return config


def make_model(case, dtype):
    """Random weights, made on the GPU (on the CPU it takes seconds)."""
    from transformers import AutoModelForCausalLM
    torch.manual_seed(0)
    with torch.device(DEV):
        model = AutoModelForCausalLM.from_config(model_config(case), dtype=dtype)
    model = model.to(DEV)
    model.train()
    if case.get("ckpt"):
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return model


class LoraLinear(torch.nn.Module):
    """y = W x + 2 B (A x), W frozen, as PEFT writes it (rank r, alpha 2 r, no dropout)."""

    def __init__(self, base, rank):
        super().__init__()
        self.base = base
        like = dict(device=base.weight.device, dtype=base.weight.dtype)
        self.a = torch.nn.Parameter(torch.randn(rank, base.in_features, **like) * 0.02)
        self.b = torch.nn.Parameter(torch.zeros(base.out_features, rank, **like))

    def forward(self, x):
        linear = torch.nn.functional.linear
        return self.base(x) + linear(linear(x, self.a), self.b) * 2


class Native:
    """Everything on the GPU: PyTorch eager. Options: lora (rank), save_on_cpu (saved tensors go to pinned memory)."""

    def __init__(self, case):
        self.autocast = case["precision"] == "bf16-mixed"
        self.model = make_model(case, torch.float32 if self.autocast else torch.bfloat16)
        rank = case["options"].get("lora")
        if rank:
            self.model.requires_grad_(False)
            for layer in self.model.model.layers:
                for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
                    setattr(layer.self_attn, name, LoraLinear(getattr(layer.self_attn, name), rank))
        self.saved = contextlib.nullcontext
        if case["options"].get("save_on_cpu"):
            self.saved = lambda: torch.autograd.graph.save_on_cpu(pin_memory=True)
        self.trained = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer = self.make_optimizer(case)
        self.k = case["k"]

    def make_optimizer(self, case):
        return torch.optim.AdamW(self.trained, lr=1e-5, fused=True)

    def forward(self, ids):
        with self.saved(), torch.autocast("cuda", dtype=torch.bfloat16, enabled=self.autocast):
            return self.model(input_ids=ids, labels=ids, use_cache=False).loss

    def backward(self, loss):
        (loss / self.k if self.k > 1 else loss).backward()

    def step(self, last):
        if last:
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)


class CpuAdamPerParameter:
    """The schedule of torchao's CPUOffloadOptimizer, written after it (torchao/optim/cpu_offload.py, offload_gradients off).

    A pinned copy of every parameter and gradient and one fused CPU AdamW a parameter. A hook copies each gradient down on a
    side stream when autograd has accumulated it; step() waits for each gradient in order of arrival, updates that parameter
    on the CPU and sends it up on the same stream. Parameters under 4096 elements stay on the GPU.
    """

    def __init__(self, parameters, minimal_size=4096, **kwargs):
        self.stream = torch.cuda.Stream()
        self.host, self.optimizers, self.queue = {}, {}, {}
        small = []
        for p in parameters:
            if p.numel() < minimal_size:
                small.append(p)
                continue
            host = torch.empty_like(p, device="cpu", pin_memory=True)
            host.grad = torch.empty_like(host, pin_memory=True)
            host.copy_(p.detach(), non_blocking=True)
            self.host[p] = host
            self.optimizers[p] = torch.optim.AdamW([host], fused=True, **kwargs)
            p.register_post_accumulate_grad_hook(self.arrived)
        self.small = torch.optim.AdamW(small, fused=True, **kwargs) if small else None

    def arrived(self, p):
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            self.host[p].grad.copy_(p.grad, non_blocking=True)
        self.queue.pop(p, None)
        self.queue[p] = self.stream.record_event()

    @torch.no_grad()
    def step(self):
        if self.small:
            self.small.step()
        for p, event in self.queue.items():
            event.synchronize()
            self.optimizers[p].step()
            with torch.cuda.stream(self.stream):
                p.copy_(self.host[p], non_blocking=True)
        self.stream.synchronize()
        self.queue.clear()

    def zero_grad(self, set_to_none=True):
        for p in self.host:
            p.grad = None
        if self.small:
            self.small.zero_grad(set_to_none)


class CpuOffloadOptimizer(Native):
    def make_optimizer(self, case):
        return CpuAdamPerParameter(self.trained, lr=1e-5)


def init_process_group():
    import torch.distributed as dist
    if not dist.is_initialized():
        dist.init_process_group("cpu:gloo,cuda:nccl" if DEV == "cuda" else "gloo")


class Fsdp2(Native):
    """fully_shard of each layer and the root with CPUOffloadPolicy. Option fused: the CPU AdamW's kernel."""

    def __init__(self, case):
        from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
        init_process_group()
        self.autocast, self.k, self.saved = False, case["k"], contextlib.nullcontext
        self.model = make_model(case, torch.float32)
        how = dict(mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16),
                   offload_policy=CPUOffloadPolicy(pin_memory=True))
        for layer in self.model.model.layers:
            fully_shard(layer, **how)
        fully_shard(self.model, **how)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-5, fused=case["options"].get("fused", True))


def load_op(builder_class, version, cache):
    """A compiled DeepSpeed operation: from the cache, else compiled there; DeepSpeed then finds it loaded."""
    builder = builder_class()
    path = os.path.join(cache, f"{version}-{builder.name}.so")
    if not os.path.exists(path):
        module = builder.load()
        os.makedirs(cache, exist_ok=True)
        shutil.copy(module.__file__, path)
        subprocess.run(["strip", "--strip-debug", path], check=False)
        return module
    loader = importlib.machinery.ExtensionFileLoader(builder.name, path)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(builder.name, loader))
    loader.exec_module(module)
    for owner in type(builder).__mro__:
        if "_loaded_ops" in vars(owner):
            owner._loaded_ops[builder.name] = module
    return module


def load_deepspeed(cache, nvme):
    """Imports DeepSpeed (it must be on the path) and its compiled CPU Adam (and asynchronous I/O); returns its version."""
    import setuptools  # noqa: F401  brings distutils back, which DeepSpeed's builders import
    import deepspeed
    from deepspeed.ops.op_builder import CPUAdamBuilder
    load_op(CPUAdamBuilder, deepspeed.__version__, cache)
    if nvme:
        from deepspeed.ops import op_builder
        from deepspeed.ops.op_builder import AsyncIOBuilder
        if hasattr(op_builder, "PinMemoryBuilder"):  # asynchronous I/O finds its symbols there
            sys.setdlopenflags(sys.getdlopenflags() | os.RTLD_GLOBAL)
            load_op(op_builder.PinMemoryBuilder, deepspeed.__version__, cache)
        load_op(AsyncIOBuilder, deepspeed.__version__, cache)
    return deepspeed.__version__


def deepspeed_config(case):
    o = dict(case["options"])
    clip = o.pop("gradient_clipping", 1.0)
    config = dict(train_micro_batch_size_per_gpu=case["b"], gradient_accumulation_steps=case["k"], gradient_clipping=clip,
                  bf16=dict(enabled=True), zero_optimization=o, steps_per_print=10**9, zero_allow_untested_optimizer=True)
    if o.get("offload_optimizer"):
        config["optimizer"] = dict(type="AdamW", params=dict(lr=1e-5))
    return config


class DeepSpeed:
    """deepspeed.initialize. Options are those of zero_optimization, and gradient_clipping (1.0).

    CPU Adam where offload_optimizer is given, PyTorch's fused AdamW on the GPU else.
    """

    def __init__(self, case):
        import deepspeed
        deepspeed.init_distributed(dist_backend="nccl" if DEV == "cuda" else "gloo")
        model = make_model(case, torch.bfloat16)
        config = deepspeed_config(case)
        optimizer = None
        if "optimizer" not in config:
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
        self.engine = deepspeed.initialize(model=model, config=config, optimizer=optimizer,
                                           model_parameters=model.parameters())[0]
        self.model = model

    def forward(self, ids):
        return self.engine(input_ids=ids, labels=ids, use_cache=False).loss

    def backward(self, loss):
        self.engine.backward(loss)

    def step(self, last):
        self.engine.step()


SYSTEMS = {"native": Native, "torchao-offload": CpuOffloadOptimizer, "fsdp2-offload": Fsdp2, "deepspeed": DeepSpeed}


def make(case):
    return SYSTEMS[case["system"]](case)
