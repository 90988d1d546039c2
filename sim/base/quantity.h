// Quantities with their unit as text: "26.0 GB/s", "80 GiB", "9 us", "989 TFLOPS", "3.35 USD/h".
//
// A quantity is a finite decimal number and a unit, with an optional space between. Decimal
// prefixes k M G T P are powers of 1000 and Ki Mi Gi Ti powers of 1024; "KB" is refused since it
// means both. A bare number is refused: the message shows the expected form. The parse functions
// throw InputError at `place`; negative values are refused everywhere. Bytes are exact: a whole
// number of units is multiplied as integers, a fraction is rounded to the nearest byte.
#pragma once

#include <string>
#include <string_view>

#include "sim/base/error.h"
#include "sim/base/units.h"

namespace offsim {

// "80 GiB", "141 GB", "512 B"
Bytes parse_bytes(std::string_view text, const Place& place);
// "26.0 GB/s", "4.8 TB/s"
BytesPerSecond parse_bandwidth(std::string_view text, const Place& place);
// "9 us", "0.4 ms", "3 s", "12 ns"
Seconds parse_time(std::string_view text, const Place& place);
// "989 TFLOPS"
FlopsPerSecond parse_flops_rate(std::string_view text, const Place& place);
// "0.9 G/s": elements a second
ElementsPerSecond parse_element_rate(std::string_view text, const Place& place);
// "3.35 USD/h", up to a million
UsdPerHour parse_price(std::string_view text, const Place& place);
// "3 %" is 0.03; "0.03" is refused
double parse_fraction(std::string_view text, const Place& place);
// A bare finite number: "0.85"
double parse_number(std::string_view text, const Place& place);
// A bare whole number up to 1e18, for people: "10M", "1.5B", "500k", "1e9", "96"
double parse_count(std::string_view text, const Place& place);

// Text for people: three significant digits, the unit that reads best.
std::string show(Bytes b);           // "41.2 GiB"
std::string show(Seconds t);         // "21.4 s", "3.20 ms", "12.0 us"
std::string show(BytesPerSecond r);  // "55.0 GB/s"
std::string show(FlopsPerSecond r);  // "285 TFLOPS"
std::string show(Usd u);             // "$0.0148"
std::string with_commas(double n);   // "11,261"

}  // namespace offsim
