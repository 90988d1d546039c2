#include "sim/cli/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "sim/base/config.h"
#include "sim/base/table.h"
#include "sim/report/layout.h"

namespace offsim::cli {

namespace {

using Documents = std::map<std::string, Node>;

const Node& document(const study::Catalog& catalog, const std::string& file, Documents& read) {
  const auto found = read.find(file);
  if (found != read.end()) {
    return found->second;
  }
  const auto text = catalog.read(file);
  return read.emplace(file, text ? parse_document(*text, file, Syntax::kYaml) : load_document(file))
      .first->second;
}

// The map at a place: where a figure was written.
const Node* map_at(const Node& node, const Place& place) {
  if (node.kind == Node::Kind::kMap && node.place == place && node.find("source") != nullptr) {
    return &node;
  }
  for (const Node& item : node.items) {
    if (const Node* found = map_at(item, place)) {
      return found;
    }
  }
  return nullptr;
}

// With its unit, which only the file knows.
std::string written_value(const Node& figure) {
  for (std::size_t i = 0; i < figure.keys.size(); ++i) {
    const Node& item = figure.items[i];
    if (figure.keys[i] == "points") {
      return fmt::format("{} points", item.items.size());
    }
    if (figure.keys[i] == "rows") {
      return fmt::format("{} rows", std::ranges::count(item.scalar, '\n'));
    }
    if (figure.keys[i] == "value" || figure.keys[i] == "machine") {
      return item.scalar;
    }
  }
  return "";
}

// The lines of a table, each on its own where the page is too narrow for columns.
std::vector<std::string> rows_of(const Table& table, const report::TextStyle& style) {
  std::vector<std::string> rows = report::lines_of(table.text({.indent = 2}));
  const bool fit = std::ranges::all_of(rows, [&](const std::string& row) {
    return report::visible_width(row) <= report::page_width(style);
  });
  for (std::string& row : rows) {
    if (!fit) {
      row = report::paragraph("  ", row, style);
      row.pop_back();
    }
  }
  rows.front() = report::paint(rows.front(), report::Ink::kBold, style);
  return rows;
}

std::string origin_text(const Place& place) {
  return place.file.empty() ? "default" : place.text();
}

}  // namespace

std::string figures_text(const study::Catalog& catalog, const machine::Machine& machine,
                         const report::TextStyle& style) {
  Table table({{"figure"}, {"value", Table::Align::kRight}, {"source"}});
  std::vector<std::string> from;
  Documents read;
  for (const machine::Figure& figure : machine.figures) {
    const Node* written = map_at(document(catalog, figure.place.file, read), figure.place);
    table.add_row(
        {figure.name, written == nullptr ? "" : written_value(*written),
         fmt::format("{} +-{:.3g} %", machine::source_name(figure.source), figure.spread * 100)});
    from.push_back(fmt::format("{}{}{} ({})", figure.title, figure.title.empty() ? "" : ": ",
                               figure.from, figure.place.text()));
  }
  const std::vector<std::string> rows = rows_of(table, style);
  std::string out = rows.front() + "\n";
  for (std::size_t i = 0; i < from.size(); ++i) {
    out += rows[i + 1] + "\n" + report::paragraph("    ", from[i], style);
  }
  return out;
}

std::string settings_text(const study::Case& c, const report::TextStyle& style) {
  Table settings({{"setting"}, {"value"}, {"from"}});
  for (const Origin& origin : c.origins) {
    settings.add_row({origin.name, origin.value, origin_text(origin.place)});
  }
  return report::join(rows_of(settings, style), "\n") + "\n";
}

std::string explain_text(const study::Catalog& catalog, const study::Case& c,
                         const report::TextStyle& style) {
  return settings_text(c, style) + "\n" + figures_text(catalog, c.job.machine, style) + "\n";
}

}  // namespace offsim::cli
