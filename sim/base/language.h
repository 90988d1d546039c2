// The language of what a person reads: English, or what a table says in its place.
//
// In the way of gettext, the English text is the key: tr("does not fit"). The tables are one file a
// language (zh.yaml), part of the program. Texts are looked up where they are printed, so that data
// (tags, causes, warnings, everything in JSON) is English in any language, to be searched and
// compared. What has no translation stays English and is noted, for tests (untranslated()).
//
// libintl is not used: it reads message files and wants a locale of the system, and this program is
// one file that runs as it is.
//
// The language is the one thing here that is global: it is set once, by the command line, before
// anything is printed, and by one thread.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace offsim {

enum class Language : std::uint8_t { kEnglish, kChinese };

void set_language(Language language);

// A text without gaps, or a name: tr("in all"), tr(pool.phase).
std::string tr(std::string_view english);

// A text that was formatted before, out of the data ("megatrain.optimizer has no effect: ..."): the
// entry that it could have been formatted from, the most literal one, with its gaps filled by their
// translations. Names stay: words by themselves, and with digits or capitals ("8.00 MiB").
std::string tr_sentence(std::string_view english);

// A value in force: a sentence where the table has one; any other text may be the user's.
std::string tr_value(std::string_view english);

// A translation with its gaps filled: a blank that it has beside a gap stays where letters or
// digits meet its characters, and goes where two wide ones meet. What is in a gap stays as it is.
std::string with_edges_filled(std::string_view text);

// The entry for a format; a translation that takes its gaps in another order numbers them.
template <class... Args>
std::string tr_format(fmt::format_string<Args...> english, Args&&... args) {
  const fmt::string_view format = english;
  return with_edges_filled(
      fmt::vformat(tr({format.data(), format.size()}), fmt::make_format_args(args...)));
}

// What was looked up since the language was set and is not in its table, sorted.
std::vector<std::string> untranslated();

// All entries of a table, English first.
std::vector<std::pair<std::string, std::string>> translations(Language language);

}  // namespace offsim
