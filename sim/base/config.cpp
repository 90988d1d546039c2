#include "sim/base/config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <numeric>

#include "sim/base/quantity.h"

namespace offsim {

namespace {

std::string_view kind_name(const Node& node) {
  switch (node.kind) {
    case Node::Kind::kNull:
      return "empty";
    case Node::Kind::kScalar:
      return "a single value";
    case Node::Kind::kList:
      return "a list";
    case Node::Kind::kMap:
      return "a map";
  }
  return "";
}

// "micro_batch is '4x'", "workload is a list": how every message about a value begins.
std::string describe(const Node& node, std::string_view what) {
  if (node.kind != Node::Kind::kScalar) {
    return fmt::format("{} is {}", what, kind_name(node));
  }
  return fmt::format("{} is {}'{}'", what, node.quoted ? "the text " : "", node.scalar);
}

const std::string& need_plain(const Node& node, std::string_view what,
                              const std::string& expected) {
  if (node.kind != Node::Kind::kScalar || node.quoted) {
    throw InputError(node.place, describe(node, what), expected);
  }
  return node.scalar;
}

std::string folded(std::string_view name) {
  std::string out(name);
  std::ranges::transform(out, out.begin(), [](unsigned char c) {
    return c == '_' ? '-' : static_cast<char>(std::tolower(c));
  });
  return out;
}

// Insertions, deletions, substitutions and swaps of neighbours that lead from a to b (restricted
// Damerau-Levenshtein).
std::size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> before_last(b.size() + 1);
  std::vector<std::size_t> last(b.size() + 1);
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(last.begin(), last.end(), 0);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] =
          std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before_last[j - 2] + 1);
      }
    }
    before_last.swap(last);
    last.swap(row);
  }
  return last[b.size()];
}

}  // namespace

std::int64_t to_integer(const Node& node, std::int64_t least, std::int64_t most,
                        std::string_view what) {
  const std::string expected = fmt::format("expected a whole number from {} to {}", least, most);
  const std::string& text = need_plain(node, what, expected);
  const std::size_t sign = text.starts_with('-') ? 1 : 0;
  const bool leading_zero =
      text.size() > sign + 1 && text[sign] == '0';  // YAML 1.1 would read octal
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size() && !leading_zero;
  if (!whole || value < least || value > most) {
    throw InputError(node.place, describe(node, what), expected);
  }
  return value;
}

double to_number(const Node& node, std::string_view what) {
  const std::string& text = need_plain(node, what, "expected a number");
  try {
    return parse_number(text, node.place);
  } catch (const InputError&) {
    throw InputError(node.place, describe(node, what),
                     "expected a number such as 0.85, not negative");
  }
}

bool to_boolean(const Node& node, std::string_view what) {
  const std::string& text = need_plain(node, what, "expected true or false");
  if (text != "true" && text != "false") {
    throw InputError(node.place, describe(node, what), "expected true or false");
  }
  return text == "true";
}

const std::string& to_text(const Node& node, std::string_view what) {
  if (node.kind != Node::Kind::kScalar) {
    throw InputError(node.place, describe(node, what), "expected a single value");
  }
  return node.scalar;
}

std::string nearest(std::string_view name, const std::vector<std::string>& known) {
  const std::string folded_name = folded(name);
  std::string best;
  std::size_t best_distance = 0;
  for (const std::string& candidate : known) {
    // A slip of the hand changes at most a third of a name.
    const std::size_t limit = std::max(name.size(), candidate.size()) / 3;
    if (std::max(name.size(), candidate.size()) - std::min(name.size(), candidate.size()) > limit) {
      continue;
    }
    const std::size_t distance = edit_distance(folded_name, folded(candidate));
    if (distance <= limit && (best.empty() || distance < best_distance)) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::string suggest(std::string_view name, const std::vector<std::string>& known,
                    std::string_view otherwise) {
  if (const std::string near = nearest(name, known); !near.empty()) {
    return fmt::format("did you mean '{}'?", near);
  }
  if (known.empty()) {
    return otherwise.empty() ? "" : fmt::format("expected {}", otherwise);
  }
  return fmt::format("expected one of {}{}{}", fmt::join(known, ", "),
                     otherwise.empty() ? "" : ", or ", otherwise);
}

View::View(const Node& node, std::string path, Origins* origins)
    : node_(&node), path_(std::move(path)), origins_(origins) {
  if (node.kind != Node::Kind::kMap) {
    throw InputError(node.place, describe(node, path_.empty() ? "this file" : path_),
                     "expected a map");
  }
}

const Place& View::place() const { return node_->place; }

bool View::has(std::string_view key) const { return node_->find(key) != nullptr; }

Place View::place_of(std::string_view key) const {
  const Node* const node = node_->find(key);
  return node != nullptr ? node->place : node_->place;
}

const Node* View::get(std::string_view key) {
  if (std::ranges::find(asked_, key) == asked_.end()) {
    asked_.emplace_back(key);
  }
  return node_->find(key);
}

const Node& View::need(std::string_view key) {
  const Node* const node = get(key);
  if (node == nullptr) {
    std::vector<std::string> others;
    std::ranges::copy_if(node_->keys, std::back_inserter(others), [&](const std::string& other) {
      return std::ranges::find(asked_, other) == asked_.end();
    });
    const std::string slip = nearest(key, others);
    throw InputError(
        place(), fmt::format("{} is missing", name_of(key)),
        slip.empty() ? "expected it in this map" : fmt::format("did you mean it by '{}'?", slip));
  }
  return *node;
}

View View::map(std::string_view key) { return View(need(key), name_of(key), origins_); }

std::optional<View> View::find_map(std::string_view key) {
  const Node* const node = get(key);
  if (node == nullptr) {
    return std::nullopt;
  }
  return View(*node, name_of(key), origins_);
}

std::vector<std::string> View::keys() const { return node_->keys; }

std::string View::text(std::string_view key) {
  const Node& node = need(key);
  return note(key, to_text(node, name_of(key)), node.place);
}

std::string View::text(std::string_view key, std::string_view fallback) {
  return get(key) != nullptr ? text(key) : note(key, std::string(fallback), {});
}

std::int64_t View::integer(std::string_view key, std::int64_t least, std::int64_t most) {
  const Node& node = need(key);
  const std::int64_t value = to_integer(node, least, most, name_of(key));
  note(key, node.scalar, node.place);
  return value;
}

std::int64_t View::integer(std::string_view key, std::int64_t least, std::int64_t most,
                           std::int64_t fallback) {
  if (get(key) != nullptr) {
    return integer(key, least, most);
  }
  note(key, fmt::format("{}", fallback), {});
  return fallback;
}

double View::number(std::string_view key) {
  const Node& node = need(key);
  const double value = to_number(node, name_of(key));
  note(key, node.scalar, node.place);
  return value;
}

double View::number(std::string_view key, double fallback) {
  if (get(key) != nullptr) {
    return number(key);
  }
  note(key, fmt::format("{}", fallback), {});
  return fallback;
}

bool View::boolean(std::string_view key) {
  const Node& node = need(key);
  const bool value = to_boolean(node, name_of(key));
  note(key, node.scalar, node.place);
  return value;
}

bool View::boolean(std::string_view key, bool fallback) {
  if (get(key) != nullptr) {
    return boolean(key);
  }
  note(key, fallback ? "true" : "false", {});
  return fallback;
}

std::string View::choice(std::string_view key, const std::vector<std::string>& names) {
  const Node& node = need(key);
  const std::string& name = to_text(node, name_of(key));
  if (std::ranges::find(names, name) == names.end()) {
    throw InputError(node.place, fmt::format("{} is '{}'", name_of(key), name),
                     suggest(name, names));
  }
  return note(key, name, node.place);
}

std::string View::choice(std::string_view key, const std::vector<std::string>& names,
                         std::string_view fallback) {
  return get(key) != nullptr ? choice(key, names) : note(key, std::string(fallback), {});
}

Bytes View::bytes(std::string_view key) {
  const std::string value = text(key);
  return parse_bytes(value, place_of(key));
}

BytesPerSecond View::bandwidth(std::string_view key) {
  const std::string value = text(key);
  return parse_bandwidth(value, place_of(key));
}

Seconds View::time(std::string_view key) {
  const std::string value = text(key);
  return parse_time(value, place_of(key));
}

double View::fraction(std::string_view key) {
  const std::string value = text(key);
  return parse_fraction(value, place_of(key));
}

void View::finish() const { finish({}); }

void View::finish(const std::vector<std::string>& also_known) const {
  std::vector<std::string> known = asked_;
  known.insert(known.end(), also_known.begin(), also_known.end());
  for (std::size_t i = 0; i < node_->keys.size(); ++i) {
    const std::string& key = node_->keys[i];
    if (std::ranges::find(known, key) == known.end()) {
      throw InputError(node_->key_places[i],
                       path_.empty() ? fmt::format("unknown key '{}'", key)
                                     : fmt::format("unknown key '{}' in {}", key, path_),
                       suggest(key, known));
    }
  }
}

std::string View::name_of(std::string_view key) const {
  return path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
}

std::string View::note(std::string_view key, const std::string& value, const Place& place) {
  if (origins_ != nullptr) {
    origins_->push_back({name_of(key), value, place});
  }
  return value;
}

}  // namespace offsim
