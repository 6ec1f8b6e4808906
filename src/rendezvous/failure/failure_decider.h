// Decides which rank failed. Takes what the ranks of a job report and what became of their
// connections, and says what to tell whom. No sockets, no clock of its own: time is an argument,
// so that every decision can be tested without waiting. The arbiter's loop owns it.
#pragma once

#include <algorithm>
#include <chrono>
#include <deque>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/grace_periods.h"
#include "rendezvous/failure/call_comparison.h"
#include "rendezvous/messages/control_messages.h"
#include "rendezvous/messages/job.h"
#include "rendezvous/messages/rejoin_message.h"

namespace unisono::rendezvous {

/// How long the reports of other ranks are awaited before a timeout is judged, and what those say
/// that are asked what they wait in.
inline constexpr Duration kGatherTime = std::chrono::milliseconds(250);
/// How long a broken link may wait for the death that explains it: a twentieth of `silence`
/// (RendezvousPoint::silence), so that a link that is dead is told as soon as a rank that is
/// silent, and no longer than `kLinkGraceTime`, which it is too where that is 0.
inline constexpr Duration kLinkGraceTime = std::chrono::milliseconds(300);
constexpr Duration link_grace_time(std::chrono::milliseconds silence) {
  if (silence.count() == 0) return kLinkGraceTime;
  return std::min<Duration>(kLinkGraceTime, Duration(silence) / 20);
}
/// StreamOptions::unacknowledged_max. All hear of a dead link as soon as of a silent rank: before,
/// the arbiter waits for that death, and what ranks and arbiter say to each other takes some time.
constexpr Duration unacknowledged_max(std::chrono::milliseconds silence) {
  const Duration limit = silence;
  if (limit == Duration::zero()) return limit;
  return limit - link_grace_time(silence) - limit / 50;
}
/// A broken link is judged once its other end has answered a question, or is silent: where the
/// network was down the answer comes late. After the answer the arbiter waits so long for what was
/// sent behind it.
constexpr Duration after_word_time(std::chrono::milliseconds silence) {
  return link_grace_time(silence) * 2 / 3;
}
/// How long the calls of ranks that are busy elsewhere are awaited before differing ones are
/// judged.
inline constexpr Duration kCallsTime = std::chrono::milliseconds(800);
static_assert(kCallsTime < grace::kDecision,
              "ranks go by what they have seen themselves before the arbiter has judged");

/// Lets the first decision on each communicator through. Of decisions on all communicators of a
/// rank it lets the first through for each rank, and before it the word that the rank has left:
/// that is said to those alone that still need it, and a failure to all.
class DecisionLedger {
 public:
  bool admit(const FailureDecision& decision);
  bool has_judged(std::uint32_t communicator) const {
    return communicators_.count(communicator) > 0;
  }
  /// It failed on all communicators.
  bool has_given_up(Rank rank) const { return ranks_.count(rank) > 0; }

 private:
  std::set<std::uint32_t> communicators_;
  std::set<Rank> ranks_;
  std::set<Rank> left_;  // and have not failed before
};

class FailureDecider {
 public:
  struct Outgoing {
    Rank target = -1;  ///< -1: all
    FailureDecision decision;
    /// kDecision, or a question: kAskCalls for the calls of its communicator, kAskWaits, kAskWord.
    MessageType type = MessageType::kDecision;
  };

  /// `silence`: as RendezvousPoint::silence.
  explicit FailureDecider(std::vector<Member> members, std::chrono::milliseconds silence = {});

  /// What a rank knows that had another arbiter before, so that all are told the same.
  void learn(const RejoinMessage& told);
  /// It had another arbiter before and is on its way here, if it lives: no link to it is judged.
  void await(Rank rank) { awaited_.insert(rank); }
  void on_come(Rank rank) { awaited_.erase(rank); }
  /// These may be about to be lost: no link to them is judged until that shows.
  void note_overdue(std::set<Rank> ranks) { overdue_ = std::move(ranks); }
  /// These say that they do not hear the arbiter: of a link of theirs that breaks they are the end
  /// at fault.
  void note_deaf(std::set<Rank> ranks) { deaf_ = std::move(ranks); }
  void on_goodbye(Rank rank);
  /// `rank` has failed for a reason that is found elsewhere.
  void condemn(Rank rank, const std::string& why);
  /// The control connection of `rank` is gone; `how` completes "its control connection ...".
  void on_closed(Rank rank, const std::string& how);
  /// `rank` sent what no correct rank sends.
  void on_violation(Rank rank, const std::string& what);
  void on_waiting(Rank rank, WaitMessage message);
  void on_timed_out(Rank rank, WaitMessage message, TimePoint now);
  /// An operation of which it had said that its deadline had passed.
  void on_ended_well(Rank rank, const WaitMessage& message);
  /// What `rank` waits in, which it was asked for.
  void on_waits(Rank rank, WaitsMessage message, TimePoint now);
  void on_failure(FailureDecision decision);
  /// `awaits_word`: the other end may have left, and its goodbye be late.
  void on_broken_link(Rank reporter, const BrokenLinkMessage& message, TimePoint now,
                      bool awaits_word = false);
  /// What `rank` has said is here, before what that is.
  void on_heard(Rank rank, TimePoint now);
  void on_differing(Rank reporter, CallsMessage message, TimePoint now);
  void on_calls(Rank rank, CallsMessage message);

  const Member& member(Rank rank) const { return members_[static_cast<std::size_t>(rank)]; }
  /// It has neither failed nor left.
  bool is_here(Rank rank) const { return presence(rank) == Presence::kHere; }

  /// What is decided by now, in order.
  std::vector<Outgoing> take(TimePoint now);
  /// When take() may have more; kNever when nothing is pending.
  TimePoint next_due() const;

 private:
  enum class Presence : std::uint8_t { kHere, kLeft, kDead };
  using Operation = std::pair<std::uint32_t, std::uint64_t>;  // communicator, sequence
  struct Timeout {
    TimePoint due;
    Rank reporter;     // the first
    std::string call;  // its, for people
    std::set<Rank> members = {};
    std::set<Rank> awaited = {};  // for whom those wait whose deadline passed
    std::set<Rank> arrived = {};  // whose deadline passed
    std::set<Rank> late = {};     // of `arrived`, who still waits
  };
  struct BrokenLink {
    TimePoint earliest, due;
    Rank reporter;
    Rank peer;
    std::string reason;
    ErrorCode code;
  };

  /// It takes no part any more.
  void bury(Rank rank);
  void note(Rank rank, WaitMessage message);
  /// What it has said counts no more, once it takes no part.
  void forget_words(Rank rank);
  void ask_for_waits(const std::vector<Rank>& ranks, TimePoint now);
  /// Whom all that are known to wait in the operation wait for there.
  std::set<Rank> awaited_in(const Operation& operation) const;
  /// Whom `rank` waits for, as far as it holds still.
  std::set<Rank> awaited_by(Rank rank) const;
  /// These ranks, whom they wait for, whom those wait for, and so on. `ends`: the last ones, which
  /// wait for nobody, or are gone, or do not answer. A circle has none.
  std::vector<Rank> chain_from(const std::set<Rank>& ranks, std::set<Rank>* ends) const;
  bool waits_for(Rank rank, Rank peer) const;
  bool has_entered(Rank rank, const Operation& operation) const;
  void broadcast(FailureDecision decision);
  void tell_that_peer_left(Rank reporter, Rank peer);
  /// Members that are here and have not been heard yet.
  void ask_calls(Rank rank, std::uint32_t communicator);
  void ask_unheard(std::uint32_t communicator, const CallComparison& comparison);
  bool is_unheard(Rank rank, const CallComparison& comparison) const;
  bool has_heard_all(const CallComparison& comparison) const;
  FailureDecision judge(const Operation& operation, const Timeout& timeout) const;
  /// Who holds the missing up, perhaps none of the members, and what they do.
  void add_fault(const std::set<Rank>& missing, const Operation& operation,
                 FailureDecision* decision) const;
  FailureDecision judge(const BrokenLink& link) const;
  /// Of a link whose other end sent what no rank sends, or from which it came as what no rank sent.
  static bool is_nonsense(ErrorCode code) {
    return code == ErrorCode::kProtocol || code == ErrorCode::kCorrupted;
  }
  /// One of its ends has failed, by the job's word, perhaps of this link.
  bool is_explained(const BrokenLink& link) const {
    return ledger_.has_given_up(link.peer) || ledger_.has_given_up(link.reporter);
  }
  bool is_awaited(const BrokenLink& link) const {
    const auto is_out = [&](Rank rank) {
      return awaited_.contains(rank) || overdue_.contains(rank);
    };
    return is_out(link.peer) || is_out(link.reporter);
  }
  /// With how many ranks this one has, or has had, a broken link.
  std::size_t broken_links_of(Rank rank) const;
  std::string whereabouts(Rank rank, const Operation& operation) const;
  Presence presence(Rank rank) const { return presence_[static_cast<std::size_t>(rank)]; }

  std::vector<Member> members_;
  const Duration link_grace_, after_word_;
  std::vector<Presence> presence_;
  std::set<Rank> awaited_, overdue_, deaf_;
  // What each rank has said, one report for each operation, the oldest first. A rank may wait in
  // several at once. Some have ended since: nobody says so.
  std::map<Rank, std::deque<WaitMessage>> waits_;
  // What each rank has said to have ended well, the oldest first.
  std::map<Rank, std::deque<Operation>> ended_well_;
  std::map<Rank, TimePoint> asked_;  // who was asked for its waits when
  std::set<Rank> answered_;          // and has said all since, which is in waits_
  std::map<Operation, Timeout> timeouts_;
  std::map<std::pair<Rank, Rank>, BrokenLink> links_;    // by unordered pair
  std::set<Rank> awaited_words_;                         // of peers in these
  std::map<Rank, std::set<Rank>> broken_with_;           // all that were reported, both ways
  std::map<std::uint32_t, CallComparison> comparisons_;  // by communicator
  DecisionLedger ledger_;
  std::vector<Outgoing> decided_;
};

}  // namespace unisono::rendezvous
