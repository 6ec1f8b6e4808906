// Asks the processes of other ranks whether they are there, because the arbiter hears nothing of
// them and wants to know who else does: whom to send a probe when, and what came of it. No sockets,
// no clock: probe_port has these, tests/sim a simulated network.
//
// Thread rule: one thread at a time.
#pragma once

#include <chrono>
#include <map>
#include <vector>

#include "base/clock.h"
#include "rendezvous/failure/probe.h"

namespace unisono::rendezvous {

class Prober {
 public:
  struct Question {
    Rank rank;
    ProbeNonce nonce;
  };
  struct Outcome {
    Rank rank;
    bool is_reached;
    bool operator==(const Outcome&) const = default;
  };

  /// `silence`: as RendezvousPoint::silence. Not 0, with which nobody is asked.
  explicit Prober(std::chrono::milliseconds silence) : silence_(silence) {}

  /// Asks for a quarter of the silence: who is asked when a rank is overdue answers before that is
  /// silent. Nothing where it asks already, or asks too many.
  void begin(Rank rank, const ProbeNonce& nonce, TimePoint now);
  /// It cannot be asked from here: says nothing of it.
  void withdraw(Rank rank) { asked_.erase(rank); }
  /// An answer of that rank has come.
  void on_answer(Rank rank, const ProbeNonce& nonce);

  /// What is to be sent now.
  std::vector<Question> take_questions(TimePoint now);
  std::vector<Outcome> take_outcomes(TimePoint now);
  /// Of both; kNever while nobody is asked.
  TimePoint next_due() const;

 private:
  struct Asked {
    ProbeNonce nonce;
    TimePoint sends_at, ends_at;
    bool is_reached = false;
  };

  const Duration silence_;
  std::map<Rank, Asked> asked_;
};

}  // namespace unisono::rendezvous
