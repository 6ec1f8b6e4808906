// Notices a TCP connection that carries nothing any more though both of its ends live, as when the
// network between them is down: bytes are under way, and the other host acknowledges none. The
// kernel would say so after a quarter of an hour. TCP_USER_TIMEOUT will not do: it ends connections
// to peers that compute for long and read nothing meanwhile, too, and those acknowledge.
//
// Thread rule: that of its stream.
#pragma once

#include <optional>

#include "base/clock.h"

namespace unisono::tcp {

/// What the kernel knows of a connection on which something is to be acknowledged.
struct AckFacts {
  unsigned repeats = 0;  ///< how often the first of it was sent again, or a closed window probed
  bool is_window_closed = false;
  Duration last_ack{};  ///< since something came
  Duration round_trip{};
};

class AckWatch {
 public:
  /// Looks at the connection; true by the end of `patience` where nothing was acknowledged in it,
  /// though something was to be all the time, was sent again in the last third of it, or after, and
  /// could have been answered: a network that is back before answers that. Who looks less often
  /// than twice a second, or in half of `patience`, sees nothing, and less than look_every(), sees
  /// it late. False for other sockets.
  bool is_dead(int fd, TimePoint now, Duration patience);
  /// The same from what was looked at; nullopt: nothing is to be acknowledged.
  bool judge(const std::optional<AckFacts>& facts, TimePoint now, Duration patience);
  static Duration look_every(Duration patience);
  /// How long nothing has been acknowledged; of one that is dead.
  Duration unacknowledged(TimePoint now) const { return now - since_; }

 private:
  TimePoint looked_ = TimePoint::min();
  TimePoint since_ = kNever;  // something is to be acknowledged, and nothing was
  unsigned repeats_ = 0;
  TimePoint repeated_ = TimePoint::min();
};

}  // namespace unisono::tcp
