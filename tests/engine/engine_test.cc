// The engine around operations and transports that the test makes: what leaves it when a wait ends,
// and what callbacks of the user's it runs.
#include "engine/engine.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/communicator_id.h"
#include "engine/callbacks.h"
#include "tests/engine/messenger_fixture.h"
#include "tests/support/deaf_host.h"
#include "tests/support/log_guard.h"
#include "tests/support/no_threads.h"
#include "tests/support/work.h"

namespace unisono::test {
namespace {

// Has bytes to send until it was polled so often.
class SlowTransport final : public Transport {
 public:
  std::string_view name() const override { return "slow"; }
  EndpointTraits traits() const override { return {}; }
  std::string address() const override { return ""; }
  Status set_peers(std::vector<std::string>) override { return {}; }
  Endpoint& endpoint(Rank) override { return end_; }
  bool poll(FrameSink&) override {
    if (std::exchange(throws, false)) throw std::bad_alloc();
    if (polls_left > 0) --polls_left;
    return false;
  }
  bool has_unsent() const override { return polls_left > 0; }
  void close(TimePoint, FrameSink&) override {}
  void give_up(Rank peer, FrameSink&) override { given_up.push_back(peer); }

  std::vector<Rank> given_up;
  int polls_left = 0;
  bool throws = false;  // once

 private:
  Outbox end_;
};

class Counted final : public Operation {
 public:
  explicit Counted(int looks) : looks_(looks) {}
  bool advance() override { return --looks_ <= 0; }
  void fail(const Status& cause) override { status_ = cause; }
  void waiting_for(std::vector<Rank>*) const override {}

 private:
  int looks_;
};

// Memory is used up when it is looked at for the second time.
class Greedy final : public Operation {
 public:
  bool advance() override {
    if (++looks_ == 2) throw std::bad_alloc();
    return false;
  }
  void fail(const Status& cause) override { status_ = cause; }
  void waiting_for(std::vector<Rank>*) const override {}

 private:
  int looks_ = 0;
};

class Host final : public DeafHost {
 public:
  void no_memory(std::uint32_t communicator) override { short_of_memory = communicator; }
  std::vector<Rank> take_dead() override { return std::exchange(dead, {}); }
  void tend() override { ++tended; }

  std::atomic<int> tended = 0;
  std::atomic<std::uint32_t> short_of_memory = 0;
  std::vector<Rank> dead;
};

struct EngineTest : ::testing::Test {
  EngineTest() { engine.messenger().set_route(1, transport); }

  // Fails where what threw has left the engine locked.
  void expect_unlocked() {
    ASSERT_TRUE(engine.try_lock());
    engine.unlock();
  }

  Host host;
  SlowTransport transport;
  Engine engine{host, 2, 0, IdleChoice("yield", {})};
};

TEST_F(EngineTest, LeavesNothingUnsentWhenOneOfSeveralIsOver) {
  Counted soon(3), never(1'000'000);
  Task first, second;
  first.operation = &never;
  second.operation = &soon;
  {
    const Engine::Lock lock(engine);
    engine.start(first);
    engine.start(second);
    transport.polls_left = 10;
  }
  const std::array<const std::atomic<bool>*, 2> done{&first.done, &second.done};
  engine.wait_any(done);
  EXPECT_TRUE(second.done);
  EXPECT_FALSE(first.done);
  EXPECT_FALSE(transport.has_unsent());
  const Engine::Lock lock(engine);
  engine.fail(first, Status(ErrorCode::kAborted, "the test is over"));
}

// As where memory is used up in the midst of a beat.
TEST_F(EngineTest, IsFreeAfterABeatThatThrew) {
  transport.throws = true;
  EXPECT_THROW(engine.beat(), std::bad_alloc);
  expect_unlocked();
}

TEST_F(EngineTest, SendsByItselfWhatAFlushHadNoMemoryFor) {
  transport.polls_left = 3;
  transport.throws = true;
  engine.flush();
  const TimePoint limit = Clock::now() + std::chrono::seconds(10);
  for (bool has_unsent = true; has_unsent;) {
    const Engine::Lock lock(engine);
    has_unsent = transport.has_unsent();
    ASSERT_LT(Clock::now(), limit);
  }
}

// The progress thread rests while somebody waits, and nobody does any more.
TEST_F(EngineTest, GoesOnByItselfAfterAWaitThatThrew) {
  Counted soon(3);
  Task task;
  task.operation = &soon;
  transport.throws = true;
  EXPECT_THROW(engine.wait(task, kNever), std::bad_alloc);
  ASSERT_NO_FATAL_FAILURE(expect_unlocked());
  {
    const Engine::Lock lock(engine);
    engine.start(task);
  }
  engine.wake_progress_thread();
  const TimePoint limit = Clock::now() + std::chrono::seconds(10);
  while (!task.done && Clock::now() < limit) std::this_thread::yield();
  EXPECT_TRUE(task.done);
  if (!task.done) engine.wait(task, kNever);
}

TEST_F(EngineTest, FailsTheOperationThatThereIsTooLittleMemoryFor) {
  Greedy greedy;
  Counted soon(10);
  Task first, second;
  first.operation = &greedy;
  second.operation = &soon;
  {
    const Engine::Lock lock(engine);
    engine.start(first);
    engine.start(second);
  }
  EXPECT_TRUE(engine.wait(second, kNever));
  EXPECT_TRUE(first.done);
  EXPECT_EQ(greedy.status().code(), ErrorCode::kOutOfResources);
  EXPECT_TRUE(soon.status().ok());
}

// No call is there that could throw.
TEST_F(EngineTest, TellsItsHostWhereItsThreadHasNoMemory) {
  Counted soon(3);
  Task task;
  task.operation = &soon;
  transport.throws = true;
  {
    const Engine::Lock lock(engine);
    engine.start(task);
  }
  engine.wake_progress_thread();
  const TimePoint limit = Clock::now() + std::chrono::seconds(10);
  while (!task.done && Clock::now() < limit) std::this_thread::yield();
  EXPECT_TRUE(task.done);
  EXPECT_EQ(host.short_of_memory, kEveryCommunicator);
  if (!task.done) engine.wait(task, kNever);
}

TEST_F(EngineTest, GivesUpWhomTheJobSaysIsDead) {
  host.dead = {1};
  engine.beat();
  EXPECT_EQ(transport.given_up, std::vector<Rank>{1});
}

TEST_F(EngineTest, SaysOnceThatItHasNoThreadAndMovesWhereSomebodyWaits) {
  LogGuard log;
  log.expect("no progress thread");
  const NoThreads none;
  Counted soon(3);
  Task task;
  task.operation = &soon;
  {
    const Engine::Lock lock(engine);
    engine.start(task);
  }
  for (int call = 0; call < 3; ++call) {
    engine.wake_progress_thread();
    std::this_thread::sleep_for(std::chrono::milliseconds(110));  // until it is tried again
  }
  EXPECT_EQ(log.lines().size(), 1u);
  EXPECT_TRUE(engine.wait(task, kNever));
}

TEST_F(EngineTest, MakesItsThreadOnceThatIsPossible) {
  LogGuard log;
  log.expect("no progress thread");
  {
    const NoThreads none;
    engine.wake_progress_thread();
  }
  Counted soon(3);
  Task task;
  task.operation = &soon;
  {
    const Engine::Lock lock(engine);
    engine.start(task);
  }
  const TimePoint limit = Clock::now() + std::chrono::seconds(10);
  while (!task.done && Clock::now() < limit) {
    engine.wake_progress_thread();
    std::this_thread::yield();
  }
  EXPECT_TRUE(task.done);
  if (!task.done) engine.wait(task, kNever);
}

TEST_F(EngineTest, RunsWhatWasDeferredOnceItsLockIsGivenBack) {
  int ran = 0;
  {
    const Engine::Lock lock(engine);
    engine.defer(work([&] {
      const Engine::Lock again(engine);
      ++ran;
    }));
    EXPECT_EQ(ran, 0);
  }
  EXPECT_EQ(ran, 1);
}

// Ends some time after it was made, on the thread that made it.
class Timed final : public Operation {
 public:
  explicit Timed(Duration takes) : until_(Clock::now() + takes) {}
  bool advance() override { return std::this_thread::get_id() == maker_ && Clock::now() >= until_; }
  void fail(const Status& cause) override { status_ = cause; }
  void waiting_for(std::vector<Rank>*) const override {}

 private:
  const std::thread::id maker_ = std::this_thread::get_id();
  const TimePoint until_;
};

// Whoever watches hears of failures though the thread that waited is in a callback that does not
// return, and nothing else runs.
TEST_F(EngineTest, BeatsForWhoWatchesWhileAThreadThatWaitedRunsWhatWasDeferred) {
  engine.watch();
  Timed operation(std::chrono::milliseconds(50));  // the progress thread has come to rest by then
  bool beats = false;
  Task task;
  task.operation = &operation;
  task.on_done = [&](Task&) {
    engine.defer(work([&] {
      const int before = host.tended;
      const TimePoint deadline = Clock::now() + std::chrono::seconds(10);
      while (host.tended < before + 3 && Clock::now() < deadline) std::this_thread::yield();
      beats = host.tended >= before + 3;
    }));
  };
  {
    const Engine::Lock lock(engine);
    engine.start(task);
  }
  engine.wait(task, kNever);
  EXPECT_TRUE(beats);
  engine.unwatch();
}

TEST(CallBack, RunsWhatACallbackMakesBehindIt) {
  std::string order;
  call_back(work([&] {
    order += 'a';
    call_back(work([&] { order += 'c'; }));
    call_back(work([&] { order += 'd'; }));
    order += 'b';
  }));
  EXPECT_EQ(order, "abcd");
}

TEST(CallBack, DestroysEachBeforeTheNextOneRuns) {
  auto owner = std::make_shared<int>();
  const std::weak_ptr<int> alive = owner;
  call_back(work([&, owner = std::move(owner)]() mutable {
    call_back(work([&] { EXPECT_TRUE(alive.expired()); }));
  }));
}

TEST(CallBackDeathTest, EndsTheProcessWhereOneThrows) {
  EXPECT_DEATH(call_back(work([] { throw std::runtime_error("of a callback"); })), "of a callback");
}

TEST_F(EngineTest, EndsTheProcessWhereWhatWasDeferredThrows) {
  EXPECT_DEATH(
      {
        engine.try_lock();
        engine.defer(work([] { throw std::runtime_error("of a callback"); }));
        engine.unlock();
      },
      "of a callback");
}

TEST(CompletionCallbacks, RunInTheirOrderWhoeverAddsThem) {
  const auto callbacks = std::make_shared<CompletionCallbacks>();
  const Status outcome(ErrorCode::kTimeout, "late");
  std::string order;
  std::atomic<bool> is_inside = false, goes_on = false;
  callbacks->add([&](const Status& told) {
    EXPECT_EQ(told.code(), ErrorCode::kTimeout);
    is_inside = true;
    while (!goes_on) std::this_thread::yield();
    order += 'a';
  });
  EXPECT_EQ(order, "");
  std::jthread finding([&] {
    callbacks->end(outcome);
    call_back(callbacks);
  });
  while (!is_inside) std::this_thread::yield();
  callbacks->add([&](const Status&) { order += 'b'; });  // runs behind the first one, over there
  goes_on = true;
  finding.join();
  EXPECT_EQ(order, "ab");
  callbacks->add([&](const Status&) { order += 'c'; });
  EXPECT_EQ(order, "abc");
}

}  // namespace
}  // namespace unisono::test
