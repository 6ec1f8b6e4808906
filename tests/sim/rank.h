// One rank of a simulated job: the production engine and messenger over a simulated transport, and
// its communicators. Around them it does what src/comm does with sockets and clocks: hears the
// arbiter's decisions, reports broken links, ends calls that have failed, goes on with the
// survivors, closes and leaves.
//
// Thread rule: one thread.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/sim/communicator.h"
#include "tests/sim/control_client.h"
#include "tests/sim/fabric.h"

namespace unisono::sim {

class SimulatedRank final : public EngineHost, private WatchedJob {
 public:
  struct Surroundings {
    const Case& c;
    Schedule& schedule;
    Fabric& fabric;
    ControlClient& client;
    std::function<void()> settle;  ///< after the client was used
    std::function<void()> on_left;
    std::function<void(Duration)> wake_in;           ///< has beat() called
    std::function<void(const std::string&)> accuse;  ///< the simulation has found an error
  };
  /// What became of a failed communicator's survivors, by its word.
  struct Shrunk {
    std::uint32_t from = 0, to = 0;
    std::vector<Rank> members;
  };
  SimulatedRank(Rank rank, Surroundings around, std::uint64_t seed);
  ~SimulatedRank() override;

  /// What a thread that waits in a call does once.
  void beat();

  Rank rank() const { return rank_; }
  bool has_left() const { return state_ == State::kLeft; }
  /// The arbiter died and nobody took its place, before this rank left.
  bool was_alone() const { return was_alone_; }
  /// Of each communicator that has failed, in the order in which they were made. Names world ranks.
  const std::vector<std::pair<std::uint32_t, Status>>& failures() const { return failures_; }
  const std::vector<Shrunk>& shrunk() const { return shrunk_; }
  bool is_refused() const { return is_refused_; }
  int calls_done() const;
  /// For people: where it is.
  std::string whereabouts() const;

 private:
  enum class State : std::uint8_t { kCalling, kShrinking, kLingering, kDraining, kLeft };
  struct Event {
    std::uint32_t communicator;
    ErrorCode code;
    Rank peer;
    std::string message;
  };
  /// The way to the communicator of the survivors.
  struct Shrinking {
    TimePoint asks_at, lost_at;
    bool has_asked = false;
    std::uint32_t id = 0;  // of the attempt
    SimulatedCommunicator* meeting = nullptr;
    bool is_ready = false;
    TimePoint cannot_at = kNever;  // make it
  };

  void look_around();
  void take_news();
  void hear(const FailureDecision& decision);
  void tell(const FailureDecision& decision, SimulatedCommunicator* communicator);
  void tell_events();
  void fail(SimulatedCommunicator& communicator, const Status& cause, bool tell_everyone);
  SimulatedCommunicator& make_communicator(std::uint32_t id, std::vector<Rank> members,
                                           std::vector<Operation> operations);
  SimulatedCommunicator* find(std::uint32_t id) const;
  SimulatedCommunicator& current() const { return *current_; }
  void begin_to_shrink();
  void shrink();
  void on_word(const rendezvous::ShrinkMessage& word);
  void say_shrink(rendezvous::ShrinkStep step, std::uint32_t id, const Status& why = Status());
  void drop_meeting();
  void end_shrinking(bool refused);
  void linger(Duration wait);
  void drain();
  void leave();
  TimePoint now() const { return around_.schedule.now(); }

  // EngineHost
  void tend() override {}  // beat() looks around
  void mismatch(std::uint32_t, Rank peer, const CallRecord&, const CallRecord&) override;
  void counts_differ(std::uint32_t, Rank peer, std::string what) override;
  void violation(std::uint32_t, Rank peer, std::string what) override;
  void link_closed(Rank peer, const Status& cause) override;
  void left(std::uint32_t, Rank peer) override;
  const CallRecord* find_call(std::uint32_t, std::uint64_t sequence) const override;
  void stranger(std::uint32_t, Rank peer) override;

  // WatchedJob
  std::chrono::milliseconds timeout() const override;
  std::chrono::milliseconds warn_after() const override { return std::chrono::hours(24); }
  void probe(Rank peer, std::uint32_t communicator, std::uint64_t sequence,
             const CallRecord& record) override;
  void compare_call(std::uint32_t communicator, std::uint64_t sequence,
                    const CallRecord& record) override;
  void report_waiting(const RunningWait& wait) override;
  void report_timeout(const RunningWait& wait, const std::vector<Rank>& members,
                      const std::string& call) override;

  const Rank rank_;
  const Surroundings around_;
  Random random_;
  State state_ = State::kCalling;
  Engine engine_;
  ScratchPool scratch_;
  std::vector<std::unique_ptr<SimulatedCommunicator>> communicators_;
  SimulatedCommunicator* current_ = nullptr;
  std::optional<Shrinking> shrinking_;
  std::deque<rendezvous::ShrinkMessage> words_;
  bool was_alone_ = false;
  std::vector<std::pair<std::uint32_t, Status>> failures_;
  std::vector<Shrunk> shrunk_;
  bool is_refused_ = false;
  TimePoint leaves_at_ = kNever, drains_until_ = kNever;
  TimePoint next_tend_{};
  Duration tend_every_{};
  std::vector<bool> peer_left_;
  std::vector<FailureDecision> deaths_;
  std::vector<FailureDecision> unknown_decisions_;
  std::vector<Event> events_;
};

}  // namespace unisono::sim
