// The arbiter of a simulated job: the production state machines that decide (FailureDecider,
// ShrinkAgreements), fed with what ranks say as it comes over the wire. It does what the phase
// kServing of rendezvous/arbiter_loop.cc does, without sockets, threads and clocks.
//
// Thread rule: one thread.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/failure_decider.h"
#include "rendezvous/shrink_agreements.h"

namespace unisono::sim {

class Arbiter {
 public:
  /// `send` takes whole messages, to a rank that may be gone.
  Arbiter(std::vector<Member> members, Rank holder, std::function<void(Rank, std::string)> send);

  void on_message(Rank from, std::string_view bytes, TimePoint now);
  /// Its connection is gone, without goodbye.
  void on_closed(Rank rank);
  void on_goodbye(Rank rank);
  /// Says what is decided by now.
  void say(TimePoint now);
  /// When say() may have more.
  TimePoint next_due() const;

 private:
  Status take(Rank from, rendezvous::MessageType type, std::string_view body, TimePoint now);
  void send_to_all(const std::string& bytes);

  const int size_;
  std::function<void(Rank, std::string)> send_;
  rendezvous::FailureDecider decider_;
  rendezvous::ShrinkAgreements shrinks_;
};

}  // namespace unisono::sim
