// What a rank says to a standby when its arbiter is lost, and what is told before so that nobody
// who has left is taken for dead then. On the wire as control_messages.h; every length is bounded
// and every field checked before use. Values only; safe from any thread.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "rendezvous/messages/control_messages.h"
#include "rendezvous/messages/job.h"

namespace unisono::rendezvous {

inline constexpr std::size_t kDecisionsToldMax = 16;
inline constexpr std::size_t kDecisionToldBytesMax = 1 << 10;  ///< of its text

struct RejoinMessage {
  std::string job_id;
  Rank rank = 0;
  /// By all that the rank has been told or found out; ascending.
  std::vector<Rank> dead, left;
  /// The latest that it was told, so that all are told the same.
  std::vector<FailureDecision> decisions;
  /// Those of which a kernel says so. Others of the dead may live where nobody hears them.
  std::vector<Rank> ended = {};
  /// How often the rank has come to a standby: where the network was down for a while, an attempt
  /// that was given up may arrive behind the one that counts.
  std::uint32_t attempt = 0;

  /// The rank itself is among those that have left: it only says so.
  bool is_goodbye() const { return std::find(left.begin(), left.end(), rank) != left.end(); }
};

/// Whole messages, length included, of a world of `size` ranks.
std::string encode_rejoin(const RejoinMessage& message, int size);
Result<RejoinMessage> decode_rejoin(std::string_view body, int size);

/// A word on a rank: kDeparted, kEnded, kAskSight or kAskProbe.
std::string encode_rank(MessageType type, Rank rank);
Result<Rank> decode_rank(std::string_view body, int size);

/// What an arbiter is told that was silent for so long that the rank goes to another one.
struct DeposedMessage {
  Rank successor = -1;  ///< whose process holds the arbiter now; -1: nobody's
  std::chrono::milliseconds silence{0};
};
std::string encode_deposed(const DeposedMessage& message);
Result<DeposedMessage> decode_deposed(std::string_view body, int size);

}  // namespace unisono::rendezvous
