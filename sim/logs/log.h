// What a person pastes about a run: lines of DeepSpeed, the HF Trainer, torchtune, torchtitan,
// Megatron and nvidia-smi, as observations.
//
// A tolerant reader: whatever stands before a figure (ranks, times, colours) is passed over, a line
// of no known kind is counted, and only a log without a single known line is refused. Known are
//   time (ms) | fwd_microstep: 12.3 | bwd_microstep: 45.6 | step_microstep: 78.9   (DeepSpeed;
//     also fwd, bwd, step of a whole step, their older long names, and parts of the optimizer)
//   CurrSamplesPerSec=1.2, MemAllocated=3.4GB, MaxMemAllocated=5.6GB
//   MA 1.2 GB Max_MA 3.4 GB CA 5.6 GB Max_CA 6 GB, CPU Virtual Memory: used = 123.4 GB,
//     percent = 12.3%                                                   (see_memory_usage)
//   OVERFLOW! ... Skipping step                                         (fp16 loss scaling)
//   {'train_samples_per_second': 1.2, 'train_steps_per_second': 0.3}
//   12/100 [00:34<04:12, 2.87s/it]                                      (a progress bar)
//   step time: 1.23 s, elapsed time per iteration (ms): 1230, tokens_per_second_per_gpu: 456,
//     step: 10 ... tps: 456, peak_memory_alloc: 12.3
//   123W / 700W | 12345MiB / 143771MiB | 45%, Link Width ... Current : 8x  (nvidia-smi, also -q)
// Figures of nvidia-smi are of the GPU that is named above them, by its bus:
//   |   1  NVIDIA H200 ... |   00000000:2A:00.0 Off |, GPU 00000000:2A:00.0
// Their gigabytes are 2^30 bytes, as those programs divide. Left out: which rank a line is of
// (ranks are alike), dates.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

namespace offsim::logs {

enum class What : std::uint8_t {
  kForward,  // seconds a step; "micro": a micro-batch
  kForwardMicro,
  kBackward,
  kBackwardMicro,
  kOptimizer,
  kOptimizerMicro,
  kOptimizerPart,  // optimizer_gradients, optimizer_step ...: inside of kOptimizer
  kStep,           // seconds
  kStepMean,       // seconds, over the whole run with its start
  kSamples,        // a second, of all GPUs
  kSamplesMean,
  kTokens,   // a second and GPU
  kGpuPeak,  // bytes that the framework had allocated at most
  kGpuReserved,
  kGpuUsed,  // bytes that the driver reports
  kGpuTotal,
  kGpuBusy,  // share of 1
  kPower,    // watts
  kPowerLimit,
  kLinkWidth,  // lanes
  kLinkWidthMost,
  kLinkGeneration,
  kLinkGenerationMost,
  kHostUsed,   // bytes, of all processes
  kHostShare,  // of 1
  kSkipped,    // 1: a step whose update was skipped
};

inline constexpr std::size_t kWhats = static_cast<std::size_t>(What::kSkipped) + 1;

std::string_view name_of(What what);  // "forward", "gpu_peak": for scripts
bool of_gpu(What what);               // nvidia-smi's, of one GPU
bool of_link(What what);              // of those: its link
std::string_view unit_of(What what);  // "s", "bytes", "1/s", "W", "" ...

struct Observation {
  What what;
  double value;  // finite, at least 0
  int line;
  int gpu = -1;  // in Log::gpus; -1: none is named
};

struct Log {
  std::string name;
  std::vector<Observation> observations;  // in the order of the log
  std::vector<std::string> gpus;          // "1", or the bus where no line has its number
  int lines = 0;                          // that are not blank; "\r" of a progress bar ends one too
  int known = 0;                          // of a known kind, with a figure or without
  int unknown = 0;                        // the rest
  int absurd = 0;                         // figures that no run has, left out
  int too_long = 0;  // of those: longer than kLongestLine, not looked at beyond it

  std::vector<double> values(What what) const;
};

inline constexpr std::size_t kLongestLine = 16384;
inline constexpr std::size_t kLongestLog = std::size_t{64} << 20;
inline constexpr std::size_t kMostObservations = 1'000'000;

// Throws InputError for a log without a known line, or above kLongestLog or kMostObservations.
Log read_log(std::istream& in, const std::string& name);

}  // namespace offsim::logs
