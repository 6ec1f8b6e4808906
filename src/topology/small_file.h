// Reads small files of /proc and /sys, bounded, without errors: what is missing is empty.
// Internal to this folder.
#pragma once

#include <cstddef>
#include <fstream>
#include <string>

namespace unisono::topology {

/// At most `bytes_max` bytes of the file; empty when it cannot be read.
inline std::string read_small_file(const std::string& path, std::size_t bytes_max) {
  std::ifstream file(path, std::ios::binary);
  std::string text(bytes_max, '\0');
  file.read(text.data(), static_cast<std::streamsize>(bytes_max));
  text.resize(static_cast<std::size_t>(file.gcount()));
  return text;
}

inline std::string first_line(const std::string& path, std::size_t bytes_max) {
  const std::string text = read_small_file(path, bytes_max);
  return text.substr(0, text.find('\n'));
}

}  // namespace unisono::topology
