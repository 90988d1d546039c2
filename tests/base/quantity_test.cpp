// Is a quantity read to the byte, refused with a useful line, and readable again after printing?
#include "sim/base/quantity.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "tests/base/message_of.h"

namespace offsim::quantity_test {
namespace {

const Place kHere = {"f", 1, 2};

TEST(Quantity, BytesAreExact) {
  EXPECT_EQ(parse_bytes("80 GiB", kHere).value, 85'899'345'920);
  EXPECT_EQ(parse_bytes("141GB", kHere).value, 141'000'000'000);
  EXPECT_EQ(parse_bytes("512 B", kHere).value, 512);
  EXPECT_EQ(parse_bytes("0 B", kHere).value, 0);
  EXPECT_EQ(parse_bytes("1.5 KiB", kHere).value, 1536);
  EXPECT_EQ(parse_bytes("0.1 KiB", kHere).value, 102);  // 102.4
  EXPECT_EQ(parse_bytes("2e3 kB", kHere).value, 2'000'000);
  EXPECT_EQ(parse_bytes("9007199254740993 B", kHere).value, 9'007'199'254'740'993);  // 2^53 + 1
  EXPECT_EQ(parse_bytes("9223372036854775807 B", kHere).value,
            std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(parse_bytes("8388607 TiB", kHere).value, 8'388'607 * (kGiB * 1024));
}

TEST(Quantity, ReadsEveryKind) {
  EXPECT_EQ(parse_bandwidth("26.0 GB/s", kHere), BytesPerSecond(26e9));
  EXPECT_EQ(parse_bandwidth("4.8 TB/s", kHere), BytesPerSecond(4.8e12));
  EXPECT_EQ(parse_bandwidth("1 GiB/s", kHere), BytesPerSecond(1'073'741'824));
  EXPECT_EQ(parse_time("3 s", kHere), Seconds(3));
  EXPECT_EQ(parse_time("0.5 ms", kHere), Seconds(0.0005));
  EXPECT_EQ(parse_time("9us", kHere), Seconds(9 * 1e-6));
  EXPECT_EQ(parse_flops_rate("989 TFLOPS", kHere), FlopsPerSecond(989e12));
  EXPECT_EQ(parse_element_rate("0.5 G/s", kHere), ElementsPerSecond(5e8));
  EXPECT_EQ(parse_price("3.35 USD/h", kHere), UsdPerHour(3.35));
  EXPECT_EQ(parse_price("1e6 USD/h", kHere), UsdPerHour(1e6));
  EXPECT_EQ(parse_fraction("25 %", kHere), 0.25);
  EXPECT_EQ(parse_fraction("150%", kHere), 1.5);
  EXPECT_EQ(parse_number("0.85", kHere), 0.85);
  EXPECT_EQ(parse_number("2.5e-3", kHere), 0.0025);
}

TEST(Quantity, CountsAreWhole) {
  EXPECT_EQ(parse_count("96", kHere), 96);
  EXPECT_EQ(parse_count("500k", kHere), 5e5);
  EXPECT_EQ(parse_count("10M", kHere), 1e7);
  EXPECT_EQ(parse_count("1.5B", kHere), 1.5e9);
  EXPECT_EQ(parse_count("1e9", kHere), 1e9);
  EXPECT_EQ(parse_count("1e18", kHere), 1e18);
  EXPECT_EQ(parse_count("7.61525B", kHere), 7'615'250'000);
}

struct Refused {
  std::string name;
  std::function<void(std::string_view)> parse;
  std::string text;
  std::string wrong;
};

void PrintTo(const Refused& bad, std::ostream* out) { *out << bad.name; }

class RefusedQuantity : public testing::TestWithParam<Refused> {};

TEST_P(RefusedQuantity, SaysWhatWasExpected) {
  EXPECT_EQ(message_of([&] { GetParam().parse(GetParam().text); }), "f:1:2: " + GetParam().wrong);
}

const auto kSize = [](std::string_view text) { parse_bytes(text, kHere); };
const auto kRate = [](std::string_view text) { parse_bandwidth(text, kHere); };
const auto kTime = [](std::string_view text) { parse_time(text, kHere); };
const auto kFlops = [](std::string_view text) { parse_flops_rate(text, kHere); };
const auto kElements = [](std::string_view text) { parse_element_rate(text, kHere); };
const auto kPrice = [](std::string_view text) { parse_price(text, kHere); };
const auto kFraction = [](std::string_view text) { parse_fraction(text, kHere); };
const auto kNumber = [](std::string_view text) { parse_number(text, kHere); };
const auto kCount = [](std::string_view text) { parse_count(text, kHere); };

const std::string kSizeForm = "; expected a size such as '80 GiB' or '141 GB'";
const std::string kNumberForm = "; expected a number such as 0.85";
const std::string kCountForm = "; expected a count such as 96, 500k, 10M or 1.5B";

INSTANTIATE_TEST_SUITE_P(
    Table, RefusedQuantity,
    testing::Values(
        Refused{"BareNumber", kSize, "80", "'80' has no unit" + kSizeForm},
        Refused{"Empty", kSize, "", "'' is not a quantity" + kSizeForm},
        Refused{"UnitAlone", kSize, "GiB", "'GiB' is not a quantity" + kSizeForm},
        Refused{"Bits", kSize, "80 Gb", "'80 Gb' has an unknown unit" + kSizeForm},
        Refused{"AmbiguousKB", kSize, "80 KB", "'80 KB' has an unknown unit" + kSizeForm},
        Refused{"RateAsSize", kSize, "80 GB/s", "'80 GB/s' has an unknown unit" + kSizeForm},
        Refused{"Negative", kSize, "-1 B", "'-1 B' is negative" + kSizeForm},
        Refused{"DashAlone", kSize, "-", "'-' is not a quantity" + kSizeForm},
        Refused{"Plus", kSize, "+1 B", "'+1 B' is not a quantity" + kSizeForm},
        Refused{"BlankBefore", kSize, " 1 B", "' 1 B' is not a quantity" + kSizeForm},
        Refused{"BlankAfter", kSize, "1 B ", "'1 B ' has an unknown unit" + kSizeForm},
        Refused{"OctalSize", kSize, "010 B", "'010 B' is not a quantity" + kSizeForm},
        Refused{"OctalNumber", kNumber, "00.5", "'00.5' is not a quantity" + kNumberForm},
        Refused{"BlankAfterCount", kCount, "4 ", "'4 ' has an unknown unit" + kCountForm},
        Refused{"NearlyWhole", kCount, "2.0000000000001",
                "'2.0000000000001' is not a whole number" + kCountForm},
        Refused{"TwoBlanks", kSize, "1  B", "'1  B' has an unknown unit" + kSizeForm},
        Refused{"Commas", kSize, "1,000 B", "'1,000 B' has an unknown unit" + kSizeForm},
        Refused{"Underscores", kSize, "1_000 B", "'1_000 B' has an unknown unit" + kSizeForm},
        Refused{"OneByteTooMany", kSize, "9223372036854775808 B",
                "'9223372036854775808 B' is out of range" + kSizeForm},
        Refused{"OneUnitTooMany", kSize, "8388608 TiB",
                "'8388608 TiB' is out of range" + kSizeForm},
        Refused{"FractionTooLarge", kSize, "8388608.0 TiB",
                "'8388608.0 TiB' is out of range" + kSizeForm},
        Refused{"SizeAsRate", kRate, "26 GB",
                "'26 GB' has an unknown unit; expected a bandwidth such as '26.0 GB/s'"},
        Refused{"Minutes", kTime, "9 min",
                "'9 min' has an unknown unit; expected a time such as '9 us' or '0.4 ms'"},
        Refused{"Teraflop", kFlops, "989 T",
                "'989 T' has an unknown unit; expected a rate such as '989 TFLOPS'"},
        Refused{"Elements", kElements, "1e9",
                "'1e9' has no unit; expected elements a second such as '0.9 G/s'"},
        Refused{"Dollars", kPrice, "$3.35",
                "'$3.35' is not a quantity; expected a price such as '3.35 USD/h'"},
        Refused{"BareFraction", kFraction, "0.03",
                "'0.03' has no unit; expected a percentage such as '3 %'"},
        Refused{"NumberWithUnit", kNumber, "1 s", "'1 s' is not a number" + kNumberForm},
        Refused{"NumberOverflow", kNumber, "1e400", "'1e400' is out of range" + kNumberForm},
        Refused{"NumberUnderflow", kNumber, "1e-400", "'1e-400' is out of range" + kNumberForm},
        Refused{"Hexadecimal", kNumber, "0x10", "'0x10' is not a number" + kNumberForm},
        Refused{"NotANumber", kNumber, "nan", "'nan' is not a quantity" + kNumberForm},
        Refused{"Infinity", kNumber, "inf", "'inf' is not a quantity" + kNumberForm},
        Refused{"HalfNumber", kNumber, "1.", "'1.' is not a number" + kNumberForm},
        Refused{"HalfExponent", kNumber, "1e", "'1e' is not a number" + kNumberForm},
        Refused{"RateOverflow", kFlops, "1e300 PFLOPS",
                "'1e300 PFLOPS' is out of range; expected a rate such as '989 TFLOPS'"},
        Refused{"PriceOfAWorld", kPrice, "1e300 USD/h",
                "'1e300 USD/h' is out of range; expected a price such as '3.35 USD/h'"},
        Refused{"MoreThanAnyoneCounts", kCount, "1.1e18", "'1.1e18' is out of range" + kCountForm},
        Refused{"HalfAThing", kCount, "0.5", "'0.5' is not a whole number" + kCountForm},
        Refused{"FractionOfCount", kCount, "1.0001k",
                "'1.0001k' is not a whole number" + kCountForm},
        Refused{"GigaCount", kCount, "1G", "'1G' has an unknown unit" + kCountForm}),
    [](const auto& test) { return test.param.name; });

TEST(Show, ThreeDigitsInTheUnitThatReadsBest) {
  EXPECT_EQ(show(Bytes(0)), "0 B");
  EXPECT_EQ(show(Bytes(1023)), "1023 B");
  EXPECT_EQ(show(Bytes(1024)), "1.00 KiB");
  EXPECT_EQ(show(Bytes(-kMiB)), "-1.00 MiB");
  EXPECT_EQ(show(Bytes(kGiB - 1)), "1.00 GiB");  // never "1024 MiB"
  EXPECT_EQ(show(Bytes(44'238'000'000)), "41.2 GiB");
  EXPECT_EQ(show(Bytes(kGiB * 1000)), "1000 GiB");
  EXPECT_EQ(show(Seconds(0)), "0 s");
  EXPECT_EQ(show(Seconds(21.44)), "21.4 s");
  EXPECT_EQ(show(Seconds(3.2e-3)), "3.20 ms");
  EXPECT_EQ(show(Seconds(12e-6)), "12.0 us");
  EXPECT_EQ(show(Seconds(0.99999)), "1.00 s");  // never "1000 ms"
  EXPECT_EQ(show(Seconds(9.999)), "10.0 s");
  EXPECT_EQ(show(Seconds(3e-10)), "0.300 ns");
  EXPECT_EQ(show(Seconds(1234.5)), "1234 s");
  EXPECT_EQ(show(BytesPerSecond(55e9)), "55.0 GB/s");
  EXPECT_EQ(show(FlopsPerSecond(285.4e12)), "285 TFLOPS");
  EXPECT_EQ(show(FlopsPerSecond(0)), "0 FLOPS");
}

TEST(Show, MoneyKeepsItsCents) {
  EXPECT_EQ(show(Usd(0)), "$0.00");
  EXPECT_EQ(show(Usd(0.014812)), "$0.0148");
  EXPECT_EQ(show(Usd(0.1)), "$0.100");
  EXPECT_EQ(show(Usd(0.01)), "$0.0100");
  EXPECT_EQ(show(Usd(3.349)), "$3.35");
  EXPECT_EQ(show(Usd(12345.6)), "$12,346");
}

TEST(Show, Commas) {
  EXPECT_EQ(with_commas(0), "0");
  EXPECT_EQ(with_commas(999.4), "999");
  EXPECT_EQ(with_commas(999.6), "1,000");
  EXPECT_EQ(with_commas(11261), "11,261");
  EXPECT_EQ(with_commas(-1234567), "-1,234,567");
  EXPECT_EQ(with_commas(-999), "-999");
}

// Three digits printed: reading them again is within half a unit of the third.
bool close(double read, double shown) { return std::abs(read - shown) <= 0.0051 * shown; }

RC_GTEST_PROP(ShowThenParse, Bytes, ()) {
  const auto bytes = *rc::gen::inRange<std::int64_t>(0, std::int64_t{1} << 60);
  const Bytes b(bytes >> *rc::gen::inRange(0, 60));
  RC_ASSERT(parse_bytes(std::to_string(b.value) + " B", kHere) == b);
  RC_ASSERT(
      close(static_cast<double>(parse_bytes(show(b), kHere).value), static_cast<double>(b.value)));
}

double any_size(double smallest, double largest) {
  const double part = *rc::gen::inRange(0, 1'000'000) / 1e6;
  return smallest * std::pow(largest / smallest, part);
}

RC_GTEST_PROP(ShowThenParse, Rates, ()) {
  const Seconds t(any_size(1e-9, 1e6));
  RC_ASSERT(close(parse_time(show(t), kHere).value, t.value));
  const BytesPerSecond r(any_size(1, 1e17));
  RC_ASSERT(close(parse_bandwidth(show(r), kHere).value, r.value));
  const FlopsPerSecond f(any_size(1, 1e18));
  RC_ASSERT(close(parse_flops_rate(show(f), kHere).value, f.value));
}

RC_GTEST_PROP(WithCommas, LosesNoDigit, (std::int32_t n)) {
  std::string digits = with_commas(n);
  std::erase(digits, ',');
  RC_ASSERT(digits == std::to_string(n));
}

}  // namespace
}  // namespace offsim::quantity_test
