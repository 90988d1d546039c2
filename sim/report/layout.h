// Numbers and lines for a terminal: digits, wrapped text, colour.
//
// Widths are columns of a terminal (display_width of base/text.h), as in base/table.h.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/table.h"
#include "sim/base/units.h"
#include "sim/report/text.h"

namespace offsim::report {

// The columns to fill: at least 40, whatever the style says.
std::size_t page_width(const TextStyle& style);

// Three significant digits with commas: "0.850", "21.4", "3,062".
std::string three_digits(double value);
std::string gib_number(Bytes bytes);        // "41.2", "1,024.0": one unit, to compare
std::string gib_text(Bytes bytes);          // "41.2 GiB"
std::string percent(double share);          // "48 %"
std::string parameters_text(double count);  // "14.77 B", "124 M"

// A time to be read beside `whole`: in its unit, with as many decimals as give `whole` three
// digits.
std::string time_text(Seconds time, Seconds whole);

// Makes one word of a phrase that lines should not break in, to be wrapped: wrap() undoes it.
std::string tie(std::string_view phrase);

// Breaks into lines of at most `width`: at blanks, and beside wide characters, which are written
// without; but not before punctuation that closes. A longer word is cut into pieces, but for an
// address ("https://..."), which stays whole to be copied.
std::vector<std::string> wrap(std::string_view text, std::size_t width);

std::vector<std::string> lines_of(const std::string& text);  // each ends in '\n'

// The rows of a table with two blanks before each, its header first and bold; each a paragraph of
// its own where the page is too narrow for columns. Without newlines at their ends, where it is.
std::vector<std::string> rows_of(const Table& table, const TextStyle& style);

// Lines with `first` before the first and as many blanks before the others.
std::string paragraph(std::string_view first, std::string_view text, const TextStyle& style);
// A paragraph that begins with a label, which is translated, in a column of its own:
// "  step      21.4 s ...".
std::string labelled(std::string_view label, std::string_view text, const TextStyle& style);

enum class Ink : std::uint8_t { kBold, kRed, kYellow };
// `text` as it is without colour.
std::string paint(std::string_view text, Ink ink, const TextStyle& style);

// "warning: ...", each on lines of its own and translated.
std::string warnings_text(const std::vector<std::string>& warnings, const TextStyle& style);

// "ds.json:3:12: what is said; what more", translated, with or without its place.
std::string placed_text(std::string_view text);

std::string join(const std::vector<std::string>& parts, std::string_view between);
std::string listed(const std::vector<std::string>& parts);  // "a, b", in the language

// What is too large, "GPU needs 120.3 of 95.0 GiB, host ..."; empty where all fits.
std::string misfit_text(const study::Prediction& prediction);

// "loader 4 cores, 2.0 GB/s"; empty where the work has none.
std::string loader_text(const plans::Workload& work);

// "LoRA 16 on attention", "LoRA 16 on attention over nf4". Requires: there are adapters.
std::string adapters_text(const model::Adapters& adapters);

// For people, to be translated: "GPU", "host", "pinned", "NVMe", "unified".
std::string_view pool_title(std::string_view pool);

}  // namespace offsim::report
