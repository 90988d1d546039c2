// Do units combine as physics does, and only so? Is no byte lost in rounding?
#include "sim/base/units.h"

#include <gtest/gtest.h>

#include <type_traits>

namespace offsim::units_test {
namespace {

template <class A, class B>
concept Adds = requires(A a, B b) {
  a + b;
};
template <class A, class B>
concept Compares = requires(A a, B b) {
  a < b;
};

static_assert(Adds<Bytes, Bytes> && Adds<Seconds, Seconds>);
static_assert(!Adds<Bytes, Seconds> && !Adds<Seconds, double> && !Adds<Bytes, std::int64_t>);
static_assert(!Adds<BytesPerSecond, FlopsPerSecond>);
static_assert(!Compares<Seconds, Flops> && !Compares<Bytes, std::int64_t>);
static_assert(!std::is_convertible_v<double, Seconds> && !std::is_convertible_v<Seconds, double>);
static_assert(std::is_same_v<decltype(Bytes(1) / BytesPerSecond(1)), Seconds>);
static_assert(std::is_same_v<decltype(Bytes(1) / Seconds(1)), BytesPerSecond>);
static_assert(std::is_same_v<decltype(Seconds(1) / Seconds(1)), double>);

TEST(Units, DivideIntoTimeAndBack) {
  EXPECT_EQ(Bytes(110'000'000'000) / BytesPerSecond(55e9), Seconds(2));
  EXPECT_EQ(Bytes(110'000'000'000) / Seconds(2), BytesPerSecond(55e9));
  EXPECT_EQ(Flops(989e12) / FlopsPerSecond(989e12), Seconds(1));
  EXPECT_EQ(UsdPerHour(3.6) * Seconds(2), Usd(3.6 * 2.0 / 3600.0));
}

TEST(Units, BytesStayExactBeyondDoubles) {
  const std::int64_t odd = (std::int64_t{1} << 53) + 1;  // not a double
  EXPECT_EQ((Bytes(odd) + Bytes(2)).value, odd + 2);
  EXPECT_EQ((Bytes(odd) * 3 - Bytes(odd)).value, 2 * odd);
}

TEST(Units, PowerOfTwoIsTheNextOneAtOrAbove) {
  EXPECT_EQ(power_of_two(Bytes(0)), Bytes(0));
  EXPECT_EQ(power_of_two(Bytes(1)), Bytes(1));
  EXPECT_EQ(power_of_two(Bytes(kGiB)), Bytes(kGiB));
  EXPECT_EQ(power_of_two(Bytes(kGiB + 1)), Bytes(2 * kGiB));
  EXPECT_EQ(power_of_two(Bytes(kGiB - 1)), Bytes(kGiB));
}

TEST(Units, RoundUpIsTight) {
  EXPECT_EQ(round_up(Bytes(0), 512), Bytes(0));
  EXPECT_EQ(round_up(Bytes(512), 512), Bytes(512));
  EXPECT_EQ(round_up(Bytes(513), 512), Bytes(1024));
}

}  // namespace
}  // namespace offsim::units_test
