#include "sim/base/table.h"

#include <algorithm>
#include <utility>

#include "sim/base/error.h"
#include "sim/base/text.h"

namespace offsim {

Table::Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

void Table::add_row(std::vector<std::string> cells) {
  SIM_ASSERT(cells.size() <= columns_.size(), "each cell of a row belongs to a column");
  cells.resize(columns_.size());
  rows_.push_back(std::move(cells));
}

std::string Table::text(const Style& style) const {
  std::vector<std::string> header;
  std::vector<std::size_t> widths;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    header.push_back(columns_[i].header);
    widths.push_back(display_width(header[i]));
    for (const auto& row : rows_) {
      widths[i] = std::max(widths[i], display_width(row[i]));
    }
  }
  const auto line = [&](const std::vector<std::string>& cells) {
    std::string out(static_cast<std::size_t>(style.indent), ' ');
    for (std::size_t i = 0; i < cells.size(); ++i) {
      const std::string padding(widths[i] - display_width(cells[i]), ' ');
      out += columns_[i].align == Align::kRight ? padding + cells[i] : cells[i] + padding;
      out += "  ";
    }
    out.erase(out.find_last_not_of(' ') + 1);
    return out;
  };
  std::string out;
  if (std::ranges::any_of(header, [](const std::string& text) { return !text.empty(); })) {
    out += style.colour ? "\x1b[1m" + line(header) + "\x1b[0m\n" : line(header) + "\n";
  }
  for (const auto& row : rows_) {
    out += line(row) + "\n";
  }
  return out;
}

}  // namespace offsim
