// One rank of a simulated job: the production engine and messenger over a simulated transport, and
// its communicators, which hear of failures as the production's do. Around them it does what
// src/comm does with threads and clocks: goes on with the survivors, closes and leaves.
//
// Thread rule: one thread.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/drain.h"
#include "comm/job_news.h"
#include "tests/sim/communicator.h"
#include "tests/sim/control_client.h"
#include "tests/sim/fabric.h"
#include "tests/sim/shrinking.h"

namespace unisono::sim {

class SimulatedRank final {
 public:
  struct Surroundings {
    const Case& c;
    Schedule& schedule;
    Fabric& fabric;
    HostMemory* memory;  ///< null: ranks share none
    ArbiterClient& arbiter;
    const ControlClient& client;   ///< under it
    std::function<void()> settle;  ///< after it was used
    std::function<void()> on_left;
    std::function<void(Duration)> wake_in;           ///< has beat() called
    std::function<void(const std::string&)> accuse;  ///< the simulation has found an error
    bool is_lent_after_calls = false;                ///< before it leaves
  };
  /// What became of a failed communicator's survivors, by its word.
  struct Shrunk {
    std::uint32_t from = 0, to = 0;
    std::vector<Rank> members;
    TimePoint when;
  };
  SimulatedRank(Rank rank, Surroundings around, std::uint64_t seed);
  ~SimulatedRank();

  /// What a thread that waits in a call does once.
  void beat();

  /// Another one calls in its communicator, ...
  void lend();
  bool is_lent() const { return state_ == State::kLent; }
  /// ... and gives it back: it goes on with what it has to do, ...
  void take_back();
  /// ... or does nothing more, and leaves.
  void end_soon(Duration wait) { linger(wait); }
  SimulatedCommunicator& lent() const { return current(); }
  /// What the split that the lent communicator has begun has made; null before.
  SimulatedCommunicator* take_made() { return std::exchange(made_while_lent_, nullptr); }
  /// What it needs to make the communicator of survivors.
  Shrinking::Surroundings shrinking_surroundings();

  Rank rank() const { return rank_; }
  bool has_left() const { return state_ == State::kLeft; }
  /// Of a communicator; names world ranks.
  struct Seen {
    std::uint32_t communicator;
    Status failure;
    bool was_alone;    ///< the arbiter was lost then, and nobody had taken its place
    bool was_seeking;  ///< it looked for an arbiter then
    bool is_part;      ///< it was made by a split
    TimePoint when;
    std::vector<Rank> members;
    std::vector<rendezvous::WaitMessage>
        waits;            ///< of its calls that ran then; of a kTimeout alone
    bool waited_for_any;  ///< one of them for whichever rank sends

    /// It found no arbiter when its deadline passed.
    bool is_own_timeout() const {
      return (was_alone || was_seeking) && failure.code() == ErrorCode::kTimeout;
    }
    /// One of its calls waited for the rank that it names, and for no other.
    bool waited_for_named() const {
      return std::any_of(waits.begin(), waits.end(), [this](const rendezvous::WaitMessage& wait) {
        return wait.waiting_for == std::vector<Rank>{failure.rank()};
      });
    }
  };
  /// In the order in which they were made.
  const std::vector<Seen>& failures() const { return failures_; }
  const std::vector<Shrunk>& shrunk() const { return shrunk_; }
  /// It had closed the communicator, or left.
  bool has_closed_by(std::uint32_t communicator, TimePoint when) const;
  /// It looked for an arbiter, at some time, both included.
  bool has_sought(TimePoint from, TimePoint to) const;
  /// Why it does not go on with others; ok where it does, or has not tried.
  const Status& refusal() const { return refusal_; }
  bool is_refused() const { return !refusal_.ok(); }
  int parts_made() const { return static_cast<int>(parts_.size()); }
  int calls_done() const;
  int messages_done() const;
  /// For people: where it is.
  std::string whereabouts() const;

 private:
  enum class State : std::uint8_t { kCalling, kLent, kShrinking, kLingering, kDraining, kLeft };
  /// The production's, but that it tends in virtual time.
  class News final : public JobNews {
   public:
    News(ArbiterClient& arbiter, int size, std::function<void(Rank)> on_stranger)
        : JobNews(arbiter, size), on_stranger_(std::move(on_stranger)) {}
    void tend() override {}
    void tend_now() { JobNews::tend(); }
    void stranger(std::uint32_t, Rank peer) override { on_stranger_(peer); }

   private:
    const std::function<void(Rank)> on_stranger_;
  };

  void look_around();
  void look_at_memory();
  void call();
  void end_calls();
  void add_part(std::uint32_t id, std::vector<Rank> members);
  bool are_parts_settled() const;
  void note_failure(SimulatedCommunicator& communicator, const Status& cause);
  void note_search();
  SimulatedCommunicator& make_communicator(std::uint32_t id, std::vector<Rank> members,
                                           std::vector<Operation> operations);
  SimulatedCommunicator& current() const { return *current_; }
  void begin_to_shrink();
  void shrink();
  void go_on();
  void end_refused();
  void linger(Duration wait);
  void drain();
  void leave();
  TimePoint now() const { return around_.schedule.now(); }

  const Rank rank_;
  const Surroundings around_;
  Random random_;
  State state_ = State::kCalling;
  News news_;
  Engine engine_;
  WatchedJob watched_;
  ScratchPool scratch_;
  std::vector<std::unique_ptr<SimulatedCommunicator>> communicators_;
  SimulatedCommunicator* current_ = nullptr;
  /// What splits have made, the latest last.
  std::vector<SimulatedCommunicator*> parts_;
  std::set<std::uint32_t> part_ids_;
  SimulatedCommunicator* part_of_current_ = nullptr;  // if that was split
  std::size_t split_at_ = 0;                          // the operation behind it
  SimulatedCommunicator* made_while_lent_ = nullptr;
  std::optional<Shrinking> shrinking_;
  std::vector<Seen> failures_;
  std::vector<Shrunk> shrunk_;
  std::vector<std::pair<TimePoint, TimePoint>> searches_;  // for an arbiter; the last may go on
  std::uint32_t next_number_ = 2;  // of communicators that it names; the first is the world's
  Status refusal_;
  TimePoint leaves_at_ = kNever;
  std::optional<Drain> drain_;
  TimePoint drains_from_ = kNever;
  TimePoint next_tend_{};
  Duration tend_every_{};
  TimePoint next_look_{};
  Duration looks_every_{};  // at shared memory, while a native call runs
};

}  // namespace unisono::sim
