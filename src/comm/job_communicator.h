// A communicator as the job around it sees it: whom news of the job concern, and what they do.
//
// Thread rule: the engine's lock.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/members.h"
#include "rendezvous/messages/control_messages.h"

namespace unisono {

class JobCommunicator {
 public:
  enum class Tell { kNobody, kEveryone };
  virtual ~JobCommunicator() = default;

  virtual const Members& members() const = 0;
  /// The record of this rank's call of this number; null where it is not made yet or forgotten.
  virtual const CallRecord* find_call(std::uint64_t sequence) const = 0;
  /// The latest calls of this rank.
  virtual rendezvous::CallsMessage own_calls() const = 0;

  /// Appends what this rank waits in.
  virtual void add_waits(std::vector<rendezvous::WaitMessage>* waits) = 0;

  /// First failure wins.
  virtual void fail(Status cause, Tell tell) = 0;
  /// Memory is used up for what its calls need: it fails everywhere, and they lend nothing any
  /// more. Needs no memory; without any the others are told later.
  virtual void fail_without_memory() = 0;
  /// The calls of this rank and a peer differ, as `seen` says: a failure, once the job has said
  /// whose is the odd one.
  virtual void disagree(const Status& seen) = 0;
  /// The member has closed the communicator.
  virtual void note_left(Rank member) = 0;
  /// About once a millisecond while somebody waits. `peer_left`, by world rank: who has left the
  /// job.
  virtual void tend(const std::vector<bool>& peer_left) = 0;
};

}  // namespace unisono
