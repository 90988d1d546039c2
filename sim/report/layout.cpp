#include "sim/report/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "sim/base/error.h"
#include "sim/base/quantity.h"

namespace offsim::report {

namespace {

constexpr char kTie = '\x1f';             // a blank that stays: no text has it
constexpr std::size_t kLabelColumn = 12;  // where the text of a labelled paragraph begins

bool continues(char c) { return (static_cast<unsigned char>(c) & 0xc0U) == 0x80; }

// Bytes of the first `width` characters.
std::size_t bytes_of(std::string_view text, std::size_t width) {
  std::size_t at = 0;
  for (std::size_t seen = 0; at < text.size(); ++at) {
    if (!continues(text[at]) && seen++ == width) {
      break;
    }
  }
  return at;
}

int decimals_of(double value) {
  const double size = std::abs(value);
  return size < 0.9995 ? 3 : size < 9.995 ? 2 : size < 99.95 ? 1 : 0;
}

}  // namespace

std::size_t page_width(const TextStyle& style) {
  constexpr int kLeast = 40;
  return static_cast<std::size_t>(std::max(style.width, kLeast));
}

std::size_t visible_width(std::string_view text) {
  return text.size() - static_cast<std::size_t>(std::ranges::count_if(text, continues));
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
  std::string word(phrase);
  std::ranges::replace(word, ' ', kTie);
  return word;
}

std::vector<std::string> wrap(std::string_view text, std::size_t width) {
  SIM_ASSERT(width > 0, "a line has room for a character");
  std::vector<std::string> lines{""};
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    std::string_view word = text.substr(at, end - at);
    at = end + 1;
    while (!word.empty()) {
      std::string& line = lines.back();
      const std::size_t blank = line.empty() ? 0 : 1;
      const bool address = line.empty() && word.find("://") != std::string_view::npos;
      if (address || visible_width(line) + blank + visible_width(word) <= width) {
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
    std::ranges::replace(line, kTie, ' ');
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
  const std::size_t indent = visible_width(first);
  std::string out(first);
  for (const std::string& line :
       wrap(text, std::max(page_width(style), indent + kLeast) - indent)) {
    out.append(out.size() == first.size() ? 0 : indent, ' ').append(line).append("\n");
  }
  return out;
}

std::string labelled(std::string_view label, std::string_view text, const TextStyle& style) {
  return paragraph(fmt::format("  {:<{}}", label, kLabelColumn - 2), text, style);
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
      rows, [&](const std::string& row) { return visible_width(row) <= page_width(style); });
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
    for (const std::string& line : wrap("warning: " + warning, page_width(style))) {
      out += paint(line, Ink::kYellow, style) + "\n";
    }
  }
  return out;
}

std::string join(const std::vector<std::string>& parts, std::string_view between) {
  return fmt::format("{}", fmt::join(parts, between));
}

std::string misfit_text(const study::Prediction& prediction) {
  std::vector<std::string> pools;
  for (const study::PoolReport& pool : prediction.pools) {
    if (!pool.fits()) {
      pools.push_back(tie(fmt::format("{} needs {} of {}", pool_title(pool.name),
                                      gib_number(pool.needed()), gib_text(*pool.capacity))));
    }
  }
  return join(pools, ", ");
}

std::string loader_text(const plans::Workload& work) {
  std::vector<std::string> parts;
  if (work.loader_workers > 0) {
    parts.push_back(fmt::format("{} cores", work.loader_workers));
  }
  if (work.loader_bandwidth > BytesPerSecond(0)) {
    parts.push_back(show(work.loader_bandwidth));
  }
  return parts.empty() ? "" : "loader " + join(parts, ", ");
}

std::string adapters_text(const model::Adapters& adapters) {
  const std::string text =
      fmt::format("LoRA {} on {}", adapters.rank, model::to_string(adapters.targets));
  return adapters.base == model::Base::k16Bit
             ? text
             : fmt::format("{} over {}", text, model::to_string(adapters.base));
}

std::string_view pool_title(std::string_view pool) {
  return pool == "gpu" ? "GPU" : pool == "host_pinned" ? "pinned" : pool == "nvme" ? "NVMe" : pool;
}

}  // namespace offsim::report
