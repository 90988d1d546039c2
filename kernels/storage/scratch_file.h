// The file that drives are measured with: new, opened for direct I/O, and without a name as soon as
// it is open. So nothing is left behind, however the program ends: the space is free again when the
// last descriptor is closed, and the system closes them all.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace offsim::kernels {

// Why a drive cannot be measured with a file of this name; nothing when it can: it exists or is a
// link, its folder is missing or cannot be written, it would lie in memory (tmpfs, ramfs), its file
// system has no direct I/O, less than 640 MiB are free, or less than 64 MiB are asked for (0: no
// size is). Tries it out and leaves nothing.
std::optional<std::string> scratch_refused(const std::string& path, std::int64_t asked = 0);

class ScratchFile {
 public:
  // Throws std::runtime_error with the reason where scratch_refused() has one.
  explicit ScratchFile(const std::string& path);
  ~ScratchFile();
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  int descriptor() const { return descriptor_; }

 private:
  int descriptor_ = -1;
};

struct Space {
  std::int64_t total = 0;
  std::int64_t free = 0;  // for this user
};
// Of the file system of a file's folder.
Space space_at(const std::string& path);

// How large a file may be: as asked (0: `usual`), at most a tenth of what is free, in whole 8 MiB.
std::int64_t scratch_bytes(const std::string& path, std::int64_t asked, std::int64_t usual);

}  // namespace offsim::kernels
