// Collectives as plans over transports.
//
// Thread rule: the engine's lock.
#pragma once

#include "backend/backend.h"
#include "backend/members.h"
#include "backend/plan_cache.h"
#include "backend/traffic_counter.h"
#include "base/call_history.h"
#include "engine/messenger.h"
#include "engine/scratch_pool.h"

namespace unisono {

class PlanBackend final : public Backend {
 public:
  PlanBackend(Messenger& messenger, ScratchPool& scratch, const Members& members,
              CallHistory& calls, TrafficCounter& traffic)
      : messenger_(messenger),
        scratch_(scratch),
        members_(members),
        calls_(calls),
        traffic_(traffic) {}

  Result<Operation*> start(StartedCall& call, const CallShape& shape) override;
  void end(StartedCall& call, bool succeeded) override;

 private:
  Messenger& messenger_;
  ScratchPool& scratch_;
  const Members& members_;
  CallHistory& calls_;
  TrafficCounter& traffic_;
  PlanCache plans_;
};

}  // namespace unisono
