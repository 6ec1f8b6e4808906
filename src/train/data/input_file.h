// A regular file that is open for reading. Whatever is wrong with it throws std::runtime_error with
// its path. Threads: any number may read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace unisono::train {

class InputFile {
 public:
  explicit InputFile(const std::string& path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::string& path() const { return path_; }
  /// As it was opened.
  std::uint64_t bytes() const { return bytes_; }
  /// The bytes from `offset` on, all of `out`.
  void read(std::uint64_t offset, std::span<std::uint8_t> out) const;
  /// As many as there are; 0: the end of the file.
  std::size_t read_some(std::uint64_t offset, std::span<std::uint8_t> out) const;
  [[noreturn]] void fail(const std::string& what) const;

 private:
  std::string path_;
  int fd_ = -1;
  std::uint64_t bytes_ = 0;
};

}  // namespace unisono::train
