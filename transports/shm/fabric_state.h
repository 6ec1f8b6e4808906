// What Fabric and its groups share: the mappings and what is known of each local rank.
// Thread rule: filled by Fabric::meet; afterwards constant but for the heap views (one lock).
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "transports/shm/fabric.h"
#include "transports/shm/heap.h"
#include "transports/shm/segment.h"
#include "transports/shm/single_copy.h"

namespace unisono::shm {

struct Fabric::State {
  FabricPeers peers;
  SegmentLayout layout{0};
  std::shared_ptr<Mapping> segment;
  std::unique_ptr<Heap> heap;
  std::vector<PeerMemfd> heap_descriptors;  // of the peers, until the first use
  std::vector<std::shared_ptr<Mapping>> heap_views;
  std::mutex heap_views_mutex;
  std::vector<bool> same_process;
  std::vector<SingleCopy> single_copies;
  std::uint64_t nonce[2] = {};

  int size() const { return static_cast<int>(peers.world_ranks.size()); }
  ControlPage& control() const { return *reinterpret_cast<ControlPage*>(segment->base()); }
  /// The heap of a local rank in this process, mapped at first use.
  Result<std::shared_ptr<Mapping>> heap_view(int local);
  /// Where `bytes` at `offset` of its heap lie in this process. Errors call it `rank`.
  Result<const std::byte*> in_heap_of(int local, Rank rank, std::uint64_t offset,
                                      std::size_t bytes);
  /// Fills `out` from the memory of its process. Errors call it `rank`.
  Status read(int local, Rank rank, std::uint64_t address, std::span<std::byte> out) const;
  Status publish_self();
  void learn_peers();
  bool can_read(int reader, int owner) const;
  /// Clears it for the next group.
  void return_block(std::uint32_t block);
};

}  // namespace unisono::shm
