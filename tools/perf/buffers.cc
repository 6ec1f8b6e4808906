// Ordinary memory comes straight from the system, page-aligned, as large allocations do.
#include "tools/perf/buffers.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "tools/common/sizes.h"
#include "tools/perf/memory_need.h"
#include "topology/memory_limit.h"

namespace unisono::perf {

int ranks_on_this_host(const Communicator& communicator) {
  int here = 0;
  const std::string host = communicator.host_of(communicator.rank());
  for (Rank r = 0; r < communicator.size(); ++r) here += communicator.host_of(r) == host;
  return here;
}

Status check_fits(int ranks_here, std::size_t arena_bytes, int kinds) {
  const double physical =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  return check_memory({arena_bytes, ranks_here, kinds}, physical, topology::read_memory_limit());
}

Arena::Arena(Communicator& communicator, BufferKind kind, std::size_t bytes, DeviceBuffers* device)
    : communicator_(communicator), kind_(kind), bytes_(bytes), device_(device) {
  if (kind == BufferKind::kAllocated) {
    const MemoryKind memory = device == nullptr ? MemoryKind::kHost : MemoryKind::kCuda;
    data_ = static_cast<std::byte*>(allocate(communicator, bytes, memory));
  } else if (device != nullptr) {
    data_ = device->allocate(bytes);
  } else {
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
      throw Error(Status(ErrorCode::kOutOfResources,
                         fmt::format("no memory for {} of buffers; take a smaller --maxbytes",
                                     tools::format_bytes(bytes))));
    }
    data_ = static_cast<std::byte*>(memory);
  }
  sweep();
}

Arena::~Arena() {
  if (kind_ == BufferKind::kAllocated) {
    release(communicator_, data_);
  } else if (device_ != nullptr) {
    device_->release(data_);
  } else {
    munmap(data_, bytes_);
  }
}

void Arena::sweep() {
  if (device_ == nullptr) {
    std::memset(data_, 0, bytes_);
  } else {
    // Finite in every type, and not zero, which may move faster than data do.
    device_->fill(data_, 0x3c, bytes_);
  }
}

}  // namespace unisono::perf
