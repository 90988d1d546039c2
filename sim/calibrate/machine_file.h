// A machine file (hardware/README.md) from the records of a machine: each figure `measured`, with
// its spread, its date and what it was fitted from.
//
// What was not measured comes from a system of the catalog, the base, with that system's own
// sources: its accelerator where no GPU bench ran, its host where no host bench ran, its drives,
// its price. The accelerator of a base that is the measured GPU (equal multiprocessors) keeps its
// datasheet's peaks, and what was measured replaces the rest; another GPU's peaks are the fastest
// products that were measured.
//
//   link             h2d, d2h, latency: a line through pinned copies; total: both at once
//   host.dram, dma_weight   contention (fits.h); without a GPU the fastest stream of all cores
//   host.fresh_pages        bytes over (first write less second write), by threads
//   host.kernels            PyTorch's kernels where they were measured, else ours of equal bytes
//   host.standins           ours, which a replay runs, where PyTorch's were measured too
//   host.core_speed         one core's Adam, mul and norm over the framework's: geometric mean
//   accelerator.sustained   a product beside memory-bound kernels over the same in the table
//   drives                  best over blocks, depths and threads; `mixed` by time sharing
//
//   framework               host seconds of PyTorch's Python; hooks scale with a layer's launches
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/calibrate/records.h"
#include "sim/machine/machine.h"

namespace offsim::calibrate {

// One figure of the file, for people.
struct Fitted {
  std::string name;   // "link.h2d"
  std::string value;  // "55.0 GB/s"
  std::string how;    // "line through 9 copies"
  double spread = 0;
  std::optional<double> residual;  // of the fit, where there is one
};

struct MachineFile {
  std::string text;
  std::string base;
  std::vector<Fitted> fitted;
  std::vector<std::string> kept;  // "link: of h200-pcie5"
  // What was measured and has no place in this machine, in a sentence each.
  std::vector<std::string> left_out;
};

// The system of the catalog whose accelerator is the GPU of the records (multiprocessors equal,
// memory within 3 %); empty where none is.
std::string system_of_gpu(const Records& records, const machine::Catalog& catalog);

// Throws InputError when `base` is no file of systems/.
void require_system(const machine::Catalog& catalog, const std::string& base);

// `base` is a system of the catalog; `raw` names the records in the file's sources. Throws
// InputError for a base that is none.
MachineFile machine_file(const Records& records, const machine::Catalog& catalog,
                         const std::string& base, const std::string& raw);

}  // namespace offsim::calibrate
