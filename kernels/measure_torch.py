#!/usr/bin/env python3
"""Measures on a GPU host, with PyTorch, what a machine file and the layer model need. One JSON object a line.

    measure_torch.py OUT.jsonl [--only section,section] [--budget SECONDS]

Sections: env, gemm, attention, elementwise, layers, launches, contention, lists, boundary, steps. Nothing of the card's
settings is changed. Times are medians of several repeats; random data, since zeros draw less power and run faster.
"""
import argparse
import fnmatch
import gc
import json
import os
import statistics
import sys
import threading
import time

import torch

from torch_timing import DEV, gpu_time, graph_time, sync_time

out = None
models = "*"
t_begin = time.time()


def emit(**record):
    out.write(json.dumps(record) + "\n")
    out.flush()


def section_env():
    import platform
    import subprocess
    smi = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version,memory.total,clocks.max.sm,power.limit",
                          "--format=csv,noheader"], capture_output=True, text=True).stdout.strip()
    emit(kind="env", date=time.strftime("%Y-%m-%d"), torch=torch.__version__, gpu=smi, threads=torch.get_num_threads(),
         kernel=platform.release(), total_memory=torch.cuda.mem_get_info()[1], free_memory=torch.cuda.mem_get_info()[0])


PAIRS = [(1024, 1024), (1024, 4096), (2048, 2048), (2048, 5504), (2048, 8192), (3072, 1024), (3072, 3072), (3072, 8192),
         (3584, 18944), (4096, 1024), (4096, 4096), (4096, 11008), (4096, 14336), (5120, 5120), (5120, 13824),
         (8192, 1024), (8192, 8192), (8192, 28672), (2048, 32000), (3072, 32000), (4096, 128256), (5120, 152064)]


def section_gemm():
    """y = x W^T (nt), dx = g W (nn), dW = g^T x (tn), bf16, for T tokens and a weight of (out, in)."""
    for tokens in (512, 1024, 2048, 4096, 8192, 16384, 32768, 65536):
        for small, big in PAIRS:
            if tokens * big * 2 > 12e9 or (tokens == 65536 and big > 20000):
                continue
            for rows, cols in ({(big, small), (small, big)} if big < 30000 else {(big, small)}):
                if (small, big) in ((1024, 4096), (3072, 1024), (4096, 1024), (8192, 1024)) and rows > cols and tokens < 4096:
                    pass
                x = torch.randn(tokens, cols, device=DEV, dtype=torch.bfloat16)
                w = torch.randn(rows, cols, device=DEV, dtype=torch.bfloat16)
                g = torch.randn(tokens, rows, device=DEV, dtype=torch.bfloat16)
                flops = 2 * tokens * rows * cols
                for layout, fn, (m, n, k) in (("nt", lambda: torch.mm(x, w.t()), (tokens, rows, cols)),
                                              ("nn", lambda: torch.mm(g, w), (tokens, cols, rows)),
                                              ("tn", lambda: torch.mm(g.t(), x), (rows, cols, tokens))):
                    s = graph_time(fn, 10) if flops < 2e11 else gpu_time(fn, 0.05)
                    emit(kind="gemm", layout=layout, m=m, n=n, k=k, s=s, tflops=round(flops / s / 1e12, 1))
                del x, w, g
    # power: the same product for 3 s, by half seconds
    for m, k, n in ((8192, 2048, 5504), (8192, 4096, 11008), (16384, 8192, 28672)):
        x = torch.randn(m, k, device=DEV, dtype=torch.bfloat16)
        w = torch.randn(n, k, device=DEV, dtype=torch.bfloat16)
        time.sleep(1.5)
        rates = []
        for _ in range(8):
            s = gpu_time(lambda: torch.mm(x, w.t()), 0.3)
            rates.append(round(2 * m * k * n / s / 1e12, 1))
        emit(kind="gemm_sustained", m=m, k=k, n=n, interval_s=0.3, tflops=rates)


def section_attention():
    F = torch.nn.functional
    for b, h, kv, s, d in ((8, 16, 16, 1024, 128), (16, 16, 16, 1024, 128), (8, 24, 8, 1024, 128), (32, 24, 8, 1024, 128), (4, 32, 32, 2048, 128),
                           (8, 32, 8, 1024, 128), (4, 28, 4, 1024, 128), (16, 28, 4, 1024, 128), (8, 12, 12, 1024, 64), (16, 14, 2, 1024, 64), (1, 32, 8, 512, 128),
                           (1, 32, 8, 4096, 128), (1, 32, 8, 16384, 128), (1, 16, 16, 1024, 128), (2, 40, 8, 4096, 128), (64, 40, 8, 1024, 128)):
        q = torch.randn(b, h, s, d, device=DEV, dtype=torch.bfloat16, requires_grad=True)
        k = torch.randn(b, h, s, d, device=DEV, dtype=torch.bfloat16, requires_grad=True)
        v = torch.randn(b, h, s, d, device=DEV, dtype=torch.bfloat16, requires_grad=True)
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        go = torch.randn_like(o)
        fwd = gpu_time(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True))
        both = gpu_time(lambda: torch.autograd.grad(F.scaled_dot_product_attention(q, k, v, is_causal=True), (q, k, v), go))
        emit(kind="attention", b=b, h=h, s=s, d=d, fwd_s=fwd, bwd_s=both - fwd)


def section_elementwise():
    for mib in (0.25, 1, 4, 16, 64, 256, 1024):
        n = int(mib * 2**20 / 2)
        a = torch.randn(n, device=DEV, dtype=torch.bfloat16)
        b = torch.empty_like(a)
        f = torch.empty(n, device=DEV, dtype=torch.float32)
        emit(kind="elementwise", mib=mib, mul_s=graph_time(lambda: torch.mul(a, 2.0, out=b)), add_s=graph_time(lambda: torch.add(a, b, out=b)),
             cast_up_s=graph_time(lambda: f.copy_(a)), cast_down_s=graph_time(lambda: a.copy_(f)), copy_s=graph_time(lambda: b.copy_(a)))
    for n in (2**24, 2**27):
        for dt in (torch.float32, torch.bfloat16):
            ps = [torch.nn.Parameter(torch.randn(n // 16, device=DEV, dtype=dt)) for _ in range(16)]
            for p in ps:
                p.grad = torch.randn_like(p)
            o = torch.optim.AdamW(ps, lr=1e-4, fused=True)
            emit(kind="gpu_adam", dtype=str(dt), n=n, tensors=16, s=gpu_time(o.step))
            emit(kind="gpu_clip", dtype=str(dt), n=n, tensors=16, s=gpu_time(lambda: torch.nn.utils.clip_grad_norm_(ps, 1.0)))


def configs():
    from transformers import GPT2Config, LlamaConfig, MixtralConfig, Qwen2Config, Qwen2MoeConfig, Qwen3Config, Qwen3MoeConfig
    base = dict(num_hidden_layers=4, vocab_size=32000, tie_word_embeddings=False, max_position_embeddings=4096)
    return {
        "mixtral-2048": MixtralConfig(hidden_size=2048, intermediate_size=5504, num_attention_heads=16, num_key_value_heads=4, num_local_experts=8, num_experts_per_tok=2, **base),
        "qwen2_moe-2048": Qwen2MoeConfig(hidden_size=2048, moe_intermediate_size=1408, shared_expert_intermediate_size=5632, num_attention_heads=16, num_key_value_heads=16,
                                         num_experts=60, num_experts_per_tok=4, **base),
        "qwen3_moe-2048": Qwen3MoeConfig(hidden_size=2048, moe_intermediate_size=768, num_attention_heads=32, num_key_value_heads=4, head_dim=128, num_experts=64,
                                         num_experts_per_tok=8, **base),
        "llama-2048": LlamaConfig(hidden_size=2048, intermediate_size=5504, num_attention_heads=16, num_key_value_heads=16, **base),
        "llama-3072-gqa": LlamaConfig(hidden_size=3072, intermediate_size=8192, num_attention_heads=24, num_key_value_heads=8, **base),
        "qwen2-2048-gqa": Qwen2Config(hidden_size=2048, intermediate_size=5504, num_attention_heads=16, num_key_value_heads=4, **base),
        "qwen3-2048-gqa": Qwen3Config(hidden_size=2048, intermediate_size=5504, num_attention_heads=16, num_key_value_heads=4, head_dim=128, **base),
        "gpt2-1024": GPT2Config(n_embd=1024, n_layer=4, n_head=16, vocab_size=32000, n_positions=1024, attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0),
    }


def build(config, dtype, checkpointing=False):
    from transformers import AutoModelForCausalLM
    torch.manual_seed(0)
    config._attn_implementation = "sdpa"
    with torch.device(DEV):  # initialised there: on the CPU it takes seconds
        model = AutoModelForCausalLM.from_config(config, dtype=dtype) if dtype else AutoModelForCausalLM.from_config(config)
    model = model.to(DEV)
    model.config.use_cache = False
    model.train()
    if checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return model


def forward(model, ids, autocast):
    with torch.autocast("cuda", dtype=torch.bfloat16, enabled=autocast):
        return model(input_ids=ids, labels=ids, use_cache=False).loss


def kernel_table(events, steps):
    rows = {}
    for e in events:
        if e.device_type == torch.autograd.DeviceType.CUDA and not e.name.startswith(("ProfilerStep", "Memcpy HtoD")):
            r = rows.setdefault(e.name[:110], [0, 0.0])
            r[0] += 1
            r[1] += e.device_time if hasattr(e, "device_time") else e.cuda_time
    return sorted(([k, v[0] / steps, round(v[1] / steps, 2)] for k, v in rows.items()), key=lambda r: -r[2])


def layer_bytes(model, ids, autocast):
    """Bytes that each decoder layer's forward leaves allocated, and the allocation marks around head and loss."""
    marks = []
    hooks = []
    layers = model.model.layers if hasattr(model, "model") else model.transformer.h
    for layer in layers:
        hooks.append(layer.register_forward_pre_hook(lambda *a: marks.append(torch.cuda.memory_allocated())))
    hooks.append(layers[-1].register_forward_hook(lambda *a: marks.append(torch.cuda.memory_allocated())))
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    loss = forward(model, ids, autocast)
    after = torch.cuda.memory_allocated()
    forward_peak = torch.cuda.max_memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    loss.backward()
    torch.cuda.synchronize()
    backward_peak = torch.cuda.max_memory_allocated()
    end = torch.cuda.memory_allocated()
    for h in hooks:
        h.remove()
    return dict(before=before, marks=marks, after_forward=after, forward_peak=forward_peak, backward_peak=backward_peak, after_backward=end)


def section_layers():
    from torch.profiler import ProfilerActivity, profile
    for name, config in configs().items():
        if not fnmatch.fnmatch(name, models):
            continue
        for mode in ("autocast", "bf16"):
            for ckpt in (False, True):
                autocast = mode == "autocast"
                model = build(config, None if autocast else torch.bfloat16, ckpt)
                b, s = 8, 1024
                ids = torch.randint(0, 32000, (b, s), device=DEV)
                for _ in range(2):
                    forward(model, ids, autocast).backward()
                    model.zero_grad(set_to_none=True)
                mem = layer_bytes(model, ids, autocast)
                model.zero_grad(set_to_none=True)
                fwd = gpu_time(lambda: forward(model, ids, autocast), 0.15) if not ckpt else None
                record = dict(kind="layers", model=name, mode=mode, ckpt=ckpt, b=b, s=s, layers=4, memory=mem, forward_s=fwd)
                with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as p:
                    for _ in range(2):
                        loss = forward(model, ids, autocast)
                    torch.cuda.synchronize()
                record["forward_kernels"] = kernel_table(p.events(), 2)
                loss.backward()
                model.zero_grad(set_to_none=True)
                losses = [forward(model, ids, autocast) for _ in range(2)]
                torch.cuda.synchronize()
                with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as p:
                    for loss in losses:
                        loss.backward()
                        model.zero_grad(set_to_none=True)
                    torch.cuda.synchronize()
                record["backward_kernels"] = kernel_table(p.events(), 2)
                emit(**record)
                del model, losses, loss
                gc.collect()
                torch.cuda.empty_cache()


def section_launches():
    """Host seconds a layer: a tiny model, so the GPU waits for the host; from the difference of 12 and 4 layers."""
    from transformers import GPT2Config, LlamaConfig, Qwen2Config, Qwen3Config
    base = dict(vocab_size=512, tie_word_embeddings=False, max_position_embeddings=256, hidden_size=256, intermediate_size=512, num_attention_heads=4, num_key_value_heads=4)
    make = {"llama": lambda n: LlamaConfig(num_hidden_layers=n, **base), "qwen2": lambda n: Qwen2Config(num_hidden_layers=n, **base),
            "qwen3": lambda n: Qwen3Config(num_hidden_layers=n, head_dim=64, **base),
            "gpt2": lambda n: GPT2Config(n_embd=256, n_layer=n, n_head=4, vocab_size=512, n_positions=256, attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0)}
    for name, config in make.items():
        for mode in ("autocast", "bf16"):
            for ckpt in (False, True):
                autocast = mode == "autocast"
                times = {}
                for n in (4, 12):
                    model = build(config(n), None if autocast else torch.bfloat16, ckpt)
                    ids = torch.randint(0, 512, (1, 64), device=DEV)
                    params = list(model.parameters())
                    opt = torch.optim.AdamW(params, lr=1e-4, fused=True)
                    f, b, o = [], [], []
                    for i in range(14):
                        torch.cuda.synchronize()
                        t0 = time.perf_counter()
                        loss = forward(model, ids, autocast)
                        torch.cuda.synchronize()
                        t1 = time.perf_counter()
                        loss.backward()
                        torch.cuda.synchronize()
                        t2 = time.perf_counter()
                        opt.step()
                        opt.zero_grad(set_to_none=True)
                        torch.cuda.synchronize()
                        t3 = time.perf_counter()
                        if i >= 4:
                            f.append(t1 - t0)
                            b.append(t2 - t1)
                            o.append(t3 - t2)
                    times[n] = [statistics.median(x) for x in (f, b, o)]
                    count = len(params)
                    del model, opt
                emit(kind="launches", model=name, mode=mode, ckpt=ckpt, forward_layer_s=(times[12][0] - times[4][0]) / 8, backward_layer_s=(times[12][1] - times[4][1]) / 8,
                     forward_4_s=times[4][0], backward_4_s=times[4][1], optimizer_4_s=times[4][2], optimizer_12_s=times[12][2], parameters_12=count)


def section_contention():
    """Copies (pinned, 256 MiB, repeated) while one CPU kernel repeats, by threads; each alone first."""
    n = 2**28
    big = [torch.zeros(n) for _ in range(4)]
    for x in big:
        x.normal_()
    p = torch.nn.Parameter(big[0])
    p.grad = big[1]
    opt = torch.optim.AdamW([p], lr=1e-5, fused=True)
    opt.step()
    src = torch.randn(2**26).pin_memory()
    dst = torch.randn(2**26).pin_memory()
    d1, d2 = torch.empty(2**26, device=DEV), torch.empty(2**26, device=DEV)
    s1, s2 = torch.cuda.Stream(), torch.cuda.Stream()
    kernels = {"adam_f32": (opt.step, 28 * n), "copy_f32": (lambda: big[2].copy_(big[3]), 8 * n), "mul_f32": (lambda: big[2].mul_(1.0), 8 * n),
               "norm_f32": (lambda: torch.linalg.vector_norm(big[2]), 4 * n)}
    cores = os.cpu_count()
    for threads in (cores, cores // 2, cores // 4):
        torch.set_num_threads(threads)
        for name, (fn, volume) in kernels.items():
            if name == "norm_f32" and threads < cores:
                continue
            for what in ("none", "h2d", "d2h", "duplex"):
                stop = threading.Event()
                moved = [0, 0]
                times = []

                def copies():
                    torch.set_num_threads(1)
                    while not stop.is_set():
                        if what in ("h2d", "duplex"):
                            with torch.cuda.stream(s1):
                                d1.copy_(src, non_blocking=True)
                            moved[0] += src.numel() * 4
                        if what in ("d2h", "duplex"):
                            with torch.cuda.stream(s2):
                                dst.copy_(d2, non_blocking=True)
                            moved[1] += dst.numel() * 4
                        torch.cuda.synchronize()

                worker = threading.Thread(target=copies)
                if what != "none":
                    worker.start()
                    time.sleep(0.1)
                start_moved, t0 = list(moved), time.perf_counter()
                while time.perf_counter() - t0 < 0.8:
                    t = time.perf_counter()
                    fn()
                    times.append(time.perf_counter() - t)
                elapsed = time.perf_counter() - t0
                end_moved = list(moved)
                stop.set()
                if what != "none":
                    worker.join()
                emit(kind="contention", kernel=name, threads=threads, copies=what, kernel_s=statistics.median(times), kernel_gbs=round(volume / statistics.median(times) / 1e9, 1),
                     h2d_gbs=round((end_moved[0] - start_moved[0]) / elapsed / 1e9, 1), d2h_gbs=round((end_moved[1] - start_moved[1]) / elapsed / 1e9, 1))
    torch.set_num_threads(cores)


def section_lists():
    """CPU kernels over lists of tensors in one call, as an optimizer step or clipping runs them: no per-call Python cost."""
    for dt in (torch.bfloat16, torch.float32):
        for n, count in ((2**12, 200), (2**20, 100), (2**22, 64), (11 * 2**20, 40), (2**24, 32), (45 * 10**6, 10), (2**26, 8)):
            ps = [torch.nn.Parameter(torch.randn(n, dtype=dt)) for _ in range(count)]
            for p in ps:
                p.grad = torch.randn(n, dtype=dt)
            o = torch.optim.AdamW(ps, lr=1e-5, fused=True)
            o.step()

            def timed(fn, repeats=4):
                ts = []
                for _ in range(repeats):
                    t = time.perf_counter()
                    fn()
                    ts.append(time.perf_counter() - t)
                return [round(x, 6) for x in ts]

            flat = torch.empty(n * count, dtype=dt, pin_memory=True)
            views = list(flat.split(n))
            record = dict(kind="lists", dtype=str(dt), n=n, tensors=count, adam_fused_s=timed(o.step), clip_s=timed(lambda: torch.nn.utils.clip_grad_norm_(ps, 1.0)),
                          norm_s=timed(lambda: [torch.linalg.vector_norm(p.grad) for p in ps]), mul_s=timed(lambda: [p.grad.mul_(1.0) for p in ps]),
                          copy_to_flat_s=timed(lambda: [v.copy_(p.data) for v, p in zip(views, ps)]), zero_s=timed(lambda: [p.grad.zero_() for p in ps]))

            def drop():
                for p in ps:
                    p.grad = None

            def fresh():
                for p, v in zip(ps, views):
                    p.grad = v.clone()

            record["drop_s"] = timed(drop, 1)
            record["fresh_clone_s"] = timed(fresh, 1)
            record["drop_again_s"] = timed(drop, 1)
            emit(**record)
            del ps, o, flat, views
            gc.collect()


def section_boundary():
    """GPU work on one gradient at ZeRO-2's boundary: norm in double, finite check, cast; seconds and peak extra bytes."""
    for n in (2**20, 2**22, 11 * 2**20, 65536000, 2**27):
        g = torch.randn(n, device=DEV, dtype=torch.bfloat16)

        def finite():
            x = g.float()
            nan, inf = x.isnan(), x.isinf()
            return nan.logical_or(inf).float().max()

        def peak(fn):
            torch.cuda.synchronize()
            before = torch.cuda.memory_allocated()
            torch.cuda.reset_peak_memory_stats()
            fn()
            torch.cuda.synchronize()
            return (torch.cuda.max_memory_allocated() - before) / n

        emit(kind="boundary", n=n, double_norm_s=gpu_time(lambda: g.double().norm(2)), double_norm_peak=peak(lambda: g.double().norm(2)),
             finite_s=gpu_time(finite), finite_peak=peak(finite), cast_s=gpu_time(lambda: g.float()), cast_peak=peak(lambda: g.float()),
             item_s=sync_time(lambda: bool(finite()), 9))


def step_cases():
    from transformers import GPT2Config, LlamaConfig, MixtralConfig, Qwen2Config, Qwen2MoeConfig, Qwen3Config, Qwen3MoeConfig
    l1 = dict(hidden_size=2048, intermediate_size=5504, num_attention_heads=16, num_key_value_heads=16, num_hidden_layers=24, vocab_size=32000, tie_word_embeddings=False, max_position_embeddings=4096)
    l3 = dict(hidden_size=3072, intermediate_size=8192, num_attention_heads=24, num_key_value_heads=8, num_hidden_layers=28, vocab_size=32000, tie_word_embeddings=False, max_position_embeddings=4096)
    q05 = dict(hidden_size=896, intermediate_size=4864, num_attention_heads=14, num_key_value_heads=2, num_hidden_layers=24, vocab_size=151936, tie_word_embeddings=True, max_position_embeddings=4096)
    q3 = dict(hidden_size=1024, intermediate_size=3072, num_attention_heads=16, num_key_value_heads=8, head_dim=128, num_hidden_layers=28, vocab_size=151936, tie_word_embeddings=True, max_position_embeddings=4096)
    g2 = dict(n_embd=1600, n_layer=48, n_head=25, vocab_size=50257, n_positions=1024, attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0)
    q7 = dict(hidden_size=3584, intermediate_size=18944, num_attention_heads=28, num_key_value_heads=4, num_hidden_layers=28, vocab_size=152064, tie_word_embeddings=False, max_position_embeddings=4096)
    mixtral = dict(hidden_size=4096, intermediate_size=14336, num_attention_heads=32, num_key_value_heads=8, num_local_experts=8, num_experts_per_tok=2, vocab_size=32000, max_position_embeddings=4096)
    m2 = dict(hidden_size=2048, moe_intermediate_size=1408, shared_expert_intermediate_size=5632, num_attention_heads=16, num_key_value_heads=16, num_experts=60, num_experts_per_tok=4,
              num_hidden_layers=12, vocab_size=151936, tie_word_embeddings=False, max_position_embeddings=4096)
    m3 = dict(hidden_size=2048, moe_intermediate_size=768, num_attention_heads=32, num_key_value_heads=4, head_dim=128, num_experts=128, num_experts_per_tok=8, num_hidden_layers=12, vocab_size=151936,
              tie_word_embeddings=False, max_position_embeddings=4096)
    return [("llama-1b-24x2048", LlamaConfig(**l1), 1, 512, "autocast", False), ("llama-1b-24x2048", LlamaConfig(**l1), 1, 512, "bf16", True), ("llama-1b-24x2048", LlamaConfig(**l1), 4, 2048, "bf16", False),
             ("llama-3b-28x3072", LlamaConfig(**l3), 4, 1024, "bf16", True), ("qwen2.5-0.5b", Qwen2Config(**q05), 4, 1024, "autocast", False), ("qwen3-0.6b", Qwen3Config(**q3), 8, 1024, "bf16", True),
             ("gpt2-xl", GPT2Config(**g2), 4, 1024, "autocast", False), ("qwen2.5-7b", Qwen2Config(**q7), 4, 1024, "bf16", False), ("qwen2.5-7b", Qwen2Config(**q7), 16, 1024, "bf16", True),
             ("mixtral-8x7b-6-layers", MixtralConfig(num_hidden_layers=6, **mixtral), 4, 1024, "bf16", False), ("mixtral-8x7b-6-layers", MixtralConfig(num_hidden_layers=6, **mixtral), 16, 1024, "bf16", True),
             ("mixtral-8x7b-3-layers", MixtralConfig(num_hidden_layers=3, **mixtral), 4, 1024, "autocast", False), ("qwen1.5-moe-12-layers", Qwen2MoeConfig(**m2), 4, 1024, "bf16", False),
             ("qwen3-moe-12-layers", Qwen3MoeConfig(**m3), 8, 1024, "bf16", True), ("qwen3-moe-12-layers", Qwen3MoeConfig(**m3), 4, 1024, "bf16", False)]


def section_steps():
    """Whole native steps: phases synchronised, and the step without synchronisation; peak allocated."""
    for name, config, b, s, mode, ckpt in step_cases():
        if not fnmatch.fnmatch(name, models):
            continue
        try:
            autocast = mode == "autocast"
            gc.collect()
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            with torch.device(DEV):
                model = build(config, None if autocast else torch.bfloat16, ckpt)
            opt = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
            ids = torch.randint(0, config.vocab_size, (b, s), device=DEV)
            f, bw, o, steps = [], [], [], []
            for i in range(9):
                if i == 3:
                    torch.cuda.reset_peak_memory_stats()
                torch.cuda.synchronize()
                t0 = time.perf_counter()
                loss = forward(model, ids, autocast)
                torch.cuda.synchronize()
                t1 = time.perf_counter()
                loss.backward()
                torch.cuda.synchronize()
                t2 = time.perf_counter()
                opt.step()
                opt.zero_grad(set_to_none=True)
                torch.cuda.synchronize()
                t3 = time.perf_counter()
                if i >= 3:
                    f.append(t1 - t0)
                    bw.append(t2 - t1)
                    o.append(t3 - t2)
                    steps.append(t3 - t0)
            peak, reserved = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
            free = []
            for i in range(6):
                torch.cuda.synchronize()
                t0 = time.perf_counter()
                forward(model, ids, autocast).backward()
                opt.step()
                opt.zero_grad(set_to_none=True)
                torch.cuda.synchronize()
                free.append(time.perf_counter() - t0)
            med = statistics.median
            emit(kind="step", model=name, parameters=sum(p.numel() for p in model.parameters()), b=b, s=s, mode=mode, ckpt=ckpt, forward_s=med(f), backward_s=med(bw), optimizer_s=med(o), step_s=med(steps),
                 all_steps_s=[round(x, 5) for x in steps], unsynchronised_step_s=med(free), peak_allocated=peak, peak_reserved=reserved)
            del model, opt, loss
        except Exception as e:  # one case that does not run must not lose the others
            emit(kind="step_failed", model=name, error=str(e)[:300])


SECTIONS = dict(env=section_env, layers=section_layers, launches=section_launches, boundary=section_boundary, elementwise=section_elementwise, attention=section_attention, steps=section_steps,
                contention=section_contention, lists=section_lists, gemm=section_gemm)


def main():
    global models, out
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--only", default=",".join(SECTIONS))
    parser.add_argument("--models", default="*", help="of the sections layers and steps, those whose name matches")
    parser.add_argument("--budget", type=float, default=560)
    args = parser.parse_args()
    models = args.models
    out = open(args.out, "a", encoding="utf-8")
    failed = 0
    for name in args.only.split(","):
        if time.time() - t_begin > args.budget:
            print("out of budget before", name)
            break
        t = time.time()
        try:
            SECTIONS[name]()
        except Exception as e:
            emit(kind="failed", section=name, error=repr(e)[:500])
            print("failed", name, repr(e)[:300])
            failed = 1
        gc.collect()
        torch.cuda.empty_cache()
        print(f"{name}: {time.time() - t:.1f} s", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
