#include "comm/shrink.h"

#include <algorithm>
#include <array>
#include <thread>
#include <utility>
#include <vector>

#include "base/collective.h"
#include "base/communicator_id.h"
#include "base/log.h"
#include "comm/split.h"
#include "rendezvous/client/survivor.h"

namespace unisono::detail {
namespace {

using rendezvous::Survivor;

// Nothing happens between two looks but what other processes do.
constexpr std::chrono::microseconds kLookEvery{100};

// One rank's way to the communicator of the survivors.
class Shrinking {
 public:
  Shrinking(CommunicatorState& parent, std::chrono::milliseconds patience)
      : parent_(parent),
        runtime_(parent.runtime()),
        survivor_(runtime_.arbiter(), parent.members().id(), parent.members().sorted_world_ranks(),
                  patience) {}

  Result<std::shared_ptr<CommunicatorState>> run();

 private:
  Result<std::shared_ptr<CommunicatorState>> run_alone();
  void ask();
  Result<Survivor::Task> await_task();
  void warn_once(TimePoint since);
  void form_that_of_survivors();
  Status form(std::uint32_t id, const std::vector<Rank>& survivors);
  Result<FailedIn> agree_on_place();
  void drop();
  Status in_ranks_of_parent(const Status& why) const;
  Status refused(const Status& why);

  CommunicatorState& parent_;
  Runtime& runtime_;
  Survivor survivor_;  // under the engine's lock
  bool has_warned_ = false;
  std::shared_ptr<CommunicatorState> meeting_;  // the survivors, without shared memory
  std::shared_ptr<CommunicatorState> made_;
};

Result<std::shared_ptr<CommunicatorState>> Shrinking::run() {
  if (runtime_.world().size == 1) return run_alone();
  ask();
  for (;;) {
    UNISONO_ASSIGN(const Survivor::Task task, await_task());
    switch (task) {
      case Survivor::Task::kForm:
        form_that_of_survivors();
        break;
      case Survivor::Task::kUse:
        meeting_->close();
        return std::move(made_);
      case Survivor::Task::kGoAlone:
        return run_alone();
      case Survivor::Task::kStop:
        drop();
        return refused(in_ranks_of_parent(survivor_.why()));
      case Survivor::Task::kWait:
        break;
    }
  }
}

Result<std::shared_ptr<CommunicatorState>> Shrinking::run_alone() {
  drop();
  const std::uint32_t id = take_communicator_id(runtime_);
  if (id == 0) return Status(ErrorCode::kOutOfResources, "there is no number left for another");
  UNISONO_TRY(form(id, {runtime_.world().rank}));
  meeting_->close();
  return std::move(made_);
}

void Shrinking::ask() {
  const Engine::Lock lock(runtime_.engine());
  runtime_.news().forget_shrink_words(parent_.members().id());
  survivor_.ask(Clock::now());
}

Result<Survivor::Task> Shrinking::await_task() {
  const TimePoint since = Clock::now();
  for (;;) {
    runtime_.engine().beat();
    {
      const Engine::Lock lock(runtime_.engine());
      runtime_.news().poll_arbiter();
      runtime_.engine().give_up_dead();
      if (parent_.closed()) return parent_.failure();
      const auto word = runtime_.news().take_shrink_word(parent_.members().id());
      const Survivor::Task task = survivor_.advance(word, Clock::now());
      if (task != Survivor::Task::kWait) return task;
    }
    warn_once(since);
    std::this_thread::sleep_for(kLookEvery);
  }
}

void Shrinking::warn_once(TimePoint since) {
  if (has_warned_ || Clock::now() - since < runtime_.config().warn_after) return;
  has_warned_ = true;
  log::warning("rank " + std::to_string(parent_.rank()) + of_communicator(parent_.members().id()) +
               " waits in shrink() for others that have not called it");
}

void Shrinking::form_that_of_survivors() {
  drop();
  const Status formed = form(survivor_.id(), survivor_.survivors());
  const Rank failed =
      formed.rank() < 0 || meeting_ == nullptr ? -1 : meeting_->members().world_rank(formed.rank());
  const Engine::Lock lock(runtime_.engine());
  survivor_.on_formed(formed ? Status() : Status(formed.code(), formed.message(), failed),
                      Clock::now());
}

// Makes the communicator of these world ranks, in the parent's order: they meet in one that needs
// nothing but transports, and split it to share memory where they can.
Status Shrinking::form(std::uint32_t id, const std::vector<Rank>& survivors) {
  std::vector<Rank> members;
  for (const Rank each : parent_.members().world_ranks()) {
    if (std::binary_search(survivors.begin(), survivors.end(), each)) members.push_back(each);
  }
  const auto self = std::find(members.begin(), members.end(), runtime_.world().rank);
  const auto place = static_cast<Rank>(self - members.begin());
  meeting_ = make_enlisted(parent_.shared_runtime(), id, std::move(members), place, nullptr);
  UNISONO_ASSIGN(const FailedIn failed_in, agree_on_place());
  UNISONO_ASSIGN(made_, split(*meeting_, 0, place));
  made_->set_parent_failed_in(failed_in);
  return Status();
}

// The least of where each stood, and whether one was beyond that. A call and its beginning count
// one each, so that both are a minimum.
Result<FailedIn> Shrinking::agree_on_place() {
  const FailedIn own = parent_.failed_in();
  std::array<std::int64_t, 2> least{2 * own.number, -(2 * own.number + (own.had_begun ? 1 : 0))};
  UNISONO_TRY(meeting_
                  ->run({.collective = Collective::kAllReduce,
                         .in = least.data(),
                         .out = least.data(),
                         .count = least.size(),
                         .type = DataType::kInt64,
                         .op = ops::min,
                         .options = {.algorithm = kAutomaticAlgorithm}})
                  .status);
  return FailedIn{least[0] / 2, -least[1] > least[0]};
}

void Shrinking::drop() {
  if (made_ != nullptr) made_->close();
  if (meeting_ != nullptr) meeting_->close();
  made_.reset();
  meeting_.reset();
}

Status Shrinking::in_ranks_of_parent(const Status& why) const {
  const Rank member = why.rank() < 0 ? -1 : parent_.members().find(why.rank());
  return Status(why.code(), why.message(), member);
}

// Whoever may not go on hears so in every later call.
Status Shrinking::refused(const Status& why) {
  if (why.code() == ErrorCode::kPartitioned) {
    const Engine::Lock lock(runtime_.engine());
    parent_.note_partition(why);
  }
  return why;
}

}  // namespace

Result<std::shared_ptr<CommunicatorState>> shrink(CommunicatorState& parent,
                                                  std::chrono::milliseconds patience) {
  {
    const Engine::Lock lock(parent.runtime().engine());
    if (parent.closed()) return parent.failure();
    // Members that still compute or wait hear of it.
    parent.fail(Status(ErrorCode::kAborted,
                       "rank " + std::to_string(parent.rank()) + " goes on without it: shrink()"),
                JobCommunicator::Tell::kEveryone);
  }
  return Shrinking(parent, patience.count() > 0 ? patience : parent.runtime().config().timeout)
      .run();
}

}  // namespace unisono::detail
