// Calls on device memory in streams that are busy for long, and in streams of unusual kinds.
#include <gmock/gmock.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <ostream>

#include "tests/cuda/odd_world.h"
#include "tests/support/watchdog.h"

namespace unisono::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

using DeviceOddStream = DeviceOddWorld;

struct StagedWay {
  const char* name;
  const char* transport;
  const char* algorithm;
  int ranks;
};
void PrintTo(const StagedWay& way, std::ostream* out) { *out << way.name; }

class DeviceBusyStream : public testing::TestWithParam<StagedWay> {
 protected:
  void SetUp() override {
    if (fake() == nullptr) GTEST_SKIP() << "needs the fake driver";
  }
};

TEST_P(DeviceBusyStream, OfOneRankIsNoMismatchWithTheHostMemoryOfTheOthers) {
  const StagedWay way = GetParam();
  run_device_ranks({way.ranks, false, way.transport, {}}, [&](Communicator& comm) {
    const CallOptions plain{.timeout = kDeadline, .algorithm = way.algorithm};
    const auto total = static_cast<float>(way.ranks);
    if (comm.rank() > 0) {
      float mine = 1;
      EXPECT_EQ(failure_of([&] { comm.all_reduce(&mine, &mine, 1, kFloat, ops::sum, plain); }), "");
      EXPECT_EQ(mine, total);
    } else {
      DeviceUser user;
      float* const mine = user.make<float>({1});
      CallOptions options = plain;
      options.stream = user.stream();
      {
        const BusyStream busy(user.stream());
        EXPECT_EQ(failure_of([&] { comm.all_reduce(mine, mine, 1, kFloat, ops::sum, options); }),
                  "");
      }
      EXPECT_EQ(user.look(mine, 1)[0], total);
    }
    EXPECT_EQ(failure_of([&] { comm.barrier({.timeout = kDeadline}); }), "");
    EXPECT_TRUE(comm.status().ok()) << comm.status().message();
  });
}

TEST_P(DeviceBusyStream, OfOneRankIsNoMismatchWithTheDeviceMemoryOfTheOthers) {
  const StagedWay way = GetParam();
  run_device_ranks({way.ranks, false, way.transport, {}}, [&](Communicator& comm) {
    DeviceUser user;
    float* const two = user.make<float>({1, 2});
    float* const three = user.make<float>({1, 2, 3});
    const CallOptions options{
        .timeout = kDeadline, .algorithm = way.algorithm, .stream = user.stream()};
    std::unique_ptr<BusyStream> busy;
    if (comm.rank() == comm.size() - 1) busy = std::make_unique<BusyStream>(user.stream());
    EXPECT_EQ(failure_of([&] {
                comm.all_reduce(two, two, 2, kFloat, ops::sum, options);
                comm.all_reduce(three, three, 3, kFloat, ops::sum, options);
              }),
              "");
    busy.reset();
    const auto n = static_cast<float>(way.ranks);
    EXPECT_EQ(user.look(two, 2), (std::vector<float>{n, 2 * n}));
    EXPECT_EQ(user.look(three, 3), (std::vector<float>{n, 2 * n, 3 * n}));
    EXPECT_EQ(failure_of([&] { comm.barrier({.timeout = kDeadline}); }), "");
  });
}

INSTANTIATE_TEST_SUITE_P(Ways, DeviceBusyStream,
                         testing::Values(StagedWay{"tcp_2", "tcp", "", 2},
                                         StagedWay{"tcp_3", "tcp", "", 3},
                                         StagedWay{"native_2", "auto", "", 2},
                                         StagedWay{"ring_2", "auto", "ring", 2},
                                         StagedWay{"ring_3", "auto", "ring", 3}),
                         [](const auto& info) { return std::string(info.param.name); });

bool is_done_within(milliseconds limit, CUstream stream) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (driver()->StreamQuery(stream) != CUDA_SUCCESS) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(milliseconds(1));
  }
  return true;
}

// A busy stream of one communicator's call is nothing to another communicator.
void expect_another_goes_on(const DeviceJob& job, bool other_has_stream) {
  run_device_ranks(job, [=](Communicator& comm) {
    DeviceUser user;
    DeviceUser other;
    float* const held = user.make<float>({1});
    float* const free = other.make<float>({2});
    Communicator first = comm.split(0, comm.rank());
    Communicator second = comm.split(0, comm.rank());
    std::unique_ptr<HeldStream> hold;
    if (comm.rank() == 1) hold = std::make_unique<HeldStream>(user.stream());
    first.all_reduce(held, held, 1, kFloat, ops::sum, {.stream = user.stream()});
    comm.barrier();
    CallOptions options{.timeout = seconds(2)};
    if (other_has_stream) options.stream = other.stream();
    second.all_reduce(free, free, 1, kFloat, ops::sum, options);
    require(is_done_within(options.timeout, other.stream()), "the other stream stands still");
    require(second.status().ok(), second.status().message());
    comm.barrier();
    hold.reset();
    require(other.look(free, 1)[0] == 4, "a wrong sum of the other communicator's");
    require(user.look(held, 1)[0] == 2, "a wrong sum");
    require(first.status().ok(), first.status().message());
  });
}

TEST_F(DeviceOddStream, ABusyStreamDoesNotHoldUpAnotherCommunicator) {
  expect_another_goes_on({.ranks = 2}, false);
  expect_another_goes_on({.ranks = 2}, true);
}

// Of processes: among threads whoever makes a staged call waits for it.
TEST_F(DeviceOddStream, ABusyStreamDoesNotHoldUpStagedCallsOfAnotherCommunicator) {
  for (const bool other_has_stream : {false, true}) {
    expect_success_alone([=] {
      expect_another_goes_on({.ranks = 2, .processes = true, .devices = {}}, other_has_stream);
    });
  }
}

// How often the driver of this process was asked about events, and how often the library looked at
// a call, which each time makes its context current.
struct Looks {
  std::uint64_t at_calls;
  std::uint64_t at_events;
};

// While the library looks at each of the `calls` that are outstanding so many times, and more.
Looks looks_at(Request& any, std::uint64_t calls, std::uint64_t times) {
  const auto at_calls = [] { return fake()->calls("cuCtxPushCurrent"); };
  const auto at_events = [] { return fake()->calls("cuEventQuery"); };
  const Looks before{at_calls(), at_events()};
  while (at_calls() - before.at_calls < calls * times) {
    require(!any.test(), "a call is over before the work that it comes after");
  }
  const std::uint64_t events = at_events() - before.at_events;
  return {at_calls() - before.at_calls, events};
}

// Staged calls of one kind of which many wait for a stream that is busy.
struct WaitingCalls {
  const char* name;
  bool is_rank_0_busy;  // else rank 0 does its part at once, and looks at nothing
  Request (*call)(Communicator& comm, float* data, const CallOptions& options);
  float (*result)(int calls);  // from 1 on rank 0, and 1 on rank 1
};

Request sum_once(Communicator& comm, float* data, const CallOptions& options) {
  return comm.all_reduce_async(data, data, 1, kFloat, ops::sum, options);
}
float doubled(int calls) { return std::ldexp(1.0F, calls); }
float unchanged(int) { return 1; }

Request tell_once(Communicator& comm, float* data, const CallOptions& options) {
  return comm.broadcast_async(data, 1, kFloat, 0, options);
}

Request message_once(Communicator& comm, float* data, const CallOptions& options) {
  return comm.rank() == 0 ? comm.send_async(data, 1, kFloat, 1, 0, options)
                          : comm.receive_async(data, 1, kFloat, 0, 0, options);
}

void expect_questions_about_the_oldest(Communicator& comm, const WaitingCalls& kind) {
  constexpr int kCalls = 40;
  DeviceUser user;
  Communicator other = comm.split(0, comm.rank());
  float* const data = user.make<float>({1});
  const CallOptions options{.timeout = kDeadline, .stream = user.stream()};
  const bool is_busy = kind.is_rank_0_busy || comm.rank() == 1;
  std::unique_ptr<HeldStream> hold;
  if (is_busy) hold = std::make_unique<HeldStream>(user.stream());
  std::vector<Request> calls;
  for (int call = 0; call < kCalls; ++call) calls.push_back(kind.call(comm, data, options));
  if (!is_busy) {
    for (Request& call : calls) call.wait();
  }
  other.barrier({.timeout = kDeadline});
  if (is_busy) {
    // Calls that do not wait for the stream alone yet ask about copies of their own.
    for (int rounds = 0;; ++rounds) {
      const Looks looks = looks_at(calls.back(), kCalls, 100);
      // The first and the last round of looks may be seen in part.
      if (looks.at_events > 0 && looks.at_events <= looks.at_calls / kCalls + 2) break;
      require(rounds < 100, std::to_string(looks.at_events) + " questions about events in " +
                                std::to_string(looks.at_calls) + " looks at calls");
    }
    hold->let_go();
    for (Request& call : calls) call.wait();
  }
  require(user.look(data, 1)[0] == kind.result(kCalls), "a wrong result");
}

// Calls are over in their order, and so is the work in a stream: only the oldest can be the next.
TEST_F(DeviceOddStream, OfManyStagedCallsTheDriverIsAskedAboutTheOldestAlone) {
  const WaitingCalls kinds[]{{"all_reduce", true, sum_once, doubled},
                             {"broadcast", false, tell_once, unchanged},
                             {"receive", false, message_once, unchanged}};
  for (const WaitingCalls& kind : kinds) {
    SCOPED_TRACE(kind.name);
    expect_success_alone([&] {
      run_device_ranks({.ranks = 2, .processes = true, .devices = {}},
                       [&](Communicator& comm) { expect_questions_about_the_oldest(comm, kind); });
    });
  }
}

// Streams write into memory which calls they are past.
TEST_F(DeviceOddStream, OfCallsByKernelsTheDriverIsAskedNothing) {
  constexpr int kCalls = 40, kLooks = 10'000;
  for (const bool processes : {true, false}) {
    SCOPED_TRACE(processes ? "processes" : "threads");
    expect_success_alone([&] {
      run_device_ranks(
          {.ranks = 2, .processes = processes, .devices = {0}}, [](Communicator& comm) {
            DeviceUser user;
            float* const data = user.make<float>({1});
            const CallOptions options{.timeout = kDeadline, .stream = user.stream()};
            HeldStream hold(user.stream());
            std::vector<Request> calls;
            for (int i = 0; i < kCalls; ++i) calls.push_back(sum_once(comm, data, options));
            comm.barrier({.timeout = kDeadline});
            const std::uint64_t before = fake()->calls("cuEventQuery");
            for (int look = 0; look < kLooks; ++look) {
              require(!calls.back().test(), "a call is over before the work that it comes after");
            }
            require(fake()->calls("cuEventQuery") == before, "the driver was asked");
            comm.barrier({.timeout = kDeadline});
            hold.let_go();
            for (Request& call : calls) call.wait();
            require(user.look(data, 1)[0] == doubled(kCalls), "a wrong result");
          });
    });
  }
}

// The third rank's stream stands still. A rank that launches knows, another one cannot: it names no
// rank that is innocent.
TEST_F(DeviceOddStream, ATimeOutOfProcessesNamesNobodyWhoIsNotLate) {
  for (const Rank hurried : {0, 1}) {
    expect_success_alone([hurried] {
      run_device_ranks(
          {.ranks = 3, .processes = true, .devices = {0}}, [hurried](Communicator& comm) {
            DeviceUser user;
            float* const data = user.make<float>({1});
            std::optional<HeldStream> hold;
            if (comm.rank() == 2) hold.emplace(user.stream());
            const int soon = is_sanitized() ? 2000 : 700;
            const std::chrono::milliseconds deadline(comm.rank() == hurried ? soon : 20'000);
            comm.barrier({.timeout = kDeadline});
            Request sum = sum_once(comm, data, {.timeout = deadline, .stream = user.stream()});
            Rank named = -1;
            try {
              sum.wait();
            } catch (const Error& error) {
              named = error.rank();
            }
            require(!comm.status().ok(), "no time-out");
            require(named == 2 || (hurried == 1 && named < 0), "named: " + std::to_string(named));
          });
    });
  }
}

// The words of calls in streams are not written any more.
TEST_F(DeviceOddStream, ABrokenDeviceIsToldByItsRankAndNotByTheDeadline) {
  expect_success_alone([] {
    run_device_ranks({.ranks = 2, .processes = true, .devices = {0}}, [](Communicator& comm) {
      DeviceUser user;
      float* const data = user.make<float>({1});
      HeldStream hold(user.stream());
      Request sum = sum_once(comm, data, {.timeout = kDeadline, .stream = user.stream()});
      if (comm.rank() == 1) fake()->fail("cuStreamQuery", 1, CUDA_ERROR_ILLEGAL_ADDRESS);
      const std::string failed = failure_of([&] { sum.wait(); });
      require(failed.find("ILLEGAL_ADDRESS") != std::string::npos &&
                  failed.find("rank 1") != std::string::npos,
              "told: " + failed);
      hold.let_go();
    });
  });
}

// Nor is it a fault of one rank's call, for which the others would wait.
TEST_F(DeviceOddStream, ABrokenDeviceIsToldByItsRankWhereItIsAskedAboutTheCall) {
  for (const char* const question : {"cuStreamGetCtx", "cuPointerGetAttributes"}) {
    SCOPED_TRACE(question);
    expect_success_alone([question] {
      run_device_ranks({.ranks = 2, .processes = true}, [question](Communicator& comm) {
        DeviceUser user;
        float* const data = user.make<float>({1});
        if (comm.rank() == 1) fake()->fail(question, 1, CUDA_ERROR_ILLEGAL_ADDRESS);
        const std::string failed = failure_of(
            [&] { sum_once(comm, data, {.timeout = kDeadline, .stream = user.stream()}).wait(); });
        require(failed.find("ILLEGAL_ADDRESS") != std::string::npos &&
                    failed.find("rank 1") != std::string::npos,
                "told: " + failed);
      });
    });
  }
}

// The oldest call of one stream stands still, and a younger one of another stream goes on.
TEST_F(DeviceOddStream, ABusyStreamDoesNotHoldUpReceivesInAnotherStream) {
  expect_success_alone([] {
    run_device_ranks({.ranks = 2, .processes = true, .devices = {}}, [](Communicator& comm) {
      DeviceUser user;
      DeviceUser other;
      float* const held = user.make<float>({1});
      float* const free = other.make<float>({2});
      const bool receives = comm.rank() == 1;
      std::unique_ptr<HeldStream> hold;
      if (receives) hold = std::make_unique<HeldStream>(user.stream());
      Request first = message_once(comm, held, {.timeout = kDeadline, .stream = user.stream()});
      Request second = message_once(comm, free, {.timeout = kDeadline, .stream = other.stream()});
      second.wait();
      require(!receives || !first.test(), "a call is over before the work that it comes after");
      hold.reset();
      first.wait();
      require(other.look(free, 1)[0] == 2 && user.look(held, 1)[0] == 1, "not what the peer sent");
    });
  });
}

// Their streams wait, and they do not.
TEST_F(DeviceOddStream, BothProcessesMaySendBeforeTheyReceiveInOneStream) {
  expect_success_alone([] {
    run_device_ranks({.ranks = 2, .processes = true, .devices = {}}, [](Communicator& comm) {
      constexpr std::size_t kCount = 100'000;
      DeviceUser user;
      const Rank peer = 1 - comm.rank();
      const std::vector<float> expected(kCount, static_cast<float>(peer));
      float* const mine = user.make(std::vector<float>(kCount, static_cast<float>(comm.rank())));
      float* const theirs = user.make(std::vector<float>(kCount, -1.0F));
      const CallOptions options{.timeout = kDeadline, .stream = user.stream()};
      for (int round = 0; round < 3; ++round) {
        comm.send(mine, kCount, kFloat, peer, 0, options);
        comm.receive(theirs, kCount, kFloat, peer, 0, options);
      }
      user.finish();
      require(user.look(theirs, kCount) == expected, "not what the peer sent");
    });
  });
}

// The default stream is one for both ranks, which are threads of one process: what waits in it for
// a message must not keep the other rank from sending that message.
TEST_F(DeviceOddStream, BothEndsOfAMessageMayUseTheDefaultStream) {
  for (const bool sender_has_stream : {true, false}) {
    run_device_ranks({.ranks = 2, .devices = {}}, [&](Communicator& comm) {
      DeviceUser user;
      float* const data = user.make<float>({static_cast<float>(10 + comm.rank())});
      CallOptions options{.timeout = kDeadline, .stream = nullptr};
      comm.barrier();
      if (comm.rank() == 0) {
        EXPECT_EQ(failure_of([&] { comm.receive(data, 1, kFloat, 1, 0, options); }), "");
        EXPECT_EQ(driver()->StreamSynchronize(nullptr), CUDA_SUCCESS);
        EXPECT_EQ(user.look(data, 1)[0], 11);
      } else {
        // The receive is in the stream by then.
        std::this_thread::sleep_for(milliseconds(50));
        if (!sender_has_stream) options.stream.reset();
        EXPECT_EQ(failure_of([&] { comm.send(data, 1, kFloat, 0, 0, options); }), "");
      }
      EXPECT_EQ(failure_of([&] { comm.barrier({.timeout = kDeadline}); }), "");
      EXPECT_TRUE(comm.status().ok()) << comm.status().message();
    });
  }
}

TEST_F(DeviceOddStream, TheDefaultStreamOfEachThreadIsRefused) {
  run_device_ranks({.ranks = 1}, [](Communicator& comm) {
    DeviceUser user;
    float* const data = user.make<float>({3});
    const auto call = [&](CUstream stream) {
      return failure_of(
          [&] { comm.all_reduce(data, data, 1, kFloat, ops::sum, {.stream = stream}); });
    };
    EXPECT_THAT(call(CU_STREAM_PER_THREAD), HasSubstr("invalid argument"));
    EXPECT_EQ(call(user.stream()), "");
    EXPECT_EQ(user.look(data, 1)[0], 3);
  });
}

// What writes the input is in the stream before the call.
template <typename Write>
void expect_read_after(float* const host, DeviceUser& user, Communicator& comm,
                       const Write& enqueue_write) {
  *host = 1;
  {
    const BusyStream busy(user.stream());
    EXPECT_EQ(enqueue_write(), CUDA_SUCCESS);
    EXPECT_EQ(failure_of([&] {
                comm.all_reduce(host, host, 1, kFloat, ops::sum,
                                {.timeout = kDeadline, .stream = user.stream()});
              }),
              "");
  }
  user.finish();
  EXPECT_EQ(*host, 10) << "both streams write 5 before the call";
}

TEST_F(DeviceOddStream, PageLockedMemoryIsReadAfterTheWorkThatIsInTheStream) {
  run_device_ranks({.ranks = 2}, [](Communicator& comm) {
    DeviceUser user;
    float* const source = user.make<float>({5});
    void* locked = nullptr;
    ASSERT_EQ(driver()->MemHostAlloc(&locked, sizeof(float), CU_MEMHOSTALLOC_PORTABLE),
              CUDA_SUCCESS);
    auto* const host = static_cast<float*>(locked);
    expect_read_after(host, user, comm, [&] {
      return driver()->MemcpyAsync(reinterpret_cast<CUdeviceptr>(host),
                                   reinterpret_cast<CUdeviceptr>(source), sizeof(float),
                                   user.stream());
    });
    driver()->MemFreeHost(locked);
  });
}

TEST_F(DeviceOddStream, OrdinaryMemoryIsReadAfterTheWorkThatIsInTheStream) {
  const auto launch =
      reinterpret_cast<decltype(&::cuLaunchHostFunc)>(driver_function("cuLaunchHostFunc"));
  ASSERT_NE(launch, nullptr);
  for (const std::vector<int>& devices : {std::vector<int>{}, std::vector<int>{0}}) {
    run_device_ranks({.ranks = 2, .devices = devices}, [&](Communicator& comm) {
      DeviceUser user;
      float host = 0;
      expect_read_after(&host, user, comm, [&] {
        return launch(
            user.stream(), [](void* place) { *static_cast<float*>(place) = 5; }, &host);
      });
    });
  }
}

TEST_F(DeviceOddStream, AGroupMayMixCallsWithAndWithoutAStream) {
  const DeviceJob staged{.ranks = 2, .devices = {}};
  run_for_device_ranks(staged, [](const std::vector<Communicator*>& comms) {
    DeviceUser user;
    float* const data[] = {user.make<float>({1}), user.make<float>({2})};
    std::vector<MemberCall> calls;
    for (std::size_t rank = 0; rank < 2; ++rank) {
      calls.push_back({comms[rank],
                       {.collective = Collective::kAllReduce,
                        .in = data[rank],
                        .out = data[rank],
                        .count = 1,
                        .type = kFloat,
                        .options = {.timeout = kDeadline}}});
    }
    calls[0].call.options.stream = user.stream();
    EXPECT_EQ(failure_of([&] { group(calls); }), "");
    for (const float* place : data) EXPECT_EQ(user.look(place, 1)[0], 3);
  });
}

}  // namespace
}  // namespace unisono::test
