// Are the hand-computed finish times of tests/dag_bench/oracle exact?
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "sim/engine/dag_file.h"
#include "sim/engine/simulate.h"

namespace offsim::engine::oracle_test {
namespace {

std::vector<std::filesystem::path> cases() {
  const std::filesystem::directory_iterator folder(OFFSIM_SOURCE_DIR "/tests/dag_bench/oracle");
  std::vector<std::filesystem::path> paths(begin(folder), end(folder));
  std::ranges::sort(paths);
  return paths;
}

class Oracle : public testing::TestWithParam<std::filesystem::path> {};

TEST_P(Oracle, FinishTimesAreThoseComputedByHand) {
  std::ifstream in(GetParam());
  std::map<std::int64_t, Picoseconds> expected;  // "# expect ID SECONDS"
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string hash;
    std::string expect;
    std::int64_t id = 0;
    if (double seconds = 0; words >> hash >> expect >> id >> seconds && expect == "expect") {
      expected[id] = to_picoseconds(Seconds(seconds));
    }
  }
  Dag dag = read_dag(GetParam());
  const Timeline timeline = simulate(std::move(dag.builder).build());
  std::map<std::int64_t, Picoseconds> finish;
  for (std::size_t i = 0; i < dag.ids.size(); ++i) {
    finish[dag.ids[i]] = timeline.finish[i];
  }
  EXPECT_FALSE(expected.empty());
  for (const auto& [id, time] : expected) {
    EXPECT_EQ(finish.at(id), time) << "activity " << id;
  }
}

INSTANTIATE_TEST_SUITE_P(Folder, Oracle, testing::ValuesIn(cases()),
                         [](const auto& one) { return one.param.stem().string(); });

}  // namespace
}  // namespace offsim::engine::oracle_test
