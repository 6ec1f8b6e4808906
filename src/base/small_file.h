// Reads small files of /proc and /sys, bounded, without errors: what is missing is empty.
//
// Thread rule: any thread.
#pragma once

#include <cstddef>
#include <string>

namespace unisono {

/// At most `bytes_max` bytes of the file; empty when it cannot be read.
std::string read_small_file(const std::string& path, std::size_t bytes_max);
/// Without the end of the line.
std::string first_line(const std::string& path, std::size_t bytes_max);

}  // namespace unisono
