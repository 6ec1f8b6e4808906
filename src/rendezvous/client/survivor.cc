#include "rendezvous/client/survivor.h"

#include <algorithm>
#include <utility>

#include "base/communicator_id.h"
#include "base/grace_periods.h"
#include "rendezvous/failure/shrink_agreements.h"
#include "rendezvous/messages/control_wire.h"

namespace unisono::rendezvous {
namespace {

// The arbiter's word is later than it may be by so much before this rank takes it for lost; a
// silent one is found out before, and the next one asked.
constexpr std::chrono::seconds kWordTime{10};

Status no_answer() {
  return {
      ErrorCode::kRankFailed,
      "the survivors cannot agree on who goes on: their arbiter and all that could follow it are "
      "gone or do not answer; start the job anew",
      0};
}

}  // namespace

Survivor::Survivor(ArbiterClient& arbiter, std::uint32_t communicator, std::vector<Rank> members,
                   std::chrono::milliseconds patience)
    : arbiter_(arbiter),
      communicator_(communicator),
      members_(std::move(members)),
      patience_(std::min(patience, kToldTimeMax)) {}

void Survivor::ask(TimePoint now) {
  await_word(now);
  arbiter_.say_shrink({ShrinkStep::kAsk, communicator_, 0, patience_, members_, {}});
}

void Survivor::say(ShrinkStep step, const Status& why) {
  arbiter_.say_shrink({step, communicator_, id_, {}, {}, why});
}

void Survivor::await_word(TimePoint now) {
  const std::chrono::milliseconds silence = arbiter_.silence();
  // A standby may wait for those that are on their way to it, too.
  const auto on_their_way = grace::succession_time(silence);
  lost_at_ = later(now, patience_ + kSuspectTime + silence + on_their_way + kWordTime);
}

Survivor::Task Survivor::advance(const std::optional<ShrinkMessage>& word, TimePoint now) {
  if (word) return on_word(*word, now);
  if (arbiter_.is_lost() && arbiter_.is_last()) return Task::kGoAlone;
  if (arbiter_.is_lost() || now >= lost_at_) {
    const Status partition = arbiter_.partition();
    if (partition) return stop(no_answer());
    return stop({partition.code(), with_ranks_of_job(partition.message(), communicator_),
                 partition.rank()});
  }
  if (now >= cannot_at_) {
    cannot_at_ = kNever;
    await_word(now);
    say(ShrinkStep::kCannot, why_);
  }
  return Task::kWait;
}

Survivor::Task Survivor::on_word(const ShrinkMessage& word, TimePoint now) {
  await_word(now);
  switch (word.step) {
    case ShrinkStep::kForm:
      return begin_attempt(word, now);
    case ShrinkStep::kRefused:
      return stop(word.why);
    case ShrinkStep::kDone:
      return word.id == id_ && has_made_ ? Task::kUse : Task::kWait;
    default:
      return Task::kWait;
  }
}

Survivor::Task Survivor::begin_attempt(const ShrinkMessage& word, TimePoint now) {
  id_ = word.id;
  survivors_ = word.members;
  has_made_ = false;
  cannot_at_ = kNever;
  const bool are_members =
      std::includes(members_.begin(), members_.end(), survivors_.begin(), survivors_.end());
  if (are_members &&
      std::binary_search(survivors_.begin(), survivors_.end(), arbiter_.world().rank)) {
    return Task::kForm;
  }
  on_formed({ErrorCode::kProtocol, "the arbiter named others than the members that are left"}, now);
  return Task::kWait;
}

void Survivor::on_formed(const Status& outcome, TimePoint now) {
  await_word(now);
  why_ = outcome;
  has_made_ = outcome.ok();
  if (has_made_) {
    say(ShrinkStep::kReady);
  } else {
    cannot_at_ = now + grace::kDecision;
  }
}

Survivor::Task Survivor::stop(const Status& why) {
  why_ = why;
  return Task::kStop;
}

}  // namespace unisono::rendezvous
