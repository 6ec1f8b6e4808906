// One attempt to come to a standby that may hold the arbiter now: connects, proves that it knows
// the job key, introduces its rank and waits for the answer. Never blocks.
//
// Thread rule: the control thread.
#pragma once

#include <poll.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/handshake.h"
#include "rendezvous/control_stream.h"
#include "rendezvous/rejoin_message.h"
#include "rendezvous/standby.h"

namespace unisono::rendezvous {

/// After a standby had no place for one more connection.
inline constexpr Duration kTurnedAwayPause = std::chrono::milliseconds(10);

class StandbyDial {
 public:
  /// `world` outlives it.
  StandbyDial(const World& world, Rank standby, const RejoinMessage& greeting, TimePoint now);
  /// Tells a standby that it came to that it gives up, lest this rank is taken for dead.
  ~StandbyDial();
  StandbyDial(const StandbyDial&) = delete;

  Rank standby() const { return standby_; }
  void list_awaited(std::vector<pollfd>* awaited) const;
  /// At once until it has begun.
  TimePoint next_due() const { return stream_ ? due_ : std::min(due_, opens_at_); }
  DialOutcome advance(TimePoint now);
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

  void open_next();
  bool is_connected();
  /// Nothing where the handshake goes on; false where it has failed.
  std::optional<bool> prove();
  DialOutcome converse();
  DialOutcome hear();

  const World& world_;
  const Rank standby_;
  const std::string greeting_;
  const TimePoint due_;
  std::string unix_name_;
  std::vector<Place> places_;  // not tried yet, the last one first
  Place place_;                // that is tried
  TimePoint opens_at_ = TimePoint::min();
  std::optional<ControlStream> stream_;
  std::optional<Handshake> handshake_;
  bool connected_ = false;
  bool greeted_ = false;
};

}  // namespace unisono::rendezvous
