// The models that a machine file's figures are fitted with.
//
//   line         t = start + x / rate, start at least 0; least squares of relative errors (Eigen)
//   rising       speeds by threads that never fall: neighbours that do are pooled (PAVA)
//   contention   DRAM's capacity and the weight of a DMA byte beside a CPU kernel's byte: weighted
//                max-min sharing of the capacity as the engine does it, least squares of log rates
//                over a grid of 2 % and 0.05
//   leave one out  the correction of matrix products (machine/correction.h) fitted without a shape,
//                asked for that shape
//
// Residuals are root mean squares of relative errors, of leave-one-out the mean absolute one.
#pragma once

#include <utility>
#include <vector>

#include "sim/machine/correction.h"

namespace offsim::calibrate {

using Points = std::vector<std::pair<double, double>>;  // x, y

// Of an even number the mean of the two in the middle. Requires: at least one.
double median(std::vector<double> values);

struct Line {
  double start = 0;
  double rate = 0;
  double residual = 0;
};
// Requires: at least one point, all above zero. Of one point: no start.
Line fit_line(const Points& times);

Points rising(Points speeds);

// One record of a CPU kernel beside copies. Rates are bytes a second.
struct Contended {
  double kernel_alone = 0;      // what the kernel moves with nobody beside it
  double copy_alone = 0;        // what each copy moves with no kernel beside it
  int copies = 1;               // 2: one each way
  double kernel = 0, copy = 0;  // measured, together
};
struct Contention {
  double dram = 0;
  double dma_weight = 0;
  double residual = 0;
};
// Requires: at least one record.
Contention fit_contention(const std::vector<Contended>& records);

// Mean |predicted / measured - 1|. Requires: more samples than features, at least two.
double leave_one_out(const std::vector<machine::Sample>& samples);

}  // namespace offsim::calibrate
