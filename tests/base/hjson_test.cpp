// Is everything that DeepSpeed's reader takes read, with its place, and nothing else?
#include <gtest/gtest.h>

#include "sim/base/hjson.h"
#include "tests/base/message_of.h"

namespace offsim::hjson_test {
namespace {

// {a: 1 'text' [..]}: what was read, in one line.
std::string shown(const Node& node) {
  std::string out;
  switch (node.kind) {
    case Node::Kind::kNull:
      return "null";
    case Node::Kind::kScalar:
      return node.quoted ? "'" + node.scalar + "'" : node.scalar;
    case Node::Kind::kList:
      for (const Node& item : node.items) {
        out += (out.empty() ? "" : " ") + shown(item);
      }
      return "[" + out + "]";
    case Node::Kind::kMap:
      for (std::size_t i = 0; i < node.keys.size(); ++i) {
        out += (out.empty() ? "" : " ") + node.keys[i] + ":" + shown(node.items[i]);
      }
      return "{" + out + "}";
  }
  return out;
}

std::string read(const std::string& text) { return shown(parse_hjson(text, "h")); }
std::string refusal(const std::string& text) {
  return message_of([&] { parse_hjson(text, "h"); });
}

TEST(Hjson, ReadsJson) {
  EXPECT_EQ(read(R"({"a": [1, -2.5e+3, true, null, "x\n\"\u00e9\ud83d\ude00"], "b": {}})"),
            "{a:[1 -2.5e+3 true null 'x\n\"\xc3\xa9\xf0\x9f\x98\x80'] b:{}}");
}

TEST(Hjson, ReadsWhatJsonRefuses) {
  EXPECT_EQ(read("{ // one\n a: 1, # two\n /* three\n */ 'b': 'c', }"), "{a:1 b:'c'}");
  EXPECT_EQ(read("{a: [1\n2\n3,]\nb: 5e8}"), "{a:[1 2 3] b:5e8}");
  EXPECT_EQ(read("a: 1\nb: {c: true}\n"), "{a:1 b:{c:true}}");
  EXPECT_EQ(read("{a: '''x\ny'''}"), "{a:'x\ny'}");
}

// Hjson's rule: the comma and the comment belong to the text.
TEST(Hjson, ATextWithoutQuotesGoesToTheEndOfItsLine) {
  EXPECT_EQ(read("{\n a: some text, # b \n c: 01\n d: 1 # e\n}"),
            "{a:'some text, # b' c:'01' d:1}");
}

TEST(Hjson, EveryValueHasItsPlace) {
  const Node root = parse_hjson("{ # x\n  a: 1,\n  b: [2, {c: 3}]}", "h");
  EXPECT_EQ(root.find("a")->place.text(), "h:2:6");
  EXPECT_EQ(root.key_places[1].text(), "h:3:3");
  EXPECT_EQ(root.find("b")->items[1].find("c")->place.text(), "h:3:14");
}

TEST(Hjson, SaysWhereAndWhatIsWrong) {
  EXPECT_EQ(refusal(""), "h: nothing is in this file; expected a map of keys and values");
  EXPECT_EQ(refusal("{a: 1"), "h:1:1: not JSON or Hjson: this { is not closed; expected its }");
  EXPECT_EQ(refusal("{a: [1"), "h:1:5: not JSON or Hjson: this [ is not closed; expected its ]");
  EXPECT_EQ(refusal("{a 1}"),
            "h:1:4: not JSON or Hjson: a key has no value; expected a colon and a value");
  EXPECT_EQ(refusal("{a: 1} x"),
            "h:1:8: not JSON or Hjson: the map has ended before this; expected nothing after its "
            "closing bracket");
  EXPECT_EQ(refusal("{a: 'x\n'}"),
            "h:1:5: not JSON or Hjson: this text has no closing quote; expected ' at its end");
  EXPECT_EQ(refusal("{a: 1,, b: 2}"),
            "h:1:7: not JSON or Hjson: ',' begins no key; expected a key or }");
  EXPECT_EQ(refusal("{a: }"), "h:1:5: not JSON or Hjson: '}' is no value; expected a value");
  EXPECT_EQ(refusal("{a: /* x"), "h:1:5: not JSON or Hjson: this comment has no end; expected */");
  EXPECT_EQ(refusal("{a: \"\\ud800x\"}"),
            "h:1:12: not JSON or Hjson: half of a pair of escapes is no character; expected both "
            "halves");
  EXPECT_EQ(refusal("{\"a\": 1, 'a': 2}"),
            "h:1:10: key 'a' is given twice; the first is at line 1, column 2");
}

TEST(Hjson, APlaceholderAndAPythonDictAreNoTexts) {
  EXPECT_EQ(refusal("{\"a\": SIZE}"),
            "h:1:7: not JSON or Hjson: 'SIZE' is neither a number nor a text in quotes; expected a "
            "value in place of a placeholder, or quotes");
  EXPECT_EQ(refusal("{'a': True}"),
            "h:1:7: not JSON or Hjson: True is Python's; expected true: a Python dict has to be "
            "converted");
}

TEST(Hjson, IsBounded) {
  EXPECT_EQ(refusal(std::string(65, '[')),
            "h:1:65: this is nested too deep; expected at most 64 "
            "levels");
}

}  // namespace
}  // namespace offsim::hjson_test
