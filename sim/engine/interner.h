// Texts as small numbers: the same text has the same number, counted from 0 in order of first use.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>

namespace offsim::engine {

class Interner {
 public:
  std::uint32_t intern(std::string_view text) {
    // Most are literals that came before: where a text lies says which it may be, without a hash.
    Recent& recent = recent_[reinterpret_cast<std::uintptr_t>(text.data()) / 8 % recent_.size()];
    if (recent.text == nullptr || *recent.text != text) {
      recent.number = look_up(text);
      recent.text = &texts_[recent.number];
    }
    return recent.number;
  }
  std::string_view text(std::size_t number) const { return texts_[number]; }
  std::size_t size() const { return texts_.size(); }

  Interner() = default;
  Interner(Interner&&) = default;
  Interner& operator=(Interner&&) = default;

 private:
  struct Recent {
    const std::string* text = nullptr;  // in texts_
    std::uint32_t number = 0;
  };

  std::uint32_t look_up(std::string_view text) {
    if (const auto found = numbers_.find(text); found != numbers_.end()) {
      return found->second;
    }
    const auto number = static_cast<std::uint32_t>(texts_.size());
    // A deque never moves its strings, so the keys may point into them, also after the interner has
    // been moved.
    numbers_.emplace(texts_.emplace_back(text), number);
    return number;
  }

  std::deque<std::string> texts_;
  std::unordered_map<std::string_view, std::uint32_t> numbers_;
  std::array<Recent, 64> recent_;
};

}  // namespace offsim::engine
