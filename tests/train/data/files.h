// Folders and files of a test's own: IDX sets, plain and compressed, whole and broken.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/gzip.h"
#include "tests/support/temporary_folder.h"

namespace unisono::train::test {

using unisono::test::gzip;
using unisono::test::TemporaryFolder;

inline void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << bytes;
  if (!file.flush()) throw std::runtime_error("cannot write " + path);
}

inline std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// An IDX file of bytes with these extents in its header, whatever `elements` are.
inline std::string idx(const std::vector<std::uint32_t>& extents, const std::string& elements) {
  std::string bytes{'\0', '\0', '\x08', static_cast<char>(extents.size())};
  for (const std::uint32_t extent : extents) {
    for (int shift = 24; shift >= 0; shift -= 8)
      bytes.push_back(static_cast<char>(extent >> shift));
  }
  return bytes + elements;
}

/// `images` pictures of 2x3: pixel p of image i is 10 i + p, and its label is i % 3.
inline std::string toy_images(std::uint32_t images) {
  std::string pixels;
  for (std::uint32_t i = 0; i < images; ++i) {
    for (std::uint32_t p = 0; p < 6; ++p) pixels.push_back(static_cast<char>(10 * i + p));
  }
  return idx({images, 2, 3}, pixels);
}
inline std::string toy_labels(std::uint32_t images) {
  std::string labels;
  for (std::uint32_t i = 0; i < images; ++i) labels.push_back(static_cast<char>(i % 3));
  return idx({images}, labels);
}

/// What `call` throws, "nothing" when it does not.
template <typename Exception = std::runtime_error, typename Call>
std::string thrown_by(Call call) {
  try {
    call();
  } catch (const Exception& error) {
    return error.what();
  }
  return "nothing";
}

}  // namespace unisono::train::test
