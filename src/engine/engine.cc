#include "engine/engine.h"

#include <sched.h>

#include <algorithm>
#include <exception>
#include <new>

#include "base/communicator_id.h"
#include "base/log.h"
#include "base/signals_blocked.h"
#include "engine/time_slice.h"

namespace unisono {
namespace {

// How often a waiting rank looks at the clock, the control connection and its deadline.
constexpr auto kTendEvery = std::chrono::milliseconds(1);
// Looks in vain after which the thread sleeps between them.
constexpr int kYieldingBeats = 1001;
// Beats of start_and_linger(): other threads of the rank cannot start calls meanwhile.
constexpr int kLingerLooks = 256;
// Beats a blocking call adds at its end when bytes of it are still here, before the progress thread
// is woken for them.
constexpr int kFlushBeats = 32;
// How often making the progress thread is tried where threads are refused.
constexpr auto kThreadEvery = std::chrono::milliseconds(100);

// Nothing, where there is no memory for the words.
void warn_of_no_thread(const std::exception& error) {
  try {
    log::warning(std::string("no progress thread (") + error.what() +
                 "): asynchronous calls only move while this rank waits or tests");
  } catch (const std::bad_alloc&) {
  }
}

}  // namespace

Engine::Lock::Lock(Engine& engine) : engine_(engine) {
  for (int looks = 0; !engine_.try_lock(); ++looks) {
    if (looks < 64) {
      cpu_relax();
    } else {
      sched_yield();
    }
  }
}

Engine::Engine(EngineHost& host, int world_size, std::size_t eager_bytes, const IdleChoice& idle)
    : host_(host), messenger_(world_size, host, eager_bytes), idle_(idle) {
  tasks_.reserve(64);
}

Engine::~Engine() {
  {
    const std::lock_guard guard(parking_);
    stop_ = true;
  }
  parked_.notify_all();
  if (progress_.joinable()) progress_.join();
}

void Engine::start(Task& task) {
  task.done.store(false, std::memory_order_relaxed);
  if (!try_end(task)) enlist(task);
}

int Engine::lingering_looks() const {
  return static_cast<int>(std::min<std::int64_t>(idle().spins, kLingerLooks));
}

void Engine::start_and_linger(std::span<Task* const> tasks) {
  if (tasks.empty()) return;
  const int looks = lingering_looks();
  for (int look = 0;; ++look) {
    bool all_done = true;
    bool is_long = false;  // then deadlines have to be looked at
    for (Task* task : tasks) {
      if (task->done.load(std::memory_order_relaxed) || try_end(*task)) continue;
      all_done = false;
      is_long = is_long || task->operation->can_go_on();
    }
    if (all_done) return;
    if (look == looks || is_long) break;
    if (!poll()) cpu_relax();
  }
  for (Task* task : tasks) {
    if (!task->done.load(std::memory_order_relaxed)) enlist(*task);
  }
}

// True when the operation has finished; its owner knows then.
bool Engine::try_end(Task& task) {
  if (!task.operation->advance()) return false;
  finish(task);
  return true;
}

// on_done first: once `done` is seen the waiter may destroy the task.
void Engine::finish(Task& task) {
  if (task.on_done) task.on_done(task);
  task.done.store(true, std::memory_order_release);
}

void Engine::enlist(Task& task) {
  task.place = tasks_.size();
  tasks_.push_back(&task);
  task.running = true;
  running_.fetch_add(1, std::memory_order_seq_cst);  // see Waiter
}

void Engine::delist(Task& task) {
  tasks_[task.place] = nullptr;
  if (++ended_ == tasks_.size()) close_up();
  running_.fetch_sub(1, std::memory_order_relaxed);
  task.running = false;
}

// So seldom that each task is moved about once.
void Engine::close_up() {
  std::erase(tasks_, nullptr);
  for (std::size_t i = 0; i < tasks_.size(); ++i) tasks_[i]->place = i;
  ended_ = 0;
}

// True when something moved. An operation that lacks memory ends by that, whoever beats.
bool Engine::advance(Task& task) {
  try {
    if (!task.operation->advance()) return task.operation->can_go_on();
  } catch (const std::bad_alloc&) {
    fail(task, Status(ErrorCode::kOutOfResources, "out of memory"));
    return true;
  }
  delist(task);
  finish(task);
  return true;
}

// The end of one may end others.
bool Engine::poll() {
  bool moved = messenger_.in_use() && messenger_.poll();
  for (std::size_t i = 0; i < tasks_.size(); ++i) {
    if (tasks_[i] != nullptr) moved = advance(*tasks_[i]) || moved;
  }
  if (ended_ > tasks_.size() / 2) close_up();
  return moved;
}

void Engine::fail(Task& task, const Status& cause) {
  if (task.running) delist(task);
  task.operation->fail(cause);
  finish(task);
}

void Engine::beat() {
  if (!try_lock()) return;
  const Lock lock(*this, std::adopt_lock);
  try {
    poll();
  } catch (const std::bad_alloc&) {
    tend(Clock::now());  // deadlines pass all the same
    throw;
  }
  tend(Clock::now());
}

bool Engine::wait(const std::atomic<bool>& done, TimePoint until) {
  return wait_until([&] { return done.load(std::memory_order_acquire); }, until);
}

void Engine::wait_any(std::span<const std::atomic<bool>* const> done) {
  const auto is_done = [](const std::atomic<bool>* each) {
    return each->load(std::memory_order_acquire);
  };
  wait_until([&] { return std::any_of(done.begin(), done.end(), is_done); }, kNever);
  flush();
}

// A thread that waits beats for the rank, and the progress thread rests meanwhile. Who begins work
// or makes that thread first says so and then has it look for waiters; a wait that ends does it the
// other way round; so does a wait that goes into a callback. Either the one sees the other or the
// other the one, because all of this is seq_cst: the adding to running_ and watches_, the setting
// of unsent_ and has_progress_thread_, and the looks at waiters_ and calling_back_ in
// progress_loop(); the taking from waiters_, the adding to calling_back_, and the looks here and in
// run_deferred(). Of what is unsent a wait that ends says nothing here: who has waited calls
// flush(). What has a thread beat that need not may be seen late, and is relaxed.
class Engine::Waiter {
 public:
  explicit Waiter(Engine& engine) : engine_(engine) {
    engine_.waiters_.fetch_add(1, std::memory_order_relaxed);
  }
  ~Waiter() {
    engine_.waiters_.fetch_sub(1, std::memory_order_seq_cst);
    const bool is_watched = engine_.watches_.load(std::memory_order_seq_cst) > 0;
    const bool leaves_work = engine_.running_.load(std::memory_order_seq_cst) > 0 &&
                             engine_.has_progress_thread_.load(std::memory_order_seq_cst);
    if (is_watched || leaves_work) engine_.wake_progress_thread();
  }
  Waiter(const Waiter&) = delete;

 private:
  Engine& engine_;
};

// Threads that a callback of the user's starts inherit the slices of the thread that runs it, for
// life. Callbacks run when the lock is given back; this is destroyed just before.
class Engine::SlicesForCallbacks {
 public:
  SlicesForCallbacks(const Engine& engine, ShortSlices& slices)
      : engine_(engine), slices_(slices) {}
  ~SlicesForCallbacks() {
    if (engine_.has_deferred()) slices_.give_back();
  }
  SlicesForCallbacks(const SlicesForCallbacks&) = delete;

 private:
  const Engine& engine_;
  ShortSlices& slices_;
};

template <typename IsDone>
bool Engine::wait_until(const IsDone& is_done, TimePoint until) {
  const Waiter waiter(*this);
  Looks looks(idle());
  ShortSlices slices;
  auto found = Contention::Who::kNobody;  // in a yield, to be noted under the lock
  while (!is_done()) {
    bool moved = false;
    if (try_lock()) {
      const Lock lock(*this, std::adopt_lock);
      const SlicesForCallbacks given_back(*this, slices);
      moved = poll();
      if (looks.looked(moved) || found != Contention::Who::kNobody) {
        const TimePoint now = Clock::now();
        looks.read(now);
        tend(now);
        if (now >= until) return is_done();
        contention_.note(std::exchange(found, Contention::Who::kNobody), now);
        looks.follow(idle());
      }
    }
    if (moved || is_done()) continue;
    switch (looks.idling()) {
      case Looks::Idling::kRelax:
        cpu_relax();
        break;
      case Looks::Idling::kYield:
        found = idle_.yield(contention_.who());
        break;
      case Looks::Idling::kSleep:
        slices.ask();
        std::this_thread::sleep_for(kIdleSleep);
        break;
    }
  }
  return true;
}

void Engine::flush() {
  for (int beats = 0; beats < kFlushBeats; ++beats) {
    if (!try_lock()) break;  // whoever holds it may be starting a call and not beat again
    const Lock lock(*this, std::adopt_lock);
    const bool unsent = messenger_.has_unsent();
    unsent_.store(unsent, std::memory_order_relaxed);  // before poll(), which may lack memory
    if (!unsent) return;
    try {
      poll();
    } catch (const std::bad_alloc&) {
      break;  // others' calls: this one is over
    }
  }
  unsent_.store(true, std::memory_order_seq_cst);  // see Waiter
  wake_progress_thread();
}

void Engine::tend(TimePoint now) {
  if (now < next_tend_) return;
  next_tend_ = now + kTendEvery;
  host_.tend();
  give_up_dead();
}

void Engine::give_up_dead() {
  if (dead_.empty()) dead_ = host_.take_dead();
  for (; !dead_.empty(); dead_.pop_back()) messenger_.give_up(dead_.back());
}

void Engine::wake_progress_thread() {
  const std::lock_guard guard(parking_);
  if (progress_.joinable()) {
    parked_.notify_one();
    return;
  }
  const TimePoint now = Clock::now();
  if (now < next_thread_) return;
  try {
    const SignalsBlocked blocked;
    progress_ = std::thread([this] { progress_loop(); });
    has_progress_thread_.store(true, std::memory_order_seq_cst);  // see Waiter
  } catch (const std::exception& error) {  // threads are refused, or there is no memory
    if (std::exchange(next_thread_, now + kThreadEvery) == TimePoint{}) warn_of_no_thread(error);
  }
}

bool Engine::can_be_ended(TimePoint until) {
  {
    const std::lock_guard guard(parking_);
    if (progress_.get_id() == std::this_thread::get_id()) return false;
  }
  while (progress_calls_back_.load(std::memory_order_relaxed)) {
    if (Clock::now() >= until) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return true;
}

// What was deferred stays so: a call is in the midst of its work.
void Engine::yield() {
  give_lock_away();
  const Contention::Who found = idle_.yield(contention_.who());
  while (!try_lock()) sched_yield();
  const bool changes = found != Contention::Who::kNobody || contention_.who() != found;
  if (changes) contention_.note(found, Clock::now());
}

void Engine::run_deferred() {
  WorkList now = std::exchange(deferred_, {});
  const std::shared_ptr<std::atomic<int>> calling_back = calling_back_;
  calling_back->fetch_add(1, std::memory_order_seq_cst);  // see Waiter
  give_lock_away();
  if (needs_beats()) wake_progress_thread();
  while (!now.empty()) call_back(now.pop());
  calling_back->fetch_sub(1, std::memory_order_relaxed);
}

void Engine::watch() {
  watches_.fetch_add(1, std::memory_order_seq_cst);  // see Waiter
  wake_progress_thread();
}

bool Engine::has_background_work() const {
  return running_.load(std::memory_order_seq_cst) > 0 ||  // see Waiter
         unsent_.load(std::memory_order_seq_cst);
}

bool Engine::needs_beats() const {
  return has_background_work() || watches_.load(std::memory_order_seq_cst) > 0;  // see Waiter
}

// Of the progress thread: there is no call that could throw.
bool Engine::beat_unwaited() {
  bool moved = false;
  try {
    moved = poll();
    unsent_.store(messenger_.has_unsent(), std::memory_order_relaxed);
  } catch (const std::bad_alloc&) {
    host_.no_memory(kEveryCommunicator);
  }
  // What the job says is heard also where a link has no memory at each look.
  try {
    tend(Clock::now());
  } catch (const std::bad_alloc&) {
    host_.no_memory(kEveryCommunicator);
  }
  return moved;
}

void Engine::progress_loop() {
  const auto has_work = [this] {
    return needs_beats() && waiters_.load(std::memory_order_seq_cst) <=  // see Waiter
                                calling_back_->load(std::memory_order_seq_cst);
  };
  int idle_beats = 0;
  for (;;) {
    {
      std::unique_lock guard(parking_);
      parked_.wait(guard, [&] { return stop_ || has_work(); });
      if (stop_) return;
    }
    // The caller's thread has the better claim to the core: yield between looks, then sleep.
    bool moved = false;
    if (try_lock()) {
      const Lock lock(*this, std::adopt_lock);
      moved = beat_unwaited();
      progress_calls_back_.store(!deferred_.empty(), std::memory_order_relaxed);
    }
    progress_calls_back_.store(false, std::memory_order_relaxed);
    idle_beats = moved ? 0 : std::min(idle_beats + 1, kYieldingBeats);
    if (!moved && !has_background_work()) {
      std::this_thread::sleep_for(kTendEvery);
    } else if (idle_beats == kYieldingBeats) {
      std::this_thread::sleep_for(kIdleSleep);
    } else if (!moved) {
      sched_yield();
    }
  }
}

}  // namespace unisono
