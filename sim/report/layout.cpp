#include "sim/report/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "sim/base/error.h"
#include "sim/base/language.h"
#include "sim/base/quantity.h"
#include "sim/base/text.h"

namespace offsim::report {

namespace {

constexpr std::string_view kTie = "\u00a0";   // a blank that no line breaks at
constexpr std::string_view kGlue = "\u2060";  // nothing, where no line breaks
constexpr std::size_t kLabelColumn = 12;      // where the text of a labelled paragraph begins

std::string_view character_at(std::string_view text, std::size_t at) {
  return text.substr(at, std::max<std::size_t>(1, utf8_length(text, at)));
}

// Bytes of the first characters that fit `width` columns, at least of one.
std::size_t bytes_of(std::string_view text, std::size_t width) {
  std::size_t at = 0;
  for (std::size_t used = 0; at < text.size();) {
    const std::string_view next = character_at(text, at);
    used += display_width(next);
    if (at > 0 && used > width) {
      break;
    }
    at += next.size();
  }
  return at;
}

// Whether a line may end between two characters that no blank parts: beside a wide one, but not
// before what closes or after what opens.
bool may_break(std::string_view before, std::string_view after) {
  constexpr std::string_view kClosing = "，。；：、）！？》」』】％,.;:)!?]%";
  constexpr std::string_view kOpening = "（《「『【([";
  const auto ties = [](std::string_view c) { return c == kTie || c == kGlue; };
  return (is_wide(before) || is_wide(after)) && !ties(before) && !ties(after) &&
         kClosing.find(after) == std::string_view::npos &&
         kOpening.find(before) == std::string_view::npos;
}

// What no line breaks in.
struct Piece {
  std::string_view text;
  bool after_blank = false;
};

std::vector<Piece> pieces_of(std::string_view text) {
  std::vector<Piece> pieces;
  std::string_view before = " ";
  for (std::size_t at = 0; at < text.size();) {
    const std::string_view next = character_at(text, at);
    if (next != " ") {
      if (before == " " || may_break(before, next)) {
        pieces.push_back({next, before == " "});
      } else {
        std::string_view& piece = pieces.back().text;
        piece = {piece.data(), piece.size() + next.size()};
      }
    }
    before = next;
    at += next.size();
  }
  return pieces;
}

std::string untied(std::string_view line) {
  std::string out;
  for (std::size_t at = 0; at < line.size();) {
    const std::string_view next = character_at(line, at);
    out += next == kTie ? " " : next == kGlue ? "" : next;
    at += next.size();
  }
  return out;
}

int decimals_of(double value) {
  const double size = std::abs(value);
  return size < 0.9995 ? 3 : size < 9.995 ? 2 : size < 99.95 ? 1 : 0;
}

constexpr std::string_view kCommandLine = "command line";

// "ds.json:3:12", "--trainer", "command line".
bool is_place(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789";
  for (int i = 0; i < 2 && !text.empty(); ++i) {
    const std::size_t last = text.find_last_not_of(kDigits);
    if (last == std::string_view::npos || last + 1 == text.size() || text[last] != ':') {
      return text == kCommandLine || text.starts_with("--");
    }
    text = text.substr(0, last);
  }
  return !text.empty();
}

// "what is wrong; expected something".
std::string said(std::string_view text) {
  const std::size_t at = text.rfind("; expected");
  return at == std::string_view::npos
             ? tr_sentence(text)
             : tr_sentence(text.substr(0, at)) + tr("; ") + tr_sentence(text.substr(at + 2));
}

}  // namespace

std::size_t page_width(const TextStyle& style) {
  constexpr int kLeast = 40;
  return static_cast<std::size_t>(std::max(style.width, kLeast));
}

std::string three_digits(double value) {
  const int decimals = value == 0 ? 0 : decimals_of(value);
  return decimals == 0 ? with_commas(value) : fmt::format("{:.{}f}", value, decimals);
}

std::string gib_number(Bytes bytes) {
  const double tenths = std::round(gib(bytes) * 10);
  const double whole = std::floor(tenths / 10);
  return fmt::format("{}.{:.0f}", with_commas(whole), tenths - 10 * whole);
}

std::string gib_text(Bytes bytes) { return gib_number(bytes) + " GiB"; }

std::string percent(double share) { return fmt::format("{:.0f} %", 100 * share); }

std::string parameters_text(double count) {
  return count >= 999.5e6   ? fmt::format("{:.2f} B", count / 1e9)
         : count >= 99.95e6 ? fmt::format("{:.0f} M", count / 1e6)
                            : fmt::format("{:.1f} M", count / 1e6);
}

std::string time_text(Seconds time, Seconds whole) {
  const std::string shown = show(whole);  // its unit is the last word
  const std::string unit = shown.substr(shown.find(' ') + 1);
  const double scale = unit == "s" ? 1 : unit == "ms" ? 1e3 : unit == "us" ? 1e6 : 1e9;
  return fmt::format("{:.{}f} {}", time.value * scale, decimals_of(whole.value * scale), unit);
}

std::string tie(std::string_view phrase) {
  std::string word;
  std::string_view before;
  for (std::size_t at = 0; at < phrase.size();) {
    const std::string_view here = character_at(phrase, at);
    const std::string_view next = here == " " ? kTie : here;
    if (at > 0 && may_break(before, next)) {
      word += kGlue;
    }
    word += next;
    before = next;
    at += here.size();
  }
  return word;
}

std::vector<std::string> wrap(std::string_view text, std::size_t width) {
  SIM_ASSERT(width > 0, "a line has room for a character");
  std::vector<std::string> lines{""};
  for (auto [word, after_blank] : pieces_of(text)) {
    while (!word.empty()) {
      std::string& line = lines.back();
      const std::size_t blank = !line.empty() && after_blank ? 1 : 0;
      const bool address = line.empty() && word.find("://") != std::string_view::npos;
      if (address || display_width(line) + blank + display_width(word) <= width) {
        line.append(blank, ' ').append(word);
        break;
      }
      if (!line.empty()) {
        lines.emplace_back();
        continue;
      }
      const std::size_t piece = bytes_of(word, width);
      line = word.substr(0, piece);
      word.remove_prefix(piece);
      if (!word.empty()) {
        lines.emplace_back();
      }
    }
  }
  for (std::string& line : lines) {
    line = untied(line);
  }
  return lines;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

std::string paragraph(std::string_view first, std::string_view text, const TextStyle& style) {
  constexpr std::size_t kLeast = 20;
  const std::size_t indent = display_width(first);
  std::string out(first);
  for (const std::string& line :
       wrap(text, std::max(page_width(style), indent + kLeast) - indent)) {
    out.append(out.size() == first.size() ? 0 : indent, ' ').append(line).append("\n");
  }
  return out;
}

std::string labelled(std::string_view label, std::string_view text, const TextStyle& style) {
  return paragraph("  " + padded(tr(label), kLabelColumn - 2), text, style);
}

std::string paint(std::string_view text, Ink ink, const TextStyle& style) {
  static constexpr std::array<std::string_view, 3> kCodes{"1", "1;31", "33"};
  if (!style.colour) {
    return std::string(text);
  }
  return fmt::format("\x1b[{}m{}\x1b[0m", kCodes[static_cast<std::size_t>(ink)], text);
}

std::vector<std::string> rows_of(const Table& table, const TextStyle& style) {
  std::vector<std::string> rows = lines_of(table.text({.indent = 2}));
  const bool fit = std::ranges::all_of(
      rows, [&](const std::string& row) { return display_width(row) <= page_width(style); });
  for (std::string& row : rows) {
    if (!fit) {
      row = paragraph("  ", row, style);
      row.pop_back();
    }
  }
  rows.front() = paint(rows.front(), Ink::kBold, style);
  return rows;
}

std::string warnings_text(const std::vector<std::string>& warnings, const TextStyle& style) {
  std::string out;
  for (const std::string& warning : warnings) {
    for (const std::string& line :
         wrap(tr_format("warning: {}", placed_text(warning)), page_width(style))) {
      out += paint(line, Ink::kYellow, style) + "\n";
    }
  }
  return out;
}

std::string join(const std::vector<std::string>& parts, std::string_view between) {
  return fmt::format("{}", fmt::join(parts, between));
}

std::string placed_text(std::string_view text) {
  const std::string_view place = text.substr(0, text.find(": "));
  if (!is_place(place)) {
    return said(text);
  }
  const std::string where = place == kCommandLine ? tr(place) : std::string(place);
  return place.size() == text.size()
             ? where
             : tr_format("{}: {}", where, said(text.substr(place.size() + 2)));
}

std::string listed(const std::vector<std::string>& parts) { return join(parts, tr(", ")); }

std::string misfit_text(const study::Prediction& prediction) {
  std::vector<std::string> pools;
  for (const study::PoolReport& pool : prediction.pools) {
    if (!pool.fits()) {
      pools.push_back(tie(tr_format("{} needs {} of {}", tr(pool_title(pool.name)),
                                    gib_number(pool.needed()), gib_text(*pool.capacity))));
    }
  }
  return listed(pools);
}

std::string loader_text(const plans::Workload& work) {
  std::vector<std::string> parts;
  if (work.loader_workers > 0) {
    parts.push_back(tr_format("{} cores", work.loader_workers));
  }
  if (work.loader_bandwidth > BytesPerSecond(0)) {
    parts.push_back(show(work.loader_bandwidth));
  }
  return parts.empty() ? "" : tr_format("loader {}", listed(parts));
}

std::string adapters_text(const model::Adapters& adapters) {
  const std::string text =
      tr_format("LoRA {} on {}", adapters.rank, model::to_string(adapters.targets));
  return adapters.base == model::Base::k16Bit
             ? text
             : tr_format("{} over {}", text, model::to_string(adapters.base));
}

std::string_view pool_title(std::string_view pool) {
  return pool == "gpu" ? "GPU" : pool == "host_pinned" ? "pinned" : pool == "nvme" ? "NVMe" : pool;
}

}  // namespace offsim::report
