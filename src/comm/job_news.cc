#include "comm/job_news.h"

#include <algorithm>
#include <iterator>
#include <new>
#include <utility>

#include "base/communicator_id.h"
#include "base/keep_latest.h"
#include "base/log.h"
#include "base/make_room.h"
#include "base/take_each.h"

namespace unisono {
namespace {

// Of communicators that do not exist here most are closed ones: the latest are kept.
constexpr std::size_t kDecisionsKept = 256, kQuestionsKept = 64, kShrinkWordsKept = 256;

// What was remembered of this communicator, in order.
std::vector<FailureDecision> recall(std::uint32_t communicator, std::deque<FailureDecision>* kept) {
  const auto concerns = [&](const FailureDecision& each) {
    return each.communicator == communicator;
  };
  std::vector<FailureDecision> recalled;
  std::copy_if(kept->begin(), kept->end(), std::back_inserter(recalled), concerns);
  std::erase_if(*kept, concerns);
  return recalled;
}

template <typename Step>
bool had_memory_for(const Step& step) {
  try {
    step();
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

// What concerns every communicator of a rank names ranks of the job.
void tell(const FailureDecision& decision, JobCommunicator* communicator) {
  const std::uint32_t id = communicator->members().id();
  const Rank member = communicator->members().find(decision.failed_rank);
  const bool is_of_rank = decision.communicator == kEveryCommunicator;
  if (is_of_rank ? member < 0 : decision.communicator != id) return;
  std::string text = is_of_rank ? with_ranks_of_job(decision.message, id) : decision.message;
  communicator->fail(Status(decision.code, std::move(text), member),
                     JobCommunicator::Tell::kNobody);
}

}  // namespace

JobNews::JobNews(ArbiterClient& arbiter, int size)
    : arbiter_(arbiter), peer_left_(static_cast<std::size_t>(size), false) {}

void JobNews::add(JobCommunicator& communicator) {
  communicators_.push_back(&communicator);
  for (const FailureDecision& death : deaths_) tell(death, &communicator);
  // A member that was quicker may have left or failed the communicator before it was made here.
  for (const FailureDecision& decision : recall(communicator.members().id(), &unknown_decisions_)) {
    tell(decision, &communicator);
  }
}

bool JobNews::remove(JobCommunicator& communicator) {
  return std::erase(communicators_, &communicator) > 0 && communicators_.empty();
}

JobCommunicator* JobNews::find(std::uint32_t id) const {
  for (JobCommunicator* communicator : communicators_) {
    if (communicator->members().id() == id) return communicator;
  }
  return nullptr;
}

bool JobNews::is_gone(Rank rank) const {
  return peer_left_[static_cast<std::size_t>(rank)] || is_dead(rank);
}

bool JobNews::is_dead(Rank rank) const {
  return std::any_of(deaths_.begin(), deaths_.end(),
                     [rank](const FailureDecision& death) { return death.failed_rank == rank; });
}

Status JobNews::find_lost(const std::vector<Rank>& ranks) const {
  for (const FailureDecision& death : deaths_) {
    if (std::find(ranks.begin(), ranks.end(), death.failed_rank) == ranks.end()) continue;
    return Status(death.code, death.message, death.failed_rank);
  }
  for (const Rank rank : ranks) {
    if (!peer_left_[static_cast<std::size_t>(rank)]) continue;
    return Status(ErrorCode::kRankLeft, "rank " + std::to_string(rank) + " has left", rank);
  }
  return Status();
}

void JobNews::hear(const FailureDecision& decision) {
  if (decision.code == ErrorCode::kRankLeft && decision.failed_rank >= 0 &&
      decision.communicator == kEveryCommunicator) {
    // No failure by itself: only calls that still need the rank fail, and they say which.
    peer_left_[static_cast<std::size_t>(decision.failed_rank)] = true;
    return;
  }
  if (decision.communicator == kEveryCommunicator) {
    note_death(decision);
  } else if (find(decision.communicator) == nullptr) {
    keep_latest(decision, kDecisionsKept, &unknown_decisions_);
  }
  for (std::size_t i = 0; i < communicators_.size(); ++i) tell(decision, communicators_[i]);
}

// Once, though it is heard again where memory was used up behind this.
void JobNews::note_death(const FailureDecision& decision) {
  const bool is_known = decision.failed_rank >= 0 && is_dead(decision.failed_rank);
  if (is_known) return;
  make_room(newly_dead_);
  deaths_.push_back(decision);
  if (decision.failed_rank >= 0) newly_dead_.push_back(decision.failed_rank);
}

void JobNews::ask(std::uint32_t communicator) {
  keep_latest(communicator, kQuestionsKept, &questions_);
}

void JobNews::answer_questions() {
  std::erase_if(questions_, [this](std::uint32_t id) {
    const JobCommunicator* const found = find(id);
    if (found != nullptr) arbiter_.answer_calls(found->own_calls());
    return found != nullptr;
  });
}

void JobNews::poll_arbiter() {
  hear_news();  // left from the last time, where memory was used up
  news_ = arbiter_.take_news();
  hear_news();
}

void JobNews::hear_news() {
  take_each(&news_.decisions, [this](const FailureDecision& decision) { hear(decision); });
  take_each(&news_.questions, [this](std::uint32_t communicator) { ask(communicator); });
  answer_questions();
  take_each(&news_.shrink_words, [this](const rendezvous::ShrinkMessage& word) {
    keep_latest(word, kShrinkWordsKept, &shrink_words_);
  });
  if (!news_.asks_for_waits) return;
  std::vector<rendezvous::WaitMessage> waits;
  for (JobCommunicator* const communicator : communicators_) communicator->add_waits(&waits);
  arbiter_.answer_waits(waits);
  news_.asks_for_waits = false;
}

std::optional<rendezvous::ShrinkMessage> JobNews::take_shrink_word(std::uint32_t communicator) {
  std::optional<rendezvous::ShrinkMessage> latest;
  for (const rendezvous::ShrinkMessage& word : shrink_words_) {
    if (word.communicator == communicator) latest = word;
  }
  forget_shrink_words(communicator);
  return latest;
}

void JobNews::forget_shrink_words(std::uint32_t communicator) {
  std::erase_if(shrink_words_, [&](const auto& word) { return word.communicator == communicator; });
}

void JobNews::tell_events() {
  if (has_no_memory_) {
    const Rank self = arbiter_.world().rank;
    tell_own_failure({kEveryCommunicator, ErrorCode::kOutOfResources, self,
                      "rank " + std::to_string(self) + " has no memory left"});
    has_no_memory_ = false;  // not before: telling needs memory
  }
  if (!events_.empty()) take_each(&events_, [this](const Event& event) { pass_on(event); });
}

void JobNews::pass_on(const Event& event) {
  if (event.communicator == kEveryCommunicator && event.peer == arbiter_.world().rank) {
    return tell_own_failure(event);
  }
  // Whose fault it was is the arbiter's to say: the peer may be another failure's victim.
  if (event.communicator == kEveryCommunicator) {
    return arbiter_.report_broken_link(event.peer, Status(event.code, event.message, event.peer));
  }
  JobCommunicator* const communicator = find(event.communicator);
  if (communicator == nullptr) return;
  const Rank member = communicator->members().find(event.peer);
  if (event.code == ErrorCode::kRankLeft) {
    communicator->note_left(member);
  } else if (event.code == ErrorCode::kMismatch) {
    communicator->disagree(Status(event.code, event.message, member));
  } else {
    communicator->fail(
        Status(event.code, "rank " + std::to_string(member) + " " + event.message, member),
        JobCommunicator::Tell::kEveryone);
  }
}

// Nobody else sees whose it is. Its own calls do not wait for the arbiter's word.
void JobNews::tell_own_failure(const Event& event) {
  const FailureDecision failure{event.code, event.peer, kEveryCommunicator, 0, event.message};
  arbiter_.report_failure(failure);
  hear(failure);
}

void JobNews::tend() {
  // The job's word first: what this rank finds out by itself may only follow from it.
  bool had_memory = had_memory_for([this] {
    poll_arbiter();
    tell_events();
  });
  if (has_no_memory_) {
    for (std::size_t i = 0; i < communicators_.size(); ++i)
      communicators_[i]->fail_without_memory();
  }
  // One that lacks memory keeps nothing from the others.
  for (std::size_t i = 0; i < communicators_.size(); ++i) {
    had_memory &= had_memory_for([&] { communicators_[i]->tend(peer_left_); });
  }
  if (!had_memory) throw std::bad_alloc();
}

void JobNews::mismatch(std::uint32_t communicator, Rank peer, const CallRecord& theirs,
                       const CallRecord& ours) {
  const JobCommunicator* const found = find(communicator);
  if (found == nullptr) return;
  events_.push_back({communicator, ErrorCode::kMismatch, peer,
                     "rank " + std::to_string(found->members().self()) + " called " +
                         describe(ours) + " while rank " +
                         std::to_string(found->members().find(peer)) + " called " +
                         describe(theirs)});
}

void JobNews::counts_differ(std::uint32_t communicator, Rank peer, std::string what) {
  const JobCommunicator* const found = find(communicator);
  if (found == nullptr) return;
  events_.push_back({communicator, ErrorCode::kMismatch, peer,
                     "the counts of rank " + std::to_string(found->members().self()) +
                         " and rank " + std::to_string(found->members().find(peer)) +
                         " differ: the latter " + what});
}

const CallRecord* JobNews::find_call(std::uint32_t communicator, std::uint64_t sequence) const {
  const JobCommunicator* const found = find(communicator);
  return found == nullptr ? nullptr : found->find_call(sequence);
}

void JobNews::violation(std::uint32_t communicator, Rank peer, std::string what) {
  events_.push_back({communicator, ErrorCode::kProtocol, peer, std::move(what)});
}

void JobNews::link_closed(Rank peer, const Status& cause) {
  if (cause.ok()) {
    peer_left_[static_cast<std::size_t>(peer)] = true;
    return;
  }
  const Rank self = arbiter_.world().rank;
  events_.push_back(
      {kEveryCommunicator, cause.code(), cause.rank() == self ? self : peer, cause.message()});
}

void JobNews::left(std::uint32_t communicator, Rank peer) {
  events_.push_back({communicator, ErrorCode::kRankLeft, peer, ""});
}

void JobNews::no_memory(std::uint32_t communicator) {
  has_no_memory_ = has_no_memory_ || communicator == kEveryCommunicator;
  if (has_no_memory_) return;
  try {
    events_.push_back({communicator, ErrorCode::kOutOfResources, arbiter_.world().rank,
                       "has no memory left for what the others send"});
  } catch (const std::bad_alloc&) {
    has_no_memory_ = true;
  }
}

void JobNews::stranger(std::uint32_t communicator, Rank peer) {
  const std::string to = " has sent to rank " + std::to_string(arbiter_.world().rank);
  log::warning(with_ranks_of_job("rank " + std::to_string(peer) + ", no member" +
                                     of_communicator(communicator) + "," + to +
                                     " in it; what it sends there is dropped",
                                 communicator));
}

}  // namespace unisono
