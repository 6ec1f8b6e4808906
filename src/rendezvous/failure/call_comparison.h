// Finds the rank whose call differs, once ranks of a communicator have seen that their calls do. It
// gathers the latest calls of all members and looks for the first that they do not share. What most
// of them called is taken to be right: the rank that it names differs from the majority, where
// there is one.
//
// Thread rule: a value; one thread at a time.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "rendezvous/messages/control_messages.h"

namespace unisono::rendezvous {

class CallComparison {
 public:
  /// `first`: of world rank `reporter`, with what it suspects.
  CallComparison(Rank reporter, CallsMessage first, TimePoint now, TimePoint due);

  /// Calls of a member. Of two accounts of one the later calls count.
  void add(Rank rank, CallsMessage message);

  /// World ranks.
  const std::set<Rank>& members() const { return members_; }
  /// It has told of its calls, and had made the one that is not shared.
  bool has_heard(Rank rank) const;
  TimePoint due() const { return due_; }
  /// True when those that have not been heard are to be asked once more: ever more rarely.
  bool take_asks_again(TimePoint now);
  TimePoint asks_at() const { return asks_at_; }

  /// Names no rank where the `unheard` members, who are here, could turn the majority. Where the
  /// calls that are known do not differ, it is what the reporter suspected: the ranks disagree
  /// about something that no record tells.
  FailureDecision judge(std::size_t unheard) const;

 private:
  struct Account {
    Rank member = 0;  // in the communicator
    std::vector<NumberedCall> calls;
  };
  struct Group {
    CallRecord record;
    std::set<Rank> callers;  // in the communicator
  };
  /// Who called what at this place; the largest group first, and of equal ones that with the lowest
  /// rank.
  std::vector<Group> groups_of(std::uint64_t sequence) const;
  static bool has_made(const Account& account, std::uint64_t sequence) {
    return !account.calls.empty() && account.calls.back().sequence >= sequence;
  }
  /// As long as nothing differs, a difference may be in the latest call of who has seen one.
  std::optional<std::uint64_t> disputed() const;
  FailureDecision decision_of(std::uint64_t sequence, std::size_t unheard) const;

  std::uint32_t communicator_;
  Rank reporter_;
  std::set<Rank> members_;
  FailureDecision suspicion_;
  TimePoint due_;
  TimePoint asks_at_;
  Duration pause_;                             // until it asks again
  std::map<Rank, Account> accounts_;           // by world rank
  std::map<std::uint64_t, CallRecord> calls_;  // of who told first
  std::optional<std::uint64_t> difference_;    // the first call that is not shared
};

}  // namespace unisono::rendezvous
