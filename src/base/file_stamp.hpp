// Tells whether a file is another one than before, by what stat(2) says of it. Its modification time alone does not: copies that
// keep times, and layers of images, give two files the same.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <string>

namespace fencegate {

struct file_stamp {
  dev_t device = 0;
  ino_t inode = 0;
  off_t bytes = 0;
  std::int64_t modified_ns = 0, changed_ns = 0;  // since 1970

  friend bool operator==(const file_stamp&, const file_stamp&) = default;
};

// All zero for an empty path, and for a file that cannot be looked at.
[[nodiscard]] inline file_stamp stamp_of(const std::string& path) {
  struct stat found {};
  if (path.empty() || ::stat(path.c_str(), &found) != 0) return {};
  const auto nanoseconds = [](const timespec& at) { return at.tv_sec * std::int64_t{1'000'000'000} + at.tv_nsec; };
  return {found.st_dev, found.st_ino, found.st_size, nanoseconds(found.st_mtim), nanoseconds(found.st_ctim)};
}

}  // namespace fencegate
