// Reads a file from its beginning to its end, inflating it where it is a gzip file. Whatever is
// wrong with the file throws std::runtime_error with its path. Threads: one at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "train/data/input_file.h"

namespace unisono::train {

class ByteStream {
 public:
  explicit ByteStream(const std::string& path);
  ~ByteStream();
  ByteStream(const ByteStream&) = delete;
  ByteStream& operator=(const ByteStream&) = delete;

  const std::string& path() const { return file_.path(); }
  bool is_gzip() const { return is_gzip_; }
  /// A bound on what read() can give in all, from the size of the file: exact where it is plain.
  std::uint64_t bytes_max() const;
  /// All of `out`; the file ending before that is an error.
  void read(std::span<std::uint8_t> out);
  void skip(std::uint64_t bytes);
  /// Throws unless everything has been read and a gzip file is whole.
  void expect_end();

 private:
  struct Inflater;
  std::size_t read_some(std::span<std::uint8_t> out);
  std::size_t inflate_some(std::span<std::uint8_t> out);
  std::size_t read_file(std::span<std::uint8_t> out);

  InputFile file_;
  std::uint64_t at_ = 0;     ///< in the file
  std::uint64_t given_ = 0;  ///< by read() and skip()
  bool is_gzip_ = false;
  std::unique_ptr<Inflater> inflater_;
};

}  // namespace unisono::train
