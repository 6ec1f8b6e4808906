// Looks at calls that take long: lets the peers know which call this rank is in, tells the job and
// the user for whom it waits, and says when it has failed, because a member that it waits for has
// left or because its deadline has passed.
//
// Thread rule: the engine's lock.
#pragma once

#include <string>
#include <vector>

#include "backend/request_state.h"
#include "comm/watched_job.h"
#include "cuda/collectives/device_calls.h"
#include "rendezvous/messages/control_messages.h"

namespace unisono {

class HostBackends;
class Members;

class Watchdog {
 public:
  Watchdog(WatchedJob& job, const Members& members, const HostBackends& host);

  /// The member has closed the communicator.
  void note_left(Rank member) { left_[static_cast<std::size_t>(member)] = true; }
  /// From here on its deadline counts; once for each call. Takes no memory.
  void begin(detail::RequestState& request, TimePoint now) const;
  /// Looks at a running call, which has begun: ok, or why the communicator fails. `peer_left`, by
  /// world rank: who has left the job.
  Status look_at(detail::RequestState& request, TimePoint now, const std::vector<bool>& peer_left);
  static bool is_due(const detail::RequestState& request, TimePoint now) {
    return request.notes.began != TimePoint{} && now >= request.notes.deadline;
  }
  /// A call has ended well after its deadline had passed (WatchNotes::timed_out).
  void withdraw_timeout(const detail::RequestState& request) const;
  /// For whom a running call waits.
  rendezvous::WaitMessage wait_of(detail::RequestState& request);
  /// As look_at(), for replays of captured calls.
  Status look_at_replays(const DeviceCalls& devices, TimePoint now,
                         const std::vector<bool>& peer_left);

 private:
  bool has_gone(Rank member, bool asks_group, const std::vector<bool>& peer_left) const;
  Rank first_gone(bool asks_group, const std::vector<bool>& peer_left) const;
  Rank last_gone(const std::vector<bool>& peer_left) const;
  static bool misses(Rank gone, TimePoint now, detail::Absence* absence);
  static Status failure_without(Rank gone, const std::string& what);
  static Status failure_without_all(const std::string& what);
  static std::string name_of_call(const detail::RequestState& request);
  std::string late_call(const detail::RequestState& request) const;
  std::string limit_text(const detail::RequestState& request) const;
  void probe_peers(const StartedCall& call) const;
  void probe_sources(const StartedCall& call) const;
  rendezvous::WaitMessage waiting_in(const StartedCall& call) const;
  Status time_out(detail::RequestState& request, TimePoint now) const;
  std::vector<Rank> waiting_world_ranks() const;
  std::string waiting_text() const;

  WatchedJob& job_;
  const Members& members_;
  const HostBackends& host_;
  std::vector<bool> left_;
  std::vector<Rank> waiting_;   // whom the call that is looked at waits for
  bool waits_for_any_ = false;  // it waits for whichever rank comes first
  detail::Absence absence_from_replays_;
};

}  // namespace unisono
