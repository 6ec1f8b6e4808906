// A process is killed, or stopped for good, in the middle of a job: every survivor's pending,
// present and later calls end with kRankFailed and name that one, soon.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tests/fault/outcome_board.h"
#include "tests/support/rank_job.h"
#include "tests/support/seed.h"
#include "tests/support/setting.h"
#include "tests/support/tested_transports.h"
#include "tests/support/try_limits.h"
#include "tests/support/watchdog.h"

namespace unisono::test {
namespace {

constexpr int kRanks = 4;

struct Deed {
  Collective collective;
  std::size_t count;
  Rank victim;
};

std::string describe(const Deed& d) {
  return std::string(name_of(d.collective)) + " of " + std::to_string(d.count) + ", victim " +
         std::to_string(d.victim);
}

// Buffers for any collective of float.
class AnyCall {
 public:
  AnyCall(Collective collective, std::size_t count)
      : in_(count * kRanks, 1.0f), out_(count * kRanks), counts_(kRanks, count) {
    call_ = {.collective = collective,
             .in = collective == Collective::kBroadcast ? out_.data() : in_.data(),
             .out = out_.data(),
             .count = count,
             .type = DataType::kFloat32,
             .op = ops::sum,
             .root = 0,
             .in_counts = counts_,
             .out_counts = counts_};
  }
  AnyCall(const AnyCall&) = delete;
  const Call& get() const { return call_; }

 private:
  std::vector<float> in_;
  std::vector<float> out_;
  std::vector<std::size_t> counts_;
  Call call_;
};

[[noreturn]] void die(OutcomeBoard& board) {
  board.killed_at_ns = now_ns();
  kill(getpid(), SIGKILL);
  std::abort();
}

// A survivor keeps calling until it hears of the death: a collective may not need the victim.
void survive(Communicator& comm, OutcomeBoard& board, const Deed& deed) {
  const auto self = static_cast<std::size_t>(comm.rank());
  const AnyCall call(deed.collective, deed.count);
  std::vector<float> data(1000, 1.0f);
  Communicator other = comm.duplicate();
  Request pending = other.all_reduce_async(data, ops::sum);
  ++board.entered;
  board.blocking[self] = outcome_of([&] {
    for (;;) comm.run(call.get());
  });
  board.pending[self] = outcome_of([&] { pending.wait(); });
  board.later[self] = outcome_of([&] { comm.barrier(); });
}

void check(const Outcome& outcome, const char* which, Rank rank, Rank victim) {
  ASSERT_TRUE(outcome.written) << "rank " << rank << "'s " << which << " call did not fail";
  EXPECT_EQ(outcome.code, ErrorCode::kRankFailed) << "rank " << rank << ": " << outcome.message;
  EXPECT_EQ(outcome.rank, victim) << "rank " << rank << ": " << outcome.message;
}

// Milliseconds until the last survivor knew.
double check_all(SharedBoard& board, Rank victim) {
  std::int64_t last = 0;
  for (Rank rank = 0; rank < kRanks; ++rank) {
    if (rank == victim) continue;
    const auto i = static_cast<std::size_t>(rank);
    check(board->blocking[i], "present", rank, victim);
    check(board->pending[i], "pending", rank, victim);
    check(board->later[i], "later", rank, victim);
    last = std::max(last, board->blocking[i].at_ns);
  }
  return static_cast<double>(last - board->killed_at_ns) / 1e6;
}

// Runs processes of which `victim` is to die; every other outcome is on the board.
void run_doomed(const std::string& transport, Rank victim,
                const std::function<void(Communicator&)>& body) {
  try {
    spawn(kRanks, body,
          {.as = SpawnOptions::As::kProcesses, .transport = transport, .timeout = kCallTimeout});
    ADD_FAILURE() << "nobody died";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kRankFailed) << error.what();
    EXPECT_EQ(error.rank(), victim) << error.what();
  }
}

// TCP and UNIX sockets, which are one code, share the cases; a sanitizer's build has half of all.
bool is_left_out(const std::string& transport, int number) {
  if (transport == "tcp" || transport == "unix") {
    return !is_full_run() && number % 2 != (transport == "unix" ? 1 : 0);
  }
  return is_short_run() && number % 2 != 0;
}

class Kill : public testing::TestWithParam<std::string> {};

TEST_P(Kill, InEveryCollectiveIsToldToAllSurvivors) {
  double slowest = 0;
  for (int c = 0; c < static_cast<int>(Collective::kSend); ++c) {
    for (const std::size_t count : {16ul, 200'000ul}) {
      // The arbiter's rank, and two others in turn.
      for (const Rank victim : {0, 1 + c % 3}) {
        if (is_left_out(GetParam(), c + (victim == 0 ? 0 : 1))) continue;
        const Deed deed{static_cast<Collective>(c), count, victim};
        SCOPED_TRACE(describe(deed));
        SharedBoard board;
        run_doomed(GetParam(), victim, [&](Communicator& comm) {
          if (comm.rank() != victim) return survive(comm, *board.operator->(), deed);
          const Communicator other = comm.duplicate();
          if (eventually([&] { return board->entered == kRanks - 1; })) die(*board.operator->());
        });
        slowest = std::max(slowest, check_all(board, victim));
        if (HasFailure()) return;
      }
    }
  }
  std::printf("%s: the slowest survivor knew after %.1f ms\n", GetParam().c_str(), slowest);
}

TEST_P(Kill, IsToldToARankThatMakesNoCallsButAsks) {
  for (const Rank victim : {0, 2}) {
    SharedBoard board;
    run_doomed(GetParam(), victim, [&](Communicator& comm) {
      ++board->entered;
      if (comm.rank() == victim) {
        if (eventually([&] { return board->entered == kRanks; })) die(*board.operator->());
        return;
      }
      if (!eventually([&] { return !comm.status().ok(); })) return;
      board->blocking[static_cast<std::size_t>(comm.rank())] =
          outcome_of([&] { throw Error(comm.status()); });
    });
    for (Rank rank = 0; rank < kRanks; ++rank) {
      if (rank != victim)
        check(board->blocking[static_cast<std::size_t>(rank)], "any", rank, victim);
    }
  }
}

TEST_P(Kill, AtAnyMomentOfALargeCallIsToldToAllSurvivors) {
  const SeedTrace seed_trace;
  std::mt19937_64 random = random_stream(71);
  double slowest = 0;
  for (int round = 0; round < 12; ++round) {
    const Deed deed{round % 2 == 0 ? Collective::kAllReduce : Collective::kAllToAll, 300'000,
                    static_cast<Rank>(below(random, kRanks))};
    const auto delay_us = static_cast<useconds_t>(below(random, 20'000));
    SCOPED_TRACE(describe(deed) + " after " + std::to_string(delay_us) + " us");
    SharedBoard board;
    run_doomed(GetParam(), deed.victim, [&](Communicator& comm) {
      if (comm.rank() != deed.victim) return survive(comm, *board.operator->(), deed);
      const Communicator other = comm.duplicate();
      std::thread killer([&] {
        if (!eventually([&] { return board->entered == kRanks - 1; })) {
          return comm.abort("the survivors have not entered");
        }
        usleep(delay_us);
        die(*board.operator->());
      });
      const AnyCall call(deed.collective, deed.count);
      for (;;) comm.run(call.get());
    });
    slowest = std::max(slowest, check_all(board, deed.victim));
    if (HasFailure()) return;
  }
  std::printf("%s: the slowest survivor knew after %.1f ms\n", GetParam().c_str(), slowest);
}

TEST_P(Kill, IsToldToRanksThatNeverTalkedToTheVictim) {
  SharedBoard board;
  run_doomed(GetParam(), 1, [&](Communicator& comm) {
    if (comm.rank() == 1) {
      if (eventually([&] { return board->entered == kRanks - 1; })) die(*board.operator->());
      return;
    }
    // A chain of receives: 3 waits for 2, which waits for 0, which waits for the victim.
    const Rank from = comm.rank() == 3 ? 2 : comm.rank() == 2 ? 0 : 1;
    int value = 0;
    ++board->entered;
    const auto self = static_cast<std::size_t>(comm.rank());
    board->blocking[self] = outcome_of([&] { comm.receive(&value, 1, DataType::kInt32, from); });
  });
  for (const Rank rank : {0, 2, 3}) {
    check(board->blocking[static_cast<std::size_t>(rank)], "present", rank, 1);
  }
}

TEST_P(Kill, LeavesCommunicatorsWithoutTheVictimAlone) {
  SharedBoard board;
  run_doomed(GetParam(), 3, [&](Communicator& comm) {
    Communicator half = comm.split(comm.rank() / 2);
    if (comm.rank() == 3) {
      half.barrier();
      die(*board.operator->());
    }
    if (comm.rank() == 2) half.barrier();
    const auto self = static_cast<std::size_t>(comm.rank());
    board->blocking[self] = outcome_of([&] {
      for (;;) comm.barrier();
    });
    if (comm.rank() == 2) return;
    for (int i = 0; i < 20; ++i) {
      std::vector<float> data(i % 2 == 0 ? 10 : 100'000, 1.0f);
      half.all_reduce(data, ops::sum);
      if (data.back() != 2.0f) throw std::runtime_error("a healthy communicator is wrong");
    }
    ++board->finished;
  });
  for (const Rank rank : {0, 1, 2}) {
    check(board->blocking[static_cast<std::size_t>(rank)], "present", rank, 3);
  }
  EXPECT_EQ(board->finished, 2);
}

// Nobody's kernel tells of it: its silence does. The survivors end it once they know.
void stop_in(Collective collective, const std::string& transport, Rank victim) {
  const Deed deed{collective, 200'000, victim};
  SCOPED_TRACE(describe(deed) + " over " + transport);
  SharedBoard board;
  run_doomed(transport, victim, [&](Communicator& comm) {
    if (comm.rank() == victim) {
      board->pids[0] = getpid();
      const Communicator other = comm.duplicate();
      std::thread stopper([&] {
        if (!eventually([&] { return board->entered == kRanks - 1; })) return;
        board->killed_at_ns = now_ns();
        kill(getpid(), SIGSTOP);
      });
      const AnyCall call(deed.collective, deed.count);
      for (;;) comm.run(call.get());
    }
    survive(comm, *board.operator->(), deed);
    if (++board->finished == kRanks - 1) kill(board->pids[0], SIGKILL);
  });
  check_all(board, victim);
}

TEST(Stop, InEveryCollectiveIsToldToAllSurvivors) {
  // Who gets no processor for so long is taken for silent, too.
  const std::chrono::milliseconds first{is_sanitized() ? 3000 : 1000};
  const std::vector<std::chrono::milliseconds> limits{first, 2 * first, 4 * first};
  const std::vector<std::string> transports = tested_transports_but({"loopback", "shm"});
  for (int c = 0; c < static_cast<int>(Collective::kSend) && !testing::Test::HasFailure(); ++c) {
    if (is_short_run() && c % 4 != 0) continue;
    const auto which = static_cast<std::size_t>(c) % transports.size();
    try_limits(limits, [&](std::chrono::milliseconds limit) {
      const Setting silence("UNISONO_SILENCE", std::to_string(limit.count()) + "ms");
      stop_in(static_cast<Collective>(c), transports[which], c % kRanks);
    });
  }
}

// Ranks are processes, where auto is shared memory.
INSTANTIATE_TEST_SUITE_P(Transports, Kill,
                         testing::ValuesIn(tested_transports_but({"loopback", "shm"})),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace unisono::test
