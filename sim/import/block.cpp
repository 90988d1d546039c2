#include "sim/import/block.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "sim/base/quantity.h"
#include "sim/base/text.h"
#include "sim/import/keys.h"

namespace offsim::imports {

namespace {

constexpr double kMostCount = 1e19;  // sys.maxsize is seen

std::vector<std::string> names_of(const BlockSpec& spec) {
  std::vector<std::string> names;
  for (const Key& key : spec.keys) {
    names.emplace_back(key.name);
    if (!key.alias.empty()) {
      names.emplace_back(key.alias);
    }
  }
  return names;
}

std::string shown(const Node& node) {
  switch (node.kind) {
    case Node::Kind::kNull:
      return "null";
    case Node::Kind::kScalar:
      return fmt::format("{}'{}'", node.quoted ? "the text " : "", printable(node.scalar, 60));
    case Node::Kind::kList:
      return "a list";
    case Node::Kind::kMap:
      return "a map";
  }
  return "";
}

// A comma that hjson counts to a text without quotes.
std::string_view comma_hint(const Node& node) {
  return node.scalar.ends_with(',') ? " (without quotes, a text goes to the end of its line)" : "";
}

}  // namespace

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

std::string elements_text(double count) {
  return fmt::format("{} elements, {} in 16 bits", with_commas(count),
                     count < 1e17 ? show(Bytes(static_cast<std::int64_t>(2 * count))) : "no end");
}

const Key* BlockSpec::find(std::string_view wanted) const {
  const auto found = std::ranges::find_if(keys, [&](const Key& key) {
    return key.name == wanted || (!key.alias.empty() && key.alias == wanted);
  });
  return found == keys.end() ? nullptr : &*found;
}

Block::Block(const BlockSpec& spec, const Node& node, Findings& findings)
    : spec_(&spec), findings_(&findings) {
  if (node.kind != Node::Kind::kMap) {
    findings.refuse(
        node.place,
        fmt::format("{} is {}", spec.name.empty() ? "this file" : spec.name, shown(node)),
        "expected a map");
    return;
  }
  node_ = &node;
  for (std::size_t i = 0; i < node.keys.size(); ++i) {
    if (const Key* const key = spec.find(node.keys[i])) {
      read(*key, node.items[i], node.key_places[i]);
    } else {
      unknown(node.keys[i], node.key_places[i]);
    }
  }
}

void Block::read(const Key& key, const Node& node, const Place& key_place) {
  Value value{.node = &node, .key_place = key_place};
  value.automatic = node.kind == Node::Kind::kScalar && node.scalar == "auto" &&
                    !std::ranges::count(key.choices, "auto");
  value.null = node.kind == Node::Kind::kNull;
  if (const auto found = values_.find(key.name); found != values_.end()) {
    const Place& first = found->second.key_place;
    findings_->refuse(key_place, fmt::format("{} is given under two names", key.name),
                      fmt::format("the first is at line {}, column {}", first.line, first.column));
    return;
  }
  std::string text = "auto";
  if (value.null) {
    text = "null";
    if (key.kind != Kind::kMap && key.kind != Kind::kAny && key.kind != Kind::kText) {
      findings_->refuse(node.place, full_name(key.name) + " is null",
                        key.kind == Kind::kChoice ? suggest("", key.choices) : "expected a value");
      value.bad = true;
    }
  } else if (!value.automatic) {
    value.text = normal(key, node, value);
    text = key.unit == "elements" && !value.bad ? elements_text(value.number)
                                                : printable(value.text, 60);
  }
  // What is in a map is listed by itself.
  const bool map = node.kind == Node::Kind::kMap && key.effect.empty();
  if (!map && (key.kind != Kind::kMap || value.null)) {
    value.setting =
        findings_->add({full_name(key.name), text, node.place.text(), std::string(key.effect)});
  }
  values_.emplace(key.name, std::move(value));
}

std::string Block::normal(const Key& key, const Node& node, Value& value) {
  const auto refuse = [&](const std::string& expected) {
    findings_->refuse(node.place, fmt::format("{} is {}", full_name(key.name), shown(node)),
                      expected);
    value.bad = true;
    return std::string();
  };
  if (key.kind == Kind::kAny || key.kind == Kind::kMap) {
    return node.kind == Node::Kind::kScalar ? node.scalar : shown(node);
  }
  if (node.kind != Node::Kind::kScalar) {
    return refuse("expected a single value");
  }
  switch (key.kind) {
    case Kind::kFlag:
      return normal_flag(key, node, value);
    case Kind::kChoice:
      if (std::ranges::count(key.choices, node.scalar) == 0) {
        return refuse(suggest(node.scalar, key.choices) + std::string(comma_hint(node)));
      }
      return node.scalar;
    case Kind::kText:
      return node.scalar;
    default:
      return normal_number(key, node, value);
  }
}

// pydantic 2 in its lax mode, which DeepSpeedConfigModel leaves on, takes these texts, in small
// letters or large, and the numbers 0 and 1. Blocks that are not strict are no such models:
// DeepSpeed takes what is there as Python does, and to that every text is true.
std::string Block::normal_flag(const Key& key, const Node& node, Value& value) {
  const std::string word = lower(node.scalar);
  const auto is = [&](std::initializer_list<std::string_view> words) {
    return std::ranges::find(words, word) != words.end();
  };
  const bool on = is({"true", "t", "yes", "y", "on", "1"});
  const bool off = is({"false", "f", "no", "n", "off", "0"});
  // YAML's words for true and false are no texts.
  const bool text = spec_->reader == "DeepSpeed" &&
                    (node.quoted || (node.scalar != "true" && node.scalar != "false" &&
                                     node.scalar != "1" && node.scalar != "0"));
  if ((!on && !off) || (text && off && !spec_->strict)) {
    findings_->refuse(node.place, fmt::format("{} is {}", full_name(key.name), shown(node)),
                      off ? "expected false without quotes: to Python every text is true"
                          : fmt::format("expected true or false{}", comma_hint(node)));
    value.bad = true;
    return "";
  }
  if (text) {
    findings_->warn(node.place,
                    fmt::format("{} is the text '{}', which {} takes as {}: expected {} without "
                                "quotes",
                                full_name(key.name), node.scalar, spec_->reader, on, on));
  }
  return on ? "true" : "false";
}

std::string Block::normal_number(const Key& key, const Node& node, Value& value) {
  const auto refuse = [&](const std::string& expected) {
    findings_->refuse(node.place, fmt::format("{} is {}", full_name(key.name), shown(node)),
                      expected);
    value.bad = true;
    return std::string();
  };
  const bool count = key.kind == Kind::kCount;
  const std::string_view kind = count ? "a whole number" : "a number";
  try {
    value.number = parse_number(node.scalar, node.place);
  } catch (const InputError&) {
    return refuse(fmt::format("expected {}, not negative", kind));
  }
  const double number = value.number;
  if (key.kind == Kind::kShare && number > 1) {
    return refuse(number <= 100 ? fmt::format("expected a share from 0 to 1; did you mean {:g}?",
                                              number / 100)
                                : "expected a share from 0 to 1");
  }
  if (!count) {
    return node.scalar;
  }
  const bool digits =
      std::ranges::all_of(node.scalar, [](unsigned char c) { return c >= '0' && c <= '9'; });
  if (node.quoted && !digits) {
    return refuse(
        "expected a number without quotes: of a text DeepSpeed takes digits alone (YAML makes a "
        "text of 5e8, a number of 5.0e+8)");
  }
  if (number != std::floor(number) || number > kMostCount) {
    return refuse("expected a whole number");
  }
  return fmt::format("{:.0f}", number);
}

void Block::unknown(const std::string& name, const Place& place) {
  const std::string key = printable(name, 60);
  const std::string near = nearest(key, names_of(*spec_));
  const std::string other = block_with(key, spec_->name);
  const std::string where = spec_->name.empty() ? "" : fmt::format(" in {}", spec_->name);
  const std::string hint = !other.empty()  ? fmt::format("it belongs {}", other)
                           : !near.empty() ? fmt::format("did you mean '{}'?", near)
                                           : "";
  if (spec_->strict) {
    findings_->refuse(
        place, fmt::format("there is no '{}'{}", key, where),
        hint.empty() ? fmt::format("{} refuses keys that it does not know there", spec_->reader)
                     : hint);
    return;
  }
  findings_->add(
      {full_name(key), "ignored", place.text(), fmt::format("{} has no such key", spec_->reader)});
  const bool loud =
      std::ranges::count(std::vector<std::string>{"zero_optimization", "bf16", "fp16", "aio"},
                         near) > 0;
  std::string warning = spec_->name.empty()
                            ? fmt::format("{} ignores '{}'", spec_->reader, key)
                            : fmt::format("{} ignores '{}' in {}", spec_->reader, key, spec_->name);
  if (loud) {
    warning = fmt::format("{}, and all that is in it: NOTHING of it is in force", warning);
  }
  findings_->warn(place, hint.empty() ? warning : fmt::format("{}; {}", warning, hint));
}

const Block::Value* Block::find(std::string_view key) const {
  SIM_ASSERT(spec_->find(key) != nullptr, "a reader asks for keys of its table");
  const auto found = values_.find(key);
  return found == values_.end() || found->second.bad ? nullptr : &found->second;
}

bool Block::given(std::string_view key) const {
  const Value* const value = find(key);
  return value != nullptr && !value->automatic && !value->null;
}

bool Block::automatic(std::string_view key) const {
  const Value* const value = find(key);
  return value != nullptr && value->automatic;
}

bool Block::refused(std::string_view key) const {
  const auto found = values_.find(key);
  return found != values_.end() && found->second.bad;
}

Place Block::place(std::string_view key) const {
  const auto found = values_.find(key);
  return found != values_.end() ? found->second.node->place
         : node_ != nullptr     ? node_->place
                                : Place{};
}

Place Block::key_place(std::string_view key) const {
  const auto found = values_.find(key);
  return found != values_.end() ? found->second.key_place : place(key);
}

bool Block::flag(std::string_view key, bool fallback) const {
  return given(key) ? find(key)->text == "true" : fallback;
}

std::optional<std::int64_t> Block::count(std::string_view key) const {
  if (!given(key)) {
    return std::nullopt;
  }
  // More than a plan's option takes is as good as without end.
  return static_cast<std::int64_t>(std::min(find(key)->number, 1e15));
}

std::optional<double> Block::number(std::string_view key) const {
  return given(key) ? std::optional(find(key)->number) : std::nullopt;
}

std::string Block::text(std::string_view key, std::string_view fallback) const {
  return given(key) ? find(key)->text : std::string(fallback);
}

study::Given Block::as_given(std::string_view key) const {
  const Key& spec = *spec_->find(key);
  return {spec.kind == Kind::kCount ? fmt::format("{}", *count(key)) : text(key), place(key)};
}

const Node* Block::map(std::string_view key) const {
  const Value* const value = find(key);
  return value != nullptr && !value->null && !value->automatic ? value->node : nullptr;
}

void Block::no_effect(std::string_view key, const std::string& why) {
  if (const Value* const value = find(key); value != nullptr && value->setting) {
    findings_->settings[*value->setting].effect = why;
  }
}

void Block::fill(std::string_view key, const std::string& value, const std::string& origin) {
  if (const Value* const found = find(key); found != nullptr && found->setting) {
    Setting& setting = findings_->settings[*found->setting];
    setting.value = value;
    setting.origin += ", " + origin;
  }
}

std::string Block::full_name(std::string_view key) const {
  return spec_->name.empty() ? std::string(key) : fmt::format("{}.{}", spec_->name, key);
}

void Findings::settle() const {
  if (refusals.empty()) {
    return;
  }
  std::vector<std::string> before;
  for (std::size_t i = 0; i + 1 < refusals.size(); ++i) {
    before.emplace_back(refusals[i].what());
  }
  throw Refused(refusals.back(), std::move(before));
}

}  // namespace offsim::imports
