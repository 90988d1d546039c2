#include "sim/machine/reader.h"

#include <fmt/format.h>

#include <algorithm>

namespace offsim::machine {

namespace {

double as_flops(std::string_view text, const Place& place) {
  return parse_flops_rate(text, place).value;
}

// Requires: `text` is what a person wrote at `place`, under the name `what`.
double positive(std::string_view text, const Place& place, Parse parse, const std::string& what) {
  const double value = parse(text, place);
  if (value <= 0) {
    throw InputError(place, fmt::format("{} is '{}'", what, text), "expected more than zero");
  }
  return value;
}

double cell(const Node& node, Parse parse, const std::string& what) {
  return positive(to_text(node, what), node.place, parse, what);
}

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(' ');
  return first == std::string_view::npos
             ? std::string_view()
             : text.substr(first, text.find_last_not_of(' ') - first + 1);
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> out;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(separator), text.size());
    out.push_back(trimmed(text.substr(0, end)));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

}  // namespace

FigureId FigureReader::add(View& map, double value, const std::string& title) {
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
  figure.title = title;
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
  const Node& block = map.need("rows");
  const std::string what = map.path() + ".rows";
  Table out;
  double largest = 0;
  Place place{block.place.file, block.place.line, 1};  // of the '|'; the rows follow it
  for (const std::string_view line : split(to_text(block, what), '\n')) {
    ++place.line;
    const std::vector<std::string_view> cells = split(line, ',');
    if (cells.size() != columns.size()) {
      throw InputError(place, fmt::format("'{}' in {} has {} cells", line, what, cells.size()),
                       fmt::format("expected {}, separated by commas", columns.size()));
    }
    std::vector<double>& values = out.rows.emplace_back();
    for (std::size_t i = 0; i < columns.size(); ++i) {
      values.push_back(positive(cells[i], place, columns[i], what));
    }
    largest = std::max(largest, values.back());
  }
  out.figure = add(map, largest);
  return out;
}

Curve FigureReader::curve(View& in, std::string_view key, Parse x, Parse y) {
  View map = in.map(key);
  const Node& points = map.need("points");
  const std::string what = map.path() + ".points";
  if (points.kind != Node::Kind::kList || points.items.empty()) {
    throw InputError(points.place, what + " is not a list of points",
                     "expected [[x, y], ...] with at least one");
  }
  Curve out;
  for (const Node& point : points.items) {
    if (point.kind != Node::Kind::kList || point.items.size() != 2) {
      throw InputError(point.place, "a point of " + what + " is not a pair", "expected [x, y]");
    }
    const double at = cell(point.items[0], x, what);
    if (!out.x.empty() && at <= out.x.back()) {
      throw InputError(point.place, what + " do not ascend",
                       "expected each x larger than the one before");
    }
    out.x.push_back(at);
    out.y.push_back(cell(point.items[1], y, what));
  }
  out.figure = add(map, std::ranges::max(out.y));
  return out;
}

}  // namespace offsim::machine
