// Strong unit types: Bytes / BytesPerSecond is Seconds, and Bytes + Seconds does not compile.
//
// Bytes is an exact integer (memory ledgers add up to the byte); the others are doubles. A number
// enters and leaves through an explicit constructor and the member `value`, so that the unit is
// spelled out wherever a raw number appears. Left out: prefixes and text, which quantity.h reads
// and writes.
#pragma once

#include <cmath>
#include <compare>
#include <cstdint>

namespace offsim {

template <class Tag>
struct Unit {
  double value = 0;

  constexpr Unit() = default;
  constexpr explicit Unit(double v) : value(v) {}

  friend constexpr auto operator<=>(Unit, Unit) = default;
  friend constexpr Unit operator+(Unit a, Unit b) { return Unit(a.value + b.value); }
  friend constexpr Unit operator-(Unit a, Unit b) { return Unit(a.value - b.value); }
  friend constexpr Unit operator*(Unit a, double k) { return Unit(a.value * k); }
  friend constexpr Unit operator*(double k, Unit a) { return Unit(a.value * k); }
  friend constexpr Unit operator/(Unit a, double k) { return Unit(a.value / k); }
  friend constexpr double operator/(Unit a, Unit b) { return a.value / b.value; }
  constexpr Unit& operator+=(Unit b) {
    value += b.value;
    return *this;
  }
};

using Seconds = Unit<struct SecondsTag>;
using BytesPerSecond = Unit<struct BytesPerSecondTag>;
using Flops = Unit<struct FlopsTag>;  // floating-point operations, a count
using FlopsPerSecond = Unit<struct FlopsPerSecondTag>;
using ElementsPerSecond = Unit<struct ElementsPerSecondTag>;
using Usd = Unit<struct UsdTag>;
using UsdPerHour = Unit<struct UsdPerHourTag>;

struct Bytes {
  std::int64_t value = 0;

  constexpr Bytes() = default;
  constexpr explicit Bytes(std::int64_t v) : value(v) {}

  friend constexpr auto operator<=>(Bytes, Bytes) = default;
  friend constexpr Bytes operator+(Bytes a, Bytes b) { return Bytes(a.value + b.value); }
  friend constexpr Bytes operator-(Bytes a, Bytes b) { return Bytes(a.value - b.value); }
  friend constexpr Bytes operator*(Bytes a, std::int64_t k) { return Bytes(a.value * k); }
  friend constexpr Bytes operator*(std::int64_t k, Bytes a) { return Bytes(a.value * k); }
  constexpr Bytes& operator+=(Bytes b) {
    value += b.value;
    return *this;
  }
  constexpr Bytes& operator-=(Bytes b) {
    value -= b.value;
    return *this;
  }
};

constexpr Seconds operator/(Bytes b, BytesPerSecond r) {
  return Seconds(static_cast<double>(b.value) / r.value);
}
constexpr BytesPerSecond operator/(Bytes b, Seconds t) {
  return BytesPerSecond(static_cast<double>(b.value) / t.value);
}
constexpr Seconds operator/(Flops f, FlopsPerSecond r) { return Seconds(f.value / r.value); }
constexpr Usd operator*(UsdPerHour p, Seconds t) { return Usd(p.value * t.value / 3600.0); }

inline constexpr std::int64_t kKiB = 1024;
inline constexpr std::int64_t kMiB = 1024 * kKiB;
inline constexpr std::int64_t kGiB = 1024 * kMiB;

constexpr double gib(Bytes b) { return static_cast<double>(b.value) / static_cast<double>(kGiB); }

// The next power of two at or above b, as PyTorch's allocator of pinned host memory rounds; zero
// stays zero. Requires: b at most 2^62.
constexpr Bytes power_of_two(Bytes b) {
  std::int64_t p = 1;
  while (p < b.value) {
    p *= 2;
  }
  return b.value <= 0 ? Bytes(0) : Bytes(p);
}

constexpr Bytes round_up(Bytes b, std::int64_t multiple) {
  return Bytes((b.value + multiple - 1) / multiple * multiple);
}

}  // namespace offsim
