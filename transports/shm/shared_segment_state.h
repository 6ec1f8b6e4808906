// What SharedSegment and its groups share: the mappings and what is known of each local rank.
// Thread rule: filled by SharedSegment::open; afterwards constant but for registered memory (its
// own).
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "transports/shm/heap.h"
#include "transports/shm/registered_memory.h"
#include "transports/shm/segment.h"
#include "transports/shm/shared_segment.h"
#include "transports/shm/single_copy.h"

namespace unisono::shm {

class DescriptorExchange;

struct SharedSegment::State {
  /// How readers may get at memory of this rank.
  struct Ways {
    bool in_this_process = false;
    bool by_heap = false;         ///< what lies in the heap
    bool by_mapping = false;      ///< what is registered
    bool by_single_copy = false;  ///< private memory
  };

  LocalPeers peers;
  std::vector<int> local_by_world;  // -1: not on this host
  SegmentLayout layout{0};
  std::shared_ptr<Mapping> segment;
  std::unique_ptr<Heap> heap;
  std::size_t heap_share = 0;                              // of the address space
  std::vector<std::shared_ptr<const Mapping>> heap_views;  // of all ranks; null: not mapped
  std::vector<bool> same_process;
  std::vector<SingleCopy> single_copies;
  std::unique_ptr<RegisteredRanges> registered;
  std::unique_ptr<RegisteredViews> registered_views;
  std::uint64_t nonce[2] = {};
  std::unique_ptr<std::byte[]> probe_source;  // while the ranks measure: others read it

  int size() const { return static_cast<int>(peers.world_ranks.size()); }
  ControlPage& control() const { return *reinterpret_cast<ControlPage*>(segment->base()); }
  RegisteredTable& registered_by(int local) const {
    return *reinterpret_cast<RegisteredTable*>(segment->base() + layout.registered_offset(local));
  }
  /// Of this rank's memory, by the best of the ways that its readers can all take.
  MemoryHandle handle_of(std::span<const std::byte> memory, const Ways& ways) const;
  /// What the local rank told; kInline is for whoever knows where that is. Errors (kProtocol) call
  /// the rank `rank`.
  Result<MemoryView> open(int local, Rank rank, const MemoryHandle& handle);
  Result<MemoryView> open_registered(int local, Rank rank, const MemoryHandle& handle);
  /// Fills `out` from `offset` of the opened memory. Errors call the rank `rank`.
  Status copy(int local, Rank rank, const MemoryView& from, std::size_t offset,
              std::span<std::byte> out) const;
  void index_world_ranks();
  /// With all others of `peers`: an error is this rank's own, or names another one.
  Status meet(DescriptorExchange& exchange, LocalListener& listener);
  /// The first rank's, and the others': from its descriptor.
  Status make_segment();
  Status attach_segment(UniqueFd received);
  void begin_trials();
  Status publish_self();
  /// Those of the local ranks that there is room for, and tells it.
  void map_heaps(const std::vector<PeerMemfd>& heaps);
  void learn_peers(const std::vector<PeerMemfd>& heaps);
  /// With the other ranks: fills in TrialMemory::host, or leaves it, for up to
  /// LocalPeers::measuring_max.
  void measure_host();
  /// All have come back from measure_host().
  void forget_measuring();
  bool can_open_descriptors_of(int local, const PeerMemfd& heap_of_it) const;
  bool can_read(int reader, int owner) const;
  bool can_map(int reader, int owner) const;
  bool has_heap(int reader, int owner) const;
  /// The kernel says that the rank's process has ended.
  bool has_ended(int local) const;
  /// Clears it for the next group.
  void return_block(std::uint32_t block);
};

}  // namespace unisono::shm
