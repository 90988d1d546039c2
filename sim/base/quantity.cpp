#include "sim/base/quantity.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>

namespace offsim {

namespace {

struct Scale {
  std::string_view unit;
  double factor;
};

constexpr std::array kBytesUnits = {
    Scale{"B", 1},        Scale{"kB", 1e3},    Scale{"MB", 1e6},     Scale{"GB", 1e9},
    Scale{"TB", 1e12},    Scale{"PB", 1e15},   Scale{"KiB", 0x1p10}, Scale{"MiB", 0x1p20},
    Scale{"GiB", 0x1p30}, Scale{"TiB", 0x1p40}};
constexpr std::array kBandwidthUnits = {
    Scale{"B/s", 1},        Scale{"kB/s", 1e3},    Scale{"MB/s", 1e6},     Scale{"GB/s", 1e9},
    Scale{"TB/s", 1e12},    Scale{"PB/s", 1e15},   Scale{"KiB/s", 0x1p10}, Scale{"MiB/s", 0x1p20},
    Scale{"GiB/s", 0x1p30}, Scale{"TiB/s", 0x1p40}};
constexpr std::array kTimeUnits = {Scale{"s", 1}, Scale{"ms", 1e-3}, Scale{"us", 1e-6},
                                   Scale{"ns", 1e-9}};
constexpr std::array kFlopsUnits = {Scale{"FLOPS", 1},     Scale{"kFLOPS", 1e3},
                                    Scale{"MFLOPS", 1e6},  Scale{"GFLOPS", 1e9},
                                    Scale{"TFLOPS", 1e12}, Scale{"PFLOPS", 1e15}};
constexpr std::array kElementRateUnits = {Scale{"/s", 1}, Scale{"k/s", 1e3}, Scale{"M/s", 1e6},
                                          Scale{"G/s", 1e9}, Scale{"T/s", 1e12}};
constexpr std::array kPriceUnits = {Scale{"USD/h", 1}};
constexpr std::array kFractionUnits = {Scale{"%", 0.01}};
constexpr std::array kCountUnits = {Scale{"", 1}, Scale{"k", 1e3}, Scale{"M", 1e6}, Scale{"B", 1e9},
                                    Scale{"T", 1e12}};

// What a kind of quantity is called in messages, and the units it may have.
struct Form {
  std::string_view expected;
  std::span<const Scale> units;
  double most = std::numeric_limits<double>::max();  // beyond it, a slip
};

constexpr Form kBytes = {"a size such as '80 GiB' or '141 GB'", kBytesUnits};
constexpr Form kBandwidth = {"a bandwidth such as '26.0 GB/s'", kBandwidthUnits};
constexpr Form kTime = {"a time such as '9 us' or '0.4 ms'", kTimeUnits};
constexpr Form kFlops = {"a rate such as '989 TFLOPS'", kFlopsUnits};
constexpr Form kElementRate = {"elements a second such as '0.9 G/s'", kElementRateUnits};
constexpr Form kPrice = {"a price such as '3.35 USD/h'", kPriceUnits, 1e6};
constexpr Form kFraction = {"a percentage such as '3 %'", kFractionUnits};
constexpr Form kNumber = {"a number such as 0.85", {}};
constexpr Form kCount = {"a count such as 96, 500k, 10M or 1.5B", kCountUnits, 1e18};

[[noreturn]] void refuse(std::string_view text, std::string_view why, const Form& form,
                         const Place& place) {
  throw InputError(place, fmt::format("'{}' {}", text, why),
                   fmt::format("expected {}", form.expected));
}

// The length of the decimal number that `text` begins with: 12, 0.5, 1e9, 2.5e-3. No hexadecimal,
// no leading zero, no "inf".
std::size_t number_length(std::string_view text) {
  std::size_t at = 0;
  const auto digits = [&] {
    const std::size_t first = at;
    while (at < text.size() && text[at] >= '0' && text[at] <= '9') {
      ++at;
    }
    return at > first;
  };
  if (!digits() || (at > 1 && text[0] == '0')) {  // 010 may be meant as octal
    return 0;
  }
  std::size_t end = at;
  if (at < text.size() && text[at] == '.') {
    ++at;
    if (!digits()) {
      return end;
    }
    end = at;
  }
  if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    ++at;
    if (at < text.size() && (text[at] == '+' || text[at] == '-')) {
      ++at;
    }
    if (digits()) {
      end = at;
    }
  }
  return end;
}

struct Split {
  std::string_view number;
  double value;
  double factor;  // of the unit; 1 for a form without units
};

Split split(std::string_view text, const Form& form, const Place& place) {
  if (text.starts_with('-')) {
    refuse(text, number_length(text.substr(1)) > 0 ? "is negative" : "is not a quantity", form,
           place);
  }
  const std::string_view number = text.substr(0, number_length(text));
  double value = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
  if (number.empty() || end != number.data() + number.size()) {
    refuse(text, "is not a quantity", form, place);
  }
  if (error != std::errc()) {
    // from_chars leaves the value alone for both; 1e-400 is as much a slip as 1e400.
    refuse(text, "is out of range", form, place);
  }
  std::string_view unit = text.substr(number.size());
  if (form.units.empty()) {
    if (!unit.empty()) {
      refuse(text, "is not a number", form, place);
    }
    return {number, value, 1};
  }
  if (unit.size() > 1 && unit.starts_with(' ')) {
    unit.remove_prefix(1);
  }
  const auto* const known = std::find_if(form.units.data(), form.units.data() + form.units.size(),
                                         [&](const Scale& s) { return s.unit == unit; });
  if (known == form.units.data() + form.units.size()) {
    refuse(text, unit.empty() ? "has no unit" : "has an unknown unit", form, place);
  }
  return {number, value, known->factor};
}

double parse(std::string_view text, const Form& form, const Place& place) {
  const Split parts = split(text, form, place);
  const double value = parts.value * parts.factor;
  if (value > form.most) {
    refuse(text, "is out of range", form, place);
  }
  return value;
}

// Three significant digits, none invented: 0.123, 1.23, 12.3, 123, 1235.
std::string three_digits(double value) {
  const double size = std::abs(value);
  const int decimals = size < 0.9995 ? 3 : size < 9.995 ? 2 : size < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f}", value, decimals);
}

// The largest unit in which the value does not read below 1; `units` go from small to large. Zero
// is zero of the plain unit.
std::string show_in(double value, std::span<const Scale> units) {
  const Scale* best = units.data();
  for (const Scale& unit : units) {
    if (value == 0 ? unit.factor == 1 : std::abs(value) >= unit.factor * 0.9995) {
      best = &unit;
    }
  }
  return fmt::format("{} {}", value == 0 ? "0" : three_digits(value / best->factor), best->unit);
}

}  // namespace

Bytes parse_bytes(std::string_view text, const Place& place) {
  constexpr double kTooMany = 0x1p63;
  const Split parts = split(text, kBytes, place);
  // A whole number of units is multiplied as integers, so that no byte is lost above 2^53.
  std::int64_t whole = 0;
  const char* const last = parts.number.data() + parts.number.size();
  const auto [end, error] = std::from_chars(parts.number.data(), last, whole);
  if (end == last && error == std::errc()) {
    const auto factor = static_cast<std::int64_t>(parts.factor);
    if (whole > std::numeric_limits<std::int64_t>::max() / factor) {
      refuse(text, "is out of range", kBytes, place);
    }
    return Bytes(whole * factor);
  }
  const double bytes = std::round(parts.value * parts.factor);
  if (bytes >= kTooMany) {
    refuse(text, "is out of range", kBytes, place);
  }
  return Bytes(static_cast<std::int64_t>(bytes));
}

BytesPerSecond parse_bandwidth(std::string_view text, const Place& place) {
  return BytesPerSecond(parse(text, kBandwidth, place));
}

Seconds parse_time(std::string_view text, const Place& place) {
  return Seconds(parse(text, kTime, place));
}

FlopsPerSecond parse_flops_rate(std::string_view text, const Place& place) {
  return FlopsPerSecond(parse(text, kFlops, place));
}

ElementsPerSecond parse_element_rate(std::string_view text, const Place& place) {
  return ElementsPerSecond(parse(text, kElementRate, place));
}

UsdPerHour parse_price(std::string_view text, const Place& place) {
  return UsdPerHour(parse(text, kPrice, place));
}

double parse_fraction(std::string_view text, const Place& place) {
  return parse(text, kFraction, place);
}

double parse_number(std::string_view text, const Place& place) {
  return parse(text, kNumber, place);
}

double parse_count(std::string_view text, const Place& place) {
  const double count = parse(text, kCount, place);
  const double whole = std::round(count);
  // 7.61525B is whole although 7.61525 * 1e9 is not, quite.
  if (std::abs(count - whole) > 4 * std::numeric_limits<double>::epsilon() * count) {
    refuse(text, "is not a whole number", kCount, place);
  }
  return whole;
}

std::string show(Bytes b) {
  constexpr std::array kUnits = {Scale{"KiB", 0x1p10}, Scale{"MiB", 0x1p20}, Scale{"GiB", 0x1p30},
                                 Scale{"TiB", 0x1p40}};
  if (std::abs(static_cast<double>(b.value)) < kKiB) {
    return fmt::format("{} B", b.value);
  }
  return show_in(static_cast<double>(b.value), kUnits);
}

std::string show(Seconds t) {
  constexpr std::array kUnits = {Scale{"ns", 1e-9}, Scale{"us", 1e-6}, Scale{"ms", 1e-3},
                                 Scale{"s", 1}};
  return show_in(t.value, kUnits);
}

std::string show(BytesPerSecond r) { return show_in(r.value, std::span(kBandwidthUnits).first(6)); }

std::string show(FlopsPerSecond r) { return show_in(r.value, kFlopsUnits); }

std::string show(Usd u) {
  if (std::abs(u.value) >= 1000) {
    return fmt::format("${}", with_commas(u.value));
  }
  // Cents and less keep three significant digits: a step costs $0.0148.
  const double size = std::abs(u.value);
  const int digits = size > 0 && size < 1 ? static_cast<int>(std::ceil(-std::log10(size))) + 2 : 2;
  return fmt::format("${:.{}f}", u.value, std::min(digits, 12));
}

std::string with_commas(double n) {
  std::string digits = fmt::format("{:.0f}", n);
  const std::ptrdiff_t sign = digits.starts_with('-') ? 1 : 0;
  for (auto at = std::ssize(digits) - 3; at > sign; at -= 3) {
    digits.insert(static_cast<std::size_t>(at), 1, ',');
  }
  return digits;
}

}  // namespace offsim
