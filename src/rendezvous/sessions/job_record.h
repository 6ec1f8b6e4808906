// What one rank knows of the others: who is dead and who has left, by what it was told and found
// out. It says which standby holds the arbiter next, and what that one needs to know. No sockets,
// no clock.
//
// Thread rule: one thread at a time.
#pragma once

#include <deque>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/failure/quorum.h"
#include "rendezvous/messages/rejoin_message.h"

namespace unisono::rendezvous {

class JobRecord {
 public:
  /// Of rank `self`; `members`, all of the job, outlive it.
  JobRecord(const std::vector<Member>& members, Rank self, std::string job_id);

  void on_decision(const FailureDecision& decision);
  void on_dead(Rank rank) { dead_.insert(rank); }
  void on_departed(Rank rank) { left_.insert(rank); }
  /// It said so while this rank looked for another arbiter than one that may live: it may have gone
  /// on there, without this rank, before.
  void on_departed_elsewhere(Rank rank) { left_elsewhere_.insert(rank); }
  /// By the word of a kernel, or of its host where it is stopped.
  void on_ended(Rank rank) { ended_.insert(rank); }
  /// Another one hears it: what this rank took for its end was that of their connection.
  void on_heard_by_another(Rank rank) { ended_.erase(rank); }
  /// It does not answer, or hears the arbiter: passed over until it is forgiven.
  void on_unreachable(Rank rank) { unreachable_.insert(rank); }
  /// DialOutcome::kAbsent.
  void on_absent(Rank rank) { absent_.insert(rank); }
  /// It holds the arbiter of a part that does not go on.
  void on_part_ended(Rank rank) { part_ended_.insert(rank); }
  void on_arbiter() { forgive(); }
  /// True where there was one that may answer by now.
  bool forgive() { return !std::exchange(unreachable_, {}).empty(); }

  /// The lowest standby that is not known to be gone; -1 where there is none, or where nobody but
  /// this rank is left. `self_last`: this rank was stopped, and another one may hold it by now.
  Rank next_standby(bool self_last = false) const;
  /// The others beside `holder` that are not known to be gone, those last that do not answer.
  std::deque<Rank> standbys_to_tell(Rank holder) const;
  /// This rank is one.
  bool is_standby() const;
  /// For certain nobody but this rank is left, and went on: the others have left, ended, or died on
  /// this host, and have not named it.
  bool is_last() const;
  /// This rank alone, and those of other hosts that may live behind a broken link.
  Parts parts() const;
  RejoinMessage rejoin_message() const;

 private:
  bool is_gone_for_good(Rank rank) const {
    return dead_.count(rank) > 0 || left_.count(rank) > 0 || absent_.count(rank) > 0 ||
           left_elsewhere_.count(rank) > 0 || part_ended_.count(rank) > 0;
  }
  bool is_gone(Rank rank) const { return is_gone_for_good(rank) || unreachable_.count(rank) > 0; }

  /// It cannot be heard any more, wherever it is.
  bool has_ended(Rank rank) const { return left_.count(rank) > 0 || ended_.count(rank) > 0; }
  bool is_on_own_host(Rank rank) const;
  bool has_died_here(Rank rank) const;

  const Member& member(Rank rank) const { return members_[static_cast<std::size_t>(rank)]; }
  int size() const { return static_cast<int>(members_.size()); }

  const std::vector<Member>& members_;
  const std::vector<Rank> standbys_;
  const Rank self_;
  const std::string job_id_;
  std::set<Rank> dead_, left_, left_elsewhere_, ended_, unreachable_, absent_, part_ended_;
  std::deque<FailureDecision> latest_;
};

}  // namespace unisono::rendezvous
