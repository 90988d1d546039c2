#include "sim/machine/reader.h"

#include <fmt/format.h>

#include <algorithm>

namespace offsim::machine {

namespace {

double as_flops(std::string_view text, const Place& place) {
  return parse_flops_rate(text, place).value;
}

double cell(const Node& node, Parse parse, const std::string& what) {
  const double value = parse(to_text(node, what), node.place);
  if (value <= 0) {
    throw InputError(node.place, fmt::format("{} is '{}'", what, node.scalar),
                     "expected more than zero");
  }
  return value;
}

}  // namespace

FigureId FigureReader::add(View& map, double value) {
  Figure figure;
  const std::string source =
      map.choice("source", {"measured", "datasheet", "published", "assumed"});
  for (const Source s :
       {Source::kMeasured, Source::kDatasheet, Source::kPublished, Source::kAssumed}) {
    if (source == source_name(s)) {
      figure.source = s;
    }
  }
  figure.from = map.text("from");
  if (figure.from.empty()) {
    throw InputError(map.place_of("from"), map.path() + ".from is empty",
                     "expected a file, an address, or the reason of an assumption");
  }
  figure.spread = map.has("spread") ? map.fraction("spread") : default_spread(figure.source);
  map.get("spread");  // known, whether given or not
  figure.value = value;
  figure.name = map.path();
  figure.place = map.place();
  map.finish();
  figures_->push_back(figure);
  return FigureId(static_cast<std::int32_t>(figures_->size()) - 1);
}

double FigureReader::value(View& in, std::string_view key, Parse parse, FigureId& id) {
  View map = in.map(key);
  const Node& node = map.need("value");
  const double value = cell(node, parse, map.path() + ".value");
  id = add(map, value);
  return value;
}

Known<Bytes> FigureReader::bytes(View& in, std::string_view key) {
  Known<Bytes> out;
  out.value = Bytes(static_cast<std::int64_t>(value(in, key, as_bytes, out.figure)));
  return out;
}

Known<BytesPerSecond> FigureReader::bandwidth(View& in, std::string_view key) {
  Known<BytesPerSecond> out;
  out.value = BytesPerSecond(value(in, key, as_bandwidth, out.figure));
  return out;
}

Known<Seconds> FigureReader::time(View& in, std::string_view key) {
  Known<Seconds> out;
  out.value = Seconds(value(in, key, as_time, out.figure));
  return out;
}

Known<FlopsPerSecond> FigureReader::flops(View& in, std::string_view key) {
  Known<FlopsPerSecond> out;
  out.value = FlopsPerSecond(value(in, key, as_flops, out.figure));
  return out;
}

Known<ElementsPerSecond> FigureReader::elements(View& in, std::string_view key) {
  Known<ElementsPerSecond> out;
  out.value = ElementsPerSecond(value(in, key, as_elements, out.figure));
  return out;
}

Known<double> FigureReader::fraction(View& in, std::string_view key) {
  Known<double> out;
  out.value = value(in, key, parse_fraction, out.figure);
  return out;
}

Known<double> FigureReader::number(View& in, std::string_view key) {
  Known<double> out;
  out.value = value(in, key, parse_number, out.figure);
  return out;
}

FigureReader::Table FigureReader::table(View& in, std::string_view key,
                                        const std::vector<Parse>& columns) {
  View map = in.map(key);
  const Node& points = map.need("points");
  const std::string what = map.path() + ".points";
  if (points.kind != Node::Kind::kList || points.items.empty()) {
    throw InputError(points.place, what + " is not a list of rows",
                     "expected [[x, y], ...] with at least one row");
  }
  Table out;
  double largest = 0;
  for (const Node& row : points.items) {
    if (row.kind != Node::Kind::kList || row.items.size() != columns.size()) {
      throw InputError(row.place, fmt::format("a row of {} has another length", what),
                       fmt::format("expected {} values", columns.size()));
    }
    std::vector<double>& values = out.rows.emplace_back();
    for (std::size_t i = 0; i < columns.size(); ++i) {
      values.push_back(cell(row.items[i], columns[i], what));
    }
    largest = std::max(largest, values.back());
  }
  out.figure = add(map, largest);
  return out;
}

Curve FigureReader::curve(View& in, std::string_view key, Parse x, Parse y) {
  const Table rows = table(in, key, {x, y});
  Curve out;
  out.figure = rows.figure;
  for (const std::vector<double>& row : rows.rows) {
    if (!out.x.empty() && row[0] <= out.x.back()) {
      throw InputError(in.place_of(key), fmt::format("{}.{}.points do not ascend", in.path(), key),
                       "expected each x larger than the one before");
    }
    out.x.push_back(row[0]);
    out.y.push_back(row[1]);
  }
  return out;
}

}  // namespace offsim::machine
