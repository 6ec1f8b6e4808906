// A rank of a simulated job that grows: what src/comm/grow.cc gives to the production's Growth, in
// virtual time.
//
// Thread rule: one thread.
#pragma once

#include <functional>

#include "rendezvous/store/growth.h"
#include "tests/sim/program.h"
#include "tests/sim/rank.h"

namespace unisono::sim {

/// Runs a call in the program; as CommunicatorState::run().
Status run_call(Program& program, SimulatedCommunicator& communicator, const Call& call);
/// The first one in a new job.
Call first_call(std::chrono::milliseconds timeout);

class GrowingMember final : public rendezvous::GrowingGroup {
 public:
  using Join =
      std::function<Result<SimulatedRank*>(const rendezvous::Invitation& place, TimePoint deadline,
                                           const std::function<Status()>& go_on)>;
  /// `rank` is lent.
  GrowingMember(Program& program, SimulatedRank& rank, const Schedule& schedule, Join join,
                rendezvous::HasEnded has_ended)
      : program_(program),
        rank_(rank),
        group_(rank.lent()),
        schedule_(schedule),
        join_(std::move(join)),
        has_ended_(std::move(has_ended)) {}

  Rank rank() const override { return group_.rank(); }
  int size() const override { return group_.size(); }
  Status call(Collective collective, const void* in, void* out, std::size_t bytes,
              std::chrono::milliseconds timeout) override;
  Status go_on() override;
  bool has_ended(const std::string& process) override { return has_ended_(process); }
  Status prepare_vote() override;
  void vote_against(const Status& why) override;
  Result<int> vote(std::chrono::milliseconds patience) override;
  void end_vote() override { voters_->close(); }
  Status meet(const rendezvous::Invitation& place, const std::function<Status()>& go_on) override;
  void leave_new() override { grown_->end_soon(Duration::zero()); }
  void use_new(std::chrono::milliseconds timeout) override;
  /// When it heard that the vote was over; kNever: it has not.
  TimePoint agreed_at() const { return agreed_at_; }

 private:
  Program& program_;
  SimulatedRank& rank_;
  SimulatedCommunicator& group_;
  const Schedule& schedule_;
  const Join join_;
  const rendezvous::HasEnded has_ended_;
  SimulatedCommunicator* voters_ = nullptr;
  SimulatedRank* grown_ = nullptr;
  TimePoint agreed_at_ = kNever;
};

}  // namespace unisono::sim
