// Reads figures, curves and tables of a machine file, and keeps the list of figures. Not public.
//
// A figure is {value: 55 GB/s, source: measured, spread: 3 %, from: raw/records.jsonl}; in place of
// the value a curve has points: [[1 MiB, 34.2 GB/s], ...] and a table rows: a block of text, one
// row a line, cells separated by commas (yaml-cpp reads a block five times faster than lists).
// `spread` may be left out, and is at most 100 %. Values are positive and of a size that a machine
// may have; the x of a curve ascends.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sim/base/config.h"
#include "sim/base/quantity.h"
#include "sim/machine/figure.h"

namespace offsim::machine {

using Parse = double (*)(std::string_view text, const Place& place);

// Each within what a machine of any kind may have: 1 B to 1 PB, 1 kB/s to 1 EB/s, 1 ps to 100 s,
// 1 k/s to 1 E/s. Zero is left to the reader, which refuses it by the figure's name.
double as_bytes(std::string_view text, const Place& place);
double as_bandwidth(std::string_view text, const Place& place);
double as_time(std::string_view text, const Place& place);
double as_elements(std::string_view text, const Place& place);

class FigureReader {
 public:
  explicit FigureReader(std::vector<Figure>& figures) : figures_(&figures) {}

  // Required figures of the map `in`.
  Known<Bytes> bytes(View& in, std::string_view key);
  Known<BytesPerSecond> bandwidth(View& in, std::string_view key);
  Known<Seconds> time(View& in, std::string_view key);
  Known<FlopsPerSecond> flops(View& in, std::string_view key);
  Known<ElementsPerSecond> elements(View& in, std::string_view key);
  Known<double> fraction(View& in, std::string_view key);
  Known<double> number(View& in, std::string_view key);
  Curve curve(View& in, std::string_view key, Parse x, Parse y);

  // Rows with one cell a parser; counts as one figure.
  struct Table {
    std::vector<std::vector<double>> rows;
    FigureId figure = kNoFigure;
  };
  Table table(View& in, std::string_view key, const std::vector<Parse>& columns);

  // Reads source, spread and from of a map whose value is already read, and refuses other keys.
  FigureId add(View& map, double value, const std::string& title = "");

  const std::vector<Figure>& figures() const { return *figures_; }

 private:
  double value(View& in, std::string_view key, Parse parse, FigureId& id);

  std::vector<Figure>* figures_;
};

}  // namespace offsim::machine
