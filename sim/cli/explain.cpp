#include "sim/cli/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "sim/base/config.h"
#include "sim/base/language.h"
#include "sim/base/table.h"
#include "sim/plans/checks.h"
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
      return tr_format("{} points", item.items.size());
    }
    if (figure.keys[i] == "rows") {
      return tr_format("{} rows", std::ranges::count(item.scalar, '\n'));
    }
    if (figure.keys[i] == "value" || figure.keys[i] == "machine") {
      return item.scalar;
    }
  }
  return "";
}

std::string origin_text(const Place& place) {
  return place.file.empty() ? tr("default") : report::placed_text(place.text());
}

}  // namespace

std::string figures_text(const study::Catalog& catalog, const machine::Machine& machine,
                         const report::TextStyle& style) {
  Table table({{tr("figure")}, {tr("value"), Table::Align::kRight}, {tr("source")}});
  std::vector<std::string> from;
  Documents read;
  for (const machine::Figure& figure : machine.figures) {
    const Node* written = map_at(document(catalog, figure.place.file, read), figure.place);
    table.add_row({figure.name, written == nullptr ? "" : written_value(*written),
                   fmt::format("{} +-{:.3g} %", tr(machine::source_name(figure.source)),
                               figure.spread * 100)});
    const std::string title = figure.title.empty() ? "" : tr_sentence(figure.title) + ": ";
    from.push_back(fmt::format("{}{} ({})", title, figure.from, figure.place.text()));
  }
  const std::vector<std::string> rows = report::rows_of(table, style);
  std::string out = rows.front() + "\n";
  for (std::size_t i = 0; i < from.size(); ++i) {
    out += rows[i + 1] + "\n" + report::paragraph("    ", from[i], style);
  }
  return out;
}

std::string given_text(const study::Case& c, const std::vector<std::string>& warnings,
                       const report::TextStyle& style) {
  Table given({{tr("in force")}, {tr("value")}, {tr("from")}, {tr("effect")}});
  std::vector<std::string> defaults;
  bool any = false;
  for (const Origin& origin : c.origins) {
    if (origin.place.file.empty()) {
      defaults.push_back(report::tie(fmt::format(
          "{} {}", origin.name.substr(origin.name.find('.') + 1), tr_value(origin.value))));
      continue;
    }
    const bool idle =
        plans::without_effect(warnings, origin.name.substr(origin.name.find('.') + 1));
    given.add_row(
        {origin.name, tr_value(origin.value), origin_text(origin.place), idle ? tr("none") : ""});
    any = true;
  }
  return (any ? "\n" + report::join(report::rows_of(given, style), "\n") : "") + "\n" +
         report::paragraph("  ", tr_format("by default: {}", report::listed(defaults)), style);
}

std::string explain_text(const study::Catalog& catalog, const study::Case& c,
                         const report::TextStyle& style) {
  Table settings({{tr("setting")}, {tr("value")}, {tr("from")}});
  for (const Origin& origin : c.origins) {
    settings.add_row({origin.name, tr_value(origin.value), origin_text(origin.place)});
  }
  return report::join(report::rows_of(settings, style), "\n") + "\n\n" +
         figures_text(catalog, c.job.machine, style) + "\n";
}

}  // namespace offsim::cli
