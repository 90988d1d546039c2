// Does every node know its place, and is every bad document refused with one exact line?
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "sim/base/config.h"
#include "tests/base/message_of.h"

namespace offsim::document_test {
namespace {

Place at(int line, int column) { return {"f", line, column}; }

TEST(Document, YamlNodesAndKeysKnowTheirPlaces) {
  const Node root = parse_document(
      "# a comment\n"
      "model: qwen2.5-14b   # another\n"
      "hardware: [h200, \"gh200\"]\n"
      "workload:\n"
      "  - micro_batch: 64\n"
      "    sequence:\n"
      "note: |\n"
      "  two\n"
      "  lines\n",
      "f", Syntax::kYaml);
  ASSERT_EQ(root.kind, Node::Kind::kMap);
  EXPECT_EQ(root.place, at(2, 1));
  EXPECT_EQ(root.keys, (std::vector<std::string>{"model", "hardware", "workload", "note"}));
  EXPECT_EQ(root.key_places[1], at(3, 1));
  const Node& model = root.items[0];
  EXPECT_EQ(model.kind, Node::Kind::kScalar);
  EXPECT_EQ(model.scalar, "qwen2.5-14b");
  EXPECT_FALSE(model.quoted);
  EXPECT_EQ(model.place, at(2, 8));
  const Node& hardware = root.items[1];
  ASSERT_EQ(hardware.kind, Node::Kind::kList);
  EXPECT_EQ(hardware.place, at(3, 11));
  EXPECT_EQ(hardware.items[1].place, at(3, 18));
  EXPECT_TRUE(hardware.items[1].quoted);
  const Node& first = root.items[2].items[0];
  EXPECT_EQ(first.key_places[0], at(5, 5));
  EXPECT_EQ(first.items[0].place, at(5, 18));
  EXPECT_EQ(first.items[1].kind, Node::Kind::kNull);
  EXPECT_EQ(first.items[1].place, at(6, 5)) << "an absent value is at its key";
  EXPECT_EQ(root.find("note")->scalar, "two\nlines\n");
  EXPECT_EQ(root.find("nothing"), nullptr);
}

TEST(Document, JsonNodesAndKeysKnowTheirPlaces) {
  const Node root = parse_document("{\"a\": 1.50,\n  \"b\": [null, true, -5e3, \"x\"],\"c\":{}}\n",
                                   "f", Syntax::kJson);
  EXPECT_EQ(root.place, at(1, 1));
  EXPECT_EQ(root.keys, (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(root.key_places[1], at(2, 3));
  EXPECT_EQ(root.items[0].scalar, "1.50");
  EXPECT_EQ(root.items[0].place, at(1, 7));
  const Node& list = root.items[1];
  EXPECT_EQ(list.items[0].kind, Node::Kind::kNull);
  EXPECT_EQ(list.items[1].scalar, "true");
  EXPECT_FALSE(list.items[1].quoted);
  EXPECT_EQ(list.items[2].scalar, "-5e3");
  EXPECT_EQ(list.items[2].place, at(2, 21));
  EXPECT_TRUE(list.items[3].quoted);
  EXPECT_EQ(root.items[2].kind, Node::Kind::kMap);
}

TEST(Document, JsonStringsAreUnescaped) {
  const Node root = parse_document(R"(["\u00e9\/\"\\", "\ud83d\ude00", "é"])", "f", Syntax::kJson);
  EXPECT_EQ(root.items[0].scalar, "é/\"\\");
  EXPECT_EQ(root.items[1].scalar, "😀");
  EXPECT_EQ(root.items[2].scalar, "é");
}

TEST(Document, ASecondByteOrderMarkIsRefused) {
  for (const Syntax syntax : {Syntax::kJson, Syntax::kYaml}) {
    try {
      parse_document("\xef\xbb\xbf\xef\xbb\xbf{\"a\": 1}", "f", syntax);
      ADD_FAILURE() << "no error";
    } catch (const InputError& error) {
      EXPECT_NE(std::string(error.what()).find("a second byte order mark"), std::string::npos);
    }
  }
}

TEST(Document, LineEndsAndByteOrderMarksChangeNothing) {
  for (const char* text : {"a: 1\nb: [2]\n", "a: 1\r\nb: [2]\r\n",
                           "\xef\xbb\xbf"
                           "a: 1\nb: [2]\n",
                           "%YAML 1.2\n---\na: 1\nb: [2]\n...\n"}) {
    const Node root = parse_document(text, "f", Syntax::kYaml);
    EXPECT_EQ(root.find("a")->scalar, "1") << text;
    EXPECT_EQ(root.find("b")->items[0].scalar, "2") << text;
  }
  const Node json = parse_document("\xef\xbb\xbf{\r\n\"a\": 1}\r\n", "f", Syntax::kJson);
  EXPECT_EQ(json.find("a")->place, at(2, 6));
}

TEST(Document, BoundsAreTight) {
  const auto nested = [](int levels) {
    return std::string(static_cast<std::size_t>(levels), '[') +
           std::string(static_cast<std::size_t>(levels), ']');
  };
  for (const Syntax syntax : {Syntax::kYaml, Syntax::kJson}) {
    EXPECT_EQ(message_of([&] { parse_document(nested(kDeepest), "f", syntax); }),
              "(nothing was refused)");
    EXPECT_EQ(message_of([&] { parse_document(nested(kDeepest + 1), "f", syntax); }),
              "f:1:65: this is nested too deep; expected at most 64 levels");
  }
  std::string many = "[";
  for (std::size_t i = 0; i < kMostNodes - 2; ++i) {
    many += "1,";
  }
  EXPECT_EQ(message_of([&] { parse_document(many + "1]", "f", Syntax::kJson); }),
            "(nothing was refused)");
  EXPECT_EQ(message_of([&] { parse_document(many + "1,1]", "f", Syntax::kJson); }),
            "f:1:2000000: there are too many values in this file; expected at most 1000000");
}

struct BadDocument {
  std::string name;
  Syntax syntax;
  std::string text;
  std::string message;
};

void PrintTo(const BadDocument& bad, std::ostream* out) { *out << bad.name; }

class RefusedDocument : public testing::TestWithParam<BadDocument> {};

TEST_P(RefusedDocument, HasItsLine) {
  const BadDocument& bad = GetParam();
  EXPECT_EQ(message_of([&] { parse_document(bad.text, "f", bad.syntax); }), bad.message);
}

constexpr Syntax kYaml = Syntax::kYaml;
constexpr Syntax kJson = Syntax::kJson;
const std::string kNothing = "f: nothing is in this file; expected a map of keys and values";
const std::string kAnchor = "anchors (&name) are not accepted; expected the value written out";
const std::string kOneDocument =
    "the document has ended before this; expected one document in a file, the keys of a map in one "
    "column";
const std::string kTab = "; expected spaces, not a tab, at the start of a line";
const std::string kNotYaml = "; expected YAML; does a text need quotes, or a bracket its end?";
const std::string kText = "; expected UTF-8 without control characters";
const std::string kValue = "; expected a JSON value";
const std::string kNotJson = "not JSON: syntax error while parsing ";

INSTANTIATE_TEST_SUITE_P(
    Yaml, RefusedDocument,
    testing::Values(
        BadDocument{"Empty", kYaml, "", kNothing}, BadDocument{"Blank", kYaml, " \n\n", kNothing},
        BadDocument{"OnlyComments", kYaml, "# nothing\n", kNothing},
        BadDocument{"RepeatedKey", kYaml, "a: 1\nb: 2\na: 3\n",
                    "f:3:1: key 'a' is given twice; the first is at line 1, column 1"},
        BadDocument{"RepeatedFlowKey", kYaml, "x: {a: 1, \"a\": 2}",
                    "f:1:11: key 'a' is given twice; the first is at line 1, column 5"},
        BadDocument{"RepeatedNestedKey", kYaml, "x:\n  - b: 1\n    b: 1\n",
                    "f:3:5: key 'b' is given twice; the first is at line 2, column 5"},
        BadDocument{"Anchor", kYaml, "a: &x 1\n", "f:1:4: " + kAnchor},
        BadDocument{"AnchorOnMap", kYaml, "a: &x {b: 1}\n", "f:1:4: " + kAnchor},
        BadDocument{"AnchorOnList", kYaml, "a: &x [1]\n", "f:1:4: " + kAnchor},
        BadDocument{"AnchorOnNothing", kYaml, "a: &x\n", "f:1:4: " + kAnchor},
        BadDocument{"AliasOfNothing", kYaml, "a: *x\n",
                    "f:1:4: not YAML: the referenced anchor is not defined" + kNotYaml},
        BadDocument{"Tag", kYaml, "a: !!int 1\n",
                    "f:1:4: tags (tag:yaml.org,2002:int) are not accepted; expected a plain value"},
        BadDocument{"TagOfText", kYaml, "a: ! 5\n",
                    "f:1:4: tags (!) are not accepted; expected a plain value"},
        BadDocument{"TagOnMap", kYaml, "--- !x\na: 1\n",
                    "f:1:5: tags (!x) are not accepted; expected a plain value"},
        BadDocument{"TagOnList", kYaml, "a: !y [1]\n",
                    "f:1:4: tags (!y) are not accepted; expected a plain value"},
        BadDocument{"SecondDocument", kYaml, "a: 1\n---\nb: 2\n", "f:2:1: " + kOneDocument},
        BadDocument{"EmptySecondDocument", kYaml, "a: 1\n---\n", "f:2:1: " + kOneDocument},
        BadDocument{"TextAfterTheEnd", kYaml, "{a: 1} x\n", "f:1:8: " + kOneDocument},
        BadDocument{"MapAfterList", kYaml, "- a\nb: 1\n", "f:2:1: " + kOneDocument},
        BadDocument{"TabBeforeKey", kYaml, "a:\n\tb: 1\n",
                    "f:2:3: not YAML: illegal map value" + kTab},
        BadDocument{"TabAfterSpaces", kYaml, "a:\n  b: 1\n \tc: 2\n",
                    "f:3:2: not YAML: illegal tab when looking for indentation" + kTab},
        BadDocument{"DeeperKey", kYaml, "a: 1\n  b: 2\n",
                    "f:2:4: not YAML: illegal map value" + kNotYaml},
        BadDocument{"TwoColons", kYaml, "a: b: c\n",
                    "f:1:5: not YAML: illegal map value" + kNotYaml},
        BadDocument{"NoBlankAfterColon", kYaml, "a:1\nb: 2\n",
                    "f:2:2: not YAML: illegal map value" + kNotYaml},
        BadDocument{"OpenList", kYaml, "a: [1, 2\n",
                    "f:2:1: not YAML: end of sequence flow not found" + kNotYaml},
        BadDocument{"OpenMap", kYaml, "a: {b: 1\n",
                    "f:2:1: not YAML: end of map flow not found" + kNotYaml},
        BadDocument{"StrayBracket", kYaml, "a: ]\n",
                    "f:1:4: not YAML: illegal flow end" + kNotYaml},
        BadDocument{"OpenQuote", kYaml, "a: \"x\n",
                    "f:1:4: this text has no closing quote; expected \" at its end"},
        BadDocument{"OpenSingleQuote", kYaml, "a: 'it''s\n",
                    "f:1:4: this text has no closing quote; expected ' at its end"},
        BadDocument{"OpenQuoteAtOnce", kYaml, "a: \"x",
                    "f:1:6: not YAML: illegal EOF in scalar" + kNotYaml},
        BadDocument{"BadEscape", kYaml, "a: \"\\q\"\n",
                    "f:1:7: not YAML: unknown escape character: q" + kNotYaml},
        BadDocument{"AtSign", kYaml, "a: @x\n", "f:1:4: not YAML: unknown token" + kNotYaml},
        BadDocument{"ListAsKey", kYaml, "? [1]\n: 2\n",
                    "f:1:3: this key is a list; expected text, or its closing ]"},
        BadDocument{"MapAsKey", kYaml, "{a: 1}: 2\n",
                    "f:1:1: this key is a map; expected text, or its closing }"},
        BadDocument{"NoKey", kYaml, ": 5\n", "f:1:1: this key is empty; expected text"},
        BadDocument{"NullKey", kYaml, "null: 5\n", "f:1:1: this key is empty; expected text"},
        BadDocument{"TooNew", kYaml, "%YAML 3.0\n---\na: 1\n",
                    "f:1:1: not YAML: YAML major version too large" + kNotYaml},
        BadDocument{"NulByte", kYaml, std::string("a: 1\nb: \0", 9),
                    "f:2:4: byte 0x00 is not text" + kText},
        BadDocument{"Latin1", kYaml, "a: caf\xe9\n",
                    "f:1:7: byte 0xe9 is not text; expected UTF-8"},
        BadDocument{"CutCharacter", kYaml, "a: \xe2\x82",
                    "f:1:4: byte 0xe2 is not text; expected UTF-8"},
        BadDocument{"Overlong", kYaml, "a: \xc0\xaf\n",
                    "f:1:4: byte 0xc0 is not text; expected UTF-8"},
        BadDocument{"OverlongThree", kYaml, "a: \xe0\x80\xaf\n",
                    "f:1:4: byte 0xe0 is not text; expected UTF-8"},
        BadDocument{"Surrogate", kYaml, "a: \xed\xa0\x80\n",
                    "f:1:4: byte 0xed is not text; expected UTF-8"},
        BadDocument{"AboveUnicode", kYaml, "a: \xf4\x90\x80\x80\n",
                    "f:1:4: byte 0xf4 is not text; expected UTF-8"},
        BadDocument{"Utf16", kYaml,
                    "\xff\xfe"
                    "a",
                    "f:1:1: byte 0xff is not text; expected UTF-8"},
        BadDocument{"Escape", kYaml, "a: \x1b[1m\n", "f:1:4: byte 0x1b is not text" + kText},
        BadDocument{"ControlOfTwoBytes", kYaml,
                    "a: \xc2\x9b"
                    "1m\n",
                    "f:1:4: byte 0xc2 is not text" + kText},
        BadDocument{"EscapedEscape", kYaml, "a: \"\\e[1m\"\n",
                    "f:1:4: '?[1m' has a control character; expected text that can be shown"},
        BadDocument{"UnclosedAtOnce", kYaml, "[1, 2",
                    "f:1:1: this key is a list; expected text, or its closing ]"},
        BadDocument{"LoneCarriageReturn", kYaml, "a: 1\rb: 2\n",
                    "f:1:5: byte 0x0d is not text" + kText}),
    [](const auto& test) { return test.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Json, RefusedDocument,
    testing::Values(
        BadDocument{"Empty", kJson, "", kNothing}, BadDocument{"Blank", kJson, "\n\n", kNothing},
        BadDocument{
            "Open", kJson, "{",
            "f:1:2: " + kNotJson + "object key - unexpected end of input; expected string literal"},
        BadDocument{"TrailingComma", kJson, "{\"a\": 1,\n}",
                    "f:2:1: " + kNotJson + "object key - unexpected '}'; expected string literal"},
        BadDocument{"Comment", kJson, "{\n// why\n}",
                    "f:2:1: " + kNotJson + "object key - invalid literal; expected string literal"},
        BadDocument{
            "NoColon", kJson, "{\"a\" 1}",
            "f:1:6: " + kNotJson + "object separator - unexpected number literal; expected ':'"},
        BadDocument{"NotANumber", kJson, "{\"a\": NaN}",
                    "f:1:7: " + kNotJson + "value - invalid literal" + kValue},
        BadDocument{"LeadingZero", kJson, "[01]",
                    "f:1:3: " + kNotJson + "array - unexpected number literal; expected ']'"},
        BadDocument{"Overflow", kJson, "{\"a\": 1e999}",
                    "f:1:11: not JSON: number overflow parsing '1e999'" + kValue},
        BadDocument{"Word", kJson, "{\"a\":\n tru}",
                    "f:2:5: " + kNotJson + "value - invalid literal" + kValue},
        BadDocument{"TwoDocuments", kJson, "{} {}",
                    "f:1:4: " + kNotJson + "value - unexpected '{'; expected end of input"},
        BadDocument{"RepeatedKey", kJson, "{\"a\": 1,\n \"a\": 2}",
                    "f:2:2: key 'a' is given twice; the first is at line 1, column 2"},
        BadDocument{"RepeatedEscapedKey", kJson, "{\"a\": 1, \"\\u0061\": 2}",
                    "f:1:10: key 'a' is given twice; the first is at line 1, column 2"},
        BadDocument{"LoneSurrogate", kJson, "[\"\\ud800\"]",
                    "f:1:9: " + kNotJson +
                        "value - invalid string: surrogate U+D800..U+DBFF must be followed by "
                        "U+DC00..U+DFFF" +
                        kValue},
        BadDocument{"LineBreakInText", kJson, "[\"a\nb\"]",
                    "f:1:4: " + kNotJson +
                        "value - invalid string: control character U+000A (LF) must be escaped to "
                        "\\u000A or \\n" +
                        kValue},
        BadDocument{"EscapedNul", kJson, "{\"a\": \"x\\u0000\"}",
                    "f:1:7: 'x?' has a control character; expected text that can be shown"},
        BadDocument{"SingleQuotes", kJson, "{'a': 1}",
                    "f:1:2: " + kNotJson + "object key - invalid literal; expected string literal"},
        BadDocument{"NulByte", kJson, std::string("{}\0", 3),
                    "f:1:3: byte 0x00 is not text" + kText}),
    [](const auto& test) { return test.param.name; });

TEST(Document, LineBreaksAndTabsMayBeWrittenAsEscapes) {
  const Node root = parse_document("a: \"x\\n\\ty\"", "f", Syntax::kYaml);
  EXPECT_EQ(root.find("a")->scalar, "x\n\ty");
}

TEST(ReadFile, WantsARegularFile) {
  EXPECT_EQ(message_of([] { read_file("/no/such/file.yaml"); }),
            "/no/such/file.yaml: no such file; expected the path of a file");
  EXPECT_EQ(message_of([] { read_file("/"); }), "/: this is a folder; expected a file");
  EXPECT_EQ(message_of([] { read_file("/dev/zero"); }),
            "/dev/zero: this is a device or a pipe; expected a file");
  const std::string loop = testing::TempDir() + "offsim_loop.yaml";
  std::filesystem::remove(loop);
  std::filesystem::create_symlink(loop, loop);
  EXPECT_EQ(message_of([&] { read_file(loop); }),
            loop +
                ": cannot be looked at (Too many levels of symbolic links); expected a file that "
                "this user may read");
  std::filesystem::remove(loop);
}

class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& name) : path_(testing::TempDir() + "offsim_" + name) {}
  ~TemporaryFile() { std::filesystem::remove(path_); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  const std::string& write(const std::string& text) const {
    std::ofstream(path_, std::ios::binary) << text;
    return path_;
  }

 private:
  std::string path_;
};

TEST(ReadFile, SizeIsBoundedToTheByte) {
  const TemporaryFile file("large.yaml");
  const std::string& path = file.write("x");
  std::filesystem::resize_file(path, kLargestFile);
  EXPECT_EQ(read_file(path).size(), static_cast<std::size_t>(kLargestFile));
  std::filesystem::resize_file(path, kLargestFile + 1);
  EXPECT_EQ(message_of([&] { read_file(path); }),
            path + ": 4194305 bytes are too many; expected at most 4 MiB");
}

TEST(LoadDocument, EndingChoosesTheSyntax) {
  const TemporaryFile json("strict.json");
  const TemporaryFile yaml("loose.yaml");
  EXPECT_NE(message_of([&] { load_document(json.write("{a: 1}")); }).find(":1:2: not JSON"),
            std::string::npos);
  const Node root = load_document(yaml.write("{a: 1}"));
  EXPECT_EQ(root.find("a")->place, (Place{yaml.write("{a: 1}"), 1, 5}));
}

// JSON is YAML: the two readers, written apart, must see the same tree at the same places.

std::string any_json(int depth) {
  switch (*rc::gen::inRange(0, depth > 0 ? 7 : 5)) {
    case 0:
      return "null";
    case 1:
      return "true";
    case 2:
      return std::to_string(*rc::gen::inRange(-1'000'000, 1'000'000));
    case 3:
      return std::to_string(*rc::gen::inRange(0, 1000)) + ".25e-3";
    case 4:
      return "\"" + *rc::gen::elementOf(std::vector<std::string>{"", "x y", "é", "80 GiB", "#"}) +
             "\"";
    case 5: {
      std::string out = "[";
      for (int left = *rc::gen::inRange(0, 4); left > 0; --left) {
        out += any_json(depth - 1) +
               (left > 1 ? *rc::gen::elementOf(std::vector<std::string>{",", ", ", ",\n"}) : "");
      }
      return out + "]";
    }
    default: {
      std::string out = "{";
      for (int left = *rc::gen::inRange(0, 4); left > 0; --left) {
        out += "\"key" + std::to_string(left) + "\": " + any_json(depth - 1) +
               (left > 1 ? ",\n " : "");
      }
      return out + "}";
    }
  }
}

void expect_same(const Node& a, const Node& b) {
  RC_ASSERT(a.kind == b.kind);
  RC_ASSERT(a.place == b.place);
  RC_ASSERT(a.scalar == b.scalar);
  RC_ASSERT(a.quoted == b.quoted);
  RC_ASSERT(a.keys == b.keys);
  RC_ASSERT(a.key_places == b.key_places);
  RC_ASSERT(a.items.size() == b.items.size());
  for (std::size_t i = 0; i < a.items.size(); ++i) {
    expect_same(a.items[i], b.items[i]);
  }
}

RC_GTEST_PROP(Document, JsonReadAsYamlIsTheSame, ()) {
  const std::string text = "[" + any_json(4) + "]";
  expect_same(parse_document(text, "f", Syntax::kJson), parse_document(text, "f", Syntax::kYaml));
}

}  // namespace
}  // namespace offsim::document_test
