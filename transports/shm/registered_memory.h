// The caller's own memory that other processes of the host map. The owner says in the segment which
// of its descriptors to open, and readers open that in /proc at first use. When the ranks met, each
// has tried on the heaps whether it may do so.
//
// Thread rule: as each class says.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "transports/shm/file_memory.h"
#include "transports/shm/segment.h"

namespace unisono::shm {

/// One rank's ranges. find() from any thread, without a lock; the rest from any thread.
class RegisteredRanges {
 public:
  /// `published`: this rank's page of the segment.
  explicit RegisteredRanges(RegisteredTable& published) : published_(published) {}

  /// Adds `memory`, which is `file` from `offset` on: keeps a descriptor of its own and reserves
  /// the pages. Returns the range's number; kOutOfResources.
  Result<int> add(std::span<const std::byte> memory, int fd, const FileIdentity& file,
                  std::uint64_t offset);
  void remove(int number);

  /// True when `bytes` at `data` lie in one of them; `address` is that of a MemoryHandle.
  bool find(const void* data, std::size_t bytes, std::uint64_t* address) const {
    return count_.load(std::memory_order_relaxed) != 0 && look_up(data, bytes, address);
  }

 private:
  /// `bytes` is 0 while `begin` is written.
  struct Range {
    std::atomic<std::uint64_t> begin{0};
    std::atomic<std::uint64_t> bytes{0};
    UniqueFd fd;
  };

  bool look_up(const void* data, std::size_t bytes, std::uint64_t* address) const;

  RegisteredTable& published_;
  std::mutex mutex_;
  std::atomic<int> count_{0};
  std::uint64_t generation_ = 0;
  std::array<Range, kRegisteredMax> ranges_;
};

/// The ranges of all ranks of the host as one of them has mapped them. One lock. What peers publish
/// may be hostile, and is checked.
class RegisteredViews {
 public:
  struct Peer {
    const RegisteredTable* published;
    std::int64_t pid;  ///< as the job knows it
  };
  explicit RegisteredViews(std::vector<Peer> peers) : peers_(std::move(peers)) {}

  /// What the local rank `peer` has registered by that number. A range that took the place of
  /// another one is mapped anew. Errors as open_file_of() and FileView::map().
  Result<std::shared_ptr<const FileView>> open(int peer, std::uint64_t number);
  /// Unmaps the ranges that their owners have given up.
  void drop_stale();

 private:
  struct Known {
    std::uint64_t generation = 0;
    std::shared_ptr<const FileView> view;
  };
  using KnownOfPeer = std::array<Known, kRegisteredMax>;

  void drop_stale_locked();

  const std::vector<Peer> peers_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<KnownOfPeer>> known_;  // by peer; null: nothing
};

}  // namespace unisono::shm
