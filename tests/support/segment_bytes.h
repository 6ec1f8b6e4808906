// How much of the shared segment this process's jobs have taken so far: by it tests see whether
// large buffers went through windows, whose pages are reserved at their first use.
#pragma once

#include <sys/stat.h>
#include <unistd.h>

#include <climits>
#include <cstddef>
#include <filesystem>
#include <set>
#include <string>

namespace unisono::test {

/// Bytes of the segments that this process holds a descriptor of, whichever rank reserved them.
inline std::size_t reserved_segment_bytes() {
  std::set<ino_t> seen;
  std::size_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    char target[PATH_MAX];
    const ssize_t length = readlink(entry.path().c_str(), target, sizeof target);
    const std::string name(target, length > 0 ? static_cast<std::size_t>(length) : 0);
    struct stat facts;
    if (!name.starts_with("/memfd:unisono-segment") || stat(entry.path().c_str(), &facts) != 0) {
      continue;
    }
    if (seen.insert(facts.st_ino).second) bytes += static_cast<std::size_t>(facts.st_blocks) * 512;
  }
  return bytes;
}

}  // namespace unisono::test
