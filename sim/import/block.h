// A map of a configuration beside the table of its keys: types as pydantic takes them, other
// spellings, "auto".
//
// Taken: a float without a fraction for a whole number, digits in quotes for a number, "none" for a
// choice; with a warning "yes" and the like in quotes for a flag. Refused: exponents in quotes,
// fractions of whole numbers, null where it is no value. A strict block refuses keys that it does
// not know, another one is warned of.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/config.h"
#include "sim/import/findings.h"

namespace offsim::imports {

enum class Kind : std::uint8_t { kFlag, kCount, kShare, kNumber, kText, kChoice, kMap, kAny };

struct Key {
  std::string_view name;
  Kind kind = Kind::kAny;
  std::string_view effect = {};  // why it has none, where that is always so
  std::vector<std::string> choices = {};
  std::string_view alias = {};  // another name of the same
  std::string_view unit = {};   // "elements": shown beside a count
};

struct BlockSpec {
  std::string_view name;  // with the path; empty: the file's top
  bool strict = true;
  std::vector<Key> keys;
  std::string_view reader = "DeepSpeed";
  const Key* find(std::string_view name) const;
};

class Block {
 public:
  // An empty block, where the file has none.
  Block(const BlockSpec& spec, Findings& findings) : spec_(&spec), findings_(&findings) {}
  // Requires: `node` outlives the block. Anything but a map is refused.
  Block(const BlockSpec& spec, const Node& node, Findings& findings);

  bool exists() const { return node_ != nullptr; }
  const Node* node() const { return node_; }
  bool given(std::string_view key) const;      // with a value: neither null nor "auto"
  bool automatic(std::string_view key) const;  // "auto"
  bool refused(std::string_view key) const;    // its value
  Place place(std::string_view key) const;     // of the value; of the block, or none, without one
  Place key_place(std::string_view key) const;

  bool flag(std::string_view key, bool fallback) const;
  std::optional<std::int64_t> count(std::string_view key) const;
  std::optional<double> number(std::string_view key) const;
  std::string text(std::string_view key, std::string_view fallback = "") const;
  // As a plan's option or a workload's key takes it.
  study::Given as_given(std::string_view key) const;
  const Node* map(std::string_view key) const;  // nullptr without one

  // What comes of it after all.
  void no_effect(std::string_view key, const std::string& why);
  void fill(std::string_view key, const std::string& value, const std::string& origin);
  std::string full_name(std::string_view key) const;

 private:
  struct Value {
    const Node* node = nullptr;
    Place key_place;
    std::string text = {};  // normalised
    double number = 0;      // of a count, a share or a number
    bool automatic = false, null = false, bad = false;
    std::optional<std::size_t> setting = {};
  };
  const Value* find(std::string_view key) const;
  void read(const Key& key, const Node& node, const Place& key_place);
  // The value as text, and a number as such; `value.bad` where it is refused.
  std::string normal(const Key& key, const Node& node, Value& value);
  std::string normal_flag(const Key& key, const Node& node, Value& value);
  std::string normal_number(const Key& key, const Node& node, Value& value);
  void unknown(const std::string& name, const Place& place);

  const BlockSpec* spec_;
  Findings* findings_;
  const Node* node_ = nullptr;
  std::map<std::string, Value, std::less<>> values_;
};

std::string lower(std::string text);  // its ASCII letters

// "500,000,000 elements, 954 MiB in 16 bits"
std::string elements_text(double count);

}  // namespace offsim::imports
