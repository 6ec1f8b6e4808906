#include "comm/transport_set.h"

#include <unistd.h>

#include <algorithm>

#include "base/log.h"
#include "comm/host_load.h"
#include "comm/verbs_settings.h"
#include "rendezvous/failure/failure_decider.h"
#include "rendezvous/messages/peer_information.h"
#include "transports/loopback/loopback_transport.h"
#include "transports/shm/shm_transport.h"
#include "transports/tcp/stream_transport.h"
#include "transports/verbs/verbs_transport.h"

namespace unisono {

using algorithms::Link;

Status TransportSet::open(bool single_host) {
  if (size_ == 1) return Status();
  const std::string& kind = config_.transport;
  if (kind == "auto" || kind == "unix") {
    UNISONO_TRY(open_stream(StreamOptions::Family::kUnix, Link::kUnix, single_host));
  }
  if (kind == "tcp") return open_stream(StreamOptions::Family::kTcp, Link::kTcp, single_host);
  if (kind == "verbs") return open_verbs(single_host);
  if (kind == "auto" && !single_host) return open_network();
  return Status();
}

Result<std::unique_ptr<Transport>> TransportSet::make_stream(StreamOptions::Family family,
                                                             bool single_host) const {
  StreamOptions stream;
  stream.family = family;
  stream.rank = rank_;
  stream.size = size_;
  stream.streams = config_.streams;
  stream.checksum = config_.checksum;
  stream.unacknowledged_max = rendezvous::unacknowledged_max(config_.silence);
  // Rank 0's arbiter takes UNISONO_PORT itself when ranks meet over TCP.
  if (family == StreamOptions::Family::kTcp) {
    stream.bind_address = !config_.interface_address.empty() ? config_.interface_address
                          : single_host                      ? "127.0.0.1"
                                                             : "";
  }
  return make_stream_transport(std::move(stream));
}

void TransportSet::publish(Link link, const std::string& address) {
  addresses_ += std::string(algorithms::name_of(link)) + " " + address + "\n";
}

Status TransportSet::open_stream(StreamOptions::Family family, Link link, bool single_host) {
  UNISONO_ASSIGN(std::unique_ptr<Transport> made, make_stream(family, single_host));
  publish(link, made->address());
  slots_.push_back({link, std::move(made)});
  return Status();
}

// Ranks without verbs find the stream transport below it where they look for TCP.
Status TransportSet::open_verbs(bool single_host) {
  UNISONO_ASSIGN(std::unique_ptr<Transport> side,
                 make_stream(StreamOptions::Family::kTcp, single_host));
  const std::string plain = side->address();
  UNISONO_ASSIGN(std::unique_ptr<Transport> made,
                 make_verbs_transport(verbs_options(config_, rank_, size_), std::move(side)));
  publish(Link::kTcp, plain);
  publish(Link::kVerbs, made->address());
  slots_.push_back({Link::kVerbs, std::move(made)});
  return Status();
}

// Between hosts: verbs where it can be used, else TCP.
Status TransportSet::open_network() {
  const Probe probe = probe_verbs_transport(verbs_options(config_, rank_, size_));
  if (probe.usable) {
    const Status opened = open_verbs(false);
    if (opened) return opened;
    log::warning("TCP is used instead of verbs: " + opened.message());
  } else {
    no_verbs_ = probe.reason;
  }
  return open_stream(StreamOptions::Family::kTcp, Link::kTcp, false);
}

// Who names devices wants them; most machines have none, and nobody misses them.
void TransportSet::tell_missing_verbs(const World& job) const {
  const bool uses_tcp =
      std::any_of(job.members.begin(), job.members.end(), [&](const Member& member) {
        return member.rank != rank_ && links_.to(member.rank) == Link::kTcp;
      });
  if (no_verbs_.empty() || !uses_tcp) return;
  const VerbsSetting& verbs = config_.verbs;
  const bool wanted =
      !verbs.devices.empty() || verbs.gid != "auto" || verbs.connect != VerbsConnect::kExchange;
  (wanted ? log::warning : log::info)("TCP is used, not verbs: " + no_verbs_);
}

Status TransportSet::connect(const World& job, const std::shared_ptr<shm::SharedSegment>& segment,
                             Messenger& messenger) {
  if (config_.transport == "loopback") UNISONO_TRY(connect_loopback(job));
  if (segment != nullptr) UNISONO_TRY(connect_shared_memory(segment));
  UNISONO_ASSIGN(links_, LinkMap::make(job, config_.transport, [&](Rank rank) {
                   return segment != nullptr && segment->local_index(rank) >= 0;
                 }));
  tell_missing_verbs(job);
  for (Slot& slot : slots_) {
    slot.transport->set_identity(job.job_id, job.key);
    UNISONO_TRY(slot.transport->set_peers(addresses_for(slot, job)));
  }
  for (const Member& member : job.members) {
    if (member.rank == rank_) {
      messenger.set_route(rank_, self_);
      continue;
    }
    Slot* slot = slot_for(links_.to(member.rank));
    if (slot == nullptr) {
      return Status(ErrorCode::kUnsupported,
                    "rank " + std::to_string(member.rank) + " on host " + member.host_name +
                        " cannot be reached by transport " + config_.transport,
                    member.rank);
    }
    messenger.set_route(member.rank, *slot->transport);
  }
  return Status();
}

Status TransportSet::connect_loopback(const World& job) {
  for (const Member& member : job.members) {
    if (member.pid == getpid()) continue;
    return Status(ErrorCode::kUnsupported,
                  "transport loopback is for the threads of one process; rank " +
                      std::to_string(member.rank) + " is another process",
                  member.rank);
  }
  slots_.push_back({Link::kLoopback, std::make_unique<LoopbackTransport>(
                                         LoopbackHub::of_job(job.job_id, job.size), job.rank)});
  return Status();
}

Status TransportSet::connect_shared_memory(const std::shared_ptr<shm::SharedSegment>& segment) {
  std::vector<Rank> peers;
  for (int i = 0; i < segment->size(); ++i) {
    if (i != segment->self()) peers.push_back(segment->world_rank(i));
  }
  const auto open_ring = [segment](Rank from, Rank to) {
    return segment->ring(segment->local_index(from), segment->local_index(to));
  };
  UNISONO_ASSIGN(
      std::unique_ptr<Transport> rings,
      shm::ShmTransport::make(rank_, peers, open_ring, shm::make_loans(segment, config_.access)));
  slots_.push_back({Link::kShm, std::move(rings)});
  return Status();
}

std::vector<std::string> TransportSet::addresses_for(const Slot& slot, const World& job) const {
  std::vector<std::string> addresses;
  for (const Member& member : job.members) {
    std::string address = find_address(member.addresses, algorithms::name_of(slot.link));
    if (slot.link == Link::kVerbs) {
      // It reaches the others over TCP, and speaks of them: only of those that are reached by it.
      const Link link = links_.to(member.rank);
      if (link != Link::kVerbs && link != Link::kTcp) address.clear();
      if (link == Link::kTcp && address.empty()) address = find_address(member.addresses, "tcp");
    }
    addresses.push_back(std::move(address));
  }
  return addresses;
}

TransportSet::Slot* TransportSet::slot_for(Link link) {
  const auto carries = [&](const Slot& slot) {
    return slot.link == link || (slot.link == Link::kVerbs && link == Link::kTcp);
  };
  const auto slot = std::find_if(slots_.begin(), slots_.end(), carries);
  return slot == slots_.end() ? nullptr : &*slot;
}

// No rank has more than one such transport.
Status TransportSet::pin(std::span<const std::byte> memory) {
  for (Slot& slot : slots_) {
    const Status pinned = slot.transport->pin(memory);
    if (pinned.code() != ErrorCode::kUnsupported) return pinned;
  }
  return Status(ErrorCode::kUnsupported, "this rank has no link over RDMA");
}

void TransportSet::unpin(std::span<const std::byte> memory) {
  for (Slot& slot : slots_) slot.transport->unpin(memory);
}

void TransportSet::close(TimePoint deadline, FrameSink& sink) {
  for (Slot& slot : slots_) slot.transport->close(deadline, sink);
}

}  // namespace unisono
