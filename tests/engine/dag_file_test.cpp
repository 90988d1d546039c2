// Does a bad DAG file get exactly its line, and a good one its meaning?
#include "sim/engine/dag_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

#include "sim/base/error.h"
#include "sim/engine/simulate.h"

namespace offsim::engine::dag_file_test {
namespace {

using testing::ElementsAre;

class DagFile : public testing::Test {
 protected:
  Dag read(const std::string& text) {
    std::ofstream(path, std::ios::binary) << text;
    return read_dag(path);
  }
  // What the reader says of the text, without the path; empty when it has nothing to say.
  std::string complaint(const std::string& text) {
    try {
      read(text);
      return "";
    } catch (const InputError& error) {
      return std::string(error.what()).substr(path.size());
    }
  }
  void TearDown() override { std::remove(path.c_str()); }

  const testing::TestInfo* test = testing::UnitTest::GetInstance()->current_test_info();
  std::string path = testing::TempDir() + "offsim_dag_" + test->name();
  const std::string head = "@resource a link 10\n@resource b link 20\n@resource cpu exec 5\n";
};

TEST_F(DagFile, CommentsBlanksAndLineEndsOfAnyKindMeanNothing) {
  Dag dag = read(
      "# text\r\n\r\n@resource cpu exec 5 # five\r\n\t 3  exec\tcpu 10\r\n1 exec cpu 5 3 3 #3\r\n "
      "8 exec cpu 5 1 3");
  EXPECT_THAT(dag.ids, ElementsAre(3, 1, 8));
  EXPECT_EQ(dag.edges, 4);
  EXPECT_THAT(simulate(std::move(dag.builder).build()).finish,
              ElementsAre(2'000'000'000'000, 3'000'000'000'000, 4'000'000'000'000));
}

TEST_F(DagFile, TheSameLinksInAnotherOrderAreTheSameDemand) {
  const auto graph = std::move(read(head + "0 xfer a+b 10\n1 xfer b+a 10\n").builder).build();
  EXPECT_EQ(graph.demand_list().size(), 1);
}

TEST_F(DagFile, AnEmptyFileIsAnEmptyGraph) { EXPECT_EQ(read("").ids.size(), 0); }

TEST_F(DagFile, RatesAreReadInEveryNotation) {
  const auto graph =
      std::move(read("@resource a link 4.0000000000000000e+14\n@resource b exec 0.5\n").builder)
          .build();
  EXPECT_EQ(graph.resources()[0].capacity, 4e14);
  EXPECT_EQ(graph.resources()[1].capacity, 0.5);
}

const std::string kAmount = "is no amount; expected a whole number from 1 to 9007199254740992";

TEST_F(DagFile, EveryMistakeHasItsPlace) {
  const std::vector<std::pair<std::string, std::string>> table = {
      {"0 exec gpu 5", ":4:8: unknown resource 'gpu'; did you mean 'cpu'?"},
      {"0 xfer a+gpu 5", ":4:10: unknown resource 'gpu'; did you mean 'cpu'?"},
      {"0 xfer + 5", ":4:8: unknown resource ''; expected the name of an @resource line above"},
      {"0 xfer a+ 5", ":4:10: unknown resource ''; expected the name of an @resource line above"},
      {"0 xfer a+a 5", ":4:8: 'a+a' names a link twice; expected each link once"},
      {"0 exec a 5",
       ":4:8: exec on resource 'a' of the other kind; expected exec on an exec resource, xfer over "
       "links"},
      {"0 xfer cpu 5",
       ":4:8: xfer on resource 'cpu' of the other kind; expected exec on an exec resource, xfer "
       "over links"},
      {"0 exec cpu+cpu 5", ":4:8: 'cpu+cpu' is no exec resource; expected exec on one resource"},
      {"0 copy a 5", ":4:3: unknown kind of activity 'copy'; expected one of exec, xfer"},
      {"0 exec cpu 5\n0 exec cpu 5", ":5:1: ID 0 is there twice; expected one line each"},
      {"7 exec cpu 5\n3 exec cpu 5\n7 exec cpu 5",
       ":6:1: ID 7 is there twice; expected one line each"},
      {"0 exec cpu 5\n1 exec cpu 5 0 2",
       ":5:16: depends on '2'; expected the ID of an earlier line"},
      {"0 exec cpu 5 0", ":4:14: depends on '0'; expected the ID of an earlier line"},
      {"7 exec cpu 5\n3 exec cpu 5 3", ":5:14: depends on '3'; expected the ID of an earlier line"},
      {"0 exec cpu 5 x", ":4:14: depends on 'x'; expected the ID of an earlier line"},
      {"0 exec cpu 5\n1 exec cpu 5 -1",
       ":5:14: depends on '-1'; expected the ID of an earlier line"},
      {"-1 exec cpu 5", ":4:1: '-1' is no ID; expected @resource, or a whole number from 0 on"},
      {"9223372036854775808 exec cpu 5",
       ":4:1: '9223372036854775808' is no ID; expected @resource, or a whole number from 0 on"},
      {"0 xfer elsewhere 5",
       ":4:8: unknown resource 'elsewhere'; expected the name of an @resource line above"},
      {"0 exce cpu 5", ":4:3: unknown kind of activity 'exce'; did you mean 'exec'?"},
      {"@resources x", ":4:1: '@resources' is no ID; did you mean '@resource'?"},
      {"@machine x", ":4:1: '@machine' is no ID; expected @resource, or a whole number from 0 on"},
      {"0 exec cpu 0", ":4:12: '0' " + kAmount},
      {"0 exec cpu -5", ":4:12: '-5' " + kAmount},
      {"0 exec cpu 1.5", ":4:12: '1.5' " + kAmount},
      {"0 exec cpu 1e9", ":4:12: '1e9' " + kAmount},
      {"0 exec cpu inf", ":4:12: 'inf' " + kAmount},
      {"0 exec cpu nan", ":4:12: 'nan' " + kAmount},
      {"0 exec cpu 9007199254740993",
       ":4:12: '9007199254740993' is no amount; expected a whole number from 1 to "
       "9007199254740992"},
      {"0 exec cpu", ":4:11: not an activity line; expected ID KIND RESOURCE AMOUNT [DEP ...]"},
      {"0", ":4:2: not an activity line; expected ID KIND RESOURCE AMOUNT [DEP ...]"},
      {"0 # exec cpu 5", ":4:3: not an activity line; expected ID KIND RESOURCE AMOUNT [DEP ...]"},
      {"@resource c link", ":4:17: not a resource line; expected @resource NAME exec|link RATE"},
      {"@resource c link 5 6",
       ":4:20: not a resource line; expected @resource NAME exec|link RATE"},
      {"@resource c disk 5", ":4:13: unknown kind of resource 'disk'; expected one of exec, link"},
      {"@resource c+d link 5",
       ":4:11: a resource is named 'c+d'; expected a name without '+', which joins links"},
      {"@resource a link 5",
       ":4:11: resource 'a' is declared twice; expected one @resource line each"},
      {"@resource c link 0", ":4:18: '0' is no rate; expected a number from 1e-30 to 1e30"},
      {"@resource c link -1", ":4:18: '-1' is no rate; expected a number from 1e-30 to 1e30"},
      {"@resource c link inf", ":4:18: 'inf' is no rate; expected a number from 1e-30 to 1e30"},
      {"@resource c link nan", ":4:18: 'nan' is no rate; expected a number from 1e-30 to 1e30"},
      {"@resource c link 5GB", ":4:18: '5GB' is no rate; expected a number from 1e-30 to 1e30"},
      {std::string("0 exec cpu 5\0 0", 15), ":4:12: '5?' " + kAmount},
  };
  for (const auto& [line, message] : table) {
    EXPECT_EQ(complaint(head + line + "\n"), message) << line;
    EXPECT_EQ(complaint(head + line), message) << "without a line end: " << line;
  }
}

TEST_F(DagFile, AByteOrderMarkMeansNothing) {
  EXPECT_EQ(complaint("\xef\xbb\xbf" + head + "0 exec cpu 5\n"), "");
}

// Within a second, where comparing each with each would take minutes.
TEST_F(DagFile, ATransferMayCrossManyLinks) {
  std::string links, route;
  for (int i = 0; i < 100'000; ++i) {
    links += "@resource l" + std::to_string(i) + " link 1\n";
    route += (i == 0 ? "l" : "+l") + std::to_string(i);
  }
  EXPECT_EQ(complaint(links + "0 xfer " + route + " 1\n"), "");
  EXPECT_THAT(complaint(links + "0 xfer " + route + "+l7 1\n"), testing::HasSubstr("a link twice"));
}

TEST_F(DagFile, ALineMayBeSoLongAndNoLonger) {
  EXPECT_EQ(complaint(head + "#" + std::string(kLongestDagLine - 1, 'x') + "\n"), "");
  EXPECT_EQ(complaint(head + "#" + std::string(kLongestDagLine - 1, 'x')), "");
  EXPECT_EQ(complaint(head + "#" + std::string(kLongestDagLine, 'x') + "\n"),
            ":4:1: the line is too long; expected at most 1048576 bytes");
  EXPECT_EQ(complaint(head + "#" + std::string(kLongestDagLine, 'x')),
            ":4:1: the line is too long; expected at most 1048576 bytes");
}

TEST_F(DagFile, WhatIsNoFileIsRefused) {
  EXPECT_THROW(read_dag(path + ".none"), InputError);
  EXPECT_THROW(read_dag(testing::TempDir()), InputError);
}

}  // namespace
}  // namespace offsim::engine::dag_file_test
