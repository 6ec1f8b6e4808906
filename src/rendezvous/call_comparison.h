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
#include "rendezvous/control_messages.h"

namespace unisono::rendezvous {

class CallComparison {
 public:
  /// `first`: of world rank `reporter`, with what it suspects.
  CallComparison(Rank reporter, CallsMessage first, TimePoint now, TimePoint due);

  /// Calls of a member. Of two accounts of one the later calls count.
  void add(Rank rank, CallsMessage message);
  /// World ranks who told of their calls before they had made the one that is not shared.
  std::vector<Rank> behind() const;
  /// Those of them that are to be asked once more: time after time, ever more rarely.
  std::vector<Rank> take_asked_again(TimePoint now);
  TimePoint asks_at() const { return asks_at_; }

  /// World ranks.
  const std::set<Rank>& members() const { return members_; }
  bool has_heard(Rank rank) const { return accounts_.count(rank) > 0; }
  TimePoint due() const { return due_; }

  /// Names no rank where members whose call is not known could turn the majority; `silent` of them
  /// are here and have not been heard. Where the calls that are known do not differ, it is what
  /// the reporter suspected: the ranks disagree about something that no record tells.
  FailureDecision judge(std::size_t silent) const;

 private:
  struct Group {
    CallRecord record;
    std::set<Rank> callers;  // in the communicator
  };
  /// Who called what at this place; the largest group first, and of equal ones that with the lowest
  /// rank.
  std::vector<Group> groups_of(std::uint64_t sequence) const;
  /// Nothing where all that are known are shared.
  std::optional<std::uint64_t> first_difference() const;
  FailureDecision decision_of(std::uint64_t sequence, std::size_t silent) const;

  std::uint32_t communicator_;
  Rank reporter_;
  std::set<Rank> members_;
  FailureDecision suspicion_;
  TimePoint due_;
  TimePoint asks_at_;
  Duration pause_;                         // until it asks again
  std::map<Rank, CallsMessage> accounts_;  // by world rank
};

}  // namespace unisono::rendezvous
