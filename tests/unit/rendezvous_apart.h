// Members of a job on hosts of their own, and when they have met.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "base/clock.h"
#include "rendezvous/messages/job.h"

namespace unisono::rendezvous {

inline constexpr std::chrono::milliseconds kSilence{3000};
inline const TimePoint kMetAt = TimePoint() + std::chrono::hours(1);

inline Member member_of_rank(Rank rank) {
  Member member;
  member.rank = rank;
  member.host_name = "node" + std::to_string(rank);
  member.pid = 100 + rank;
  member.settings = "transport=auto";
  return member;
}

/// Each on a host of its own; ranks 1 to 3 are standbys.
inline std::vector<Member> members_apart(int size) {
  std::vector<Member> members;
  for (Rank rank = 0; rank < size; ++rank) {
    Member member;
    member.rank = rank;
    member.host = member.host_name = "host" + std::to_string(rank);
    if (rank >= 1 && rank <= 3) member.addresses = "standby-unix name" + std::to_string(rank);
    members.push_back(member);
  }
  return members;
}

/// The same on a host that all share.
inline std::vector<Member> members_on_one_host(int size) {
  std::vector<Member> members = members_apart(size);
  for (Member& member : members) member.host = "shared";
  return members;
}

/// Rank 0 is alone on its host, all others share one.
inline std::vector<Member> members_on_two_hosts(int size) {
  std::vector<Member> members = members_apart(size);
  for (Rank rank = 1; rank < size; ++rank) members[rank].host = "shared";
  return members;
}

}  // namespace unisono::rendezvous
