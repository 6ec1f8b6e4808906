#include "comm/registrations.h"

#include <cstdio>
#include <iterator>

#include "transports/shm/segment.h"

namespace unisono {

std::string range_text(std::span<const std::byte> memory) {
  char text[64];
  std::snprintf(text, sizeof text, "%zu bytes at %p", memory.size(),
                static_cast<const void*>(memory.data()));
  return text;
}

Status Registrations::add(std::span<const std::byte> memory) {
  const std::lock_guard lock(mutex_);
  // Registered ranges do not overlap: if one reaches into `memory`, it is the last of those that
  // begin before the end of `memory`.
  const auto next = bytes_by_begin_.lower_bound(memory.data() + memory.size());
  const auto last = next == bytes_by_begin_.begin() ? bytes_by_begin_.end() : std::prev(next);
  if (last != bytes_by_begin_.end() && memory.data() < last->first + last->second) {
    return Status(ErrorCode::kInvalidArgument, range_text(memory) + " overlap the registered " +
                                                   range_text({last->first, last->second}) +
                                                   "; destroy that RegisteredMemory first");
  }
  if (bytes_by_begin_.size() == shm::kRegisteredMax) {
    return Status(ErrorCode::kOutOfResources,
                  "this rank has " + std::to_string(shm::kRegisteredMax) +
                      " registrations, the most there can be; destroy some, or register larger "
                      "ranges");
  }
  bytes_by_begin_.emplace(memory.data(), memory.size());
  return Status();
}

void Registrations::remove(std::span<const std::byte> memory) {
  const std::lock_guard lock(mutex_);
  bytes_by_begin_.erase(memory.data());
}

}  // namespace unisono
