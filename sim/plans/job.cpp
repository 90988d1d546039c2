#include "sim/plans/job.h"

#include <fmt/format.h>

#include <array>
#include <charconv>

#include "sim/base/quantity.h"

namespace offsim::plans {

namespace {

std::vector<std::string> names_of(const std::vector<OptionSpec>& specs) {
  std::vector<std::string> names;
  for (const OptionSpec& spec : specs) {
    names.emplace_back(spec.name);
  }
  return names;
}

// "0.14.5" as 14005; -1 when it is not three numbers.
std::int64_t parse_version(std::string_view text) {
  std::array<std::int64_t, 3> parts{};
  const char* at = text.data();
  const char* end = at + text.size();
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const auto [next, error] = std::from_chars(at, end, parts[i]);
    const bool last = i + 1 == parts.size();
    if (error != std::errc() || parts[i] < 0 || parts[i] > 999 ||
        (last ? next != end : next == end || *next != '.')) {
      return -1;
    }
    at = next + 1;
  }
  return (parts[0] * 1000 + parts[1]) * 1000 + parts[2];
}

void check_value(const OptionSpec& spec, const std::string& name, std::string_view value,
                 const Place& place) {
  switch (spec.kind) {
    case OptionSpec::Kind::kFlag:
      if (value != "true" && value != "false") {
        throw InputError(place, fmt::format("{} is '{}'", name, value), "expected true or false");
      }
      break;
    case OptionSpec::Kind::kCount: {
      if (value == "auto" && spec.fallback == "auto") {
        break;
      }
      const double count = parse_count(value, place);
      if (count < static_cast<double>(spec.least) || count > static_cast<double>(spec.most)) {
        throw InputError(place, fmt::format("{} is {}", name, value),
                         fmt::format("expected {} from {} to {:g}", spec.unit, spec.least,
                                     static_cast<double>(spec.most)));
      }
      break;
    }
    case OptionSpec::Kind::kNumber:
      parse_number(value, place);
      break;
    case OptionSpec::Kind::kChoice:
      for (const std::string& choice : spec.choices) {
        if (choice == value) {
          return;
        }
      }
      throw InputError(place, fmt::format("{} is '{}'", name, value), suggest(value, spec.choices));
    case OptionSpec::Kind::kVersion:
      if (parse_version(value) < 0) {
        throw InputError(place, fmt::format("{} is '{}'", name, value),
                         "expected a version such as 0.14.5");
      }
      break;
  }
}

}  // namespace

std::string_view to_string(Precision precision) {
  static constexpr std::array<std::string_view, 4> kNames{"bf16-mixed", "bf16", "fp16-mixed",
                                                          "fp32"};
  return kNames[static_cast<std::size_t>(precision)];
}

std::string_view to_string(Checkpointing checkpointing) {
  return checkpointing == Checkpointing::kNone ? "none" : "full";
}

Options::Options(const std::vector<OptionSpec>& specs, std::string_view plan) : plan_(plan) {
  for (const OptionSpec& spec : specs) {
    values_[std::string(spec.name)] = {&spec, std::string(spec.fallback), false, {}};
    order_.emplace_back(spec.name);
  }
}

void Options::set(std::string_view name, std::string_view value, const Place& place) {
  const auto found = values_.find(name);
  if (found == values_.end()) {
    std::vector<OptionSpec> specs;
    for (const auto& [key, known] : values_) {
      specs.push_back(*known.spec);
    }
    const std::string expected =
        specs.empty() ? fmt::format("{} has no options", plan_) : suggest(name, names_of(specs));
    throw InputError(place, fmt::format("plan {} has no option '{}'", plan_, name), expected);
  }
  if (found->second.given) {
    throw InputError(place, fmt::format("{}.{} is given twice", plan_, name), "expected it once");
  }
  check_value(*found->second.spec, fmt::format("{}.{}", plan_, name), value, place);
  found->second.text = value;
  found->second.given = true;
  found->second.place = place;
}

const Options::Value& Options::value(std::string_view name) const {
  const auto found = values_.find(name);
  SIM_ASSERT(found != values_.end(), "a plan reads the options that its table lists");
  return found->second;
}

bool Options::has(std::string_view name) const { return values_.contains(name); }
bool Options::given(std::string_view name) const { return value(name).given; }
Place Options::place(std::string_view name) const { return value(name).place; }
bool Options::flag(std::string_view name) const { return value(name).text == "true"; }
bool Options::flag(std::string_view name, bool by_version) const {
  return value(name).given ? flag(name) : by_version;
}
std::int64_t Options::count(std::string_view name) const {
  return static_cast<std::int64_t>(parse_count(value(name).text, value(name).place));
}
std::int64_t Options::count(std::string_view name, std::int64_t automatic) const {
  return value(name).text == "auto" ? automatic : count(name);
}
double Options::number(std::string_view name) const {
  return parse_number(value(name).text, value(name).place);
}
const std::string& Options::text(std::string_view name) const { return value(name).text; }
std::int64_t Options::version(std::string_view name) const {
  return parse_version(value(name).text);
}

Origins Options::origins() const {
  Origins out;
  for (const std::string& name : order_) {
    const Value& v = value(name);
    out.push_back({plan_ + "." + name, v.text, v.place});
  }
  return out;
}

}  // namespace offsim::plans
