// One rank's part in a communicator of a simulated job: its calls, by the production backends and
// under the production watchdog, and its failure.
//
// Thread rule: one thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend/host_backends.h"
#include "comm/failure.h"
#include "comm/job_communicator.h"
#include "comm/request_state.h"
#include "comm/watchdog.h"
#include "rendezvous/arbiter.h"
#include "tests/sim/case.h"
#include "tests/sim/random.h"
#include "tests/sim/schedule.h"

namespace unisono::sim {

/// Memory of one call's buffers. Once they are the caller's again nobody may touch them.
class CallMemory final : public test::CaseMemory {
 public:
  std::byte* take(std::size_t bytes) override { return blocks_.emplace_back(bytes).data(); }
  void clear() override { blocks_.clear(); }
  void write(std::byte* to, const std::byte* from, std::size_t bytes) override;
  void read(std::byte* to, const std::byte* from, std::size_t bytes) override;
  /// The caller writes something else there, ...
  void reuse();
  /// ... and finds it there.
  bool is_as_left() const;

 private:
  std::vector<std::vector<std::byte>> blocks_;
};

class SimulatedCommunicator final : public JobCommunicator {
 public:
  struct Surroundings {
    Schedule& schedule;
    Engine& engine;
    ScratchPool& scratch;
    WatchedJob& job;
    ArbiterClient& arbiter;
    std::function<void()> catch_up;  ///< hears what the arbiter has said
    std::function<void(SimulatedCommunicator&, const Status&)> on_failed;
    std::function<void(Duration)> wake_in;
    std::function<void(const std::string&)> accuse;
  };
  /// The calls of a case, by world ranks `members`.
  SimulatedCommunicator(std::uint32_t id, std::vector<Rank> members, Rank world_rank,
                        std::vector<Operation> operations, const Case& c, std::uint64_t seed,
                        const Surroundings& around);
  ~SimulatedCommunicator() override;
  SimulatedCommunicator(const SimulatedCommunicator&) = delete;

  // JobCommunicator
  const Members& members() const override { return members_; }
  const CallRecord* find_call(std::uint64_t sequence) const override {
    return host_.calls().find(sequence);
  }
  CallsOfRank own_calls() const override {
    return {members_.self(), members_.world_ranks(), host_.calls().latest()};
  }
  void add_waits(std::vector<RunningWait>* waits) override;
  void fail(Status cause, Tell tell) override;
  void disagree(const Status& seen) override;
  void note_left(Rank member) override;
  void tend(const std::vector<bool>& peer_left) override;

  /// Behind those that it has.
  void add_calls(const std::vector<Operation>& operations) {
    operations_.insert(operations_.end(), operations.begin(), operations.end());
  }
  void start_calls();
  void close();

  Status failure() const { return failure_.cause(); }
  bool is_running() const { return !running_.empty(); }
  bool has_made_all_calls() const { return next_call_ == operations_.size() && running_.empty(); }
  bool is_closed() const { return is_closed_; }
  int calls_done() const { return calls_done_; }
  std::string whereabouts() const;
  /// Buffers that were given back with a failure are as their owner left them.
  bool are_buffers_untouched() const;

 private:
  struct Running {
    std::size_t number = 0;
    std::unique_ptr<CallMemory> memory;
    std::unique_ptr<test::CasePart> part;
    std::shared_ptr<detail::RequestState> request;
  };

  void start_call(std::size_t number);
  void on_done(Running& running);
  void drop_ended();
  void end_calls(const Status& cause);
  FailureDecision decision_of(const Status& cause) const;
  std::string call_text(std::size_t number) const;
  TimePoint now() const { return around_.schedule.now(); }

  const Surroundings around_;
  std::vector<Operation> operations_;
  const Duration computes_;
  Random random_;
  const std::size_t at_once_;
  const Members members_;
  HostBackends host_;
  Watchdog watchdog_;
  std::vector<std::unique_ptr<Running>> running_;
  std::vector<std::unique_ptr<CallMemory>> given_back_;
  std::size_t next_call_ = 0;
  int calls_done_ = 0;
  TimePoint computes_until_{};
  Failure failure_;
  bool is_closed_ = false;
};

}  // namespace unisono::sim
