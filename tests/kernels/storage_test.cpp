#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "kernels/bench.h"
#include "kernels/storage/engine.h"
#include "kernels/storage/scratch_file.h"

namespace offsim::kernels::storage_test {
namespace {

namespace fs = std::filesystem;

class ScratchFiles : public testing::Test {
 protected:
  // Beside the program: /tmp is memory on some machines, which is refused.
  ScratchFiles() : folder_(fs::read_symlink("/proc/self/exe").string() + "_files") {
    fs::remove_all(folder_);
    fs::create_directory(folder_);
  }
  ~ScratchFiles() override { fs::remove_all(folder_); }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  // Some machines that build this have no drive for direct I/O, or a full one.
  bool usable() const { return !scratch_refused(path("try")).has_value(); }

  fs::path folder_;
};

TEST_F(ScratchFiles, AFileThatExistsIsRefusedAndLeftAlone) {
  std::ofstream(path("mine")) << "mine";
  EXPECT_EQ(scratch_refused(path("mine")),
            path("mine") + ": exists, and is left alone; name a file that does not exist");
  std::string text;
  std::ifstream(path("mine")) >> text;
  EXPECT_EQ(text, "mine");
}

TEST_F(ScratchFiles, ALinkIsRefusedWhateverItNames) {
  fs::create_symlink(path("target"), path("link"));
  EXPECT_EQ(scratch_refused(path("link")),
            path("link") + ": is a symbolic link; name a file that does not exist");
  EXPECT_FALSE(fs::exists(path("target")));
}

TEST_F(ScratchFiles, AFolderThatIsMissingIsRefused) {
  EXPECT_EQ(scratch_refused(path("none/file")),
            path("none/file") + ": its folder: No such file or directory");
}

TEST_F(ScratchFiles, MemoryIsNoDrive) {
  if (fs::exists("/dev/shm")) {
    const std::string file = "/dev/shm/offsim_test_" + std::to_string(getpid());
    EXPECT_EQ(scratch_refused(file), file + ": lies in memory (tmpfs), not on a drive");
    EXPECT_FALSE(fs::exists(file));
  }
}

// It never has a name that could be left behind, so a signal that ends the program leaves none.
TEST_F(ScratchFiles, TheFileHasNoNameWhileItIsOpenNorAfterASignal) {
  if (!usable()) {
    GTEST_SKIP() << *scratch_refused(path("try"));
  }
  {
    const ScratchFile file(path("file"));
    EXPECT_TRUE(fs::is_empty(folder_));
    EXPECT_EQ(scratch_refused(path("file")), std::nullopt);
  }
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const ScratchFile file(path("file"));
    raise(SIGTERM);
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_TRUE(fs::is_empty(folder_));
}

// Two blocks of different content, written together and read back in the other order.
TEST_F(ScratchFiles, WhatIsWrittenIsReadBack) {
  if (!usable()) {
    GTEST_SKIP() << *scratch_refused(path("try"));
  }
  constexpr std::size_t kBlock = 8192;
  const ScratchFile file(path("file"));
  const std::unique_ptr<char, decltype(&std::free)> memory(
      static_cast<char*>(std::aligned_alloc(4096, 4 * kBlock)), &std::free);
  char* at = memory.get();
  std::fill_n(at, kBlock, 'a');
  std::fill_n(at + kBlock, kBlock, 'b');
  const auto engine = make_io_engine(file.descriptor(), 2);
  engine->submit({true, at, 0, kBlock, 1});
  engine->submit({true, at + kBlock, kBlock, kBlock, 2});
  EXPECT_EQ(engine->wait() + engine->wait(), 3);
  engine->submit({false, at + 2 * kBlock, kBlock, kBlock, 3});
  engine->submit({false, at + 3 * kBlock, 0, kBlock, 4});
  EXPECT_EQ(engine->wait() + engine->wait(), 7);
  EXPECT_EQ(std::count(at + 2 * kBlock, at + 3 * kBlock, 'b'), kBlock);
  EXPECT_EQ(std::count(at + 3 * kBlock, at + 4 * kBlock, 'a'), kBlock);
  engine->submit({false, at, std::int64_t{1} << 40, kBlock, 5});  // behind the end: no bytes
  EXPECT_THROW(engine->wait(), std::runtime_error);
}

// Found out before anything is measured, also by those that would fill a file first.
TEST_F(ScratchFiles, AFileThatMayNotBeLargeEnoughIsRefused) {
  EXPECT_EQ(scratch_refused(path("file"), 1000),
            path("file") + ": may have 1000 B; expected 64 MiB or more");
  EXPECT_EQ(scratch_refused(path("file"), -1),
            path("file") + ": may have -1 B; expected 64 MiB or more");
}

// A device that is always full.
TEST(IoEngines, AFullDriveIsSaidToBeOne) {
  const int full = open("/dev/full", O_RDWR | O_CLOEXEC);
  ASSERT_GE(full, 0);
  alignas(4096) static char block[4096];
  const auto engine = make_io_engine(full, 1);
  engine->submit({true, block, 0, sizeof block, 1});
  try {
    engine->wait();
    ADD_FAILURE() << "it had room";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "the drive is full: a write to the file found no room");
  }
  close(full);
}

// A tenth of what is free, in whole blocks of 8 MiB, however much is asked for.
TEST_F(ScratchFiles, SizesAreBounded) {
  constexpr std::int64_t kMiB = 1 << 20;
  const std::int64_t free = space_at(path("file")).free;
  EXPECT_LE(scratch_bytes(path("file"), free * 2, 0), free / 10);
  if (free > 200 * kMiB) {
    EXPECT_EQ(scratch_bytes(path("file"), 17 * kMiB, 1024 * kMiB), 16 * kMiB);
    EXPECT_EQ(scratch_bytes(path("file"), 0, 8 * kMiB), 8 * kMiB);
  }
}

// The quick ones on 64 MiB, which they fill first, and the folder is empty again.
TEST_F(ScratchFiles, TheBenchesLeaveNothing) {
  Options options;
  options.quick = true;
  for (const Bench& bench : storage_benches()) {
    EXPECT_TRUE(bench.unavailable(options)) << bench.name << " without --file";
  }
  options.file = path("file");
  options.file_bytes = std::int64_t{64} << 20;
  if (!usable()) {
    GTEST_SKIP() << *scratch_refused(path("try"));
  }
  int points = 0;
  const kernels::Run run(options, [&](const At&, const Summary& summary, Unit, int) {
    EXPECT_GT(summary.value, 0);
    ++points;
  });
  for (const Bench& bench : storage_benches()) {
    if (bench.name == "drive_latency" || bench.name == "drive_space") {
      bench.run(run);
    }
  }
  EXPECT_EQ(points, 3);
  EXPECT_TRUE(fs::is_empty(folder_));
}

}  // namespace
}  // namespace offsim::kernels::storage_test
