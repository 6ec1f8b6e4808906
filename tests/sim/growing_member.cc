#include "tests/sim/growing_member.h"

#include <memory>
#include <utility>

namespace unisono::sim {
namespace {

Status is_over() { return {ErrorCode::kClosed, "the process has ended"}; }

}  // namespace

Status run_call(Program& program, SimulatedCommunicator& communicator, const Call& call) {
  UNISONO_TRY(communicator.usable());
  if (program.is_ending()) return is_over();
  struct Over {
    bool is_over = false;
    Status outcome;
  };
  // Outlives a program that ends.
  const auto over = std::make_shared<Over>();
  communicator.begin(call, [over](const Status& outcome) { *over = {true, outcome}; });
  program.wake();
  if (!program.wait_until([&] { return over->is_over; })) return is_over();
  return over->outcome;
}

Call first_call(std::chrono::milliseconds timeout) {
  return {.collective = Collective::kBarrier, .options = {.timeout = timeout}};
}

Status GrowingMember::call(Collective collective, const void* in, void* out, std::size_t bytes,
                           std::chrono::milliseconds timeout) {
  return run_call(program_, group_,
                  {.collective = collective,
                   .in = in,
                   .out = out,
                   .count = bytes,
                   .options = {.timeout = timeout}});
}

Status GrowingMember::go_on() {
  if (program_.is_ending()) return is_over();
  UNISONO_TRY(group_.usable());
  const Status vote = voters_ == nullptr ? Status() : voters_->usable();
  return vote.code() == ErrorCode::kRendezvous ? vote : Status();
}

Status GrowingMember::prepare_vote() {
  UNISONO_TRY(go_on());
  group_.begin_split(0, group_.rank());
  program_.wake();
  program_.wait_until([&] {
    voters_ = rank_.take_made();
    return voters_ != nullptr || !group_.usable().ok();
  });
  return voters_ != nullptr ? Status() : program_.is_ending() ? is_over() : group_.usable();
}

void GrowingMember::vote_against(const Status& why) {
  voters_->fail(Status(ErrorCode::kRendezvous, "could not join the grown one: " + why.message(),
                       voters_->rank()),
                JobCommunicator::Tell::kEveryone);
  voters_->close();
}

// As shrink() of src/comm, and the closing of what that has made.
Result<int> GrowingMember::vote(std::chrono::milliseconds patience) {
  voters_->fail(Status(ErrorCode::kAborted, "goes on without it: shrink()"),
                JobCommunicator::Tell::kEveryone);
  Shrinking shrinking(*voters_, schedule_.now(), patience, rank_.shrinking_surroundings());
  auto state = Shrinking::State::kGoesOn;
  program_.wait_until([&] {
    state = shrinking.advance();
    return state != Shrinking::State::kGoesOn;
  });
  if (state == Shrinking::State::kGoesOn) return is_over();
  if (state == Shrinking::State::kRefused) return shrinking.why();
  agreed_at_ = schedule_.now();
  shrinking.made().close();
  return shrinking.made().size();
}

Status GrowingMember::meet(const rendezvous::Invitation& place,
                           const std::function<Status()>& go_on) {
  UNISONO_ASSIGN(grown_, join_(place, later(schedule_.now(), place.timeout), go_on));
  return Status();
}

void GrowingMember::use_new(std::chrono::milliseconds timeout) {
  static_cast<void>(run_call(program_, grown_->lent(), first_call(timeout)));
}

}  // namespace unisono::sim
