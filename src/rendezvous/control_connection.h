// A rank's control connection once all have met. What the arbiter says is read by the control
// thread and waits here until the rank looks; reports go out at once, from the thread that makes
// them. Where the arbiter is lost the control thread goes to the standby that holds it next, and
// takes along what has not been answered; a standby's own listens for those that come to it.
//
// Thread rule: any thread; start() once, before the others.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/arbiter_server.h"
#include "rendezvous/control_stream.h"
#include "rendezvous/control_thread.h"
#include "rendezvous/failure_decider.h"
#include "rendezvous/job_record.h"
#include "rendezvous/shrink_memory.h"
#include "rendezvous/shrink_message.h"
#include "rendezvous/silence.h"
#include "rendezvous/standby_dial.h"

namespace unisono::rendezvous {

/// What an arbiter has said that its rank has not looked at.
struct ArbiterNews {
  std::vector<FailureDecision> decisions;
  std::vector<std::uint32_t> questions;  ///< communicators whose calls it asks for
  std::vector<ShrinkMessage> shrink_words;
  bool asks_for_waits = false;
};

class ControlConnection final : public ControlClient {
 public:
  /// `world` outlives it. `standby`: where this rank listens as one; else empty. `silence`: as
  /// RendezvousPoint::silence.
  ControlConnection(ControlStream joined, const World& world, std::vector<Listener> standby,
                    std::chrono::milliseconds silence);
  ~ControlConnection() override;

  /// Has the control thread read. kOutOfResources without one.
  Status start();

  /// One load: no lock, no system call.
  bool has_news() const { return has_news_.load(std::memory_order_acquire); }
  ArbiterNews take_news();
  /// Does what the control thread is about to do.
  void catch_up();
  /// Nobody answers any more, nor will.
  bool is_lost() const { return is_lost_.load(std::memory_order_acquire); }
  /// Once it is lost: JobRecord::is_last().
  bool is_last() const { return is_last_.load(std::memory_order_relaxed); }

  /// A whole message to the arbiter; dropped where there is none.
  void report(std::string bytes);
  /// The same of what the next arbiter needs to hear as well, if this one does not answer.
  void report_lasting(std::string bytes);
  void report_broken_link(Rank peer, const Status& cause);
  void report_waiting(const WaitMessage& wait);
  void say_shrink(const ShrinkMessage& message);
  /// Says goodbye, and waits until the arbiter has told the others, half a second at most.
  /// Idempotent. Where the arbiter has just been lost it waits for the next one.
  void leave();

  // ControlClient
  void list_awaited(std::vector<pollfd>* awaited) override;
  TimePoint next_due() override;
  void serve(std::span<const pollfd>, TimePoint now) override;

 private:
  enum class State : std::uint8_t {
    kOpen,
    kSeeking,  ///< goes to a standby: the arbiter is lost, or suspected
    kAlone,    ///< there is no arbiter any more
    kLeft,
  };
  struct Report {
    TimePoint when;
    std::string bytes;
    Rank peer = -1;  // of a broken link
    Status cause = {};
  };

  /// Calls `saying` under the mutex; it returns what send() does.
  template <typename Saying>
  void say(Saying&& saying);

  // All of these under the mutex.
  /// True where the rest waits for room in the socket.
  bool send(std::string bytes);
  void keep(Report report);
  void drop_old_reports(TimePoint now);
  void read(TimePoint now);
  void take(const Message& message, TimePoint now);
  void deliver(FailureDecision decision);
  void deliver_broken_link(Rank peer, const Status& cause);
  /// The arbiter died or talks nonsense; `how` completes what is said of its rank.
  void lose(ErrorCode code, const std::string& how, TimePoint now);
  /// The arbiter is silent. Whether it is lost a standby says.
  void suspect(TimePoint now);
  /// It is not, or not yet.
  void acquit(TimePoint now);
  /// It is: `successor` holds the arbiter, or with -1 nobody.
  void depose(Rank successor);
  void on_refused(TimePoint now);
  void seek(TimePoint now);
  void advance_dial(TimePoint now);
  void move_to(Rank standby, TimePoint now);
  void go_alone();
  void stand_by();
  void change(State state);
  /// Not under the mutex: once it has left, nobody else reads.
  void wait_for_hang_up();
  void note_news() { has_news_.store(true, std::memory_order_release); }

  const World& world_;
  std::atomic<bool> has_news_{false};
  std::atomic<bool> is_lost_{false};
  std::atomic<bool> is_last_{false};  // set before that
  std::mutex mutex_;
  std::condition_variable sought_;  // seeking has ended
  ControlStream stream_;
  State state_ = State::kOpen;
  Rank holder_ = 0;  // of the arbiter
  Silence silence_;
  bool suspects_ = false;  // while seeking: the holder may live yet
  TimePoint seek_until_{};
  int refusals_ = 0;  // by standbys, since the arbiter was heard
  DecisionLedger ledger_;
  JobRecord record_;
  ArbiterNews news_;
  std::deque<Report> reports_;  // lasting ones, the oldest first
  // By communicator: the latest report of a wait, which may be over.
  std::deque<std::pair<std::uint32_t, std::string>> waits_;
  ShrinkMemory shrinks_;
  std::optional<StandbyDial> dial_;
  std::vector<Listener> standby_;        // until somebody comes
  ArbiterLoop* standby_loop_ = nullptr;  // from then on
};

}  // namespace unisono::rendezvous
