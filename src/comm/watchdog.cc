#include "comm/watchdog.h"

#include <algorithm>

#include "backend/host_backends.h"
#include "base/communicator_id.h"
#include "base/grace_periods.h"
#include "base/log.h"
#include "rendezvous/messages/rank_text.h"

namespace unisono {
namespace {

// Messages are told apart by peer and tag.
std::string name_of_message(const CallRecord& record, const Call& call, Rank peer) {
  return describe(record) + (call.collective == Collective::kSend ? " to " : " from ") +
         (peer == kAnyRank ? "any rank" : "rank " + std::to_string(peer)) + " with tag " +
         std::to_string(call.tag);
}

}  // namespace

Watchdog::Watchdog(WatchedJob& job, const Members& members, const HostBackends& host)
    : job_(job),
      members_(members),
      host_(host),
      left_(static_cast<std::size_t>(members.size()), false) {}

void Watchdog::begin(detail::RequestState& request, TimePoint now) const {
  detail::WatchNotes& notes = request.notes;
  if (notes.began != TimePoint{}) return;
  const auto own = request.call.options.timeout;
  notes.began = now;
  notes.deadline = later(now, own.count() > 0 ? own : job_.timeout());
}

Status Watchdog::look_at(detail::RequestState& request, TimePoint now,
                         const std::vector<bool>& peer_left) {
  detail::WatchNotes& notes = request.notes;
  if (now - notes.began < grace::kProbeAfter && now < notes.deadline) return Status();
  const StartedCall& call = request.at_peers();
  waiting_.clear();
  request.operation->waiting_for(&waiting_);
  waits_for_any_ = std::erase(waiting_, kAnyRank) > 0;
  const Rank gone =
      waits_for_any_ ? last_gone(peer_left) : first_gone(call.plan == nullptr, peer_left);
  if (misses(gone, now, &notes.absence)) {
    const bool is_one_of_many = waits_for_any_ && members_.size() > 2;
    return is_one_of_many ? failure_without_all(name_of_call(request))
                          : failure_without(gone, name_of_call(request));
  }
  const bool collective = !is_point_to_point(request.call.collective);
  if (!notes.probed && !collective) {
    notes.probed = true;
    probe_sources(call);
  }
  if (!notes.probed && call.is_numbered) {
    notes.probed = true;
    probe_peers(call);
  }
  if (!notes.reported && call.is_numbered && now - notes.began >= grace::kReportAfter) {
    notes.reported = true;
    job_.report_waiting(waiting_in(call));
  }
  if (!notes.warned && now - notes.began >= job_.warn_after()) {
    notes.warned = true;
    log::warning("rank " + std::to_string(members_.self()) + of_communicator(members_.id()) +
                 " waits in " + name_of_call(request) + "; " + waiting_text());
  }
  return now >= notes.deadline ? time_out(request, now) : Status();
}

// Nothing is asked while all are there.
Status Watchdog::look_at_replays(const DeviceCalls& devices, TimePoint now,
                                 const std::vector<bool>& peer_left) {
  waiting_.clear();
  bool some_left = false;
  for (Rank member = 0; member < members_.size(); ++member) {
    some_left = some_left || has_gone(member, true, peer_left);
  }
  if (some_left) devices.replays_wait_for(&waiting_);
  const Rank gone = first_gone(true, peer_left);
  if (!misses(gone, now, &absence_from_replays_)) return Status();
  return failure_without(gone, "a replay of a CUDA graph");
}

// The flag in shared memory runs ahead of messages: plans are told by their probes instead.
bool Watchdog::has_gone(Rank member, bool asks_group, const std::vector<bool>& peer_left) const {
  const native::Group* const group = host_.shared_memory().group();
  return left_[static_cast<std::size_t>(member)] ||
         peer_left[static_cast<std::size_t>(members_.world_rank(member))] ||
         (asks_group && group != nullptr && group->has_left(member));
}

Rank Watchdog::first_gone(bool asks_group, const std::vector<bool>& peer_left) const {
  const auto gone = std::find_if(waiting_.begin(), waiting_.end(), [&](Rank member) {
    return has_gone(member, asks_group, peer_left);
  });
  return gone == waiting_.end() ? -1 : *gone;
}

// What waits for any rank is lost only when all have left.
Rank Watchdog::last_gone(const std::vector<bool>& peer_left) const {
  Rank gone = -1;
  for (Rank member = 0; member < members_.size(); ++member) {
    if (member == members_.self()) continue;
    if (!has_gone(member, true, peer_left)) return -1;
    gone = member;
  }
  return gone;
}

// What a member sent before it left may still be on its way here: that it is still waited for
// counts only after a while.
bool Watchdog::misses(Rank gone, TimePoint now, detail::Absence* absence) {
  if (absence->member != gone) *absence = {gone, now, 0};
  ++absence->looks;
  return gone >= 0 && now - absence->since >= grace::kAfterGoodbye &&
         absence->looks > grace::kLooksAfterGoodbye;
}

Status Watchdog::failure_without(Rank gone, const std::string& what) {
  return Status(
      ErrorCode::kRankLeft,
      "rank " + std::to_string(gone) + " has closed the communicator and is needed by " + what,
      gone);
}

// It names nobody: all have left alike.
Status Watchdog::failure_without_all(const std::string& what) {
  return Status(ErrorCode::kRankLeft,
                "all other ranks have closed the communicator, and one is needed by " + what);
}

// A receive says nothing to its source, which may have left before it had said anything: who has
// closed the communicator answers that to whatever comes.
void Watchdog::probe_sources(const StartedCall& call) const {
  for (Rank member = 0; member < members_.size(); ++member) {
    const bool is_source = waits_for_any_ || std::count(waiting_.begin(), waiting_.end(), member);
    if (!is_source || member == members_.self()) continue;
    job_.probe(members_.world_rank(member), members_.id(), kPointToPointSequence, call.record);
  }
}

// Makes peers that are in another call notice, and this rank notice what they said. A call without
// a plan, in shared memory or in the streams of a device, sends nothing itself, but a peer may have
// taken a plan for it.
void Watchdog::probe_peers(const StartedCall& call) const {
  if (call.plan == nullptr) {
    job_.compare_call(members_.id(), call.sequence, call.record);
    return;
  }
  for (const Rank member : waiting_) {
    job_.probe(members_.world_rank(member), members_.id(), call.sequence, call.record);
  }
}

// Of the call that is looked at.
rendezvous::WaitMessage Watchdog::waiting_in(const StartedCall& call) const {
  const bool has_number = call.is_numbered && !is_point_to_point(call.call.collective);
  return {members_.id(), has_number ? call.sequence : kPointToPointSequence, waiting_world_ranks()};
}

rendezvous::WaitMessage Watchdog::wait_of(detail::RequestState& request) {
  waiting_.clear();
  request.operation->waiting_for(&waiting_);
  std::erase(waiting_, kAnyRank);
  return waiting_in(request.at_peers());
}

// The arbiter is asked first: it has heard from the other ranks too.
Status Watchdog::time_out(detail::RequestState& request, TimePoint now) const {
  const StartedCall& call = request.at_peers();
  const bool can_be_judged =
      is_point_to_point(call.call.collective) ? !waiting_.empty() : call.is_numbered;
  if (!request.notes.timed_out && can_be_judged && members_.size() > 1) {
    rendezvous::WaitMessage wait = waiting_in(call);
    wait.members = members_.world_ranks();
    wait.call = late_call(request);
    job_.report_timeout(wait);
    request.notes.timed_out = true;
    request.notes.deadline = now + grace::kDecision;
    request.notes.late_operation = wait.sequence;
    return Status();
  }
  return Status(ErrorCode::kTimeout,
                name_of_call(request) + " did not finish within its deadline (" +
                    limit_text(request) + "); " + waiting_text(),
                waiting_.size() == 1 ? waiting_.front() : -1);
}

// The arbiter is about to say who holds it up. Messages have no number by which it could tell them
// apart.
void Watchdog::withdraw_timeout(const detail::RequestState& request) const {
  const std::uint64_t operation = request.notes.late_operation;
  if (operation != kPointToPointSequence) job_.withdraw_timeout(members_.id(), operation);
}

std::string Watchdog::name_of_call(const detail::RequestState& request) {
  const StartedCall& call = request.at_peers();
  return is_point_to_point(request.call.collective)
             ? name_of_message(call.record, request.call, request.call.peer)
             : describe(call.record, call.sequence);
}

// For the arbiter, which gives a collective its number, and counts ranks of the job.
std::string Watchdog::late_call(const detail::RequestState& request) const {
  const auto in_job = [&](Rank rank) { return rank < 0 ? rank : members_.world_rank(rank); };
  const Call& call = request.call;
  CallRecord record = request.at_peers().record;
  record.root = in_job(record.root);
  if (!is_point_to_point(call.collective)) return describe(record) + ", " + limit_text(request);
  return name_of_message(record, call, in_job(call.peer)) + " (" + limit_text(request) + ")";
}

std::string Watchdog::limit_text(const detail::RequestState& request) const {
  const auto own = request.call.options.timeout;
  return own.count() > 0 ? "limit " + rendezvous::duration_text(own) + " by the call's own timeout"
                         : "limit " + rendezvous::duration_text(job_.timeout()) +
                               " by UNISONO_TIMEOUT or init()";
}

std::vector<Rank> Watchdog::waiting_world_ranks() const {
  std::vector<Rank> ranks;
  for (const Rank member : waiting_) ranks.push_back(members_.world_rank(member));
  return ranks;
}

std::string Watchdog::waiting_text() const {
  return "waiting for " + (waits_for_any_ ? "any rank" : rendezvous::ranks_text(waiting_));
}

}  // namespace unisono
