// Whose fault it is that something which a peer offers cannot be had. Any thread.
#pragma once

#include <string>

#include "base/result.h"
#include "unisono/types.h"

namespace unisono {

/// `why` it failed, behind `what`, with the peer's rank: what a peer says, or does not answer, is
/// its doing. What this rank itself lacks is not, and keeps no rank.
inline Status peer_fault(Rank peer, const std::string& what, const Status& why) {
  const bool is_own = why.code() == ErrorCode::kOutOfResources;
  return Status(why.code(), what + ": " + why.message(), is_own ? -1 : peer);
}

}  // namespace unisono
