#include "sim/machine/reader.h"

#include <fmt/format.h>

#include <algorithm>

namespace offsim::machine {

namespace {

// Far from these bounds, times would pass what the engine counts, or sums lose their small parts.
double within(double value, double least, double most, std::string_view text, const Place& place,
              std::string_view range) {
  if (value > 0 && (value < least || value > most)) {
    throw InputError(place, fmt::format("'{}' is out of range", text),
                     fmt::format("expected {}", range));
  }
  return value;
}

double as_flops(std::string_view text, const Place& place) {
  return within(parse_flops_rate(text, place).value, 1e9, 1e21, text, place,
                "1 GFLOPS to 1000000 PFLOPS");
}

double as_share(std::string_view text, const Place& place) {
  return within(parse_fraction(text, place), 0.001, 2, text, place, "0.1 % to 200 %");
}

double as_factor(std::string_view text, const Place& place) {
  return within(parse_number(text, place), 0.001, 1000, text, place, "0.001 to 1000");
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
  for (std::size_t from = 0; from <= text.size();) {
    const std::size_t end = std::min(text.find(separator, from), text.size());
    out.push_back(trimmed(text.substr(from, end - from)));
    from = end + 1;
  }
  return out;
}

}  // namespace

double as_bytes(std::string_view text, const Place& place) {
  return within(static_cast<double>(parse_bytes(text, place).value), 1, 1e15, text, place,
                "1 B to 1 PB");
}

double as_bandwidth(std::string_view text, const Place& place) {
  return within(parse_bandwidth(text, place).value, 1e3, 1e18, text, place, "1 kB/s to 1000 PB/s");
}

double as_time(std::string_view text, const Place& place) {
  return within(parse_time(text, place).value, 1e-12, 100, text, place, "0.001 ns to 100 s");
}

double as_elements(std::string_view text, const Place& place) {
  return within(parse_element_rate(text, place).value, 1e3, 1e18, text, place,
                "1 k/s to 1000000 T/s");
}

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
  if (figure.spread > 1) {
    throw InputError(map.place_of("spread"), map.path() + ".spread is above 100 %",
                     "expected a smaller one");
  }
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
  out.value = value(in, key, as_share, out.figure);
  return out;
}

Known<double> FigureReader::number(View& in, std::string_view key) {
  Known<double> out;
  out.value = value(in, key, as_factor, out.figure);
  return out;
}

FigureReader::Table FigureReader::table(View& in, std::string_view key,
                                        const std::vector<Parse>& columns) {
  View map = in.map(key);
  const Node& block = map.need("rows");
  const std::string what = map.path() + ".rows";
  Table out;
  double largest = 0;
  std::string_view text = to_text(block, what);
  text.remove_suffix(text.ends_with('\n') ? 1 : 0);
  Place place = block.place;  // of the '|'; the rows follow it
  for (const std::string_view line : split(text, '\n')) {
    place = {place.file, place.line + 1, 1};
    const std::vector<std::string_view> cells = split(line, ',');
    if (cells.size() != columns.size()) {
      throw InputError(place, fmt::format("'{}' is not a row of {}", line, what),
                       fmt::format("expected {} cells, separated by commas", columns.size()));
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
