#include "transports/shm/heap.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>

namespace unisono::shm {
namespace {

// As RLIMIT_AS counts what this process has mapped; 0 where the system does not say.
std::size_t mapped_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::size_t pages = 0;
  statm >> pages;
  return pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace

std::size_t share_of_heap(std::size_t segment_bytes, std::size_t ranks) {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kHeapBytesMax;
  const std::size_t taken = mapped_bytes() + segment_bytes;
  const std::size_t left = limit.rlim_cur > taken ? limit.rlim_cur - taken : 0;
  return std::clamp(left / (ranks + 1), kHeapBytesMin, kHeapBytesMax);
}

Heap::Heap(std::shared_ptr<Mapping> mapping) : mapping_(std::move(mapping)) {
  free_[0] = mapping_->bytes();
}

Result<std::unique_ptr<Heap>> Heap::create(std::size_t bytes) {
  for (;;) {
    auto mapping = Mapping::create("unisono-heap", bytes);
    if (mapping) return std::unique_ptr<Heap>(new Heap(std::move(*mapping)));
    // A limit of the file size, or little address space: a smaller heap is better than none.
    if (bytes / 2 < kHeapBytesMin) return mapping.error();
    bytes = bytes / 2 / kPageBytes * kPageBytes;
  }
}

Result<void*> Heap::allocate(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  const std::size_t limit = mapping_->bytes();
  const std::size_t need =
      bytes > limit ? bytes : round_up(std::max<std::size_t>(bytes, 1), kPageBytes);
  const auto found = std::find_if(free_.begin(), free_.end(),
                                  [need](const auto& range) { return range.second >= need; });
  if (found == free_.end()) {
    return Status(ErrorCode::kOutOfResources,
                  "no room for " + std::to_string(bytes) + " bytes in this rank's shared heap: " +
                      std::to_string(used_bytes_) + " of " + std::to_string(limit) +
                      " bytes are used; free buffers or allocate smaller ones");
  }
  const std::size_t offset = found->first;
  // Where this throws nothing has changed.
  const auto entry = used_.insert_or_assign(offset, need).first;
  if (Status reserved = mapping_->reserve(offset, need); !reserved) {
    mapping_->punch(offset, need);
    used_.erase(entry);
    return reserved;
  }
  Ranges::node_type rest = free_.extract(found);
  rest.key() += need;
  rest.mapped() -= need;
  if (rest.mapped() > 0) free_.insert(std::move(rest));
  used_bytes_ += need;
  return static_cast<void*>(mapping_->base() + offset);
}

Status Heap::release(void* pointer) {
  const std::lock_guard lock(mutex_);
  std::uint64_t offset = 0;
  const auto found = locate(pointer, 1, &offset) ? used_.find(offset) : used_.end();
  if (found == used_.end()) {
    return Status(ErrorCode::kInvalidArgument,
                  "release() of a pointer that allocate() did not return or that was released "
                  "before");
  }
  used_bytes_ -= found->second;
  mapping_->punch(offset, found->second);
  give_back(used_.extract(found));
  return {};
}

// The entry moves from one map to the other: nothing is allocated that could be refused.
void Heap::give_back(Ranges::node_type range) {
  auto next = free_.lower_bound(range.key());
  if (next != free_.end() && next->first == range.key() + range.mapped()) {
    range.mapped() += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == range.key()) {
      before->second += range.mapped();
      return;
    }
  }
  free_.insert(std::move(range));
}

}  // namespace unisono::shm
