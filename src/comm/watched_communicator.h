// What a communicator does in its rank's engine: its calls under the watchdog, and their end by its
// first failure. No thread, lock or clock: communicator_state has these, tests/sim virtual time.
//
// Thread rule: the engine's lock, but for failure(), usable() and closed(): any thread.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/host_backends.h"
#include "backend/request_pool.h"
#include "comm/failure.h"
#include "comm/job_news.h"
#include "comm/watchdog.h"

namespace unisono::detail {

class WatchedCommunicator : public JobCommunicator {
 public:
  const Members& members() const final { return members_; }
  Rank rank() const { return members_.self(); }
  int size() const { return members_.size(); }
  HostBackends& host() { return host_; }
  const HostBackends& host() const { return host_; }
  native::Group* native() const { return host_.shared_memory().group(); }
  const CallRecord* find_call(std::uint64_t sequence) const final {
    return host_.calls().find(sequence);
  }
  rendezvous::CallsMessage own_calls() const final {
    return {members_.id(), rank(), members_.world_ranks(), {}, host_.calls().latest()};
  }

  /// Once, before anything else.
  void enlist();
  Status failure() const { return failure_.cause(); }
  /// Where this rank was then.
  FailedIn failed_in() const { return failure_.place(); }
  /// Ok, or why no call can begin: closing it is a cause too, where there was none before.
  Status usable() const { return failure_.has_cause() ? failure() : Status(); }
  bool closed() const { return closed_; }

  /// This rank has not made the part of it by this number (0: is in none), for it failed first.
  /// Members that have made the part hear why.
  void fail_part(std::uint32_t id, const Status& cause);

  /// It has failed, and this rank may not go on either: later calls are told that.
  void note_partition(const Status& why) { failure_.replace(why); }

  // JobCommunicator
  void fail(Status cause, Tell tell) final;
  void fail_without_memory() final;
  /// The communicator fails once the job has named the rank whose call is wrong.
  void disagree(const Status& seen) final;
  void note_left(Rank member) final;
  void add_waits(std::vector<rendezvous::WaitMessage>* waits) override;
  void tend(const std::vector<bool>& peer_left) override;

 protected:
  /// Of its rank; all of it outlives the communicator.
  struct Surroundings {
    Engine& engine;
    ScratchPool& scratch;
    JobNews& news;
    ArbiterClient& arbiter;
    WatchedJob& job;
    recorder::Recorder* recorder = nullptr;  ///< null: nothing is recorded
  };
  /// `group`, which is taken: null where members do not share memory.
  WatchedCommunicator(const Surroundings& around, Members members,
                      CallSelection::Circumstances circumstances,
                      std::unique_ptr<native::Group>&& group);

  /// A send or receive of host memory, which nothing is wrong with; `looks`: of a receive, for what
  /// has come. Null: it is over already.
  RequestState* begin_message(const Call& call, int looks);
  RequestState& prepare(const Call& call);
  /// Makes `request` that of a running call, which the engine is to start next.
  RequestState* note_begun(RequestState& request, Operation* operation);
  /// What the caller hears of a call that could not be started.
  Status not_started(const Status& why);
  Status naming_rank(const Status& cause) const;
  /// Fails for what the watchdog has seen, if it has.
  void fail_as_seen(const Status& seen);
  void give_back_buffers(const Status& cause);
  /// Nobody is told of the failure any more.
  void drop_failing();
  bool has_failed() const;
  /// Ends it on this rank. True where it was the rank's last one. Where it throws it is not closed,
  /// and may be asked again.
  bool close_here();

  virtual TimePoint now() const = 0;
  /// Before the calls end.
  virtual void on_failing(const Status& cause) { give_back_buffers(cause); }
  /// Before the calls end.
  virtual void on_closing() {}
  /// The call is over, and its outcome known.
  virtual void on_over(RequestState&) {}

  const Surroundings around_;
  const Members members_;
  HostBackends host_;
  RequestPool requests_;
  Watchdog watchdog_;
  Failure failure_;

 private:
  void look_after_calls(TimePoint at, const std::vector<bool>& peer_left);
  void leave_job();
  FailedIn place(const RequestState* ending) const;
  void fail_by(const RequestState* ending, const Status& cause, Tell tell);
  void spread_failure(Tell tell);
  void postpone(Tell tell);
  void finish_failing();
  void end_calls_briefly();
  FailureDecision decision_of(const Status& cause) const;
  void end_calls(const Status& cause);
  void leave_survivors();
  void on_done(RequestState& request) noexcept;
  void note_no_memory(RequestState& request);
  bool note_outcome(RequestState& request);
  Status outcome_of(RequestState& request);

  std::optional<Tell> unfinished_;  // memory was used up while it failed: whom to tell yet
  std::atomic<bool> closed_ = false;
};

}  // namespace unisono::detail
