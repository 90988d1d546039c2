// An aligned table of text for a terminal.
//
// Columns are as wide as their widest cell (display_width of text.h) and two spaces apart. Lines
// carry no trailing blanks. Nothing is wrapped or cut.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace offsim {

class Table {
 public:
  enum class Align : std::uint8_t { kLeft, kRight };
  struct Column {
    std::string header;
    Align align = Align::kLeft;
  };
  struct Style {
    int indent = 0;       // spaces before each line
    bool colour = false;  // the header in bold; only when somebody asked for it
  };

  explicit Table(std::vector<Column> columns);

  // Requires: at most as many cells as columns; missing ones are empty.
  void add_row(std::vector<std::string> cells);

  // Every line ends in '\n'. The header is left out when all headers are empty.
  std::string text() const { return text(Style{}); }
  std::string text(const Style& style) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace offsim
