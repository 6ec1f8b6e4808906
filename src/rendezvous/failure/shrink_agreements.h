// Has the survivors of communicators that failed agree on who goes on. Every survivor asks; once
// all have asked that can, they are told to make a communicator of those, and once all have made it
// they may use it. Where one is lost meanwhile the others begin anew without it: all survivors use
// the same communicator, or none does. Where they are no quorum themselves (quorum.h), they use it
// once as many others as lack have said that they know who goes on without them, which nobody
// beyond a partition can: no time is too short for that. No sockets, no clock of its own; the
// arbiter's loop owns it.
//
// After the agreement of ULFM's MPI_Comm_shrink (Bland et al., "Post-failure recovery of MPI
// communication capability", IJHPCA 27(3), 2013), with one coordinator.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/suspended.h"
#include "rendezvous/failure/quorum.h"
#include "rendezvous/failure/standby.h"
#include "rendezvous/messages/job.h"
#include "rendezvous/messages/shrink_message.h"

namespace unisono::rendezvous {

/// A rank that a passed deadline has named may come so long after the others. So long beyond the
/// others' patience, and beyond the silence by which it shows who is lost meanwhile, may it take to
/// make their communicator.
inline constexpr std::chrono::milliseconds kSuspectTime{3000};

/// Rank 0 and the standbys.
inline constexpr int kHoldersMax = 1 + kStandbys;

class ShrinkAgreements {
 public:
  struct Outgoing {
    Rank target;
    ShrinkMessage message;
  };

  /// `holder`: who holds the arbiter, 0 for rank 0, else its place among the standbys and one: each
  /// names communicators by numbers of its own. `evidence` outlives it; none: no rank can live
  /// where it is not heard.
  /// `silence`: as RendezvousPoint::silence.
  explicit ShrinkAgreements(int world_size, int holder = 0, const Evidence* evidence = nullptr,
                            std::chrono::milliseconds silence = {});

  /// What `rank` said. An error: what no correct rank says.
  Status on_message(Rank rank, ShrinkMessage message, TimePoint now);
  /// Ranks that the decision names take no part; one that was late is not waited for much longer.
  void on_decision(const FailureDecision& decision);
  /// The rank takes no part in any communicator any more.
  void on_gone(Rank rank, const Status& why);

  /// Nobody goes on by this arbiter's word any more.
  void close(const Parts& parts);

  /// Whenever the owner wakes, before what has happened. While it is stopped others cannot be
  /// heard, and may be stopped with it: they have kSuspectTime afterwards, twice at most.
  /// `suspended`: as Silence::on_wake().
  void on_wake(TimePoint now, Duration suspended = {});
  /// What is to be said by now, in order.
  std::vector<Outgoing> take(TimePoint now);
  /// Decisions on communicators of survivors that could not be made in time, for their members.
  std::vector<FailureDecision> take_decisions() { return std::exchange(decided_, {}); }
  /// When take() may have more; kNever when nothing is pending.
  TimePoint next_due() const;

 private:
  using IsHere = std::function<bool(Rank)>;
  // Of one communicator.
  struct Agreement {
    std::set<Rank> members;  // empty: nobody has asked yet
    std::map<Rank, Status> excluded;
    std::set<Rank> left;  // of `excluded`, who has closed the communicator, and never asks
    std::set<Rank> suspected;
    std::set<Rank> asked;
    // Of `asked`, the communicator that a rank had made by another arbiter's word.
    std::map<Rank, std::uint32_t> made;
    std::map<std::uint32_t, std::set<std::set<Rank>>> others;  // the members of those in `made`
    std::vector<std::set<Rank>> open;  // of `others`, what ranks that are not here may use
    std::uint32_t finished = 0;        // what is used last, by another arbiter's word or this one's
    std::set<Rank> finishers;          // the ranks that use `finished`
    Duration patience{};               // the least of `asked`
    TimePoint due = kNever;  // who has not asked, or made the communicator, by then is left out
    Duration extra = 2 * kSuspectTime;  // what is left of the time for own stops
    std::uint32_t id = 0;               // of the communicator that is being made; 0: none
    std::set<Rank> survivors;           // its members
    std::set<Rank> ready;               // of `survivors`, who has made it
    std::set<Rank> informed;            // others, which have said that they know who goes on

    bool is_idle() const { return asked.empty() && id == 0; }
  };

  Agreement* find_or_make(std::uint32_t communicator);
  Status on_ask(Rank rank, const ShrinkMessage& message, TimePoint now);
  void on_leave(Rank rank, const ShrinkMessage& message);
  void on_finished(Rank rank, const ShrinkMessage& message);
  void say_finished(std::uint32_t communicator, Agreement* agreement, Rank rank);
  const Status* exclusion(const Agreement& agreement, Rank rank) const;
  void exclude(std::uint32_t communicator, Agreement* agreement, Rank rank);
  void leave_out(std::uint32_t communicator, Agreement* agreement, const std::set<Rank>& late,
                 const char* what);
  Status note_made(Rank rank, const ShrinkMessage& message, Agreement* agreement);
  void on_attempt_failed(const FailureDecision& decision);
  /// Of the survivors, who has not made their communicator, and is at fault where others have not.
  std::set<Rank> late_ones(const Agreement& agreement) const;
  /// Of the survivors, since they were told.
  bool has_lost_one(const Agreement& agreement) const;
  void advance(std::uint32_t communicator, Agreement* agreement, TimePoint now);
  void gather(std::uint32_t communicator, Agreement* agreement, TimePoint now);
  /// What some that have asked had made by another arbiter's word, and others may use, as far as is
  /// known here.
  std::vector<std::set<Rank>> open_attempts(const Agreement& agreement) const;
  bool may_be_used(const Agreement& agreement, std::uint32_t id,
                   const std::set<Rank>& members) const;
  /// Those that have made it use it too; the others that have asked are left out.
  void adopt(std::uint32_t communicator, Agreement* agreement, std::uint32_t id);
  /// All survivors have made their communicator.
  void conclude(std::uint32_t communicator, Agreement* agreement, TimePoint now);
  /// The survivors, and who has said that it knows that these go on.
  static IsHere knowing(const Agreement& agreement);
  /// Those, and who may still say so.
  IsHere knowing_soon(const Agreement& agreement) const;
  /// Nothing where those that are here are enough to know that no others go on. Else the parts in
  /// which they are not.
  std::optional<Parts> lacks(const Agreement& agreement, const IsHere& is_here) const;
  /// Of `ranks` those that do not know yet that they are left out.
  void inform(std::uint32_t communicator, const Agreement& agreement, const std::set<Rank>& ranks);
  void refuse_minority(std::uint32_t communicator, Agreement* agreement, const Parts& parts);
  void form(std::uint32_t communicator, Agreement* agreement, const std::set<Rank>& candidates,
            TimePoint now);
  /// Arbiters have named it, as an attempt.
  bool is_attempt(std::uint32_t communicator) const;
  void say_done(Rank rank, std::uint32_t communicator, std::uint32_t id);
  void refuse(std::uint32_t communicator, const std::set<Rank>& ranks, const Status& why);
  Status without(std::uint32_t communicator, const Agreement& agreement, Rank rank) const;
  void refuse_parted(std::uint32_t communicator, Rank rank, const Parts& parts);
  static void end(Agreement* agreement);
  bool is_pending() const;

  const int world_size_;
  const Evidence* const evidence_;
  const std::chrono::milliseconds silence_;
  std::uint32_t next_number_, last_number_;
  std::optional<Parts> parted_;  // close()
  std::map<Rank, Status> gone_;
  std::map<std::uint32_t, Agreement> agreements_;
  Suspensions suspensions_;
  TimePoint woken_ = kNever;
  std::vector<Outgoing> said_;
  std::vector<FailureDecision> decided_;
};

}  // namespace unisono::rendezvous
