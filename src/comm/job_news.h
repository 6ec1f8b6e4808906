// What a rank hears of its job's failures: from the arbiter, whose decisions come first, and from
// its own messenger. Each is told to the communicators that it concerns, also to those that are
// made later.
//
// Thread rule: the engine's lock.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/job_communicator.h"
#include "engine/engine.h"
#include "rendezvous/client/arbiter_client.h"
#include "rendezvous/messages/arbiter_connection.h"
#include "rendezvous/messages/shrink_message.h"

namespace unisono {

class JobNews : public EngineHost {
 public:
  /// `size`: of the job. The arbiter's client outlives this.
  JobNews(ArbiterClient& arbiter, int size);

  /// Tells it what has become of its members before it was made.
  void add(JobCommunicator& communicator);
  /// True when it was the last one.
  bool remove(JobCommunicator& communicator);

  /// The job has said that this world rank died or left.
  bool is_gone(Rank rank) const;
  /// What the job says of the first of these world ranks that will never come; ok while all may.
  Status find_lost(const std::vector<Rank>& ranks) const;

  /// A decision of the arbiter.
  void hear(const FailureDecision& decision);
  /// The arbiter asks for this rank's calls. Answered once the communicator is made here: others
  /// may disagree about it before.
  void ask(std::uint32_t communicator);
  /// Hears what the arbiter has said meanwhile.
  void poll_arbiter();
  /// The same of all that has arrived: before this rank goes by what it has seen itself.
  void catch_up() {
    arbiter_.catch_up();
    poll_arbiter();
  }
  /// The arbiter's latest word on shrinking this communicator; what poll_arbiter() has heard of
  /// that before is forgotten.
  std::optional<rendezvous::ShrinkMessage> take_shrink_word(std::uint32_t communicator);
  void forget_shrink_words(std::uint32_t communicator);
  /// Tells what the messenger has noted.
  void tell_events();

  // EngineHost: poll_arbiter(), tell_events(), and all communicators tend.
  void tend() override;
  std::vector<Rank> take_dead() override { return std::exchange(newly_dead_, {}); }
  // MessengerEvents: noted, for nothing is told in the midst of a frame.
  void mismatch(std::uint32_t communicator, Rank peer, const CallRecord& theirs,
                const CallRecord& ours) override;
  void counts_differ(std::uint32_t communicator, Rank peer, std::string what) override;
  void violation(std::uint32_t communicator, Rank peer, std::string what) override;
  const CallRecord* find_call(std::uint32_t communicator, std::uint64_t sequence) const override;
  void link_closed(Rank peer, const Status& cause) override;
  void left(std::uint32_t communicator, Rank peer) override;
  void stranger(std::uint32_t communicator, Rank peer) override;
  void no_memory(std::uint32_t communicator) override;

 private:
  struct Event {
    std::uint32_t communicator;
    ErrorCode code;
    Rank peer;
    std::string message;
  };

  JobCommunicator* find(std::uint32_t communicator) const;
  void hear_news();
  void answer_questions();
  bool is_dead(Rank rank) const;
  void note_death(const FailureDecision& decision);
  void pass_on(const Event& event);
  void tell_own_failure(const Event& event);

  ArbiterClient& arbiter_;
  rendezvous::ArbiterNews news_;  // still to be heard
  std::vector<JobCommunicator*> communicators_;
  std::vector<Event> events_;
  bool has_no_memory_ = false;           // to be told: it fails as a whole
  std::vector<bool> peer_left_;          // by world rank
  std::vector<FailureDecision> deaths_;  // for communicators made after them
  std::vector<Rank> newly_dead_;
  // Of communicators that do not exist here, or not yet.
  std::deque<FailureDecision> unknown_decisions_;
  std::deque<std::uint32_t> questions_;
  std::deque<rendezvous::ShrinkMessage> shrink_words_;
};

}  // namespace unisono
