// The shared memory of the ranks of one host: one sealed memfd for control, cells, windows and
// rings, and one heap memfd per rank for unisono::allocate. Nothing is named in the file
// system; descriptors travel over an abstract UNIX socket whose peer's uid is checked.
//
// Thread rule: open() and open_group() from the owning engine's thread; allocate/release and
// register/unregister from any thread (one lock each, not on the hot path); the rest is documented
// per member.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/trial_facts.h"
#include "transports/shm/file_memory.h"
#include "transports/shm/local_listener.h"
#include "transports/shm/memory_handle.h"

namespace unisono::shm {

/// The ranks of this host that will share memory, in world order.
struct LocalPeers {
  std::string job_id;
  int self = 0;  ///< my index below
  std::vector<Rank> world_ranks;
  std::vector<std::int64_t> pids;
  /// Whether each is that process' number here, too, and not in another namespace. False where it
  /// is not said.
  std::vector<bool> pids_hold;
  std::vector<std::string> addresses;  ///< LocalListener::address() of each
  bool single_copy = true;             ///< may process_vm_readv be tried
  // The first rank's word counts.
  TrialFacts known{};  ///< of this host, from before this job
  int cores = 0;       ///< that the ranks of this host may use together; 0: not known
  /// How long they measure HostFacts that are not known, if each rank is a process and has a core,
  /// and they are no more than kMeasuringRanksMax (host_probe.h); 0: not at all.
  Duration measuring_max{};
  /// Called now and then while open() waits for the others. An error, for instance that one of them
  /// has died, ends the wait and is what open() returns. May be empty.
  std::function<Status()> watch;
};

struct TrialMemory;

/// Memory of a directed ring, zero-filled before first use, owned by its sender.
struct RingMemory {
  std::byte* base = nullptr;
  std::size_t bytes = 0;
  TrialMemory* trials = nullptr;  ///< of its writer; null: nothing is known or kept, see ring()
};

class SegmentGroup;

class SharedSegment {
 public:
  /// Collective over `peers`: the first creates the segments, the others receive them. Errors:
  /// kSystem/kOutOfResources when shared memory is refused to any of them (then streams serve),
  /// kTimeout naming the missing rank, those of LocalPeers::watch.
  static Result<std::shared_ptr<SharedSegment>> open(LocalListener& listener, LocalPeers peers,
                                                     TimePoint deadline);
  ~SharedSegment();

  int size() const;
  int self() const;
  Rank world_rank(int local) const;
  /// What trials of ways to move bytes have shown in this job so far. Any thread.
  TrialFacts learned() const;
  /// What they began with.
  const TrialFacts& known() const;
  /// What is known of the host, from before this job or since its ranks met.
  const HostFacts& measured() const;
  /// Index of a world rank, or -1: one look-up.
  int local_index(Rank world_rank) const;

  /// The memory of the ring from one local rank to another, one of which is this rank. The sender's
  /// call reserves its pages. What messages between two ranks show depends on where these run: with
  /// more ranks on the host no ring knows or tells anything.
  Result<RingMemory> ring(int from, int to);

  /// How the local rank `reader` may read memory of this rank in place. With `by_single_copy`
  /// private memory, too, where it can.
  MemoryHandle handle_of(int reader, std::span<const std::byte> memory, bool by_single_copy) const;
  /// Fills `out` from memory of the local rank `owner`. An error where it cannot be read.
  Status collect(int owner, const MemoryHandle& handle, std::span<std::byte> out) const;

  /// Reserves a group block that no open group of this job uses; one member calls it and tells the
  /// others the number.
  Result<std::uint32_t> reserve_block();
  /// Collective over `members` (local indices in the group's order; contains self()) by agreement
  /// only: it does not wait. The block returns to the pool when all members have closed the group.
  Result<std::unique_ptr<SegmentGroup>> open_group(std::uint32_t block, std::vector<int> members);
  /// For the one that reserved a block which no member could open.
  void return_block(std::uint32_t block);

  /// Memory of this rank's heap, 64-byte aligned, readable by every rank of the host that had the
  /// address space for it when the ranks met.
  /// kOutOfResources when the reserve or the system's memory is used up.
  Result<void*> allocate(std::size_t bytes);
  /// kInvalidArgument when `pointer` was not returned by allocate() of this segment.
  Status release(void* pointer);
  /// All of it lies in this rank's heap.
  bool is_allocated(std::span<const std::byte> memory) const;

  /// Lets others map memory of the caller's, which find_file_memory() has found to be `file` from
  /// `offset` on. Returns its number, for unregister_memory(); kOutOfResources. The caller may
  /// close `fd` afterwards.
  Result<int> register_memory(std::span<const std::byte> memory, int fd, const FileIdentity& file,
                              std::uint64_t offset);
  /// No call may be using it. Others let go of it when they map another range or give one up.
  void unregister_memory(int number);

  /// What the ranks of other processes can do with memory of this one.
  struct Readers {
    bool all_are_threads = true;  ///< there are no others
    bool all_copy = true;         ///< by single copy
    Rank cannot_map = -1;         ///< a world rank that could open no descriptor of this process
    bool may_open = true;         ///< whoever could then still may
    Rank lacks_heap = -1;         ///< a world rank that has not mapped this one's heap
  };
  Readers readers() const;

 private:
  friend class SegmentGroup;
  struct State;
  explicit SharedSegment(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;  // shared with the open groups
};

}  // namespace unisono::shm
