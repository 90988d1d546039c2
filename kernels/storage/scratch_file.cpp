#include "kernels/storage/scratch_file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>

namespace offsim::kernels {

namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

std::string folder_of(const std::string& path) {
  const auto slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

std::runtime_error failed(const std::string& path, const std::string& what) {
  return std::runtime_error(path + ": " + what);
}

// What can be seen without writing.
void look(const std::string& path) {
  struct stat found {};
  if (lstat(path.c_str(), &found) == 0) {
    throw failed(path, S_ISLNK(found.st_mode)
                           ? "is a symbolic link; name a file that does not exist"
                           : "exists, and is left alone; name a file that does not exist");
  }
  const std::string folder = folder_of(path);
  struct statfs system {};
  if (statfs(folder.c_str(), &system) != 0) {
    throw failed(path, "its folder: " + std::string(std::strerror(errno)));
  }
  if (system.f_type == TMPFS_MAGIC || system.f_type == RAMFS_MAGIC) {
    throw failed(path, "lies in memory (tmpfs), not on a drive");
  }
  if (space_at(path).free < 640 * kMiB) {
    throw failed(path, "less than 640 MiB are free there");
  }
}

// Opening may be accepted and the first direct write refused.
bool writes_directly(int descriptor) {
  constexpr std::size_t kBlock = 4096;
  const std::unique_ptr<void, decltype(&std::free)> block(std::aligned_alloc(kBlock, kBlock),
                                                          &std::free);
  if (!block) {
    return false;
  }
  std::memset(block.get(), 0x5a, kBlock);
  return pwrite(descriptor, block.get(), kBlock, 0) == static_cast<ssize_t>(kBlock);
}

}  // namespace

Space space_at(const std::string& path) {
  struct statvfs system {};
  const std::string folder = folder_of(path);
  if (statvfs(folder.c_str(), &system) != 0) {
    throw failed(path, "its folder: " + std::string(std::strerror(errno)));
  }
  const auto block = static_cast<std::int64_t>(system.f_frsize);
  return {static_cast<std::int64_t>(system.f_blocks) * block,
          static_cast<std::int64_t>(system.f_bavail) * block};
}

std::int64_t scratch_bytes(const std::string& path, std::int64_t asked, std::int64_t usual) {
  const std::int64_t most = space_at(path).free / 10;
  return std::min(asked > 0 ? asked : usual, most) / (8 * kMiB) * (8 * kMiB);
}

ScratchFile::ScratchFile(const std::string& path) {
  look(path);
  descriptor_ = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC | O_DIRECT,
                     S_IRUSR | S_IWUSR);
  const int error = errno;
  if (descriptor_ < 0) {
    if (error == EINVAL) {
      unlink(path.c_str());  // some systems make the file before they refuse the flag
      throw failed(path, "its file system has no direct I/O");
    }
    throw failed(path, std::strerror(error));
  }
  if (unlink(path.c_str()) != 0) {
    close(descriptor_);
    throw failed(path, "cannot be removed: " + std::string(std::strerror(errno)));
  }
  if (!writes_directly(descriptor_)) {
    close(descriptor_);
    throw failed(path, "its file system has no direct I/O");
  }
}

ScratchFile::~ScratchFile() { close(descriptor_); }

std::optional<std::string> scratch_refused(const std::string& path, std::int64_t asked) {
  if (asked != 0 && asked < 64 * kMiB) {
    return path + ": may have " + std::to_string(asked) + " B; expected 64 MiB or more";
  }
  try {
    const ScratchFile file(path);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return std::nullopt;
}

}  // namespace offsim::kernels
