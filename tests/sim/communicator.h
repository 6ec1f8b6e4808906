// One rank's part in a communicator of a simulated job: the production's, in virtual time, and the
// calls of a case.
//
// Thread rule: one thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "comm/part.h"
#include "comm/watched_communicator.h"
#include "tests/sim/case.h"
#include "tests/sim/host_memory.h"
#include "tests/sim/random.h"
#include "tests/sim/schedule.h"

namespace unisono::sim {

/// Memory of one call's buffers. Once they are the caller's again nobody may touch them.
class CallMemory final : public test::CaseMemory {
 public:
  /// Of a heap that others read, or of the rank alone.
  explicit CallMemory(shm::SharedSegment* heap = nullptr) : heap_(heap) {}
  ~CallMemory() override { clear(); }
  CallMemory(const CallMemory&) = delete;

  std::byte* take(std::size_t bytes) override;
  void clear() override;
  void write(std::byte* to, const std::byte* from, std::size_t bytes) override;
  void read(std::byte* to, const std::byte* from, std::size_t bytes) override;
  /// The caller writes something else there, ...
  void reuse();
  /// ... and finds it there.
  bool is_as_left() const;

 private:
  shm::SharedSegment* const heap_;
  std::vector<std::span<std::byte>> blocks_;
};

class SimulatedCommunicator final : public detail::WatchedCommunicator {
 public:
  struct Surroundings {
    Schedule& schedule;
    Engine& engine;
    ScratchPool& scratch;
    WatchedJob& job;
    JobNews& news;
    ArbiterClient& arbiter;
    HostMemory* memory;  ///< null: ranks share none
    std::function<void(SimulatedCommunicator&, const Status&)> on_failed;
    std::function<std::uint32_t()> take_id;  ///< for a communicator that this rank names
    /// It was split: world ranks `members` are this rank's part, by this number.
    std::function<void(std::uint32_t id, std::vector<Rank> members)> on_split;
    std::function<void(Duration)> wake_in;
    std::function<void(const std::string&)> accuse;
  };
  /// The calls of a case, by world ranks `members`.
  SimulatedCommunicator(std::uint32_t id, std::vector<Rank> members, Rank world_rank,
                        std::vector<Operation> operations, const Case& c, std::uint64_t seed,
                        const Surroundings& around);
  SimulatedCommunicator(const SimulatedCommunicator&) = delete;

  /// Behind those that it has.
  void add_calls(const std::vector<Operation>& operations);
  /// Goes on with what it has begun, and begins more while it may.
  void start_calls(const std::function<bool()>& may_begin = [] { return true; });
  /// A call that is none of the case's. `on_over` hears its outcome.
  void begin(const Call& call, std::function<void(const Status&)> on_over);
  /// Calls surroundings.on_split at its end.
  void begin_split(int color, int key);
  void close();

  /// A native call runs, in which nobody is woken: it is looked at.
  bool watches_memory() const {
    return native() != nullptr && !host().shared_memory().is_idle() && usable().ok();
  }
  bool is_running() const {
    return !running_.empty() || ((is_splitting() || !others_.empty()) && usable().ok());
  }
  /// The number of the operation that it calls next.
  std::size_t next_operation() const {
    return next_call_ < calls_.size() ? calls_[next_call_].operation : operations_.size();
  }
  std::size_t latest_operation() const { return calls_[next_call_ - 1].operation; }
  /// It calls nothing any more.
  bool is_settled() const { return !usable().ok() || has_made_all_calls(); }
  bool has_made_all_calls() const { return next_call_ == calls_.size() && !is_running(); }
  /// Collectives, and sends and receives.
  int calls_done() const { return calls_done_; }
  int messages_done() const { return messages_done_; }
  /// A receive that runs names no source.
  bool waits_for_any() const;
  TimePoint closed_at() const { return closed_at_; }
  std::string whereabouts() const;
  /// Buffers that were given back with a failure are as their owner left them.
  bool are_buffers_untouched() const;

 private:
  /// One call of an operation.
  struct PlannedCall {
    std::size_t operation;
    std::optional<Message> message = {};  ///< none: a collective
  };
  struct Running {
    PlannedCall what;
    std::unique_ptr<CallMemory> memory;
    std::unique_ptr<test::CasePart> part = {};
    MessagePart* message = nullptr;  ///< the part, where it is one
    detail::RequestState* request = nullptr;
  };

  /// A split on its way: what split() of src/comm does by blocking calls.
  struct Splitting {
    enum class Step : std::uint8_t { kVotes, kOffers, kOpened, kOver };
    Step step = Step::kVotes;
    bool is_in_call = false;
    detail::Vote vote;
    detail::Offer offer, agreed;
    std::uint8_t opened = 1;
    std::vector<detail::Vote> votes;
    std::vector<detail::Offer> offers;
    std::vector<std::uint8_t> all_opened;
    std::optional<detail::Part> part = {};
  };

  // WatchedCommunicator
  TimePoint now() const override { return surroundings_.schedule.now(); }
  void on_failing(const Status& cause) override;
  void on_over(detail::RequestState& request) override;

  void start_call(const PlannedCall& call);
  void start_collective(Running& running);
  bool begin_blocking(Running& running, HostBackends::Checked* checked);
  void start_message(Running& running);
  void start(Running& running, const HostBackends::Checked& checked);
  bool is_splitting() const { return splitting_ != nullptr; }
  void begin_split(const Operation& operation);
  void go_on_with_split();
  template <typename T>
  void share(const T& mine, std::vector<T>* all);
  void end_split();
  void drop_ended();
  void judge(Running& running, const Status& outcome);
  std::string call_text(const PlannedCall& call) const;

  const Surroundings surroundings_;
  std::vector<Operation> operations_;
  std::vector<PlannedCall> calls_;
  const Duration computes_;
  Random random_;
  const std::size_t at_once_;
  std::vector<std::unique_ptr<Running>> running_;
  std::map<const detail::RequestState*, std::function<void(const Status&)>> others_;
  std::unique_ptr<Splitting> splitting_;
  std::vector<std::unique_ptr<CallMemory>> given_back_;
  std::size_t next_call_ = 0;
  int calls_done_ = 0, messages_done_ = 0;
  std::set<std::pair<Tag, Rank>> heard_;  // of all that send to one rank, which named none
  TimePoint computes_until_{};
  TimePoint closed_at_ = kNever;
};

}  // namespace unisono::sim
