// The sockets of a rank's control connection once all have met, and who may use them when; what is
// said there its session decides. What the arbiter says is read by the control thread and waits
// until the rank looks; reports go out at once, from the thread that makes them. A standby's own
// listens for those that come to it.
//
// Thread rule: any thread; start() once, before the others.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/arbiter/arbiter_server.h"
#include "rendezvous/client/control_thread.h"
#include "rendezvous/client/probe_port.h"
#include "rendezvous/client/standby_dial.h"
#include "rendezvous/messages/arbiter_connection.h"
#include "rendezvous/sessions/control_session.h"
#include "rendezvous/sockets/control_stream.h"

namespace unisono::rendezvous {

class ControlConnection final : public ArbiterConnection,
                                public ControlClient,
                                private ControlLinks {
 public:
  /// What others may come to past the arbiter.
  struct Doors {
    std::vector<Listener> standby;  ///< where this rank listens as one; else empty
    std::optional<Listener> probe;  ///< open_probe_port()
  };
  /// `world` outlives it. `silence`: as RendezvousPoint::silence.
  ControlConnection(ControlStream joined, const World& world, Doors doors,
                    std::chrono::milliseconds silence);
  ~ControlConnection() override;

  /// Has the control thread read. kOutOfResources without one.
  Status start();

  // ArbiterConnection; it is the control thread that has no turn before catch_up().
  bool has_news() const override { return has_news_.load(std::memory_order_acquire); }
  ArbiterNews take_news() override;
  void catch_up() override;
  bool is_lost() const override { return is_lost_.load(std::memory_order_acquire); }
  bool is_last() const override { return is_last_.load(std::memory_order_relaxed); }
  Status partition() const override {
    const std::lock_guard lock(mutex_);
    return session_.partition();
  }
  std::chrono::milliseconds silence() const override { return session_.silence(); }
  void report(std::string bytes) override;
  void report_lasting(std::string bytes) override;
  void report_broken_link(Rank peer, const Status& cause) override;
  void report_waiting(const WaitMessage& wait) override;
  void report_timeout(const WaitMessage& wait) override;
  void withdraw_timeout(const WaitMessage& wait) override;
  void say_shrink(const ShrinkMessage& message) override;
  /// Waits until the arbiter has told the others: half a second at most, and two more where it is
  /// lost, for the next one. Where none has answered by then, and this process holds none, tells
  /// the standbys, for half a second at most. A standby that others are on their way to turns these
  /// away, for a second at most. So it takes four seconds at most, and mostly no time.
  void leave() override;

  // ControlClient
  void list_awaited(std::vector<pollfd>* awaited) override;
  TimePoint next_due() override;
  void serve(std::span<const pollfd> happened, TimePoint now) override;

 private:
  // All of these under the mutex.
  // ControlLinks
  void send(std::string bytes) override;
  void close() override { stream_.close(); }
  void dial(Rank standby, const RejoinMessage& greeting, TimePoint now) override {
    dial_.emplace(world_, standby, greeting, now);
  }
  void give_up() override { dial_.reset(); }
  ProcessSight sight_of(Rank rank) const override {
    return rendezvous::sight_of(world_.members[static_cast<std::size_t>(rank)]);
  }
  void probe(Rank rank, TimePoint now) override {
    if (probe_port_) probe_port_->probe(rank, now);
  }
  void move() override;

  /// Calls `saying`, which tells the session something, and lets others see what came of it.
  template <typename Saying>
  void say(Saying&& saying);
  void read(TimePoint now);
  void advance_dial(TimePoint now);
  void serve_probes(std::span<const pollfd> happened, TimePoint now);
  void stand_by();
  void publish();
  /// False: it has waited in vain.
  bool await_departure(std::unique_lock<std::mutex>* lock);
  void tell_standbys(std::unique_lock<std::mutex>* lock);

  const World& world_;
  std::atomic<bool> has_news_{false};
  std::atomic<bool> is_lost_{false};
  std::atomic<bool> is_last_{false};  // set before that
  // ControlSession::arbiter_heard_at(), for the standby's loop.
  const std::shared_ptr<std::atomic<TimePoint>> heard_at_;
  mutable std::mutex mutex_;
  std::condition_variable published_;  // what the session has come to
  ControlStream stream_;
  std::optional<StandbyDial> dial_;
  std::optional<ProbePort> probe_port_;
  ControlSession session_;
  std::vector<Listener> standby_;      // until somebody comes
  ArbiterNumber standby_arbiter_ = 0;  // from then on
};

}  // namespace unisono::rendezvous
