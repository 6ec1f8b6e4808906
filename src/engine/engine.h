// One engine per rank: it runs the operations of all the rank's communicators, whoever waits.
//
// poll() is the only heartbeat: transports, then every running operation, then what the arbiter
// has said. Whoever holds the try-lock beats for all; a thread that loses it looks at its own
// operation and idles. So a rank that waits for A then B cannot deadlock with one that waits for B
// then A.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "engine/callbacks.h"
#include "engine/idle.h"
#include "engine/messenger.h"
#include "engine/operation.h"

namespace unisono {

/// What the engine asks of the layer above: failures are decided there.
class EngineHost : public MessengerEvents {
 public:
  /// About once a millisecond while somebody waits, under the engine's lock: read the control
  /// connection, end what has failed.
  virtual void tend() = 0;
  /// World ranks that the job has said are dead, each once: nothing goes to them any more.
  virtual std::vector<Rank> take_dead() { return {}; }
};

/// A started operation, from start to collection. Owned by whoever waits for it.
struct Task {
  Operation* operation = nullptr;
  std::atomic<bool> done{false};
  bool running = false;
  std::size_t place = 0;  ///< among what the engine runs
  /// Called once, under the lock, when the operation has finished.
  std::function<void(Task&)> on_done;
};

class Engine {
 public:
  Engine(EngineHost& host, int world_size, std::size_t eager_bytes, const IdleChoice& idle);
  ~Engine();
  Engine(const Engine&) = delete;

  Messenger& messenger() { return messenger_; }

  /// Exclusive use of engine, messenger and operations. Not recursive.
  class Lock {
   public:
    explicit Lock(Engine& engine);
    /// Takes over what try_lock() has taken, so that it is given back whatever happens.
    Lock(Engine& engine, std::adopt_lock_t) : engine_(engine) {}
    ~Lock() { engine_.unlock(); }
    Lock(const Lock&) = delete;

   private:
    Engine& engine_;
  };
  bool try_lock() { return !locked_.exchange(true, std::memory_order_acquire); }
  /// Then what was deferred.
  void unlock() {
    if (deferred_.empty()) {
      give_lock_away();
    } else {
      run_deferred();
    }
  }

  /// Under the lock. The task stays the caller's and must outlive its end.
  void start(Task& task);
  /// Starts all tasks of a blocking call, whose `done` is false, and beats for a moment: no other
  /// thread ever sees tasks that end meanwhile.
  void start_and_linger(std::span<Task* const> tasks);
  /// How often a blocking call looks for its end before anybody else may start calls.
  int lingering_looks() const;
  /// Under the lock: something runs that beats must move.
  bool is_running() const { return tasks_.size() > ended_; }
  /// Without the lock: beats until the task is done or `until` has passed (false).
  bool wait(Task& task, TimePoint until) { return wait(task.done, until); }
  /// The same for a flag that some operation of the engine's sets.
  bool wait(const std::atomic<bool>& done, TimePoint until);
  /// Waits until one of the flags is set, then flushes as flush() does.
  void wait_any(std::span<const std::atomic<bool>* const> done);
  /// Under the lock: gives the lock and the core away for a moment.
  void yield();
  /// Under the lock: has call_back() run `work` on the thread that releases the lock, right after
  /// that. It may start calls, and does not throw. If that thread was waiting, the progress thread
  /// beats in its place meanwhile. Allocates nothing.
  void defer(std::shared_ptr<Work> work) { deferred_.push(std::move(work)); }
  /// Under the lock.
  bool has_deferred() const { return !deferred_.empty(); }
  /// Without the lock, after a blocking call: sends what it left behind in a transport, or has the
  /// progress thread send it, also where memory is used up.
  void flush();
  /// One beat if nobody else beats right now.
  void beat();
  /// Under the lock: one look at everything. True when something moved.
  bool poll();
  /// Under the lock: ends a running task's operation with `cause`.
  void fail(Task& task, const Status& cause);

  /// Under the lock: nothing goes any more to ranks that the job has said are dead. Those that
  /// wait do so with each tend().
  void give_up_dead();

  /// Keeps asynchronous work moving while nobody waits; the thread is made at the first call and
  /// parked when nothing runs. Where threads are refused it says so once, and a later call tries
  /// again.
  void wake_progress_thread();
  /// Whether the caller may wait for the end of the progress thread. False: it is that thread, or
  /// that one is still in a callback of the user's at `until`, which may wait for the caller. Once
  /// nothing runs any more; without the lock.
  bool can_be_ended(TimePoint until);
  /// From here on there is about a beat a millisecond, though nothing runs and nobody waits: for
  /// work that goes on without the engine and must hear of failures. Ends when unwatch() was called
  /// as often. Any thread.
  void watch();
  void unwatch() { watches_.fetch_sub(1, std::memory_order_relaxed); }
  bool is_watched() const { return watches_.load(std::memory_order_relaxed) > 0; }

  /// Whether a thread waits in a call right now. Any thread.
  bool is_waited_in() const { return waiters_.load(std::memory_order_relaxed) > 0; }

  /// How to wait this time.
  const IdlePolicy& idle() const { return idle_.now(contention_.who()); }

 private:
  void give_lock_away() { locked_.store(false, std::memory_order_release); }
  void run_deferred();
  class Waiter;
  class SlicesForCallbacks;
  template <typename IsDone>
  bool wait_until(const IsDone& is_done, TimePoint until);
  bool try_end(Task& task);
  bool advance(Task& task);
  bool beat_unwaited();
  void finish(Task& task);
  void enlist(Task& task);
  void delist(Task& task);
  void close_up();
  bool has_background_work() const;
  bool needs_beats() const;
  void progress_loop();
  void tend(TimePoint now);

  EngineHost& host_;
  Messenger messenger_;
  const IdleChoice idle_;
  Contention contention_;  // of threads that wait
  std::atomic<bool> locked_{false};
  std::vector<Task*> tasks_;  // in the order of their starts; null where one has ended
  std::size_t ended_ = 0;     // of these
  WorkList deferred_;
  TimePoint next_tend_{};
  std::vector<Rank> dead_;  // that nothing has been given up of

  std::atomic<int> waiters_{0};  // threads
  /// Threads in callbacks, some of which wait. What a callback holds may be the engine's last
  /// owner.
  const std::shared_ptr<std::atomic<int>> calling_back_ = std::make_shared<std::atomic<int>>(0);
  std::atomic<int> running_{0};
  std::atomic<int> watches_{0};
  std::atomic<bool> unsent_{false};  // nobody waits for it, but it must go out
  std::mutex parking_;               // of progress_, next_thread_ and stop_
  std::condition_variable parked_;
  bool stop_ = false;
  std::thread progress_;
  TimePoint next_thread_{};  // when it is tried again; not set: none was refused
  std::atomic<bool> has_progress_thread_{false};
  std::atomic<bool> progress_calls_back_{false};  // or is about to
};

}  // namespace unisono
