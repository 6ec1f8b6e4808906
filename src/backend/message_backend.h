// Sends and receives of one communicator.
//
// Thread rule: the engine's lock.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/backend.h"
#include "backend/members.h"
#include "backend/traffic_counter.h"
#include "engine/messenger.h"

namespace unisono {

class MessageBackend final : public Backend {
 public:
  MessageBackend(Messenger& messenger, const Members& members, TrafficCounter& traffic,
                 recorder::CallRecorder& recorder)
      : messenger_(messenger),
        members_(members),
        traffic_(traffic),
        recorder_(recorder),
        sends_(static_cast<std::size_t>(members.size()), 0) {}

  Result<Operation*> start(StartedCall& call, const CallShape&) override {
    begin(call, call.call);
    return &call.message;
  }
  void end(StartedCall& call, bool succeeded) override;
  /// A receive that nothing is wrong with, if `looks` looks find its message: it is over then, and
  /// counted.
  bool try_receive(const Call& what, int looks);
  /// Begins a send or a receive that nothing is wrong with before it is copied into `call`, because
  /// a short send is often over at once and needs no copy. kOver: it is counted. kGoesOn: go_on()
  /// follows, once `call` was reset to `what`.
  Tried try_run(StartedCall& call, const Call& what);
  Operation* go_on(StartedCall& call) {
    call.backend = this;
    return &call.message;
  }
  /// What is wrong with a message that has come is the receive's alone.
  Status check_received(const Call& receive, const TaggedResult& result) const {
    if (result.bytes == receive.count * size_of(receive.type)) return Status();
    return check_shorter_or_longer(receive, result);
  }

 private:
  void begin(StartedCall& call, const Call& what);
  void count(const Call& call, const TaggedResult& result);
  Status check_shorter_or_longer(const Call& receive, const TaggedResult& result) const;

  Messenger& messenger_;
  const Members& members_;
  TrafficCounter& traffic_;
  recorder::CallRecorder& recorder_;
  std::vector<std::uint64_t> sends_;  // so far, by member
};

}  // namespace unisono
