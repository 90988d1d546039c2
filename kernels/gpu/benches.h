// Every bench of the GPU and its link, once: name, group, a sentence for people. A program built
// without CUDA names the same ones. In the order in which they run: the card is cool for the
// burst, and what takes its memory comes after the reading of it.
#pragma once

// clang-format off
#define OFFSIM_GPU_BENCHES(BENCH)                                                                \
  BENCH(gpu_memory, kGpu, "memory of the GPU, what is free, what the program's context takes")   \
  BENCH(launch, kGpu, "host seconds of launching a kernel and a graph")                          \
  BENCH(event_record, kGpu, "host seconds of recording an event")                                \
  BENCH(event_wait, kGpu, "host seconds of letting a stream wait for an event")                  \
  BENCH(synchronize, kGpu, "host seconds of waiting for an idle stream")                         \
  BENCH(stream_switch, kGpu, "added time of a kernel on another stream, after an event")         \
  BENCH(kernel_floor, kGpu, "the shortest kernel, in a graph")                                   \
  BENCH(elementwise, kGpu, "in-place multiplication of bf16, by bytes read and written")         \
  BENCH(reduction, kGpu, "sums over rows of 4096, by bytes read")                                \
  BENCH(indexed, kGpu, "elements a second of a broadcast with computed addresses")               \
  BENCH(gpu_adam, kGpu, "fused Adam on the GPU, by elements and type")                           \
  BENCH(gpu_copy, kGpu, "copies inside the GPU's memory, by bytes")                              \
  BENCH(gemm_burst, kGpu, "a large product in the first 0.1 s after a pause")                    \
  BENCH(gemm_sustained, kGpu, "the same product in a loop of seconds")                           \
  BENCH(gemm_in_step, kGpu, "the same beside copies inside the GPU, as a step mixes them")       \
  BENCH(gemm, kGpu, "the products of linear layers by shape, type and layout")                   \
  BENCH(torch_launch, kGpu, "host seconds of PyTorch's launches, and of its Adam")               \
  BENCH(attention, kGpu, "causal attention through PyTorch, forward and backward")               \
  BENCH(standin_attention, kGpu, "the products that a replay runs in place of attention")        \
  BENCH(copy, kLink, "pinned and pageable copies, by direction and bytes")                       \
  BENCH(copy_call, kLink, "host seconds of calling a pinned copy")                               \
  BENCH(two_streams, kLink, "two streams that copy in one direction")                            \
  BENCH(small_copies, kLink, "256 copies of 64 KiB in a row")                                    \
  BENCH(fresh_copy, kLink, "blocking copies into new pageable memory, and again into the same")  \
  BENCH(blocking_cast, kLink, "a blocking copy of fp32 into new memory, cast there to bf16")     \
  BENCH(pinned_alloc, kLink, "allocating pinned memory, by bytes")                               \
  BENCH(pinned_free, kLink, "freeing it")                                                        \
  BENCH(gpus_at_once, kLink, "several GPUs copying from and to the host at once")                \
  BENCH(peer_copy, kLink, "copies from one GPU to another")                                      \
  BENCH(beside_copies, kLink, "CPU kernels while copies run, and the copies")
// clang-format on
