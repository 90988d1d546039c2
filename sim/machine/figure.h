// One figure of a machine file: what it is worth, where it is from, how far it may be off.
//
// A figure without a spread of its own gets the default of its source: measured 3 %, datasheet 5 %,
// published 10 %, assumed 25 %. A curve or a table counts as one figure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/error.h"

namespace offsim::machine {

enum class Source : std::uint8_t { kMeasured, kDatasheet, kPublished, kAssumed };

std::string_view source_name(Source source);  // "measured" ...
double default_spread(Source source);

// Index into Machine::figures.
enum class FigureId : std::int32_t {};
inline constexpr FigureId kNoFigure{-1};

struct Figure {
  double value = 0;  // in the base unit of its kind (bytes, seconds ...); of a curve its largest y
  Source source = Source::kAssumed;
  double spread = 0;  // 0.03: the truth is probably within 3 %
  std::string name;   // "link.h2d": where a machine's file has it
  std::string title;  // for people; empty where the name says enough
  std::string from;   // a file below hardware/, an https address, or the reason of an assumption
  Place place;

  const std::string& text() const { return title.empty() ? name : title; }
};

// A figure as its users read it: the value with its unit, and which figure it is.
template <class T>
struct Known {
  T value{};
  FigureId figure = kNoFigure;
};

// y(x), linear in log x between the points and constant outside them. Requires: x positive and
// ascending.
struct Curve {
  std::vector<double> x;
  std::vector<double> y;
  FigureId figure = kNoFigure;

  bool empty() const { return x.empty(); }
  double at(double where) const;
};

}  // namespace offsim::machine
