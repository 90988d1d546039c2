#include "sim/engine/dag_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <optional>
#include <unordered_map>

#include "sim/base/config.h"
#include "sim/base/error.h"

namespace offsim::engine {

namespace {

constexpr std::int64_t kLargestAmount = std::int64_t{1} << 53;
constexpr const char* kActivityLine = "expected ID KIND RESOURCE AMOUNT [DEP ...]";
constexpr std::size_t kMostActivities = std::numeric_limits<std::uint32_t>::max();

bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

// The whole word as a number, or nothing.
template <class Number>
std::optional<Number> parse(std::string_view word) {
  Number number{};
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  if (error != std::errc{} || end != word.data() + word.size()) {
    return std::nullopt;
  }
  return number;
}

// From IDs of the file to ids of the graph. Files usually number their lines, and then nothing
// needs to be looked up.
class IdIndex {
 public:
  // False when the ID is there already.
  bool add(std::int64_t id) {
    const auto next = static_cast<std::uint32_t>(count_++);
    if (numbered_ && id == next) {
      return true;
    }
    if (numbered_) {
      numbered_ = false;
      for (std::uint32_t i = 0; i < next; ++i) {
        known_.emplace(i, i);
      }
    }
    return known_.emplace(id, next).second;
  }
  std::optional<ActivityId> find(std::int64_t id) const {
    if (numbered_) {
      const bool known = id >= 0 && id < static_cast<std::int64_t>(count_);
      return known ? std::optional(ActivityId(id)) : std::nullopt;
    }
    const auto found = known_.find(id);
    return found != known_.end() ? std::optional(ActivityId(found->second)) : std::nullopt;
  }

 private:
  std::size_t count_ = 0;
  bool numbered_ = true;  // the IDs so far are 0, 1, 2 ...
  std::unordered_map<std::int64_t, std::uint32_t> known_;
};

class DagReader {
 public:
  explicit DagReader(const std::string& path) : path_(path) {}

  Dag read() {
    require_file(path_);
    std::ifstream in(path_, std::ios::binary);
    if (!in) {
      throw InputError({path_}, "cannot be read", "expected a file that this user may read");
    }
    std::vector<char> buffer(kLongestDagLine + 1);
    while (in.getline(buffer.data(), static_cast<std::streamsize>(buffer.size()))) {
      ++line_no_;
      // getline() counts the line end that it took, which the last line may lack.
      line_ = std::string_view(buffer.data(),
                               static_cast<std::size_t>(in.gcount()) - (in.eof() ? 0 : 1));
      if (line_no_ == 1 && line_.starts_with("\xef\xbb\xbf")) {  // a byte order mark
        line_.remove_prefix(3);
      }
      read_line(line_.substr(0, line_.find('#')));
    }
    if (in.bad()) {
      throw InputError({path_}, "cannot be read", "expected a text file");
    }
    if (!in.eof()) {
      throw InputError({path_, line_no_ + 1, 1}, "the line is too long",
                       fmt::format("expected at most {} bytes", kLongestDagLine));
    }
    return std::move(dag_);
  }

 private:
  enum class Kind : std::uint8_t { kExec, kLink };
  struct Declared {
    ResourceId id;
    Kind kind;
  };

  [[noreturn]] void fail(std::string_view where, const std::string& wrong,
                         const std::string& expected) const {
    const auto column = static_cast<int>(where.data() - line_.data()) + 1;
    throw InputError({path_, line_no_, column}, wrong, expected);
  }

  // Takes the next word off `rest`; an empty one at its end.
  static std::string_view next_word(std::string_view& rest) {
    const auto* const begin = std::find_if_not(rest.begin(), rest.end(), is_blank);
    const auto* const end = std::find_if(begin, rest.end(), is_blank);
    rest = std::string_view(end, rest.end());
    return {begin, end};
  }

  void read_line(std::string_view rest) {
    const std::string_view first = next_word(rest);
    if (first == "@resource") {
      read_resource(rest);
    } else if (!first.empty()) {
      read_activity(first, rest);
    }
  }

  void read_resource(std::string_view rest) {
    const std::string_view name = next_word(rest);
    const std::string_view kind = next_word(rest);
    const std::string_view rate = next_word(rest);
    const std::string_view more = next_word(rest);
    if (rate.empty() || !more.empty()) {
      fail(rate.empty() ? rest : more, "not a resource line",
           "expected @resource NAME exec|link RATE");
    }
    if (name.find('+') != std::string_view::npos) {
      fail(name, fmt::format("a resource is named '{}'", name),
           "expected a name without '+', which joins links");
    }
    if (kind != "exec" && kind != "link") {
      fail(kind, fmt::format("unknown kind of resource '{}'", kind),
           suggest(kind, {"exec", "link"}));
    }
    const auto capacity = parse<double>(rate);
    if (!capacity || !(*capacity >= kSmallestNumber && *capacity <= kLargestNumber)) {
      fail(rate, fmt::format("'{}' is no rate", rate), "expected a number from 1e-30 to 1e30");
    }
    if (declared_.contains(std::string(name))) {
      fail(name, fmt::format("resource '{}' is declared twice", name),
           "expected one @resource line each");
    }
    declared_.emplace(name, Declared{dag_.builder.add_resource(name, *capacity),
                                     kind == "exec" ? Kind::kExec : Kind::kLink});
  }

  void read_activity(std::string_view first, std::string_view rest) {
    const auto id = parse<std::int64_t>(first);
    if (!id || *id < 0) {
      fail(first, fmt::format("'{}' is no ID", first),
           nearest(first, {"@resource"}).empty() ? "expected @resource, or a whole number from 0 on"
                                                 : "did you mean '@resource'?");
    }
    const std::string_view kind = next_word(rest);
    const std::string_view resources = next_word(rest);
    const std::string_view work = next_word(rest);
    if (work.empty()) {
      fail(rest, "not an activity line", kActivityLine);
    }
    const DemandId demand = demand_of(kind, resources);
    const auto amount = parse<std::int64_t>(work);
    if (!amount || *amount < 1 || *amount > kLargestAmount) {
      fail(work, fmt::format("'{}' is no amount", work),
           fmt::format("expected a whole number from 1 to {}", kLargestAmount));
    }
    if (dag_.builder.size() == kMostActivities) {
      fail(first, "too many activities", fmt::format("expected at most {}", kMostActivities));
    }
    const ActivityId activity = dag_.builder.add({static_cast<double>(*amount), demand});
    for (std::string_view word = next_word(rest); !word.empty(); word = next_word(rest)) {
      read_dependency(word, activity);
    }
    if (!index_.add(*id)) {
      fail(first, fmt::format("ID {} is there twice", *id), "expected one line each");
    }
    dag_.ids.push_back(*id);
  }

  void read_dependency(std::string_view word, ActivityId activity) {
    const auto id = parse<std::int64_t>(word);
    const auto before = id ? index_.find(*id) : std::nullopt;
    if (!before) {
      fail(word, fmt::format("depends on '{}'", word), "expected the ID of an earlier line");
    }
    dag_.builder.edge(*before, activity);
    ++dag_.edges;
  }

  DemandId demand_of(std::string_view kind, std::string_view resources) {
    key_.assign(kind).append(" ").append(resources);
    if (const auto known = demands_.find(key_); known != demands_.end()) {
      return known->second;
    }
    if (kind != "exec" && kind != "xfer") {
      fail(kind, fmt::format("unknown kind of activity '{}'", kind),
           suggest(kind, {"exec", "xfer"}));
    }
    if (kind == "exec" && resources.find('+') != std::string_view::npos) {
      fail(resources, fmt::format("'{}' is no exec resource", resources),
           "expected exec on one resource");
    }
    std::vector<Use> uses;
    for (std::size_t begin = 0; begin <= resources.size();) {
      const std::string_view name = resources.substr(begin, resources.find('+', begin) - begin);
      uses.push_back({resource_of(kind, name), 1});
      begin += name.size() + 1;
    }
    std::vector<ResourceId> sorted(uses.size());
    std::ranges::transform(uses, sorted.begin(), &Use::resource);
    std::ranges::sort(sorted);
    if (std::ranges::adjacent_find(sorted) != sorted.end()) {
      fail(resources, fmt::format("'{}' names a link twice", resources), "expected each link once");
    }
    const DemandId demand = dag_.builder.demand(kUnlimitedRate, 1, uses);
    demands_.emplace(key_, demand);
    return demand;
  }

  ResourceId resource_of(std::string_view kind, std::string_view name) const {
    const auto found = declared_.find(std::string(name));
    if (found == declared_.end()) {
      std::vector<std::string> names;
      for (const auto& [known, declared] : declared_) {
        names.push_back(known);
      }
      std::ranges::sort(names);
      const std::string near = nearest(name, names);
      fail(name, fmt::format("unknown resource '{}'", name),
           near.empty() ? "expected the name of an @resource line above"
                        : fmt::format("did you mean '{}'?", near));
    }
    if (found->second.kind != (kind == "exec" ? Kind::kExec : Kind::kLink)) {
      fail(name, fmt::format("{} on resource '{}' of the other kind", kind, name),
           "expected exec on an exec resource, xfer over links");
    }
    return found->second.id;
  }

  std::string path_;
  int line_no_ = 0;
  std::string_view line_;  // the line that is read
  std::string key_;
  std::unordered_map<std::string, Declared> declared_;
  std::unordered_map<std::string, DemandId> demands_;  // by "KIND RESOURCE"
  IdIndex index_;
  Dag dag_;
};

}  // namespace

Dag read_dag(const std::string& path) { return DagReader(path).read(); }

}  // namespace offsim::engine
