// Memory that is a memfd, as a user makes it.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <span>

#include "base/memfd.h"
#include "base/unique_fd.h"

namespace unisono::test {

inline constexpr int kSealed = F_SEAL_SHRINK;
inline constexpr int kUnsealed = 0;

class MemfdMemory {
 public:
  /// `bytes` of a file that begins `offset` bytes (whole pages) before them.
  explicit MemfdMemory(std::size_t bytes, std::size_t offset = 0, int seals = kSealed,
                       int sharing = MAP_SHARED)
      : fd_(make_memfd("test memory", MFD_CLOEXEC | MFD_ALLOW_SEALING)), bytes_(bytes) {
    void* const mapped = ftruncate(fd_.get(), static_cast<off_t>(offset + bytes)) == 0
                             ? mmap(nullptr, bytes, PROT_READ | PROT_WRITE, sharing, fd_.get(),
                                    static_cast<off_t>(offset))
                             : MAP_FAILED;
    if (mapped == MAP_FAILED || fcntl(fd_.get(), F_ADD_SEALS, seals) != 0) std::abort();
    data_ = static_cast<std::byte*>(mapped);
  }
  ~MemfdMemory() { munmap(data_, bytes_); }
  MemfdMemory(const MemfdMemory&) = delete;

  int fd() const { return fd_.get(); }
  void close() { fd_.reset(); }
  std::byte* data() const { return data_; }
  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }
  std::span<std::byte> bytes() const { return {data_, bytes_}; }

 private:
  UniqueFd fd_;
  std::size_t bytes_;
  std::byte* data_ = nullptr;
};

}  // namespace unisono::test
