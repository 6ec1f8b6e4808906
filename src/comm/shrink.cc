#include "comm/shrink.h"

#include <algorithm>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/grace_periods.h"
#include "base/log.h"
#include "comm/split.h"
#include "rendezvous/shrink_agreements.h"
#include "rendezvous/shrink_message.h"

namespace unisono::detail {
namespace {

using rendezvous::ShrinkMessage;
using rendezvous::ShrinkStep;

// Nothing happens between two looks but what other processes do.
constexpr std::chrono::microseconds kLookEvery{100};
// The arbiter's word is later than it may be by so much before this rank takes it for lost.
constexpr std::chrono::seconds kAnswerTime{10};

// One rank's way to the communicator of the survivors.
class Shrinking {
 public:
  Shrinking(CommunicatorState& parent, std::chrono::milliseconds patience)
      : parent_(parent), runtime_(parent.runtime()), patience_(patience) {}

  Result<std::shared_ptr<CommunicatorState>> run();

 private:
  Result<std::shared_ptr<CommunicatorState>> run_alone();
  void ask();
  void say(ShrinkStep step, const Status& why = Status());
  Result<std::optional<ShrinkMessage>> await_word(TimePoint until);
  Status no_answer() const;
  void warn_once(TimePoint since);
  TimePoint on_form(const ShrinkMessage& word);
  Status form(const std::vector<Rank>& survivors);
  void drop();
  Status in_ranks_of_parent(const Status& why) const;
  Status refused(const Status& why);

  CommunicatorState& parent_;
  Runtime& runtime_;
  const std::chrono::milliseconds patience_;
  bool has_warned_ = false;
  std::uint32_t id_ = 0;                        // of the attempt
  Status formed_;                               // its outcome here
  std::shared_ptr<CommunicatorState> meeting_;  // the survivors, without shared memory
  std::shared_ptr<CommunicatorState> made_;
};

Result<std::shared_ptr<CommunicatorState>> Shrinking::run() {
  if (runtime_.world().size == 1) return run_alone();
  ask();
  TimePoint until = kNever;
  for (;;) {
    const auto heard = await_word(until);
    if (!heard && runtime_.arbiter().is_last()) return run_alone();
    if (!heard) return refused(heard.error());
    const std::optional<ShrinkMessage>& word = *heard;
    until = kNever;
    if (!word) {
      say(ShrinkStep::kCannot, formed_);
    } else if (word->step == ShrinkStep::kForm) {
      until = on_form(*word);
    } else if (word->step == ShrinkStep::kRefused) {
      drop();
      return refused(in_ranks_of_parent(word->why));
    } else if (word->id == id_ && made_ != nullptr) {  // kDone
      meeting_->close();
      return std::move(made_);
    }
  }
}

Result<std::shared_ptr<CommunicatorState>> Shrinking::run_alone() {
  drop();
  runtime_.give_up_dead();
  id_ = take_communicator_id(runtime_);
  if (id_ == 0) return Status(ErrorCode::kOutOfResources, "there is no number left for another");
  UNISONO_TRY(form({runtime_.world().rank}));
  meeting_->close();
  return std::move(made_);
}

void Shrinking::ask() {
  const Engine::Lock lock(runtime_.engine());
  runtime_.news().forget_shrink_words(parent_.members().id());
  runtime_.arbiter().say_shrink({ShrinkStep::kAsk,
                                 parent_.members().id(),
                                 0,
                                 patience_,
                                 parent_.members().sorted_world_ranks(),
                                 {}});
}

void Shrinking::say(ShrinkStep step, const Status& why) {
  const Rank failed =
      why.rank() < 0 || meeting_ == nullptr ? -1 : meeting_->members().world_rank(why.rank());
  const Engine::Lock lock(runtime_.engine());
  runtime_.arbiter().say_shrink({step,
                                 parent_.members().id(),
                                 id_,
                                 {},
                                 {},
                                 why.ok() ? Status() : Status(why.code(), why.message(), failed)});
}

// Nothing when `until` passed first. The latest word counts: those before it are about attempts
// that are over.
Result<std::optional<ShrinkMessage>> Shrinking::await_word(TimePoint until) {
  const TimePoint since = Clock::now();
  const TimePoint lost = later(since, patience_ + rendezvous::kSuspectTime + kAnswerTime);
  for (;;) {
    runtime_.engine().beat();
    {
      const Engine::Lock lock(runtime_.engine());
      runtime_.news().poll_arbiter();
      if (parent_.closed()) return parent_.failure();
      auto word = runtime_.news().take_shrink_word(parent_.members().id());
      if (word) return word;
      if (runtime_.arbiter().is_lost()) return no_answer();
    }
    const TimePoint now = Clock::now();
    if (now >= until) return std::optional<ShrinkMessage>();
    if (now >= lost) return no_answer();
    warn_once(since);
    std::this_thread::sleep_for(kLookEvery);
  }
}

Status Shrinking::no_answer() const {
  const Status partition = runtime_.arbiter().partition();
  if (!partition) return in_ranks_of_parent(partition);
  return {
      ErrorCode::kRankFailed,
      "the survivors cannot agree on who goes on: their arbiter and all that could follow it are "
      "gone or do not answer; start the job anew",
      parent_.members().find(0)};
}

void Shrinking::warn_once(TimePoint since) {
  if (has_warned_ || Clock::now() - since < runtime_.warn_after()) return;
  has_warned_ = true;
  log::warning("rank " + std::to_string(parent_.rank()) +
               " waits in shrink() for others that have not called it");
}

// Until when another survivor's failure, with which the arbiter begins anew, may explain why this
// attempt failed here.
TimePoint Shrinking::on_form(const ShrinkMessage& word) {
  drop();
  runtime_.give_up_dead();
  id_ = word.id;
  formed_ = form(word.members);
  if (!formed_) return Clock::now() + grace::kDecision;
  say(ShrinkStep::kReady);
  return kNever;
}

// Makes the communicator of these world ranks, in the parent's order: they meet in one that needs
// nothing but transports, and split it to share memory where they can.
Status Shrinking::form(const std::vector<Rank>& survivors) {
  std::vector<Rank> members;
  for (const Rank each : parent_.members().world_ranks()) {
    if (std::binary_search(survivors.begin(), survivors.end(), each)) members.push_back(each);
  }
  const auto self = std::find(members.begin(), members.end(), runtime_.world().rank);
  if (self == members.end() || members.size() != survivors.size()) {
    return Status(ErrorCode::kProtocol, "the arbiter named others than the members that are left");
  }
  const auto place = static_cast<Rank>(self - members.begin());
  meeting_ = make_enlisted(parent_.shared_runtime(), id_, std::move(members), place, nullptr);
  UNISONO_ASSIGN(made_, split(*meeting_, 0, place));
  return Status();
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
  return Shrinking(parent, patience.count() > 0 ? patience : parent.runtime().timeout()).run();
}

}  // namespace unisono::detail
