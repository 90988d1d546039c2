#include "sim/plans/job.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "sim/base/quantity.h"

namespace offsim::plans {

namespace {

std::vector<std::string> names_of(const std::vector<OptionSpec>& specs) {
  std::vector<std::string> names;
  std::ranges::transform(specs, std::back_inserter(names),
                         [](const OptionSpec& spec) { return std::string(spec.name); });
  return names;
}

// "0.14.5" as 14005; -1 when it is not three numbers.
std::int64_t parse_version(std::string_view text) {
  std::array<std::uint16_t, 3> parts{};  // unsigned: no "-0"
  const char* at = text.data();
  const char* end = at + text.size();
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const auto [next, error] = std::from_chars(at, end, parts[i]);
    const bool last = i + 1 == parts.size();
    if (error != std::errc() || parts[i] > 999 || (next - at > 1 && *at == '0') ||
        (last ? next != end : next == end || *next != '.')) {
      return -1;
    }
    at = next + 1;
  }
  return (std::int64_t{parts[0]} * 1000 + parts[1]) * 1000 + parts[2];
}

// Without a word of its own: the quantity's message would not name the option.
bool reads(double (*parse)(std::string_view, const Place&), std::string_view text, double least,
           double most) {
  try {
    const double value = parse(text, {});
    return value >= least && value <= most;
  } catch (const InputError&) {
    return false;
  }
}

// Some counts are the system's own choice unless they are given.
bool is_auto(const OptionSpec& spec, std::string_view text) {
  return text == "auto" && spec.fallback == text;
}

// A number or true or false, which quotes make a text.
bool is_plain(const OptionSpec& spec) {
  return spec.kind == OptionSpec::Kind::kFlag || spec.kind == OptionSpec::Kind::kCount ||
         spec.kind == OptionSpec::Kind::kNumber;
}

bool is_value(const OptionSpec& spec, std::string_view text) {
  const auto least = static_cast<double>(spec.least), most = static_cast<double>(spec.most);
  switch (spec.kind) {
    case OptionSpec::Kind::kFlag:
      return text == "true" || text == "false";
    case OptionSpec::Kind::kCount:
      return is_auto(spec, text) || reads(parse_count, text, least, most);
    case OptionSpec::Kind::kNumber:
      return reads(parse_number, text, least, most);
    case OptionSpec::Kind::kChoice:
      return std::ranges::find(spec.choices, text) != spec.choices.end();
    case OptionSpec::Kind::kVersion:
      return parse_version(text) >= 0;
  }
  return false;
}

std::string expected(const OptionSpec& spec, std::string_view text) {
  switch (spec.kind) {
    case OptionSpec::Kind::kFlag:
      return "expected true or false";
    case OptionSpec::Kind::kCount:
    case OptionSpec::Kind::kNumber:
      return fmt::format("expected a {}number{}{} from {} to {}{}",
                         spec.kind == OptionSpec::Kind::kCount ? "whole " : "",
                         spec.unit.empty() ? "" : " of ", spec.unit, spec.least,
                         with_commas(static_cast<double>(spec.most)),
                         is_auto(spec, "auto") ? ", or auto" : "");
    case OptionSpec::Kind::kChoice:
      return suggest(text, spec.choices);
    case OptionSpec::Kind::kVersion:
      return "expected a version such as 0.14.5";
  }
  return "";
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

std::string_view to_string(ActivationOffload offload) {
  static constexpr std::array<std::string_view, 4> kNames{"none", "save_on_cpu",
                                                          "save_on_cpu_pinned", "streamed"};
  return kNames[static_cast<std::size_t>(offload)];
}

Options::Options(const std::vector<OptionSpec>& specs, std::string_view plan) : plan_(plan) {
  for (const OptionSpec& spec : specs) {
    values_[std::string(spec.name)] = {&spec, std::string(spec.fallback), false, {}};
    order_.emplace_back(spec.name);
  }
}

void Options::set(std::string_view name, std::string_view value, const Place& place, bool quoted) {
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
  const OptionSpec& spec = *found->second.spec;
  const bool text = quoted && is_plain(spec) && !is_auto(spec, value);
  if (text || !is_value(spec, value)) {
    throw InputError(place,
                     fmt::format("{}.{} is {}'{}'", plan_, name, text ? "the text " : "", value),
                     expected(spec, value));
  }
  found->second.text = value;
  found->second.given = true;
  found->second.place = place;
}

Options Options::with(std::string_view name, std::string_view value) const {
  Options out = *this;
  Value& changed = out.values_.at(std::string(name));
  changed = {changed.spec, std::string(changed.spec->fallback), false, {}};
  if (value != changed.text) {
    out.set(name, value, {});
  }
  return out;
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
