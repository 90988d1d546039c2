#include "sim/plans/deepspeed.h"

#include "sim/plans/common.h"

namespace offsim::plans {

model::Work norm_in_double(std::int64_t n) {
  return {sized("norm in double", n), {{.bytes = 10 * n, .indexed = n}, {.bytes = 8 * n}, {}}};
}

// isinf() is an absolute value and a comparison.
model::Work check_finite(std::int64_t n) {
  return {sized("check for infinities", n),
          {{.bytes = 6 * n, .indexed = n},
           {.bytes = 5 * n},
           {.bytes = 8 * n},
           {.bytes = 5 * n},
           {.bytes = 3 * n},
           {.bytes = 5 * n, .indexed = n},
           {.bytes = 4 * n}}};
}

model::Work gradient_into_bucket(std::int64_t n) {
  return model::elementwise(sized("gradient into bucket", n), n, 4, 1);
}

model::Work join_gradients(std::int64_t n) {
  return model::elementwise(sized("join gradients", n), n, 4, 1);
}

model::Work average(std::int64_t n) { return model::elementwise(sized("average", n), n, 4, 1); }

model::Work cast_to_fp32(std::int64_t n) {
  return {sized("cast to fp32", n), {{.bytes = 6 * n, .indexed = n}}};
}

model::Work cast_to_16_bits(std::int64_t n) {
  return {sized("cast to 16 bits", n), {{.bytes = 6 * n}}};
}

}  // namespace offsim::plans
