// The CPU kernels against scalar loops in double, written a second time from their definitions.
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <stdexcept>

#include "kernels/host/cpu_kernels.h"

namespace offsim::kernels {

namespace {

using Values = std::vector<double>;

double decoded(const std::byte* at, int width) {
  std::uint32_t bits = 0;
  if (width == 4) {
    std::memcpy(&bits, at, 4);
  } else {
    std::uint16_t half = 0;
    std::memcpy(&half, at, 2);
    bits = static_cast<std::uint32_t>(half) << 16;
  }
  float value = 0;
  std::memcpy(&value, &bits, 4);
  return static_cast<double>(value);
}

void encode(std::byte* at, int width, float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, 4);
  const auto half = static_cast<std::uint16_t>(bits >> 16);  // truncated: random data may be
  width == 4 ? std::memcpy(at, &bits, 4) : std::memcpy(at, &half, 2);
}

struct Buffer {
  int width = 0;
  std::vector<std::byte> bytes;

  Buffer(int width_, std::int64_t elements)
      : width(width_), bytes(static_cast<std::size_t>(width_ * elements)) {}
  std::byte* at(std::size_t i) { return bytes.data() + i * static_cast<std::size_t>(width); }
  Values values() {
    Values out;
    for (std::size_t i = 0; width > 0 && i * static_cast<std::size_t>(width) < bytes.size(); ++i) {
      out.push_back(decoded(at(i), width));
    }
    return out;
  }
};

struct Data {
  Buffer out, in, m, v;
  Data(const CpuKernel& kernel, std::int64_t elements)
      : out(kernel.out, elements),
        in(kernel.in, elements),
        m(kernel.m, elements),
        v(kernel.v, elements) {
    std::mt19937 random(7);
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (Buffer* buffer : {&out, &in, &m, &v}) {
      for (std::size_t i = 0; buffer->width > 0 && i < static_cast<std::size_t>(elements); ++i) {
        const float x = uniform(random);
        encode(buffer->at(i), buffer->width, buffer == &v ? std::fabs(x) : x);
      }
    }
  }
  CpuBuffers buffers() {
    return {out.bytes.data(), in.bytes.data(), m.bytes.data(), v.bytes.data()};
  }
};

// Rounded to nearest, bf16 is off by at most 2^-8 of itself; fp32 rounds a few times, and sums
// up to 4096 squares.
double rounding(int width) { return width == 2 ? std::ldexp(1.001, -8) : 1e-6; }
constexpr double kSumRounding = 1e-5;

void expect_near(const CpuKernel& kernel, Isa isa, const char* what, std::size_t i, double found,
                 double expected, double relative) {
  const double most = relative * std::fabs(expected) + 1e-6;
  if (!(std::fabs(found - expected) <= most)) {
    throw std::runtime_error(std::string(kernel.name) + " (" + std::string(name_of(isa)) +
                             "): " + what + " of element " + std::to_string(i) + " is " +
                             std::to_string(found) + ", not " + std::to_string(expected));
  }
}

// What the kernel's definition makes of element i.
struct Element {
  double out = 0, m = 0, v = 0;
};

Element adam_of(Element old, double g, const AdamStep& step) {
  const double b1 = static_cast<double>(step.beta1), b2 = static_cast<double>(step.beta2);
  const double rate = static_cast<double>(step.rate);
  const double m = b1 * old.m + (1 - b1) * g, v = b2 * old.v + (1 - b2) * g * g;
  const double m_hat = m / (1 - std::pow(b1, step.step));
  const double v_hat = v / (1 - std::pow(b2, step.step));
  const double p = old.out * (1 - rate * static_cast<double>(step.decay)) -
                   rate * m_hat / (std::sqrt(v_hat) + static_cast<double>(step.epsilon));
  return {p, m, v};
}

Element expected(std::string_view name, Element old, double in, const CpuArguments& arguments) {
  const double scale = static_cast<double>(arguments.scale);
  const std::string_view what = name.substr(0, name.find('_'));
  if (what == "adam") {
    return adam_of(old, in, arguments.adam);
  }
  const double out = what == "mul"     ? old.out * scale
                     : what == "add"   ? old.out + in
                     : what == "triad" ? in + scale * old.m
                     : what == "zero"  ? 0
                                       : in;  // copy, cast
  return {out, old.m, old.v};
}

void check_not_finite(const CpuKernel& kernel, Isa isa, Data& data, std::size_t elements) {
  const auto found = [&] {
    return run_cpu_kernel(kernel, data.buffers(), static_cast<std::int64_t>(elements), isa);
  };
  expect_near(kernel, isa, "the finding", 0, found(), 0, 0);
  for (const std::size_t i : {std::size_t{0}, elements / 2, elements - 1}) {
    for (const float bad :
         {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
          std::numeric_limits<float>::quiet_NaN()}) {
      encode(data.in.at(i), kernel.in, bad);
      expect_near(kernel, isa, "the finding", i, found(), 1, 0);
      encode(data.in.at(i), kernel.in, 1);
    }
  }
}

}  // namespace

void check_cpu_kernel(const CpuKernel& kernel, Isa isa, std::int64_t elements) {
  const auto count = static_cast<std::size_t>(elements);
  Data data(kernel, elements);
  if (kernel.name.substr(0, 8) == "isfinite") {
    return check_not_finite(kernel, isa, data, count);
  }
  CpuArguments arguments;
  arguments.scale = 1.7F;
  arguments.adam.rate = 0.1F;  // so large that each term shows
  arguments.adam.decay = 0.1F;
  arguments.adam.step = 3;
  const Values in = data.in.values(), out = data.out.values(), m = data.m.values(),
               v = data.v.values();
  const double result = run_cpu_kernel(kernel, data.buffers(), elements, isa, arguments);
  double squares = 0;
  const auto value = [](const Values& values, std::size_t i) {
    return values.empty() ? 0 : values[i];
  };
  for (std::size_t i = 0; i < count; ++i) {
    const Element old{value(out, i), value(m, i), value(v, i)};
    const Element now = expected(kernel.name, old, value(in, i), arguments);
    squares += value(in, i) * value(in, i);
    if (kernel.out > 0) {
      expect_near(kernel, isa, "out", i, decoded(data.out.at(i), kernel.out), now.out,
                  rounding(kernel.out));
    }
    if (kernel.m > 0) {
      expect_near(kernel, isa, "m", i, decoded(data.m.at(i), kernel.m), now.m, rounding(kernel.m));
    }
    if (kernel.v > 0) {
      expect_near(kernel, isa, "v", i, decoded(data.v.at(i), kernel.v), now.v, rounding(kernel.v));
    }
  }
  expect_near(kernel, isa, "the result", 0, result, kernel.out > 0 ? 0 : squares, kSumRounding);
}

}  // namespace offsim::kernels
