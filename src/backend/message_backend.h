// Sends and receives of one communicator.
//
// Thread rule: the engine's lock.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/backend.h"
#include "backend/members.h"
#include "engine/messenger.h"

namespace unisono {

class MessageBackend final : public Backend {
 public:
  MessageBackend(Messenger& messenger, const Members& members)
      : messenger_(messenger),
        members_(members),
        sends_(static_cast<std::size_t>(members.size()), 0) {}

  Result<Operation*> start(StartedCall& call, const CallShape&) override {
    start(call, call.call);
    return &call.message;
  }
  /// Starts `what` before it is copied into `call`, because a short send is often over at once and
  /// never needs the copy.
  void start(StartedCall& call, const Call& what);
  /// What is wrong with a message that has come is the receive's alone.
  Status check_received(const Call& receive, const TaggedResult& result) const;

 private:
  Messenger& messenger_;
  const Members& members_;
  std::vector<std::uint64_t> sends_;  // so far, by member
};

}  // namespace unisono
