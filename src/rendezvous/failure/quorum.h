// Which part of the ranks goes on where some do not hear others: more than half of those that may
// live, or at exactly half the part with the lowest rank of these. Silence is no proof of death,
// and so two parts that do not hear each other never both go on. Values only; safe from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <vector>

#include "base/clock.h"
#include "rendezvous/messages/peer_information.h"
#include "unisono/error.h"

namespace unisono::rendezvous {

struct Parts {
  std::set<Rank> here;       ///< go on together, or are heard by those
  std::set<Rank> elsewhere;  ///< are not heard, and may live
};

bool may_go_on(const Parts& parts);
/// kPartitioned, of the part of `rank`: whom it hears, whom not, and what to do.
Status partitioned(Rank rank, const Parts& parts);

/// What an arbiter knows of the ranks of its job.
class Evidence {
 public:
  virtual ~Evidence() = default;
  /// The kernel has ended its connections, or it said goodbye.
  virtual bool has_ended(Rank rank) const = 0;
  /// It may still say that it knows who goes on: it is connected, and neither silent nor deaf.
  virtual bool may_answer(Rank rank) const = 0;
  /// It may be on its way to this arbiter, which has taken over from another one.
  virtual bool is_awaited(Rank rank) const = 0;
  /// Between processes of a host there is no partition: one that is not heard is stopped.
  virtual HostKey host_of(Rank rank) const = 0;
  /// Beside the arbiter's own rank those that may hold one: without one nobody goes on.
  virtual std::vector<Rank> other_holders() const = 0;
};

/// Of the members of a communicator, where `survivors` are about to go on. These count here, also
/// who does not hear the arbiter: none of them goes on before all have said that they know with
/// whom. So do others that are `here`. Those that have ended do not count, nor, unless others are
/// not heard either, those that are stopped beside a survivor.
Parts parts_of(const std::set<Rank>& members, const std::set<Rank>& survivors,
               const std::function<bool(Rank)>& is_here, const Evidence& evidence);

}  // namespace unisono::rendezvous
