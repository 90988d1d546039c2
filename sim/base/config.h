// One reader for YAML and JSON that knows the place of every node.
//
// A document becomes a tree of Nodes (map, list or scalar), each with its place. A View walks it:
// it marks the keys that were asked for, so that finish() can refuse the others, naming the nearest
// known key. Refused with a place: repeated keys, unknown keys, a wrong kind of node, YAML anchors
// and aliases (an alias can multiply a document without bound), tags, several documents in a file,
// more than kMostNodes nodes, nesting deeper than kDeepest, files above kLargestFile, control
// characters (escaped ones too), anything that is not a regular file.
//
// Every value read, and every default taken, is noted in the Origins list that the View carries
// (for --explain).
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/error.h"
#include "sim/base/units.h"

namespace offsim {

inline constexpr std::int64_t kLargestFile = 4 * kMiB;
inline constexpr std::size_t kMostNodes = 1'000'000;
inline constexpr int kDeepest = 64;

struct Node {
  enum class Kind : std::uint8_t { kNull, kScalar, kList, kMap };
  Kind kind = Kind::kNull;
  Place place;
  std::string scalar{};             // kScalar
  bool quoted = false;              // kScalar: "5" and 5 differ where a string is not a number
  std::vector<Node> items{};        // kList; kMap: the values, in file order
  std::vector<std::string> keys{};  // kMap
  std::vector<Place> key_places{};  // kMap

  const Node* find(std::string_view key) const;  // kMap; nullptr when absent
};

enum class Syntax : std::uint8_t { kYaml, kJson };

// Throws InputError for a missing file, a folder, a device or a pipe (which may never end).
void require_file(const std::string& path);
// Reads a whole file; throws InputError for a missing file, a directory, a device, or more than
// kLargestFile bytes.
std::string read_file(const std::string& path);

// Requires: `file` names the text in messages. JSON is checked by a strict JSON parser first (no
// comments, no trailing commas).
Node parse_document(const std::string& text, const std::string& file, Syntax syntax);
Node load_document(const std::string& path);  // syntax by the file's ending: .json, otherwise YAML

// One effective value: where it is used, what it is, and where it came from ("default" has an empty
// file).
struct Origin {
  std::string name;
  std::string value;
  Place place;
};
using Origins = std::vector<Origin>;

// A map being read. Cheap to copy; the node must outlive it.
class View {
 public:
  // `path` names the map in messages and origins ("workload"); `origins` may be null.
  View(const Node& node, std::string path, Origins* origins = nullptr);

  const Place& place() const;
  const std::string& path() const { return path_; }
  bool has(std::string_view key) const;        // does not count as reading
  Place place_of(std::string_view key) const;  // of the key's value, or of the map when absent
  const Node* get(std::string_view key);       // marks the key as known; nullptr when absent
  const Node& need(std::string_view key);      // throws when absent
  View map(std::string_view key);              // a required map
  std::optional<View> find_map(std::string_view key);
  std::vector<std::string> keys() const;

  // Typed reads. Without a fallback the key is required; with one it is optional and the default is
  // noted.
  std::string text(std::string_view key);
  std::string text(std::string_view key, std::string_view fallback);
  std::int64_t integer(std::string_view key, std::int64_t least, std::int64_t most);
  std::int64_t integer(std::string_view key, std::int64_t least, std::int64_t most,
                       std::int64_t fallback);
  double number(std::string_view key);
  double number(std::string_view key, double fallback);
  bool boolean(std::string_view key);
  bool boolean(std::string_view key, bool fallback);
  std::string choice(std::string_view key, const std::vector<std::string>& names);
  std::string choice(std::string_view key, const std::vector<std::string>& names,
                     std::string_view fallback);
  Bytes bytes(std::string_view key);
  BytesPerSecond bandwidth(std::string_view key);
  Seconds time(std::string_view key);
  double fraction(std::string_view key);  // "3 %"

  // Refuses keys that nobody asked for, naming the nearest of those that somebody did.
  void finish() const;
  // The same when further names are known but were not looked for in this document.
  void finish(const std::vector<std::string>& also_known) const;

 private:
  std::string name_of(std::string_view key) const;  // with the path
  std::string note(std::string_view key, const std::string& value, const Place& place);

  const Node* node_;
  std::string path_;
  Origins* origins_;
  std::vector<std::string> asked_;
};

// Typed reads of a scalar node, used by View and by readers of lists. `what` names it in messages.
std::int64_t to_integer(const Node& node, std::int64_t least, std::int64_t most,
                        std::string_view what);
double to_number(const Node& node, std::string_view what);
bool to_boolean(const Node& node, std::string_view what);
const std::string& to_text(const Node& node, std::string_view what);

// The known name nearest to `name` by edit distance, when it is near enough to be a slip of the
// hand; else empty.
std::string nearest(std::string_view name, const std::vector<std::string>& known);
// "did you mean 'x'?" or "expected one of a, b, c, or `otherwise`".
std::string suggest(std::string_view name, const std::vector<std::string>& known,
                    std::string_view otherwise = "");

}  // namespace offsim
