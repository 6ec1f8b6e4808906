// One IDX file of bytes and where the files of a set lie. Throws std::runtime_error.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/data/byte_stream.h"

namespace unisono::train {

/// The extents in the header of the IDX file that `stream` is at the beginning of. There are
/// `dimensions` of them and their product is at most what the file can hold: exactly that, where it
/// is plain.
std::vector<std::uint64_t> read_idx_header(ByteStream& stream, int dimensions);

/// Where Debian's dataset-fashion-mnist puts its files.
inline constexpr const char* kFashionMnist = "/usr/share/datasets/fashion-mnist";

struct IdxPaths {
  std::string images, labels;
};
/// The training or test files of `directory`. Errors name the package where it is kFashionMnist.
IdxPaths find_idx_files(const std::string& directory, bool is_test);

}  // namespace unisono::train
