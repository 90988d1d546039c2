#include "kernels/bench.h"

#include <sched.h>

#include <algorithm>
#include <set>

#include "kernels/host/pool.h"
#include "kernels/python.h"

namespace offsim::kernels::bench_test {
namespace {

// Quartiles of 1 to 5 are 2 and 4: half their distance is 1, over a median of 3. Four numbers are
// interpolated: 10 20 30 40 have 17.5, 25 and 32.5.
TEST(Summary, IsMedianAndHalfTheDistanceOfTheQuartilesOverIt) {
  EXPECT_DOUBLE_EQ(median_of({5, 1, 3, 2, 4}).value, 3);
  EXPECT_DOUBLE_EQ(median_of({5, 1, 3, 2, 4}).spread, 1.0 / 3);
  EXPECT_DOUBLE_EQ(median_of({40, 10, 30, 20}).value, 25);
  EXPECT_DOUBLE_EQ(median_of({40, 10, 30, 20}).spread, 7.5 / 25);
  EXPECT_DOUBLE_EQ(median_of({7}).spread, 0);
}

// The mean of 1 1 1 9 is 3; quartiles 1 and 3.
TEST(Summary, IsAMeanWhereItIsAskedFor) {
  EXPECT_DOUBLE_EQ(mean_of({1, 9, 1, 1}).value, 3);
  EXPECT_DOUBLE_EQ(mean_of({1, 9, 1, 1}).spread, 1.0 / 3);
}

// Each call on one core alone, the cores of all calls as different as there are, and afterwards the
// thread may go where it might before.
TEST(OnCores, CallsOnOneCoreAfterTheOther) {
  cpu_set_t before, after;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  std::set<int> seen;
  int calls = 0;
  const std::vector<double> samples = on_cores(2 * usable_cores(), [&] {
    cpu_set_t now;
    EXPECT_EQ(sched_getaffinity(0, sizeof now, &now), 0);
    EXPECT_EQ(CPU_COUNT(&now), 1);
    seen.insert(sched_getcpu());
    return ++calls;
  });
  EXPECT_EQ(samples.size(), static_cast<std::size_t>(2 * usable_cores()));
  EXPECT_EQ(samples.back(), 2 * usable_cores());
  EXPECT_GE(static_cast<int>(seen.size()), std::min(CPU_COUNT(&before), usable_cores()));
  ASSERT_EQ(sched_getaffinity(0, sizeof after, &after), 0);
  EXPECT_TRUE(CPU_EQUAL(&before, &after));
}

std::string failure(const std::string& script, double limit) {
  try {
    run_python(script, {}, limit, [](const std::string&) {});
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "none";
}

TEST(Python, LinesOfAScriptArePoints) {
  std::vector<std::string> seen;
  const Options options;
  const kernels::Run run(
      options, [&](const At& at, const Summary& summary, Unit unit, int samples) {
        seen.push_back(at.at(0).first + " " + std::get<std::string>(at.at(0).second) + " " +
                       std::to_string(std::get<std::int64_t>(at.at(1).second)) + " " +
                       std::to_string(summary.value) + " " + std::string(name_of(unit)) + " " +
                       std::to_string(samples));
      });
  python_points(run, R"(import json, sys
at = {"kernel": sys.argv[1], "threads": 2}
print(json.dumps({"at": at, "samples": [1.5, 2.5], "unit": "B/s"}))
)",
                {"mul"}, 30);
  EXPECT_EQ(seen, (std::vector<std::string>{"kernel mul 2 2.000000 B/s 2"}));
}

TEST(Python, AScriptThatFailsOrHangsIsAnErrorOfOneLine) {
  EXPECT_EQ(failure("import no_such_thing", 30),
            "python3: ModuleNotFoundError: No module named 'no_such_thing'");
  EXPECT_EQ(failure("import time\ntime.sleep(60)", 0.3),
            "python3 took longer than 0 s and was stopped");
  EXPECT_EQ(python_lacks("json"), std::nullopt);
  EXPECT_EQ(python_lacks("no_such_thing"), "python3: no_such_thing is not installed");
}

}  // namespace
}  // namespace offsim::kernels::bench_test
