// Standbys: the ranks that may hold the arbiter next, in the order of their numbers. Each listens
// from before it joins, and says where in what it tells about itself; so that whoever loses the
// arbiter knows without asking where to go.
//
// Thread rule: any thread.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/arbiter.h"
#include "rendezvous/sockets.h"

namespace unisono::rendezvous {

/// Ranks 1 to this one, as many as there are.
inline constexpr Rank kStandbys = 3;
inline constexpr bool is_standby(Rank rank) { return rank >= 1 && rank <= kStandbys; }

/// Where one listens.
struct StandbyAddress {
  std::string unix_name;  ///< abstract socket; empty: none
  std::vector<std::string> hosts;
  std::uint16_t port = 0;  ///< TCP, at one of `hosts`; 0: none

  bool is_empty() const { return unix_name.empty() && port == 0; }
};

/// The listening sockets of `self` where it is a standby, noted in its addresses; none where ranks
/// are threads of one process, which ends for all of them at once. A standby that cannot listen is
/// none.
std::vector<Listener> open_standby(const RendezvousPoint& point, int size, Member* self);

/// Of a member; empty where it is no standby. Whatever `member` says is checked.
StandbyAddress standby_address(const Member& member);

/// How an attempt to come to a standby stands.
enum class DialOutcome : std::uint8_t {
  kPending,
  kSeated,   ///< it holds the arbiter
  kRefused,  ///< it still hears the arbiter that this rank has lost
  kLeft,     ///< it leaves the job in this moment
  kFailed,   ///< it does not answer in time
  kAbsent,   ///< nobody listens there
};

}  // namespace unisono::rendezvous
