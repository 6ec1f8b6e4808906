// Links that change, lose, repeat, swap, delay or cut what they carry: nobody hangs or crashes, and
// each call ends with the right data or an error that names an end of that link. With checksums
// every change is found.
#include <gmock/gmock.h>

#include <array>
#include <chrono>
#include <exception>
#include <numeric>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "tests/fault/outcome_board.h"
#include "tests/fault/tampering_proxy.h"
#include "tests/support/rank_job.h"
#include "tests/support/seed.h"
#include "tests/support/setting.h"
#include "tests/support/try_limits.h"

namespace unisono::test {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

constexpr int kTamperRanks = 3;
constexpr int kRounds = 4, kLastRounds = 20;
// What a connection begins with is behind it there.
constexpr std::uint64_t kFirstBytes = 600;
// Of a call to which bytes never come. The ranks have it to meet as well, and who is held up for as
// long is taken for late.
const std::vector<std::chrono::milliseconds> kLostTimeouts{
    std::chrono::seconds(is_thread_sanitized() ? 10 : 2), std::chrono::seconds(20)};

enum class TamperedCall : std::uint8_t { kAllReduce, kBroadcast, kSendReceive, kSmall };

/// What one rank saw.
struct Seen {
  Outcome outcome;
  bool data_wrong = false;
  bool struck_early = false;  // while calls followed
};

// One call; whether its result is right.
bool call_once(Communicator& comm, TamperedCall call, int round) {
  const std::size_t count = call == TamperedCall::kSmall ? 3 : 60'000;
  std::vector<int> data(count), expected(count);
  std::iota(expected.begin(), expected.end(), round);
  if (call == TamperedCall::kBroadcast) {
    if (comm.rank() == 0) data = expected;
    comm.broadcast(data, 0);
  } else if (call == TamperedCall::kSendReceive) {
    if (comm.rank() == 0) comm.send(std::span<const int>(expected), 1);
    if (comm.rank() == 1) comm.receive(std::span<int>(data), 0);
    comm.barrier();
    if (comm.rank() != 1) return true;
  } else {
    data = expected;
    comm.all_reduce(data, ops::sum);
    for (int& each : expected) each *= comm.size();
  }
  return data == expected;
}

Seen use_link(Communicator& comm, TamperedCall call, TamperingProxy& proxy) {
  Seen seen;
  proxy.this_thread_is(comm.rank());
  comm.barrier();
  seen.outcome = outcome_of([&] {
    for (int round = 0; round < kRounds; ++round) {
      if (!call_once(comm, call, round)) seen.data_wrong = true;
    }
    seen.struck_early = proxy.has_struck();
    for (int round = 0; round < kLastRounds; ++round) comm.barrier();
  });
  return seen;
}

using Case = std::tuple<Tampering, TamperedCall, bool>;

class TamperedLink : public testing::TestWithParam<Case> {
 protected:
  Tampering how() const { return std::get<0>(GetParam()); }
  TamperedCall call() const { return std::get<1>(GetParam()); }
  bool has_sums() const { return std::get<2>(GetParam()); }
  // That something is missing shows only when more comes, and it may be the last that was to come.
  bool may_stall() const {
    return how() == Tampering::kLose ||
           (!has_sums() && how() != Tampering::kDelay && how() != Tampering::kCut);
  }

  std::array<Seen, kTamperRanks> run(const Tamper& plan, std::chrono::milliseconds timeout) {
    std::array<Seen, kTamperRanks> seen;
    TamperingProxy proxy(plan);
    const auto body = [&](Communicator& comm) {
      seen[static_cast<std::size_t>(comm.rank())] = use_link(comm, call(), proxy);
    };
    try {
      spawn(kTamperRanks, body, {.transport = "tcp", .timeout = timeout});
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
    struck_ = proxy.has_struck();
    return seen;
  }

  void judge(const Seen& seen, const Tamper& plan) {
    const Outcome& outcome = seen.outcome;
    const bool is_harmless = plan.how == Tampering::kDelay;
    EXPECT_FALSE(is_harmless && outcome.written) << outcome.message;
    EXPECT_FALSE(seen.data_wrong && (has_sums() || is_harmless));
    if (plan.how == Tampering::kFlip && has_sums() && seen.struck_early) {
      EXPECT_TRUE(outcome.written) << "a flipped bit was not found";
    }
    if (!outcome.written) return;
    EXPECT_TRUE(struck_) << outcome.message;
    // Where all that is known is who waits for whom, a timeout says that instead.
    const bool is_stalled = outcome.code == ErrorCode::kTimeout && outcome.rank == -1;
    if (is_stalled && may_stall()) {
      // Of one that waits in a later call, where its deadline passed first.
      EXPECT_THAT(outcome.message, AnyOf(HasSubstr("waited for"), HasSubstr("had not arrived")));
      return;
    }
    EXPECT_THAT(outcome.rank, AnyOf(plan.from, plan.to)) << outcome.message;
    if (plan.how == Tampering::kFlip && has_sums()) {
      EXPECT_EQ(outcome.code, ErrorCode::kCorrupted) << outcome.message;
      EXPECT_EQ(outcome.rank, plan.from);
      EXPECT_THAT(outcome.message, HasSubstr("checksum"));
      EXPECT_THAT(outcome.message, HasSubstr("connection to 127.0.0.1"));
    }
  }

  const Setting sums_{"UNISONO_CHECKSUM", std::get<2>(GetParam()) ? "on" : "off"};
  bool struck_ = false;
};

TEST_P(TamperedLink, HangsNobodyAndIsNamed) {
  const std::vector<std::chrono::milliseconds> usual{kCallTimeout};
  const bool is_small = call() == TamperedCall::kSmall;
  const unsigned places = how() == Tampering::kFlip && has_sums() ? 3 : 1;
  int struck = 0;
  for (unsigned place = 0; place < places; ++place) {
    SCOPED_TRACE("seed " + std::to_string(seed()) + ", place " + std::to_string(place));
    std::mt19937_64 random(seed() * 100 + place);
    Tamper plan{.how = how(), .from = 0, .to = 1};
    plan.at = kFirstBytes + random() % (is_small ? 700 : 400'000);
    plan.bit = static_cast<unsigned>(random());
    try_limits(may_stall() ? kLostTimeouts : usual, [&](std::chrono::milliseconds timeout) {
      const std::array<Seen, kTamperRanks> all = run(plan, timeout);
      for (const Seen& seen : all) judge(seen, plan);
    });
    struck += struck_ ? 1 : 0;
  }
  EXPECT_GT(struck, 0);
}

std::string text_of(const testing::TestParamInfo<Case>& info) {
  const char* const ways[] = {"Flip", "Cut", "Lose", "Repeat", "Swap", "Delay"};
  const char* const calls[] = {"AllReduce", "Broadcast", "SendReceive", "SmallAllReduce"};
  const auto [how, call, has_sums] = info.param;
  return std::string(ways[static_cast<std::size_t>(how)]) + calls[static_cast<std::size_t>(call)] +
         (has_sums ? "WithSums" : "");
}

using testing::Bool;
using testing::Combine;
using testing::Values;

INSTANTIATE_TEST_SUITE_P(Changed, TamperedLink,
                         Combine(Values(Tampering::kFlip),
                                 Values(TamperedCall::kAllReduce, TamperedCall::kBroadcast,
                                        TamperedCall::kSendReceive, TamperedCall::kSmall),
                                 Bool()),
                         text_of);
INSTANTIATE_TEST_SUITE_P(Cut, TamperedLink,
                         Combine(Values(Tampering::kCut),
                                 Values(TamperedCall::kAllReduce, TamperedCall::kBroadcast,
                                        TamperedCall::kSendReceive),
                                 Bool()),
                         text_of);
INSTANTIATE_TEST_SUITE_P(Mixed, TamperedLink,
                         Combine(Values(Tampering::kLose, Tampering::kRepeat, Tampering::kSwap),
                                 Values(TamperedCall::kAllReduce), Bool()),
                         text_of);
INSTANTIATE_TEST_SUITE_P(Late, TamperedLink,
                         Combine(Values(Tampering::kDelay),
                                 Values(TamperedCall::kAllReduce, TamperedCall::kSendReceive),
                                 Bool()),
                         text_of);

}  // namespace
}  // namespace unisono::test
