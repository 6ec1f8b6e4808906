// A rank's UDP socket in a job that spans hosts: it answers the probes of other ranks, and asks
// them where the arbiter wants to know who is reached from here. Served by the control thread,
// which its datagrams wake, and its timer only while somebody is asked.
//
// Thread rule: open_probe_port() any thread; else one thread at a time.
#pragma once

#include <poll.h>

#include <optional>
#include <vector>

#include "rendezvous/failure/prober.h"
#include "rendezvous/messages/job.h"
#include "rendezvous/sockets/sockets.h"

namespace unisono::rendezvous {

/// Binds a port of `self` and notes it in its addresses. None where all ranks are on one host, as
/// far as one can know before they meet, nor where silence is off or nothing can be bound.
std::optional<Listener> open_probe_port(const RendezvousPoint& point, int size, Member* self);

class ProbePort {
 public:
  /// `world` outlives it. Nothing where all of it is on one host, or OpenSSL fails.
  static std::optional<ProbePort> make(std::optional<Listener> socket, const World& world,
                                       std::chrono::milliseconds silence);

  /// Asks the process of `rank`; serve() tells how that ends, and nothing where it cannot be asked.
  void probe(Rank rank, TimePoint now);

  int fd() const { return socket_.fd.get(); }
  TimePoint next_due() const { return prober_.next_due(); }
  /// Reads what has come, a bounded number of datagrams, answers, and sends what is due.
  std::vector<Prober::Outcome> serve(TimePoint now);

 private:
  ProbePort(Listener socket, const ProbeCodec& codec, const World& world,
            std::chrono::milliseconds silence)
      : socket_(std::move(socket)), codec_(codec), world_(&world), prober_(silence) {}

  void read();
  /// False where nothing could be sent to any of its addresses.
  bool ask(const Prober::Question& question) const;

  Listener socket_;
  ProbeCodec codec_;
  const World* world_;
  Prober prober_;
};

}  // namespace unisono::rendezvous
