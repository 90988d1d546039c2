#include "sim/base/record_lines.h"

#include <fmt/format.h>

#include <istream>

namespace offsim {

namespace {

constexpr std::size_t kLongestRecord = std::size_t{1} << 20;

}  // namespace

void read_record_lines(std::istream& in, const std::string& file, std::string_view schema,
                       const std::function<void(const std::string& kind, View& record)>& take) {
  bool begun = false, ended = false;
  std::string text;
  for (int line = 1; std::getline(in, text); ++line) {
    if (text.find_first_not_of(" \t\r") == std::string::npos) {
      continue;
    }
    const Place place{file, line, 1};
    if (text.size() > kLongestRecord || ended) {
      throw InputError(place, ended ? "there is a line after the end" : "the line is too long",
                       "expected records of offsim-kernels");
    }
    const Node node = parse_json_line(text, file, line);
    if (node.kind != Node::Kind::kMap) {
      throw InputError(place, "this is no JSON object", "expected a record of offsim-kernels");
    }
    View record(node, "");
    const std::string kind = record.text("record");
    if ((kind == "env") == begun) {
      throw InputError(place, fmt::format("'{}' is out of place", kind),
                       "expected one env record, before all others");
    }
    if (!begun && record.text("schema") != schema) {
      throw InputError(record.place_of("schema"),
                       fmt::format("the schema is '{}'", record.text("schema")),
                       fmt::format("expected {}", schema));
    }
    begun = true;
    ended = kind == "end";
    if (!ended) {
      take(kind, record);
    }
  }
  if (!ended) {
    throw InputError({file}, "the records have no end", "expected a run that was not interrupted");
  }
}

}  // namespace offsim
