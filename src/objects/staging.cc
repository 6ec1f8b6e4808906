#include "objects/staging.h"

#include <sys/mman.h>

#include <new>

namespace unisono::objects {
namespace {

// Below, a mapping costs more than it gives back.
constexpr std::size_t kMappedMin = std::size_t{128} << 10;

}  // namespace

Staging::Staging(std::size_t bytes) : bytes_(bytes) {
  if (bytes < kMappedMin) {
    data_ = bytes == 0 ? nullptr : new std::byte[bytes];
    return;
  }
  void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) throw std::bad_alloc();
  data_ = static_cast<std::byte*>(mapped);
}

Staging::~Staging() {
  if (bytes_ < kMappedMin) {
    delete[] data_;
  } else {
    munmap(data_, bytes_);
  }
}

}  // namespace unisono::objects
