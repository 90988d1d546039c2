// What must hold of every document and every refusal, whatever the bytes were.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "sim/base/config.h"

namespace offsim::fuzz {

inline void require(bool holds) {
  if (!holds) {
    std::abort();
  }
}

// A refusal is one line about the file.
inline void check(const InputError& error) {
  const std::string_view message = error.what();
  require(message.starts_with("fuzz"));
  require(message.find('\n') == std::string_view::npos);
}

inline void walk(const Node& node, int depth) {
  require(depth <= kDeepest + 1);
  require(node.place.line > 0 && node.place.column > 0);
  require(node.keys.size() == node.key_places.size());
  require(node.kind == Node::Kind::kMap ? node.keys.size() == node.items.size()
                                        : node.keys.empty());
  for (const Node& item : node.items) {
    walk(item, depth + 1);
  }
}

inline int read(const std::uint8_t* data, std::size_t size, Syntax syntax) {
  try {
    const std::string text(reinterpret_cast<const char*>(data), size);
    walk(parse_document(text, "fuzz", syntax), 1);
  } catch (const InputError& error) {
    check(error);
  }
  return 0;
}

}  // namespace offsim::fuzz
