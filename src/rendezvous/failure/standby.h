// Standbys: the ranks that may hold the arbiter next, in the order of their numbers. Each listens
// from before it joins (standby_door.h), and says where in what it tells about itself; so that
// whoever loses the arbiter knows without asking where to go. They are on several hosts where the
// job is: a host that dies takes the arbiter and all standbys there with it.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/messages/job.h"

namespace unisono::rendezvous {

/// At most.
inline constexpr int kStandbys = 3;
/// Who listens because it may become one: ranks 1 to kStandbys, and the first rank of a further
/// host, where the launcher has said who that is; of as many hosts, where it has said how many
/// ranks are on one (else `local_size` is 0).
inline constexpr bool may_be_standby(Rank rank, int local_rank, int local_size) {
  const bool is_near = local_size == 0 || rank / local_size <= kStandbys;
  return rank > 0 && (rank <= kStandbys || (local_rank == 0 && is_near));
}

/// The lines of Member::addresses that say where one listens.
inline constexpr std::string_view kStandbyUnixLine = "standby-unix",
                                  kStandbyTcpLine = "standby-tcp";
/// Where one listens.
struct StandbyAddress {
  std::string unix_name;  ///< abstract socket; empty: none
  std::vector<std::string> hosts;
  std::uint16_t port = 0;  ///< TCP, at one of `hosts`; 0: none

  bool is_empty() const { return unix_name.empty() && port == 0; }
};

/// Of a member; empty where it does not listen. Whatever `member` says is checked.
StandbyAddress standby_address(const Member& member);

/// The standbys of a job, ascending, from those of its `members` that listen: one beside rank 0,
/// one on each further host as long as there are fewer than kStandbys, and then whoever comes
/// first. The same on all ranks.
std::vector<Rank> choose_standbys(const std::vector<Member>& members);

/// How an attempt to come to a standby stands.
enum class DialOutcome : std::uint8_t {
  kPending,
  kSeated,   ///< it holds the arbiter
  kRefused,  ///< it still hears the arbiter that this rank has lost
  kUnknown,  ///< it does not know yet whether it does
  kLeft,     ///< it leaves the job in this moment
  kFailed,   ///< it does not answer in time
  kAbsent,   ///< nobody listens there, and where its process could be seen that has ended
  kNoted,    ///< it knows that this rank has left
  kEnded,    ///< it has ended its part of a partition, which need not be this rank's
  /// There is no way to it now, this rank lacks what that takes, or it lacked what it takes to
  /// listen: tried again, and in the end kFailed.
  kUnreachable,
};

}  // namespace unisono::rendezvous
