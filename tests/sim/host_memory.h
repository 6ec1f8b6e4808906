// What the ranks of a job share that are on one host: the production's segment, in which native
// calls run, and a heap of each rank. A segment serves all jobs that follow, one block of it after
// another.
//
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "native/native.h"
#include "tests/sim/case.h"
#include "transports/shm/shared_segment.h"

namespace unisono::sim {

class HostMemory {
 public:
  /// Of ranks that are threads of one process, or processes; that lie in domains of so many, 0: in
  /// none.
  HostMemory(Sharing sharing, int domain_ranks);
  /// After the communicators: blocks that not all members have closed are free again.
  ~HostMemory();
  HostMemory(const HostMemory&) = delete;

  /// Rank's part in the memory of communicator `id`, of world ranks `members`.
  std::unique_ptr<native::Group> open(std::uint32_t id, const std::vector<Rank>& members,
                                      Rank rank);
  shm::SharedSegment& of(Rank rank) { return *ranks_[static_cast<std::size_t>(rank)]; }

 private:
  struct Block {
    std::uint32_t number;
    std::size_t unopened;  // by so many of its members
  };

  const std::vector<std::shared_ptr<shm::SharedSegment>>& ranks_;
  const LevelsSetting levels_;
  std::map<std::uint32_t, Block> blocks_;
};

}  // namespace unisono::sim
