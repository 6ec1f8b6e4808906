// What rank and arbiter say to each other, and how it looks on the wire: a 4-byte length, a type
// byte, little-endian fields. Every length is bounded and every field checked before use, so any
// bytes may be thrown at decode functions. Values only; safe from any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/call_history.h"
#include "base/limits.h"
#include "base/result.h"
#include "rendezvous/messages/job.h"

namespace unisono::rendezvous {

inline constexpr std::size_t kMessageBytesMax = 64 << 10;  ///< type and body
inline constexpr std::size_t kHostBytesMax = 512;
inline constexpr std::size_t kSettingsBytesMax = 16 << 10;
inline constexpr std::size_t kAddressBytesMax = 4 << 10;
inline constexpr std::size_t kTextBytesMax = 8 << 10;  ///< messages for people
inline constexpr std::size_t kCallsMax = 64;
inline constexpr std::size_t kWaitsMax = 64;
inline constexpr std::size_t kCallBytesMax = 512;  ///< of its description

enum class MessageType : std::uint8_t {
  kJoin = 1,      ///< rank: here I am
  kGiveUp,        ///< rank: my deadline passed, tell me who is missing; to a standby: no answer
  kWaiting,       ///< rank: waiting for these in an operation
  kTimedOut,      ///< rank: gave an operation up
  kFailure,       ///< rank: a failure it has established itself
  kBrokenLink,    ///< rank: a data connection broke
  kDiffering,     ///< rank: a peer makes other calls than this rank, whose latest follow
  kCalls,         ///< rank: its latest calls, having been asked
  kGoodbye,       ///< rank: leaves
  kDecline,       ///< rank: cannot take part, and why
  kWaits,         ///< rank: what it waits in right now, having been asked
  kShrink,        ///< both: who goes on after a failure; see shrink_message.h
  kRejoin,        ///< rank, to a standby: has lost the arbiter; see rejoin_message.h
  kBeat,          ///< both: lives
  kDeposed,       ///< rank, to an arbiter that was silent: goes to another one
  kSight,         ///< rank: what it sees of a process on its host; see witnesses.h
  kProbed,        ///< rank: whether it reaches a rank over the network; see witnesses.h
  kMisses,        ///< rank: lives, and has not heard the arbiter for long
  kEndedWell,     ///< rank: an operation that it had given up has ended well
  kRefusal = 32,  ///< arbiter: the rendezvous failed
  kWelcome,       ///< arbiter: all have arrived; the members follow
  kMembers,       ///< arbiter: a run of members
  kDecision,      ///< arbiter: who failed
  kFarewell,      ///< arbiter: rank 0 left and its process ends; nothing failed
  kAskCalls,      ///< arbiter: which calls has this rank made?
  kAskWaits,      ///< arbiter: what does this rank wait in?
  kSeated,        ///< a standby that holds the arbiter now: has taken the rank in
  kDeparted,      ///< arbiter: a rank has left; to standbys, to all of a standby, last to itself
  kEnded,         ///< arbiter: a process has ended, by its kernel's word or its host's
  kAskSight,      ///< arbiter: what does this rank see of the process of a rank on its host?
  kPartEnded,     ///< arbiter: has ended its part of a partition; this rank may be of another
  kAskWord,       ///< arbiter: to be answered at once, by a beat
  kAskProbe,      ///< arbiter: does this rank reach that one over the network?
  kNotKnown,      ///< a standby: its own rank neither hears the arbiter nor misses it yet
  kAwaiting,      ///< arbiter: has taken the rank in, waits for others; beats follow until all met
};

struct Message {
  MessageType type = MessageType::kJoin;
  std::string_view body;
};

struct JoinMessage {
  int size = 0;
  Member member;
};
/// An operation of a communicator that runs, and for whom it waits.
struct WaitMessage {
  std::uint32_t communicator = 0;
  std::uint64_t sequence = 0;
  std::vector<Rank> waiting_for;   ///< world ranks, ascending
  std::vector<Rank> members = {};  ///< likewise; kTimedOut only
  std::string call = {};           ///< for people; kTimedOut only
};
struct WaitsMessage {
  std::vector<WaitMessage> waits;
  bool is_all = true;  ///< else there are more
};
struct BrokenLinkMessage {
  Rank peer = 0;
  std::string reason;
  ErrorCode code = ErrorCode::kRankFailed;  ///< kProtocol: the peer sent nonsense
};
/// What one rank has called last on a communicator.
struct CallsMessage {
  std::uint32_t communicator = 0;
  Rank member = 0;                  ///< the sender's rank in the communicator
  std::vector<Rank> members;        ///< ascending world ranks
  FailureDecision suspicion;        ///< kDiffering only
  std::vector<NumberedCall> calls;  ///< at most kCallsMax
};
struct WelcomeMessage {
  int size = 0;
  std::string job_id;
  SecretText key_hex;  ///< empty where the rank proved that it knows the key
};

/// Whole messages, length included. Texts are cut to their bounds; a Member is checked by
/// check_member first.
std::string encode(const JoinMessage& message);
std::string encode(MessageType type);
std::string encode_wait(MessageType type, const WaitMessage& message, int size);
/// The first kWaitsMax, fewer of a large world.
std::string encode_waits(const std::vector<WaitMessage>& waits, int size);
std::string encode(const BrokenLinkMessage& message);
/// kDiffering or kCalls.
std::string encode_calls(MessageType type, const CallsMessage& message, int size);
std::string encode_question(std::uint32_t communicator);
/// May hold the key: to be cleansed.
std::string encode(const WelcomeMessage& message);
/// kDecision or kFailure.
std::string encode(MessageType type, const FailureDecision& decision);
/// kRefusal or kDecline.
std::string encode_refusal(const Status& status, MessageType type = MessageType::kRefusal);
/// kAwaiting, by the arbiter in the process of rank 0, which this is; without what others need not.
std::string encode_awaiting(const Member& rank_zero);
/// Members in as many messages as the bound makes necessary; without their settings, which are
/// the same on all ranks.
std::string encode_members(const std::vector<Member>& members);

/// kInvalidArgument naming the field where a member could not be sent.
Status check_member(const Member& member, int size);

Result<JoinMessage> decode_join(std::string_view body);
Result<WaitMessage> decode_wait(std::string_view body, int size);
Result<WaitsMessage> decode_waits(std::string_view body, int size);
Result<BrokenLinkMessage> decode_broken_link(std::string_view body, int size);
Result<CallsMessage> decode_calls(MessageType type, std::string_view body, int size);
/// The communicator.
Result<std::uint32_t> decode_question(std::string_view body);
Result<WelcomeMessage> decode_welcome(std::string_view body);
Result<FailureDecision> decode_decision(std::string_view body, int size);
/// What kRefusal or kDecline says; kProtocol where it cannot be read.
Status decode_refusal(std::string_view body);
/// Why `rank` cannot take part, by its kDecline.
Status decode_decline(Rank rank, std::string_view body);
/// Rank 0.
Result<Member> decode_awaiting(std::string_view body);
/// Appends the members, which must continue `members` by rank.
Status decode_members(std::string_view body, int size, std::vector<Member>* members);

}  // namespace unisono::rendezvous
