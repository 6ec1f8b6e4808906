#include "cuda/memory/peer_mappings.h"

#include <fmt/format.h>

#include <algorithm>

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

bool overlap(const MappingKey& a, const MappingKey& b) {
  return a.base < b.base + b.allocation_bytes && b.base < a.base + a.allocation_bytes;
}

/// Whether the owner has released a window that is mapped here: a mapping keeps its memory in use.
/// The owner's server knows; `ticket` is another one of the same process.
bool was_freed(const MappingKey& mapped, const BufferTicket& ticket, bool* owner_answers) {
  if (mapped.kind != Kind::kWindow || ticket.kind != Kind::kWindow) return false;
  const auto answer = request_descriptor(ticket.socket.data(), mapped.allocation_id,
                                         Clock::now() + std::chrono::seconds(1));
  if (answer) return false;
  *owner_answers = answer.error().code() == ErrorCode::kInvalidArgument;
  return *owner_answers;
}

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
  std::list<Mapping>& mappings = by_peer_[peer.world_rank];
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
  // Peer access of contexts says nothing about memory with a handle: each device needs its own.
  if (!has_handle(api, ticket.address)) return access_.enable(record.facts.ordinal);
  return open_range_to(api, device_.handle, device_.name, ticket.base, ticket.allocation_bytes);
}

void PeerMappings::drop_stale(const BufferTicket& ticket, std::list<Mapping>* mappings) {
  const MappingKey key = key_of(device_, ticket);
  bool owner_answers = true;
  for (auto at = mappings->begin(); at != mappings->end();) {
    // The rank's place was taken by another process, or other memory lies where this lay.
    bool stale = at->key.process_key != key.process_key || overlap(at->key, key);
    if (!stale && owner_answers) stale = was_freed(at->key, ticket, &owner_answers);
    if (!stale) {
      ++at;
      continue;
    }
    MappingCache::of_process().release(device_, at->key, side_);
    at = mappings->erase(at);
  }
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
