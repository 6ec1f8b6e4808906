// An attempt to come to a standby (standby_attempt.h) by sockets: connects, proves that it knows
// the job key, introduces its rank and waits for the answer. Never blocks.
//
// Thread rule: the control thread.
#pragma once

#include <poll.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/handshake.h"
#include "rendezvous/messages/rejoin_message.h"
#include "rendezvous/sessions/standby_attempt.h"
#include "rendezvous/sockets/control_stream.h"

namespace unisono::rendezvous {

class StandbyDial final : private StandbyLine {
 public:
  /// `world` outlives it.
  StandbyDial(const World& world, Rank standby, const RejoinMessage& greeting, TimePoint now);
  /// Tells a standby that it came to that it gives up, lest this rank is taken for dead.
  ~StandbyDial() override;
  StandbyDial(const StandbyDial&) = delete;

  void list_awaited(std::vector<pollfd>* awaited) const;
  TimePoint next_due() const { return attempt_.next_due(); }
  DialOutcome advance(TimePoint now) { return attempt_.advance(*this, now); }
  ControlStream take_stream() {
    ControlStream taken = std::move(*stream_);
    stream_.reset();
    return taken;
  }

 private:
  struct Place {
    std::string host;  // empty: the UNIX socket
    std::uint16_t port = 0;
  };

  // StandbyLine
  DialOutcome open(std::size_t place) override;
  DialOutcome converse() override;
  void close() override { stream_.reset(); }

  const Member& member(Rank rank) const { return world_.members[static_cast<std::size_t>(rank)]; }
  /// What the end of a connection that has not come about says.
  DialOutcome unconnected(int error) const;
  std::vector<Place> places_of(const Member& standby);
  /// Nothing where the handshake goes on; false where it has failed.
  std::optional<bool> prove();
  DialOutcome hear();

  const World& world_;
  const std::string greeting_;
  std::string unix_name_;
  const std::vector<Place> places_;
  StandbyAttempt attempt_;
  std::optional<ControlStream> stream_;
  std::optional<Handshake> handshake_;
  bool connected_ = false;
  bool greeted_ = false;
};

}  // namespace unisono::rendezvous
