#!/usr/bin/env python3
"""Writes h200-16core-vm.yaml from the records in raw/: python3 make_machine.py > h200-16core-vm.yaml

Medians, rates and the little algebra that the records need; each figure says how. Standard library only. What was
not measured on that machine is marked assumed or published, with its reason or address.
"""
import json
import math
import pathlib
import statistics

RAW = pathlib.Path(__file__).parent / "raw"
COMPONENTS, HOST1, HOST2 = "h200-components.jsonl", "h200-host-1.jsonl", "h200-host-2.jsonl"
GEMM, LAYERS, LISTS = "h200-gemm.jsonl", "h200-layers.jsonl", "h200-lists.jsonl"
OPTIMIZERS = "h200-optimizers.jsonl"
CONTENTION = "h200-contention.jsonl"
STEPS = "h200-steps-2026-11-30.jsonl"
GIB = 2**30


def records(file, kind, **fields):
    rows = (json.loads(line) for line in (RAW / file).read_text().splitlines())
    found = [r for r in rows if r["kind"] == kind and all(r[k] == v for k, v in fields.items())]
    assert found, (file, kind, fields)
    return found


def typical(values):
    """The median; where the runs differ by more than twice, the best: the others touched new pages first."""
    values = values if isinstance(values, list) else [values]
    return min(values) if max(values) > 2 * min(values) else statistics.median(values)


def rate(value):
    return f"{value / 1e9:.4g} GB/s"


def elements(value):
    return f"{value / 1e9:.4g} G/s"


def size(value):
    for unit, step in (("GiB", GIB), ("MiB", 2**20), ("KiB", 2**10)):
        if value >= step and value % step == 0:
            return f"{value // step} {unit}"
    return f"{value} B"


def seconds(value):
    return f"{value * 1e6:.5g} us"


def figure(value, source, origin, spread=None):
    middle = f", spread: {spread}" if spread else ""
    return f'{{value: {value}, source: {source}{middle}, from: "{origin}"}}'


def measured(value, file, how="", spread=None):
    return figure(value, "measured", f"raw/{file}" + (f": {how}" if how else ""), spread)


def head(file, how, spread):
    middle = f", spread: {spread}" if spread else ""
    return f'source: measured{middle}, from: "raw/{file}' + (f": {how}" if how else "") + '"'


def curve(rows, file, how="", spread=None):
    body = ", ".join(f"[{x}, {y}]" for x, y in rows)
    return f"{{{head(file, how, spread)},\n      points: [{body}]}}"


def table(rows, file, how, indent="    "):
    lines = "\n".join(f"{indent}  " + ", ".join(str(v) for v in row) for row in rows)
    return f"\n{indent}" + head(file, how, None).replace(", from", f"\n{indent}from") + f"\n{indent}rows: |\n{lines}"


def ascending(rows):
    """Pools neighbours until the speeds do not fall: more threads are never slower, noise is."""
    pools = [[[x], [y]] for x, y in rows]
    i = 0
    while i + 1 < len(pools):
        if statistics.mean(pools[i][1]) > statistics.mean(pools[i + 1][1]):
            pools[i] = [pools[i][0] + pools[i + 1][0], pools[i][1] + pools[i + 1][1]]
            del pools[i + 1]
            i = max(i - 1, 0)
        else:
            i += 1
    return [(x, statistics.mean(ys)) for xs, ys in pools for x in xs]


def gemm_rows():
    """The median over operand layouts: the model has no layout."""
    shapes = {}
    for r in records(GEMM, "gemm"):
        shapes.setdefault((r["m"], r["k"], r["n"]), []).append(r["s"])
    return [(*shape, seconds(statistics.median(s))) for shape, s in shapes.items()]


def attention_rows(direction, least):
    """Times above `least`; what is shorter timed the host's call, not the kernels."""
    return [(r["b"], r["h"], r["s"], r["d"], seconds(r[f"{direction}_s"])) for r in records(LAYERS, "attention")
            if r[f"{direction}_s"] >= least]


def accelerator():
    gemm = gemm_rows()
    total = records(LAYERS, "env")[0]["total_memory"]
    moved = [(int(2 * r["mib"] * 2**20), 2 * r["mib"] * 2**20 / r["mul_s"]) for r in records(LAYERS, "elementwise")
             if r["mul_s"] > 2e-6]   # shorter ones are the floor
    adam32, adam16 = records(COMPONENTS, "gpu_adam_fused_fp32")[0], records(HOST2, "gpu_adam_fused_bf16")[0]
    sheet = "https://www.nvidia.com/en-us/data-center/h200/"
    return f"""accelerator:
  name: NVIDIA H200
  vendor: NVIDIA
  multiprocessors: 132
  memory: {measured(f"{total} B", LAYERS, "total_memory of the env record", "0 %")}
  memory_bandwidth: {figure("4.8 TB/s", "datasheet", sheet)}
  peak:
    bf16: {figure("989 TFLOPS", "datasheet", sheet)}
    fp16: {figure("989 TFLOPS", "datasheet", sheet)}
    tf32: {figure("494 TFLOPS", "datasheet", sheet)}
    fp32: {figure("67 TFLOPS", "datasheet", sheet)}
  sustained: {measured(0.985, STEPS, "bf16 steps bound by the GPU over the sum of their kernels: products alone in a loop draw more power", "3 %")}
  kernel_floor: {measured("1.6 us", LAYERS, "elementwise of 0.25 MiB in a graph")}
  gemm:{table(gemm, GEMM, "rows are m, k, n, time; bf16, random data")}
  attention_forward:{table(attention_rows("fwd", 80e-6), LAYERS, "rows are batch, heads, sequence, head size, time; causal")}
  attention_backward:{table(attention_rows("bwd", 280e-6), LAYERS, "as attention_forward")}
  elementwise: {curve([(size(m), rate(r)) for m, r in moved], LAYERS, "elementwise, mul, bytes read plus written", "5 %")}
  adam_f32: {measured(elements(adam32["n"] / adam32["s"]), COMPONENTS)}
  adam_bf16: {measured(elements(adam16["n"] / typical(adam16["s"])), HOST2)}
"""


# Bytes an element that a kernel touches: records that fit the L3 cache are left out, a training step's tensors are cold.
L3 = 300 * 2**20
WORKING_SET = {f"{op}_{dtype}": count * width for dtype, width in (("f32", 4), ("bf16", 2)) for op, count in
               (("mul", 1), ("copy", 2), ("add", 2), ("zero", 1), ("norm", 1), ("isinf_any", 1), ("adam_torch_fused", 4), ("adam_torch_loop", 4))}
WORKING_SET |= {"cast_f32_bf16": 6, "cast_bf16_f32": 6, "adam_deepspeed_f32": 16, "adam_deepspeed_bf16": 12}


def list_rows(name):
    """Elements a second by size over lists of tensors larger than the cache, in one call, as a step runs them."""
    op, _, dtype = name.rpartition("_")
    field = {"adam_torch_fused": "adam_fused_s", "norm": "norm_s", "mul": "mul_s", "copy": "copy_to_flat_s", "zero": "zero_s"}.get(op)
    wanted = {"f32": "torch.float32", "bf16": "torch.bfloat16"}[dtype]
    if field is None:
        return {}
    return {r["n"]: r["n"] * r["tensors"] / typical(r[field]) for r in records(LISTS, "lists", dtype=wanted)}


def loop_rows(name):
    """The for-loop AdamW over lists of plain tensors."""
    if not name.startswith("adam_torch_loop"):
        return {}
    dtype = "float32" if name.endswith("f32") else "bfloat16"
    return {r["n"]: r["n"] * r["tensors"] / r["s"]
            for r in records(OPTIMIZERS, "cpu_adamw", dtype=dtype, fused=False, **{"as": "plain"}) if r["n"] > 2**20}


def kernel_curves():
    """Elements a second by size, 16 threads; kernel of our catalog: (kind and fields of the record, bytes)."""
    names = {}
    for dtype in ("f32", "bf16"):
        for op in ("mul", "copy", "add", "zero", "norm", "isinf_any"):
            names[f"{op}_{dtype}"] = ("cpu_op", {"op": op + ("" if op in ("norm", "isinf_any") else "_"), "dtype": dtype})
        names[f"adam_torch_fused_{dtype}"] = ("adam_torch_fused", {"dtype": dtype})
        names[f"adam_torch_loop_{dtype}"] = ("adam_torch_loop", {"dtype": dtype})
    names["cast_f32_bf16"] = ("cpu_op", {"op": "cast_f32_to_bf16"})
    names["cast_bf16_f32"] = ("cpu_op", {"op": "cast_bf16_to_f32"})
    names["adam_deepspeed_f32"] = ("adam_deepspeed_0.14.5", {"dtype": "f32"})
    names["adam_deepspeed_bf16"] = ("adam_deepspeed_0.14.5", {"dtype": "bf16_params_f32_states"})
    lines = []
    for name, (kind, fields) in names.items():
        rows = dict((r["n"], r["n"] / typical(r["s"])) for r in records(HOST2, kind, **fields)
                    if r["n"] * WORKING_SET[name] > L3)
        rows |= list_rows(name) | loop_rows(name)
        both = f"and raw/{LISTS}, " if list_rows(name) else f"and raw/{OPTIMIZERS}, " if loop_rows(name) else ""
        body = [(n, elements(speed)) for n, speed in sorted(rows.items())]
        lines.append(f"    {name}: {curve(body, HOST2, both + 'working sets beyond the L3 cache')}\n")
    return "".join(lines)


def thread_curves():
    adam, stream = {}, {}
    for r in records(HOST2, "adam_threads"):
        adam.setdefault(r["threads"], []).append(r["n"] / typical(r["s"]))
    for r in records(COMPONENTS, "cpu_adam_torch_fused"):
        adam.setdefault(r["threads"], []).append(r["n"] / r["s"])
    for r in records(HOST2, "cpu_op_threads"):
        stream.setdefault(r["threads"], []).append(r["n"] / typical(r["s"]))

    def rows(speeds):
        return [(t, elements(s)) for t, s in ascending([(t, statistics.mean(v)) for t, v in sorted(speeds.items())])]
    return f"""    adam: {curve(rows(adam), HOST2, "adam_threads and the fused Adam of h200-components.jsonl", "10 %")}
    stream: {curve(rows(stream), HOST2, "mul_ by threads", "10 %")}
"""


def fresh_page_rates():
    """Bytes a second of faulting alone: the writing of warm pages, the copy, the cast and the release taken out."""
    one, sixteen = [], []
    for r, width in large_lists():   # a copy into new tensors, less a copy into old ones
        bytes_ = r["n"] * r["tensors"] * width
        sixteen.append(bytes_ / (r["fresh_clone_s"][0] - typical(r["copy_to_flat_s"])))
    for r in records(HOST1, "page_touch"):
        if r["threads"] == 1:
            one.append(1 / (1 / r["fresh_gbs"] - 1 / r["warm_gbs"]) * 1e9)
    down = 12.8e9  # pageable D2H, large
    copies = [(r["temp_mib"] * 2**20, r["s"]) for r in records(HOST2, "gpu_f32_to_pinned_bf16_blocking") if r["temp_mib"] >= 64]
    copies += [(4 * r["n"], r["s"]) for r in records(HOST1, "gpu_f32_to_cpu", dst="pinned_bf16", non_blocking=False)]
    for bytes_, seconds in copies:  # release as the machine file has it: what is taken out here is charged there
        one.append(bytes_ / (typical(seconds) - bytes_ / down - bytes_ / page_release() - bytes_ / 4 / cast_rate()))
    return statistics.median(one), statistics.median(sixteen)


def large_lists():
    """Records over lists of tensors larger than the C library's map threshold, with an element's bytes."""
    for r in records(LISTS, "lists"):
        width = 2 if "bfloat16" in r["dtype"] else 4
        if r["n"] * width >= 32 * 2**20:
            yield r, width


def page_release():
    """Two methods on two boots differ by four times: a mapping of its own, and gradients dropped. The geometric mean."""
    dropped = statistics.median(r["n"] * r["tensors"] * width / r["drop_again_s"][0] for r, width in large_lists())
    mapped = statistics.median(r["gib"] * GIB / typical(r["s"]) for r in records(HOST2, "munmap"))
    return math.sqrt(dropped * mapped)


def cast_rate():
    r = records(HOST2, "cpu_op", op="cast_f32_to_bf16")[0]
    return r["n"] / typical(r["s"])


def contended(alone, copies, dram, weight):
    """Bytes a second of a CPU kernel and of each copy: weighted max-min of `dram` between them, as the engine shares."""
    one, both = 55e9, 47.8e9   # a copy's own limit, alone and in duplex
    count, limit = (2, both) if copies == "duplex" else (1, one)
    if alone + count * limit <= dram:
        return alone, limit
    low, high = 0.0, 1e13
    for _ in range(60):
        level = (low + high) / 2
        low, high = (level, high) if min(alone, level) + count * min(limit, weight * level) < dram else (low, level)
    return min(alone, low), min(limit, weight * low)


def contention():
    """DRAM's capacity and the weight of DMA against CPU kernels: least squares in log rates over all records of a CPU
    kernel beside copies, by a grid. Copies of 12 bytes an element: the line is read before it is written."""
    n, traffic = 268435456, {"adam_f32": 28, "mul_f32": 8, "copy_f32": 12}
    rows = [r for r in records(CONTENTION, "contention") if r["kernel"] in traffic]
    alone = {(r["kernel"], r["threads"]): traffic[r["kernel"]] * n / r["kernel_s"] for r in rows if r["copies"] == "none"}
    seen = [(alone[r["kernel"], r["threads"]], r["copies"], traffic[r["kernel"]] * n / r["kernel_s"], max(r["h2d_gbs"], r["d2h_gbs"]) * 1e9)
            for r in rows if r["copies"] != "none"]
    old = records(COMPONENTS, "contention")[0]
    adam, during = 28 * n / statistics.median(old["adam_s_alone"]), 28 * n / statistics.median(old["adam_s_during"])
    seen.append((adam, "h2d", during, statistics.median(old["h2d_gbs_during_adam"]) * 1e9))
    seen.append((adam, "duplex", 28 * n / statistics.median(old["adam_s_during"][-9:]), statistics.median(old["duplex_gbs_during_adam"]) / 2 * 1e9))

    def error(dram, weight):
        pairs = [(contended(a, c, dram, weight), (k, d)) for a, c, k, d in seen]
        return sum(math.log(p / m) ** 2 for predicted, measured_ in pairs for p, m in zip(predicted, measured_))
    dram, weight = min(((d * 2e9, w / 20) for d in range(50, 100) for w in range(2, 40)), key=lambda x: error(*x))
    return dram, weight


def host():
    one, sixteen = fresh_page_rates()
    dram, weight = contention()
    add = records(COMPONENTS, "cpu_copy", threads=1)[0]["add_inplace_gbs"]
    pinned = [r["gib"] * GIB / r["s"] for r in records(HOST1, "pinned_alloc") if r["s"] > 0]
    few = "solved from 29 records of a CPU kernel beside copies, and those of h200-components.jsonl"
    return f"""host:
  name: 16 cores of an Intel Xeon, virtual machine
  cores: 16
  avx: true
  memory: {measured("125 GiB", COMPONENTS, "free, in the env record", "1 %")}
  dram: {measured(rate(dram), CONTENTION, few, "10 %")}
  core_bandwidth: {measured(f"{add} GB/s", COMPONENTS, "add_inplace on one thread", "10 %")}
  core_speed: {measured(1, HOST2, "the rates of frameworks/pytorch-2.11.yaml are of this core")}
  dma_weight: {measured(f"{weight:.3f}", CONTENTION, few, "15 %")}
  fresh_pages: {curve([(1, rate(one)), (16, rate(sixteen))], HOST1, "one thread: page_touch, and the blocking copies of both files; all: fresh_clone of h200-lists.jsonl", "30 %")}
  page_release: {measured(rate(page_release()), LISTS, "geometric mean of gradients dropped and of munmap in h200-host-2.jsonl, which differ by four times", "60 %")}
  pinned_alloc: {measured(rate(statistics.mean(pinned)), HOST1, "", "15 %")}
  kernels:
{kernel_curves()}  threads:
{thread_curves()}"""


def link():
    copies = records(COMPONENTS, "copy")
    large = [r for r in copies if r["mib"] >= 256]
    call = records(HOST1, "small_copies_64k")[0]["host_us"] * 1e-6
    best = {d: statistics.mean(r["mib"] * 2**20 / r[f"{d}_pinned_s"] for r in large) for d in ("h2d", "d2h")}
    # Between 1 and 16 MiB a copy is host call + latency + bytes / rate.
    latency = statistics.mean(r[f"{d}_pinned_s"] - call - r["mib"] * 2**20 / best[d]
                              for r in copies if 1 <= r["mib"] <= 16 for d in ("h2d", "d2h"))
    total = statistics.median(records(COMPONENTS, "duplex")[0]["total_gbs"]) * 1e9
    pageable = {d: [(f'{r["mib"]} MiB', rate(r["mib"] * 2**20 / r[f"{d}_pageable_s"])) for r in copies] for d in best}
    return f"""link:
  name: PCIe 5.0 x16
  h2d: {measured(rate(best["h2d"]), COMPONENTS)}
  d2h: {measured(rate(best["d2h"]), COMPONENTS)}
  total: {measured(rate(total), COMPONENTS, "duplex")}
  latency: {measured(seconds(latency), COMPONENTS, "copies of 1 to 16 MiB less bytes / rate less the host's call", "50 %")}
  pageable_h2d: {curve(pageable["h2d"], COMPONENTS, "", "10 %")}
  pageable_d2h: {curve(pageable["d2h"], COMPONENTS, "", "10 %")}
"""


def drive():
    runs = records(COMPONENTS, "disk_direct", block=1048576)
    best = {k: max(float(r[f"{k}_gbs"]) for r in runs) * 1e9 for k in ("read", "write")}
    return f"""drives:
  - name: virtual disk
    capacity: {measured("252 GB", COMPONENTS, "df, in the env record", "1 %")}
    read: {measured(rate(best["read"]), COMPONENTS, "disk_direct, blocks of 1 MiB", "50 %")}
    write: {measured(rate(best["write"]), COMPONENTS, "disk_direct, blocks of 1 MiB", "50 %")}
    mixed: {figure("90 %", "assumed", "time sharing with a tenth lost to turns")}
    latency: {figure("300 us", "assumed", "one block of 1 MiB already reaches the full rate")}
"""


def main():
    print("# Made by make_machine.py from raw/*.jsonl: one H200 in a virtual machine with 16 cores and 128 GiB. Do not edit.")
    print("title: one H200 141 GB on PCIe 5.0, 16 cores, 128 GiB (measured)")
    print("gpus: 1")
    print("framework: pytorch-2.11")
    print(accelerator() + host() + link() + drive(), end="")
    print('price: {value: 3.35 USD/h, date: "2026-05", source: published, spread: 30 %, '
          'from: "https://www.mercatus-ai.com/blog/cloud-gpu-pricing: 2.50 to 4.50 outside the large clouds"}')


main()
