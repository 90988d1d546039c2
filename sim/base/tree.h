// What every reader of documents builds its tree with, so that bounds and refusals are the same.
//
// Kept here: at most kMostNodes values, kDeepest levels, no repeated keys, no control characters.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/base/config.h"
#include "sim/base/text.h"

namespace offsim {

// Refuses what is not text, so that readers see UTF-8 with plain line ends and no byte order mark.
// `line`: of the text's beginning in the file.
std::string plain_text(const std::string& text, const std::string& file, int line = 1);

class TreeBuilder {
 public:
  void begin(Node::Kind kind, const Place& place) {
    const bool map = kind == Node::Kind::kMap;
    expect_value(place, map ? "a map" : "a list",
                 map ? ", or its closing }" : ", or its closing ]");
    if (open_.size() == kDeepest) {
      throw InputError(place, "this is nested too deep",
                       fmt::format("expected at most {} levels", kDeepest));
    }
    open_.push_back({.kind = kind, .place = place});
    count(place);
  }

  void end() {
    Node done = std::move(open_.back());
    open_.pop_back();
    refuse_repeated_keys(done);
    add(std::move(done));
  }

  void scalar(const Place& place, std::string text, bool quoted) {
    refuse_control(place, text);
    if (wants_key()) {
      open_.back().keys.push_back(std::move(text));
      open_.back().key_places.push_back(place);
      return;
    }
    count(place);
    add({.kind = Node::Kind::kScalar, .place = place, .scalar = std::move(text), .quoted = quoted});
  }

  void null(const Place& place) {
    expect_value(place, "empty", "");
    count(place);
    // yaml-cpp puts a value that is not there at the token after it, often lines below: the key's
    // place is better.
    const bool in_map = !open_.empty() && open_.back().kind == Node::Kind::kMap;
    add({.kind = Node::Kind::kNull, .place = in_map ? open_.back().key_places.back() : place});
  }

  Node take() { return std::move(root_); }

 private:
  bool wants_key() const {
    return !open_.empty() && open_.back().kind == Node::Kind::kMap &&
           open_.back().keys.size() == open_.back().items.size();
  }

  // yaml-cpp takes a bracket that nothing closes for the beginning of a key: `closed` says so too.
  void expect_value(const Place& place, std::string_view got, std::string_view closed) const {
    if (wants_key()) {
      throw InputError(place, fmt::format("this key is {}", got),
                       fmt::format("expected text{}", closed));
    }
  }

  void count(const Place& place) {
    if (++nodes_ > kMostNodes) {
      throw InputError(place, "there are too many values in this file",
                       fmt::format("expected at most {}", kMostNodes));
    }
  }

  void add(Node node) {
    if (open_.empty()) {
      root_ = std::move(node);
    } else {
      open_.back().items.push_back(std::move(node));
    }
  }

  // An escape such as "\e" can write what the file itself may not hold.
  static void refuse_control(const Place& place, const std::string& text) {
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t length = std::max<std::size_t>(utf8_length(text, at), 1);
      if (is_control(text, at, length) && text[at] != '\n' && text[at] != '\t') {
        throw InputError(place, fmt::format("'{}' has a control character", text),
                         "expected text that can be shown");
      }
      at += length;
    }
  }

  static void refuse_repeated_keys(const Node& map) {
    std::vector<std::size_t> order(map.keys.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, {},
                             [&](std::size_t i) -> const std::string& { return map.keys[i]; });
    const auto twice = std::ranges::adjacent_find(
        order, {}, [&](std::size_t i) -> const std::string& { return map.keys[i]; });
    if (twice != order.end()) {
      const Place& first = map.key_places[*twice];
      throw InputError(map.key_places[*std::next(twice)],
                       fmt::format("key '{}' is given twice", map.keys[*twice]),
                       fmt::format("the first is at line {}, column {}", first.line, first.column));
    }
  }

  Node root_;
  std::vector<Node> open_;  // the containers that have begun and not ended, outermost first
  std::size_t nodes_ = 0;
};

// One-based line and column of offsets that only grow.
class LineCounter {
 public:
  LineCounter(const std::string& text, const std::string& file, int line = 1)
      : text_(text), place_{file, line, 1} {}
  const Place& at(std::size_t offset) {
    for (; at_ < offset && at_ < text_.size(); ++at_) {
      if (text_[at_] == '\n') {
        ++place_.line;
        place_.column = 0;
      }
      ++place_.column;
    }
    return place_;
  }

 private:
  const std::string& text_;
  Place place_;
  std::size_t at_ = 0;
};

}  // namespace offsim
