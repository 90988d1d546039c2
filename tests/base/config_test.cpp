// Is a wrong value refused at its place by name, an unknown key with its neighbour, and is every
// value accounted for?
#include "sim/base/config.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "tests/base/message_of.h"

namespace offsim::config_test {
namespace {

Node yaml(const std::string& text) { return parse_document(text, "f", Syntax::kYaml); }

TEST(View, ReadsEveryType) {
  const Node root = yaml(
      "model: qwen\nlayers: 48\nratio: 0.85\npinned: true\nplan: megatrain\n"
      "memory: 80 GiB\nlink: \"55 GB/s\"\nlatency: 9 us\nspread: 3 %\nworkload: {batch: 64}\n");
  View view(root, "");
  EXPECT_EQ(view.text("model"), "qwen");
  EXPECT_EQ(view.integer("layers", 48, 48), 48);
  EXPECT_EQ(view.number("ratio"), 0.85);
  EXPECT_TRUE(view.boolean("pinned"));
  EXPECT_EQ(view.choice("plan", {"gpu-only", "megatrain"}), "megatrain");
  EXPECT_EQ(view.bytes("memory"), Bytes(80 * kGiB));
  EXPECT_EQ(view.bandwidth("link"), BytesPerSecond(55e9));
  EXPECT_EQ(view.time("latency"), Seconds(9 * 1e-6));
  EXPECT_EQ(view.fraction("spread"), 0.03);
  View workload = view.map("workload");
  EXPECT_EQ(workload.path(), "workload");
  EXPECT_EQ(workload.integer("batch", 1, 100), 64);
  EXPECT_NO_THROW(workload.finish());
  EXPECT_NO_THROW(view.finish());
}

TEST(View, TakesDefaultsOnlyForWhatIsAbsent) {
  const Node root = yaml("a: 1\nempty:\n");
  View view(root, "");
  EXPECT_EQ(view.integer("a", 0, 9, 5), 1);
  EXPECT_EQ(view.integer("b", 0, 9, 5), 5);
  EXPECT_EQ(view.text("c", "none"), "none");
  EXPECT_EQ(view.number("d", 0.5), 0.5);
  EXPECT_FALSE(view.boolean("e", false));
  EXPECT_EQ(view.choice("g", {"x", "y"}, "y"), "y");
  EXPECT_FALSE(view.find_map("h").has_value());
  EXPECT_EQ(message_of([&] { view.integer("empty", 0, 9, 5); }),
            "f:2:1: empty is empty; expected a whole number from 0 to 9");
}

TEST(View, NotesEveryValueAndDefault) {
  const Node root = yaml("batch: 64\nplan: x\nratio: 0.50\npinned: false\nsize: 1 KiB\n");
  Origins origins;
  View view(root, "workload", &origins);
  view.integer("batch", 1, 100);
  view.choice("plan", {"x"});
  view.number("ratio");
  view.boolean("pinned", true);
  view.bytes("size");
  view.integer("sequence", 1, 9999, 1024);
  view.number("rate", 0.25);
  view.boolean("sync", true);
  view.text("note", "none");
  std::vector<std::string> lines;
  for (const Origin& origin : origins) {
    lines.push_back(origin.name + "=" + origin.value + " " +
                    (origin.place.file.empty() ? "default" : origin.place.text()));
  }
  EXPECT_EQ(lines,
            (std::vector<std::string>{"workload.batch=64 f:1:8", "workload.plan=x f:2:7",
                                      "workload.ratio=0.50 f:3:8", "workload.pinned=false f:4:9",
                                      "workload.size=1 KiB f:5:7", "workload.sequence=1024 default",
                                      "workload.rate=0.25 default", "workload.sync=true default",
                                      "workload.note=none default"}));
}

TEST(View, KnowsPlacesWithoutReading) {
  const Node root = yaml("a: 1\nb: 2\n");
  View view(root, "");
  EXPECT_TRUE(view.has("b"));
  EXPECT_FALSE(view.has("c"));
  EXPECT_EQ(view.place_of("b"), (Place{"f", 2, 4}));
  EXPECT_EQ(view.place_of("c"), (Place{"f", 1, 1}));
  EXPECT_EQ(view.keys(), (std::vector<std::string>{"a", "b"}));
  view.get("a");
  EXPECT_EQ(message_of([&] { view.finish(); }), "f:2:1: unknown key 'b'; expected one of a")
      << "looking is not reading";
}

TEST(View, FinishNamesTheNearestKey) {
  const Node root = yaml("micro_batch: 1\nsequnce: 2\n");
  View view(root, "workload");
  view.integer("micro_batch", 1, 9);
  view.integer("sequence", 1, 9, 1);
  EXPECT_EQ(message_of([&] { view.finish(); }),
            "f:2:1: unknown key 'sequnce' in workload; did you mean 'sequence'?");
  EXPECT_NO_THROW(view.finish({"sequnce"}));
  EXPECT_EQ(message_of([&] { view.finish({"sequnces"}); }),
            "f:2:1: unknown key 'sequnce' in workload; did you mean 'sequence'?");
}

struct BadValue {
  std::string name;
  std::string text;
  std::function<void(View&)> read;
  std::string message;
};

void PrintTo(const BadValue& bad, std::ostream* out) { *out << bad.name; }

class RefusedValue : public testing::TestWithParam<BadValue> {};

TEST_P(RefusedValue, HasItsLine) {
  const Node root = yaml("w:\n  " + GetParam().text + "\n");
  View view = View(root, "").map("w");
  EXPECT_EQ(message_of([&] { GetParam().read(view); }), "f:2:" + GetParam().message);
}

const auto kInteger = [](View& view) { view.integer("k", 1, 100); };
const auto kNumber = [](View& view) { view.number("k"); };
const auto kBoolean = [](View& view) { view.boolean("k"); };
const auto kText = [](View& view) { view.text("k"); };
const auto kBytes = [](View& view) { view.bytes("k"); };
const auto kMap = [](View& view) { view.map("k"); };
const std::string kWhole = "; expected a whole number from 1 to 100";
const std::string kNumberForm = "; expected a number such as 0.85, not negative";

INSTANTIATE_TEST_SUITE_P(
    Table, RefusedValue,
    testing::Values(
        BadValue{"Missing", "x: 1", kInteger, "3: w.k is missing; expected it in this map"},
        BadValue{"BelowRange", "k: 0", kInteger, "6: w.k is '0'" + kWhole},
        BadValue{"AboveRange", "k: 101", kInteger, "6: w.k is '101'" + kWhole},
        BadValue{"Negative", "k: -5", kInteger, "6: w.k is '-5'" + kWhole},
        BadValue{"Exponent", "k: 1e1", kInteger, "6: w.k is '1e1'" + kWhole},
        BadValue{"Underscore", "k: 1_0", kInteger, "6: w.k is '1_0'" + kWhole},
        BadValue{"Octal", "k: 010", kInteger, "6: w.k is '010'" + kWhole},
        BadValue{"OctalToday", "k: 0o10", kInteger, "6: w.k is '0o10'" + kWhole},
        BadValue{"Hexadecimal", "k: 0x10", kInteger, "6: w.k is '0x10'" + kWhole},
        BadValue{"Fraction", "k: 5.0", kInteger, "6: w.k is '5.0'" + kWhole},
        BadValue{"Plus", "k: +5", kInteger, "6: w.k is '+5'" + kWhole},
        BadValue{"Beyond64Bits", "k: 9223372036854775808", kInteger,
                 "6: w.k is '9223372036854775808'" + kWhole},
        BadValue{"QuotedInteger", "k: \"5\"", kInteger, "6: w.k is the text '5'" + kWhole},
        BadValue{"Word", "k: many", kInteger, "6: w.k is 'many'" + kWhole},
        BadValue{"ListForInteger", "k: [1]", kInteger, "6: w.k is a list" + kWhole},
        BadValue{"MapForInteger", "k: {a: 1}", kInteger, "6: w.k is a map" + kWhole},
        BadValue{"NothingForInteger", "k:", kInteger, "3: w.k is empty" + kWhole},
        BadValue{"NotANumber", "k: .nan", kNumber, "6: w.k is '.nan'" + kNumberForm},
        BadValue{"Infinity", "k: inf", kNumber, "6: w.k is 'inf'" + kNumberForm},
        BadValue{"NegativeNumber", "k: -0.5", kNumber, "6: w.k is '-0.5'" + kNumberForm},
        BadValue{"QuotedNumber", "k: '0.5'", kNumber,
                 "6: w.k is the text '0.5'; expected a number"},
        BadValue{"Yes", "k: yes", kBoolean, "6: w.k is 'yes'; expected true or false"},
        BadValue{"CapitalTrue", "k: True", kBoolean, "6: w.k is 'True'; expected true or false"},
        BadValue{"One", "k: 1", kBoolean, "6: w.k is '1'; expected true or false"},
        BadValue{"QuotedTrue", "k: 'true'", kBoolean,
                 "6: w.k is the text 'true'; expected true or false"},
        BadValue{"ListForText", "k: [a]", kText, "6: w.k is a list; expected a single value"},
        BadValue{"NothingForText", "k: ~", kText, "3: w.k is empty; expected a single value"},
        BadValue{"BareSize", "k: 80", kBytes,
                 "6: '80' has no unit; expected a size such as '80 GiB' or '141 GB'"},
        BadValue{"ScalarForMap", "k: 5", kMap, "6: w.k is '5'; expected a map"},
        BadValue{"NothingForMap", "k:", kMap, "3: w.k is empty; expected a map"},
        BadValue{"UnknownChoice", "k: megatrian",
                 [](View& view) {
                   view.choice("k", {"megatrain", "gpu-only"});
                 },
                 "6: w.k is 'megatrian'; did you mean 'megatrain'?"},
        BadValue{"StrangeChoice", "k: z",
                 [](View& view) {
                   view.choice("k", {"fast", "slow"}, "fast");
                 },
                 "6: w.k is 'z'; expected one of fast, slow"}),
    [](const auto& test) { return test.param.name; });

TEST(View, FindsTheSlipOfAMissingKey) {
  const Node root = yaml("titel: x\nlabel: y");
  View view(root, "");
  EXPECT_EQ(message_of([&] { view.text("title"); }),
            "f:1:1: title is missing; did you mean it by 'titel'?");
  view.get("titel");  // a key of its own
  EXPECT_EQ(message_of([&] { view.text("title"); }),
            "f:1:1: title is missing; expected it in this map");
}

TEST(View, NamesTheFileWhenItIsNoMap) {
  const Node root = yaml("[1, 2]");
  EXPECT_EQ(message_of([&] { View(root, ""); }), "f:1:1: this file is a list; expected a map");
}

TEST(ToInteger, ReachesBothEnds) {
  constexpr auto kLeast = std::numeric_limits<std::int64_t>::min();
  constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
  const Node root = yaml("[-9223372036854775808, 9223372036854775807, 0, -0]");
  EXPECT_EQ(to_integer(root.items[0], kLeast, kMost, "x"), kLeast);
  EXPECT_EQ(to_integer(root.items[1], kLeast, kMost, "x"), kMost);
  EXPECT_EQ(to_integer(root.items[2], kLeast, kMost, "x"), 0);
  EXPECT_EQ(to_integer(root.items[3], kLeast, kMost, "x"), 0);
}

}  // namespace
}  // namespace offsim::config_test
