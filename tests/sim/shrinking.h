// A member's way to the communicator of the survivors: the production's Survivor, and what
// src/comm/shrink.cc does around it, without waiting.
//
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "comm/job_news.h"
#include "rendezvous/client/survivor.h"
#include "tests/sim/communicator.h"
#include "tests/sim/schedule.h"

namespace unisono::sim {

class Shrinking {
 public:
  struct Surroundings {
    ArbiterClient& arbiter;
    JobNews& news;
    const Schedule& schedule;
    /// By world ranks, with the calls of the case.
    std::function<SimulatedCommunicator&(std::uint32_t id, std::vector<Rank> members,
                                         std::vector<Operation> operations)>
        make;
    std::function<std::uint32_t()> take_id;
    std::function<void(Duration)> wake_in;
  };
  enum class State : std::uint8_t { kGoesOn, kMade, kRefused };

  /// Asks at `asks_at`. `parent` has failed by then.
  Shrinking(SimulatedCommunicator& parent, TimePoint asks_at, std::chrono::milliseconds patience,
            Surroundings around);

  State advance();
  SimulatedCommunicator& made() const { return *meeting_; }
  const Status& why() const { return survivor_.why(); }
  std::string whereabouts() const;

 private:
  void form(std::uint32_t id, std::vector<Rank> survivors);
  void look_at_meeting();
  void drop_meeting();
  TimePoint now() const { return around_.schedule.now(); }

  SimulatedCommunicator& parent_;
  const TimePoint asks_at_;
  const Surroundings around_;
  rendezvous::Survivor survivor_;
  bool has_asked_ = false;
  SimulatedCommunicator* meeting_ = nullptr;
  bool is_forming_ = false;  // it; nothing else is heard meanwhile
};

/// A failure of the communicator, whose ranks it names.
Status in_world_ranks(const SimulatedCommunicator& communicator, const Status& cause);

}  // namespace unisono::sim
