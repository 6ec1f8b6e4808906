#include "cuda/memory/peer_mappings.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/clock.h"
#include "base/peer_fault.h"
#include "cuda/driver/driver_section.h"
#include "cuda/memory/descriptor_server.h"
#include "cuda/memory/pointer_query.h"
#include "cuda/memory/ticket_check.h"

namespace unisono::cuda {
namespace {

using Kind = BufferTicket::Kind;

constexpr const char* kWhatMappingNeeds =
    "; processes that map each other's memory need a common IPC namespace (containers: --ipc=host) "
    "and must see each other's GPUs (CUDA_VISIBLE_DEVICES)";

/// For the owner's server to say which windows it has: nothing depends on it.
constexpr auto kGonePatience = std::chrono::seconds(1);

}  // namespace

Result<CUdeviceptr> PeerMappings::open(const BufferTicket& ticket, const Peer& peer,
                                       std::size_t bytes) {
  UNISONO_TRY(check_ticket(ticket, peer.rank, bytes));
  // The key is no secret: all members of the job read it.
  if ((ticket.process_key == process_.key) != peer.in_this_process) {
    return Status(ErrorCode::kProtocol,
                  fmt::format("rank {} is a thread of {} process and sent a buffer ticket with the "
                              "key of {}",
                              peer.rank, peer.in_this_process ? "this" : "another",
                              peer.in_this_process ? "another one" : "this one"),
                  peer.rank);
  }
  if (peer.in_this_process) return open_own(ticket, peer.rank);
  const MappingKey key = key_of(device_, ticket);
  const CUdeviceptr offset = ticket.address - ticket.base;
  Mappings& mappings = by_peer_[peer.world_rank];
  const auto known = std::find_if(mappings.begin(), mappings.end(),
                                  [&](const Mapping& mapping) { return mapping.key == key; });
  if (known != mappings.end()) return known->base + offset;
  if (ticket.kind == Kind::kUnshareable) {
    const Status cause(ErrorCode::kUnsupported, "its memory has no handle for other processes");
    return explain(cause, ticket, peer.rank);
  }
  drop_stale(ticket, &mappings);
  if (const Status reachable = check_reachable(ticket); !reachable) {
    return explain(reachable, ticket, peer.rank);
  }
  const auto base = MappingCache::of_process().acquire(device_, ticket);
  if (!base) return explain(base.error(), ticket, peer.rank);
  if (*base == 0) {
    side_.go_on();
    return *base;
  }
  mappings.push_front({key, *base});
  return *base + offset;
}

Status PeerMappings::explain(const Status& cause, const BufferTicket& ticket, Rank peer) const {
  const bool is_of_the_place =
      cause.code() == ErrorCode::kUnsupported || cause.code() == ErrorCode::kSystem;
  return peer_fault(
      peer,
      fmt::format("{} cannot map rank {}'s buffer at {:#x} (process {})", device_.name, peer,
                  ticket.address, ticket.process),
      Status(cause.code(), cause.message() + (is_of_the_place ? kWhatMappingNeeds : "")));
}

Status PeerMappings::check_reachable(const BufferTicket& ticket) const {
  const int ordinal = access_.ordinal_of(ticket.device_uuid);
  // A device that CUDA_VISIBLE_DEVICES hides from this process may still be reached: try.
  return ordinal < 0 ? Status() : access_.check_reachable(ordinal);
}

Result<CUdeviceptr> PeerMappings::open_own(const BufferTicket& ticket, Rank peer) {
  if (ticket.device_uuid == device_.uuid) return ticket.address;
  const Opening wanted{ticket.kind, ticket.allocation_id, ticket.allocation_bytes};
  const auto known = opened_here_.find(ticket.base);
  if (known != opened_here_.end() && known->second.covers(wanted)) return ticket.address;
  if (const Status opened = open_here(ticket); !opened) return explain(opened, ticket, peer);
  opened_here_[ticket.base] = wanted;
  return ticket.address;
}

Status PeerMappings::open_here(const BufferTicket& ticket) {
  const CudaApi& api = *device_.api;
  const auto* const pointer = reinterpret_cast<const void*>(ticket.address);
  UNISONO_ASSIGN(const PointerRecord record, check_buffer(device_, pointer, 1));
  if (!record.facts.device) return {ErrorCode::kProtocol, "it is no device memory"};
  if (record.managed || record.facts.ordinal == device_.ordinal) return {};
  UNISONO_TRY(access_.check_reachable(record.facts.ordinal));
  const DriverSection section(api, device_.context);
  UNISONO_TRY(section.status());
  // Peer access of contexts says nothing about pools, nor about memory with a handle: each device
  // needs its own.
  if (record.pool != nullptr) return open_pool_to(api, device_.handle, device_.name, record.pool);
  if (!has_handle(api, ticket.address)) return access_.enable(record.facts.ordinal);
  return open_range_to(api, device_.handle, device_.name, ticket.base, ticket.allocation_bytes);
}

void PeerMappings::drop_stale(const BufferTicket& ticket, Mappings* mappings) {
  const MappingKey key = key_of(device_, ticket);
  for (auto at = mappings->begin(); at != mappings->end();) {
    // The rank's place was taken by another process, or other memory lies where this lay.
    const bool is_stale = at->key.process_key != key.process_key || overlap(at->key, key);
    at = is_stale ? drop(at, mappings) : std::next(at);
  }
  if (ticket.kind == Kind::kWindow) drop_gone(ticket.socket.data(), mappings);
}

// A mapping keeps memory in use that its owner has released. Where the owner does not answer all
// stay.
void PeerMappings::drop_gone(const char* socket, Mappings* mappings) {
  const TimePoint deadline = Clock::now() + kGonePatience;
  for (auto at = mappings->begin(); at != mappings->end();) {
    std::vector<Mappings::iterator> asked;
    std::vector<std::uint64_t> ids;
    for (; at != mappings->end() && asked.size() < kAskedMax; ++at) {
      if (at->key.kind != Kind::kWindow) continue;
      asked.push_back(at);
      ids.push_back(at->key.allocation_id);
    }
    if (ids.empty()) return;
    const Result<std::uint64_t> gone = request_gone(socket, ids, deadline);
    if (!gone) return;
    for (std::size_t i = 0; i < asked.size(); ++i) {
      if ((*gone >> i & 1) != 0) drop(asked[i], mappings);
    }
  }
}

PeerMappings::Mappings::iterator PeerMappings::drop(Mappings::iterator mapping,
                                                    Mappings* mappings) {
  MappingCache::of_process().release(device_, mapping->key, side_);
  return mappings->erase(mapping);
}

void PeerMappings::forget(Rank world_rank) {
  const auto found = by_peer_.find(world_rank);
  if (found == by_peer_.end()) return;
  for (const Mapping& mapping : found->second) {
    MappingCache::of_process().release(device_, mapping.key, side_);
  }
  by_peer_.erase(found);
}

void PeerMappings::close(CleanupReport& report) {
  for (const auto& [peer, mappings] : by_peer_) {
    for (const Mapping& mapping : mappings) {
      MappingCache::of_process().release(device_, mapping.key, report);
    }
  }
  by_peer_.clear();
  access_.close(report);
}

}  // namespace unisono::cuda
