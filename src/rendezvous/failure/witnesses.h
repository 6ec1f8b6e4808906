// What others know of a rank that says nothing, before the arbiter finds it silent: what a rank of
// its host sees of its process, so that a stopped process is told from one that is not heard; and
// whether ranks of other hosts reach it, so that a link that is down is told from a host that is.
// No sockets, no clock.
//
// Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "rendezvous/messages/peer_information.h"

namespace unisono::rendezvous {

enum class ProcessSight : std::uint8_t {
  kUnseen,  ///< it cannot be seen, or may be another process of the same number
  kStopped,
  kRuns,
};

/// What /proc says of the process of a rank on this host.
ProcessSight sight_of(const Member& member);
/// What that says of a rank that is silent, for people.
std::string_view sight_text(ProcessSight sight);

struct SightMessage {
  Rank rank = 0;  ///< whose process it is
  ProcessSight sight = ProcessSight::kUnseen;
};
/// kSight.
std::string encode(const SightMessage& message);
Result<SightMessage> decode_sight(std::string_view body, int size);

struct ProbedMessage {
  Rank rank = 0;            ///< who was asked over the network
  bool is_reached = false;  ///< it has answered
};
/// kProbed.
std::string encode(const ProbedMessage& message);
Result<ProbedMessage> decode_probed(std::string_view body, int size);

/// The arbiter's side.
class Witnesses {
 public:
  enum class Look : std::uint8_t {
    kSight,  ///< at a process on its own host
    kProbe,  ///< over the network
  };
  struct Question {
    Rank witness, rank;
    Look look = Look::kSight;
    bool operator==(const Question&) const = default;
  };
  struct Ranks {
    /// Ranks of equal ones see each other's processes.
    std::function<HostKey(Rank)> host_of;
    /// It can be asked over the network, and ask others.
    std::function<bool(Rank)> can_probe;
    HostKey here;  ///< the arbiter's: who is there is reached as the arbiter reaches it
  };
  /// Questions about those of `overdue` that were not overdue at the last call, ascending. Ranks of
  /// `heard` alone are asked.
  std::vector<Question> ask(const std::vector<Rank>& overdue, const std::vector<Rank>& heard,
                            const Ranks& ranks);
  /// What was not asked counts for nothing.
  void on_sight(Rank witness, const SightMessage& told);
  void on_probed(Rank witness, const ProbedMessage& told);
  /// Goes on after "nothing was heard of it". `is_whole_host`: nor of any other rank of its host.
  /// `place_of`: a rank and its host.
  std::string text_on(Rank rank, bool is_whole_host,
                      const std::function<std::string(Rank)>& place_of) const;

 private:
  enum class Answer : std::uint8_t { kNone, kReached, kNotReached };
  struct Asked {
    Rank witness = -1;
    ProcessSight sight = ProcessSight::kUnseen;
    std::map<Rank, Answer> probes;  // by witness
  };

  static std::vector<Rank> with_answer(const Asked& asked, Answer answer);

  std::map<Rank, Asked> asked_;  // by whom it is about
};

}  // namespace unisono::rendezvous
