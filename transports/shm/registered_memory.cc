#include "transports/shm/registered_memory.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <string>

#include "base/errno_text.h"
#include "transports/shm/memory_handle.h"

namespace unisono::shm {
namespace {

// As its owner published it, all of one generation.
struct Told {
  std::uint64_t generation = 0;
  std::int64_t fd = -1;
  FileIdentity file;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

// False while there is none. Each load is acquire and each store of publish() release, so whoever
// sees one of the new values sees the generation that was cleared before it.
bool read_entry(const RegisteredEntry& entry, Told* told) {
  told->generation = entry.generation.load(std::memory_order_acquire);
  told->fd = entry.fd.load(std::memory_order_acquire);
  told->file.device = entry.device.load(std::memory_order_acquire);
  told->file.inode = entry.inode.load(std::memory_order_acquire);
  told->offset = entry.offset.load(std::memory_order_acquire);
  told->bytes = entry.bytes.load(std::memory_order_acquire);
  return told->generation != 0 &&
         entry.generation.load(std::memory_order_relaxed) == told->generation;
}

void publish(RegisteredEntry& entry, const Told& told) {
  entry.generation.store(0, std::memory_order_relaxed);
  entry.fd.store(told.fd, std::memory_order_release);
  entry.device.store(told.file.device, std::memory_order_release);
  entry.inode.store(told.file.inode, std::memory_order_release);
  entry.offset.store(told.offset, std::memory_order_release);
  entry.bytes.store(told.bytes, std::memory_order_release);
  entry.generation.store(told.generation, std::memory_order_release);
}

}  // namespace

Result<int> RegisteredRanges::add(std::span<const std::byte> memory, int fd,
                                  const FileIdentity& file, std::uint64_t offset) {
  UniqueFd own(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!own) {
    return Status(is_out_of_descriptors(errno) ? ErrorCode::kOutOfResources : ErrorCode::kSystem,
                  "no descriptor for registered memory: " + errno_text(errno));
  }
  UNISONO_TRY(reserve_pages(own.get(), offset, memory.size()));
  const std::lock_guard lock(mutex_);
  const auto unused =
      std::find_if(ranges_.begin(), ranges_.end(), [](const Range& range) { return !range.fd; });
  if (unused == ranges_.end()) {
    return Status(ErrorCode::kOutOfResources,
                  "all " + std::to_string(kRegisteredMax) +
                      " ranges that a rank may have registered are in use");
  }
  const auto number = static_cast<std::size_t>(unused - ranges_.begin());
  publish(published_.entries[number], {++generation_, own.get(), file, offset, memory.size()});
  unused->fd = std::move(own);
  // In the order that look_up() relies on.
  unused->begin.store(reinterpret_cast<std::uint64_t>(memory.data()), std::memory_order_release);
  unused->bytes.store(memory.size(), std::memory_order_release);
  count_.fetch_add(1, std::memory_order_release);
  return static_cast<int>(number);
}

void RegisteredRanges::remove(int number) {
  const std::lock_guard lock(mutex_);
  Range& range = ranges_[static_cast<std::size_t>(number)];
  count_.fetch_sub(1, std::memory_order_relaxed);
  range.bytes.store(0, std::memory_order_relaxed);
  published_.entries[number].generation.store(0, std::memory_order_release);
  range.fd.reset();
}

// A range that changes meanwhile is no match: whoever sees its new begin sees the 0 before it.
bool RegisteredRanges::look_up(const void* data, std::size_t bytes, std::uint64_t* address) const {
  const auto wanted = reinterpret_cast<std::uint64_t>(data);
  for (std::size_t i = 0; i < ranges_.size(); ++i) {
    const std::uint64_t known = ranges_[i].bytes.load(std::memory_order_acquire);
    const std::uint64_t offset = wanted - ranges_[i].begin.load(std::memory_order_acquire);
    if (offset >= known || bytes > known - offset) continue;
    if (ranges_[i].bytes.load(std::memory_order_relaxed) != known) continue;
    *address = std::uint64_t{i} << kRegisteredOffsetBits | offset;
    return true;
  }
  return false;
}

Result<std::shared_ptr<const FileView>> RegisteredViews::open(int peer, std::uint64_t number) {
  const auto index = static_cast<std::size_t>(peer);
  Told told;
  if (number >= kRegisteredMax || !read_entry(peers_[index].published->entries[number], &told)) {
    return Status(ErrorCode::kProtocol,
                  "no memory is registered by the number " + std::to_string(number));
  }
  const std::lock_guard lock(mutex_);
  known_.resize(peers_.size());
  if (known_[index] == nullptr) known_[index] = std::make_unique<KnownOfPeer>();
  Known& known = (*known_[index])[number];
  if (known.view != nullptr && known.generation == told.generation) return known.view;
  drop_stale_locked();
  UNISONO_ASSIGN(const UniqueFd fd, open_file_of(peers_[index].pid, told.fd, told.file));
  UNISONO_ASSIGN(known.view, FileView::map(fd, told.offset, told.bytes));
  known.generation = told.generation;
  return known.view;
}

void RegisteredViews::drop_stale() {
  const std::lock_guard lock(mutex_);
  drop_stale_locked();
}

void RegisteredViews::drop_stale_locked() {
  for (std::size_t peer = 0; peer < known_.size(); ++peer) {
    if (known_[peer] == nullptr) continue;
    for (std::size_t i = 0; i < kRegisteredMax; ++i) {
      const RegisteredEntry& entry = peers_[peer].published->entries[i];
      Known& known = (*known_[peer])[i];
      if (entry.generation.load(std::memory_order_relaxed) != known.generation) known = {};
    }
  }
}

}  // namespace unisono::shm
