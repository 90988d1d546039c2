#include "kernels/bench.h"

#include <set>

namespace offsim::kernels::gpu_list_test {
namespace {

// A reader of the records tells benches apart by name alone, and `--only link` is one of them.
TEST(Benches, HaveNamesOfTheirOwn) {
  std::set<std::string_view> names{"gpu", "link", "host", "storage"};
  for (const Bench& bench : all_benches()) {
    EXPECT_TRUE(names.insert(bench.name).second) << bench.name;
    EXPECT_FALSE(bench.sentence.empty()) << bench.name;
  }
}

// Whether or not there is a GPU and CUDA: `offsim calibrate` says what was not measured and why.
TEST(GpuBenches, AreNamedAndSayWhyTheyCannotRun) {
  const Options options;
  std::set<std::string_view> names;
  for (const Bench& bench : gpu_benches()) {
    names.insert(bench.name);
    const auto reason = bench.unavailable(options);
    EXPECT_TRUE(!reason || !reason->empty()) << bench.name;
    EXPECT_TRUE(reason || describe_gpu() != "null") << bench.name;
  }
  for (const char* name : {"gemm", "attention", "copy", "pinned_alloc", "beside_copies"}) {
    EXPECT_EQ(names.count(name), 1u) << name;
  }
}

}  // namespace
}  // namespace offsim::kernels::gpu_list_test
