// One rank of a simulated job: the production engine, messenger, backends, plans and watchdog over
// a simulated transport. Around them it does what src/comm does with sockets and clocks: hears the
// arbiter's decisions, reports broken links, ends calls that have failed, closes and leaves.
//
// Thread rule: one thread.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend/host_backends.h"
#include "comm/request_state.h"
#include "comm/watchdog.h"
#include "rendezvous/failure_decider.h"
#include "tests/sim/fabric.h"

namespace unisono::sim {

class SimulatedRank final : public EngineHost, private WatchedJob {
 public:
  struct Surroundings {
    const Case& c;
    Schedule& schedule;
    Fabric& fabric;
    std::function<void(std::string)> report;         ///< a message to the arbiter
    std::function<void(Duration)> wake_in;           ///< has beat() called
    std::function<void(const std::string&)> accuse;  ///< the simulation has found an error
    std::function<void()> leave;                     ///< says goodbye to the arbiter
  };
  SimulatedRank(Rank rank, Surroundings around, std::uint64_t seed);
  ~SimulatedRank() override;

  /// What a thread that waits in a call does once.
  void beat();
  /// A message of the arbiter.
  void hear(std::string bytes) { news_.push_back(std::move(bytes)); }

  bool has_left() const { return state_ == State::kLeft; }
  /// Ok: all its calls went well.
  const Status& failure() const { return failure_; }
  int calls_done() const { return calls_done_; }
  /// For people: where it is.
  std::string whereabouts() const;

 private:
  enum class State : std::uint8_t { kCalling, kLingering, kDraining, kLeft };
  struct Event {
    ErrorCode code;
    Rank peer;
    std::string message;
  };
  struct Running {
    std::size_t number;
    std::unique_ptr<test::CasePart> part;
    std::shared_ptr<detail::RequestState> request;
  };

  void look_around();
  void take_news();
  void tell_events();
  void start_calls();
  void start_call(std::size_t number);
  void on_done(Running& running);
  void drop_ended();
  void fail(const Status& cause, bool tell_everyone);
  void look_for_the_end();
  void leave();
  TimePoint now() const { return around_.schedule.now(); }

  // EngineHost
  void tend() override {}  // look_around() is called by beat()
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
  const Members members_;
  HostBackends host_;
  Watchdog watchdog_;
  std::vector<std::unique_ptr<Running>> running_;
  std::size_t next_call_ = 0;
  int calls_done_ = 0;
  TimePoint computes_until_{};
  TimePoint leaves_at_ = kNever;
  TimePoint drains_until_ = kNever;
  TimePoint next_tend_{};
  Duration tend_every_{};
  Status failure_;
  rendezvous::DecisionLedger ledger_;
  std::vector<bool> peer_left_;
  std::vector<Rank> dead_;
  std::deque<std::string> news_;
  std::vector<Event> events_;
};

}  // namespace unisono::sim
