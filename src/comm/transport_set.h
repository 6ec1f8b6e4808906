// The transports of one rank: made before the job's table exists, because it carries their
// addresses, and given their peers when it does. Owned by Runtime.
//
// Thread rule: as the engine's.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "algorithms/selection.h"
#include "comm/link_map.h"
#include "config/config.h"
#include "engine/messenger.h"
#include "transports/loopback/self_transport.h"
#include "transports/shm/shared_segment.h"
#include "transports/tcp/stream_transport.h"
#include "transports/transport.h"

namespace unisono {

class TransportSet {
 public:
  /// `config` outlives this.
  TransportSet(const Config& config, Rank rank, int size)
      : config_(config), rank_(rank), size_(size), self_(rank) {}

  /// Listens where peers may need it, all of them on this host or not.
  Status open(bool single_host);
  /// What peers need to know, as lines of Member::addresses.
  const std::string& addresses() const { return addresses_; }
  /// Decides, alike on both sides of every pair, which transport reaches which rank, and tells the
  /// messenger. `segment`: null where this host's ranks do not share memory.
  Status connect(const World& job, const std::shared_ptr<shm::SharedSegment>& segment,
                 Messenger& messenger);
  /// The slowest link between these world ranks.
  algorithms::Link link_of(const std::vector<Rank>& members) const {
    return links_.slowest(members);
  }
  /// As Transport::pin(), of the transports that register memory; kUnsupported where none does.
  Status pin(std::span<const std::byte> memory);
  void unpin(std::span<const std::byte> memory);
  void close(TimePoint deadline, FrameSink& sink);

 private:
  struct Slot {
    algorithms::Link link;
    std::unique_ptr<Transport> transport;
  };

  Result<std::unique_ptr<Transport>> make_stream(StreamOptions::Family family,
                                                 bool single_host) const;
  void publish(algorithms::Link link, const std::string& address);
  Status open_stream(StreamOptions::Family family, algorithms::Link link, bool single_host);
  Status open_verbs(bool single_host);
  Status open_network();
  void tell_missing_verbs(const World& job) const;
  Status connect_loopback(const World& job);
  Status connect_shared_memory(const std::shared_ptr<shm::SharedSegment>& segment);
  std::vector<std::string> addresses_for(const Slot& slot, const World& job) const;
  Slot* slot_for(algorithms::Link link);

  const Config& config_;
  const Rank rank_;
  const int size_;
  std::string addresses_;
  std::vector<Slot> slots_;
  std::string no_verbs_;  // why; empty: there are some, or nobody looked
  SelfTransport self_;
  LinkMap links_;
};

}  // namespace unisono
