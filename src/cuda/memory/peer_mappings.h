// The buffers of peers as one rank sees them: which of their allocations are mapped here, and
// where. Owned and guarded by DeviceMemory.
#pragma once

#include <cstdint>
#include <list>
#include <map>

#include "base/result.h"
#include "cuda/memory/cleanup_report.h"
#include "cuda/memory/device.h"
#include "cuda/memory/device_memory.h"
#include "cuda/memory/mapping_cache.h"
#include "cuda/memory/peer_access.h"
#include "cuda/memory/process_identity.h"
#include "cuda/memory/side_work.h"

namespace unisono::cuda {

class PeerMappings {
 public:
  PeerMappings(const Device& device, const ProcessIdentity& process, SideWork& side)
      : device_(device), process_(process), side_(side), access_(device) {}

  /// As DeviceMemory::open.
  Result<CUdeviceptr> open(const BufferTicket& ticket, const Peer& peer, std::size_t bytes);
  void forget(Rank world_rank);
  /// As DeviceMemory::out_of_reach.
  std::vector<std::array<std::uint8_t, 16>> out_of_reach() const { return access_.out_of_reach(); }
  void close(CleanupReport& report);

 private:
  struct Mapping {
    MappingKey key;
    CUdeviceptr base = 0;  ///< here
  };
  using Mappings = std::list<Mapping>;
  /// An allocation of this process that this rank's device was given access to.
  struct Opening {
    BufferTicket::Kind kind = BufferTicket::Kind::kNone;  ///< says whose numbers those are
    std::uint64_t allocation_id = 0;
    std::uint64_t bytes = 0;
    /// Without a number other memory may lie there now.
    bool covers(const Opening& wanted) const {
      return wanted.allocation_id != 0 && kind == wanted.kind &&
             allocation_id == wanted.allocation_id && bytes >= wanted.bytes;
    }
  };
  using OpenedHere = std::map<CUdeviceptr, Opening>;  ///< by the allocation's base

  Result<CUdeviceptr> open_own(const BufferTicket& ticket, Rank peer);
  Status open_here(const BufferTicket& ticket);
  Status check_reachable(const BufferTicket& ticket) const;
  void drop_stale(const BufferTicket& ticket, Mappings* mappings);
  void drop_gone(const char* socket, Mappings* mappings);
  Mappings::iterator drop(Mappings::iterator mapping, Mappings* mappings);
  Status explain(const Status& cause, const BufferTicket& ticket, Rank peer) const;

  const Device& device_;
  const ProcessIdentity& process_;
  SideWork& side_;
  PeerAccess access_;
  OpenedHere opened_here_;
  std::map<Rank, Mappings> by_peer_;  ///< by world rank
};

}  // namespace unisono::cuda
