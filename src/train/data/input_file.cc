#include "train/data/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace unisono::train {

InputFile::InputFile(const std::string& path) : path_(path) {
  // A FIFO would block for ever.
  fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd_ < 0) fail(std::string("cannot be opened: ") + std::strerror(errno));
  try {
    struct stat facts {};
    if (::fstat(fd_, &facts) != 0) fail(std::strerror(errno));
    if (!S_ISREG(facts.st_mode)) fail("not a regular file");
    bytes_ = static_cast<std::uint64_t>(facts.st_size);
  } catch (...) {
    ::close(fd_);
    throw;
  }
}

InputFile::~InputFile() { ::close(fd_); }

void InputFile::fail(const std::string& what) const {
  throw std::runtime_error(path_ + ": " + what);
}

std::size_t InputFile::read_some(std::uint64_t offset, std::span<std::uint8_t> out) const {
  for (;;) {
    const ssize_t got = ::pread(fd_, out.data(), out.size(), static_cast<off_t>(offset));
    if (got >= 0) return static_cast<std::size_t>(got);
    if (errno != EINTR) fail(std::strerror(errno));
  }
}

void InputFile::read(std::uint64_t offset, std::span<std::uint8_t> out) const {
  while (!out.empty()) {
    const std::size_t got = read_some(offset, out);
    if (got == 0) fail("became shorter while it was in use");
    offset += got;
    out = out.subspan(got);
  }
}

}  // namespace unisono::train
