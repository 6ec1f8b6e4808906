// All-reduces of ranks with GPUs on several hosts: over the GPUs of each host, and slices between
// hosts. Tests of processes run in a program of their own, which has had no other threads.
#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <barrier>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <set>
#include <utility>

#include "cuda/device/device_share.h"
#include "tests/collective/matrix_cases.h"
#include "tests/cuda/device_graph.h"
#include "tests/cuda/device_hosts.h"
#include "tests/cuda/device_user.h"
#include "tests/cuda/odd_world.h"
#include "tests/fault/outcome_board.h"
#include "tests/support/barrier_guards.h"
#include "tests/support/eventually.h"
#include "tests/support/watchdog.h"

namespace unisono::test {
namespace {

constexpr std::size_t kMebibyte = std::size_t{1} << 20;

// Which rank is where: as many on each host, together or in turn.
const std::vector<int> kTwoByTwo = {0, 0, 1, 1};
const std::vector<int> kInTurn = {0, 1, 0, 1};
const std::vector<int> kTwoByThree = {0, 0, 0, 1, 1, 1};
const std::vector<int> kThreeByTwo = {0, 1, 2, 2, 1, 0};

// Bytes that were sent to each rank.
std::vector<std::uint64_t> sent_in(Communicator& comm, const std::function<void()>& calls) {
  const TrafficReport before = comm.traffic();
  calls();
  const TrafficReport moved = comm.traffic() - before;
  std::vector<std::uint64_t> sent;
  for (const Traffic& traffic : moved.by_peer) sent.push_back(traffic.bytes_sent);
  return sent;
}

// Every type and meaningful operator once, a little more than a mebibyte, in counts and places that
// divide badly.
std::vector<CollectiveCase> every_reduction(int ranks) {
  std::vector<CollectiveCase> cases;
  std::set<std::pair<DataType, OpKind>> known;
  for (CollectiveCase c : cases_of_job(0, ranks)) {
    if (c.collective != Collective::kAllReduce || c.options.order == Order::kCanonical) continue;
    if (!known.insert({c.type, c.op}).second) continue;
    c.count = kMebibyte / size_of(c.type) + 7 * cases.size() + 1;
    c.in_place = cases.size() % 2 == 0;
    c.skew = cases.size() % 3 == 0 ? size_of(c.type) : 0;
    cases.push_back(c);
  }
  return cases;
}

class Hierarchical : public testing::TestWithParam<std::pair<std::vector<int>, bool>> {
 protected:
  static inline std::size_t number_of_job = 0;
  std::size_t places() const {
    return static_cast<std::size_t>(
        std::count(GetParam().first.begin(), GetParam().first.end(), 0));
  }
  // Among the ranks of its host.
  std::ptrdiff_t place_of(Rank rank) const {
    const std::vector<int>& hosts = GetParam().first;
    return std::count(hosts.begin(), hosts.begin() + rank, hosts[static_cast<std::size_t>(rank)]);
  }
  HostJob job() const { return {.hosts = GetParam().first, .processes = GetParam().second}; }
};

// Each of the jobs has a share of them.
TEST_P(Hierarchical, EveryTypeAndOperatorEqualsTheOracle) {
  const std::size_t shares = (is_full_run() ? 1 : 7) * (is_thread_sanitized() ? 10
                                                        : is_sanitized()      ? 5
                                                                              : 1);
  const std::size_t share = number_of_job++ % shares;
  run_device_hosts(job(), [&](Communicator& comm) {
    DeviceUser user;
    const std::vector<CollectiveCase> cases = every_reduction(comm.size());
    for (std::size_t i = share; i < cases.size(); i += shares) run_one(comm, cases[i], user);
  });
}

// A part is three slices of 4 MiB at most. In place by processes, out of place by threads.
TEST_P(Hierarchical, SeveralPartsEqualTheOracle) {
  const bool is_short = is_sanitized() && !is_full_run();
  const bool by_processes = job().processes;
  run_device_hosts(job(), [=](Communicator& comm) {
    DeviceUser user;
    for (const bool in_place : {false, true}) {
      if (!is_full_run() && in_place != by_processes) continue;
      run_one(comm,
              {.collective = Collective::kAllReduce,
               .type = DataType::kFloat32,
               .count = (is_short ? 13 : 30) * kMebibyte / 4 + 33,
               .in_place = in_place,
               .skew = 4},
              user);
    }
  });
}

TEST_P(Hierarchical, SendsTheSliceAloneAndOnlyToRanksOfTheSamePlace) {
  run_device_hosts(job(), [this](Communicator& comm) {
    DeviceUser user;
    const std::size_t count = 3 * kMebibyte;
    const auto hosts = static_cast<std::size_t>(comm.size()) / places();
    float* const data = user.make(std::vector<float>(count, 1.0F));
    const std::vector<std::uint64_t> sent = sent_in(comm, [&] {
      comm.all_reduce(data, data, count, DataType::kFloat32, ops::sum, {.stream = user.stream()});
      user.finish();
    });
    std::uint64_t all = 0;
    for (Rank peer = 0; peer < comm.size(); ++peer) {
      const std::uint64_t bytes = sent[static_cast<std::size_t>(peer)];
      all += bytes;
      require(bytes == 0 || (place_of(peer) == place_of(comm.rank()) && peer != comm.rank()),
              "rank " + std::to_string(comm.rank()) + " sent " + std::to_string(bytes) +
                  " bytes to rank " + std::to_string(peer));
    }
    // What no all-reduce of the slice can do without, and what any good one keeps to.
    const std::uint64_t slice = count * sizeof(float) / places();
    require(all >= slice && all <= slice * (hosts - 1) + 1024,
            "sent " + std::to_string(all) + " bytes of a slice of " + std::to_string(slice));
  });
}

std::string name_of_job(const testing::TestParamInfo<std::pair<std::vector<int>, bool>>& instance) {
  std::string name = instance.param.second ? "Processes" : "Threads";
  for (const int host : instance.param.first) name += std::to_string(host);
  return name;
}

// Suites apart: no process may be forked where a real driver has been initialised.
INSTANTIATE_TEST_SUITE_P(Hosts, Hierarchical,
                         testing::Values(std::pair(kTwoByTwo, false), std::pair(kInTurn, false),
                                         std::pair(kTwoByThree, false),
                                         std::pair(kThreeByTwo, false)),
                         name_of_job);
INSTANTIATE_TEST_SUITE_P(HostsOfProcesses, Hierarchical,
                         testing::Values(std::pair(kTwoByTwo, true), std::pair(kTwoByThree, true),
                                         std::pair(kThreeByTwo, true)),
                         name_of_job);

void run_in_turn(bool processes) {
  run_device_hosts({.hosts = kInTurn, .processes = processes}, [](Communicator& comm) {
    DeviceUser user;
    std::vector<std::int32_t*> data;
    for (std::int32_t i = 0; i < 6; ++i) {
      // Every second one is staged.
      const std::size_t count = i % 2 == 1 ? 100 : kMebibyte * static_cast<std::size_t>(i + 1);
      data.push_back(user.make(std::vector<std::int32_t>(count, comm.rank() + i)));
      comm.all_reduce(data.back(), data.back(), count, DataType::kInt32, ops::sum,
                      {.stream = user.stream()});
    }
    std::vector<std::int32_t> host{comm.rank()};
    comm.all_reduce(host, ops::sum);
    require(host[0] == 6, "a wrong sum of host memory");
    user.finish();
    for (std::int32_t i = 0; i < 6; ++i) {
      const std::size_t last = i % 2 == 1 ? 99 : kMebibyte * static_cast<std::size_t>(i + 1) - 1;
      const std::int32_t* const place = data[static_cast<std::size_t>(i)];
      require(user.look(place, 1)[0] == 6 + 4 * i && user.look(place + last, 1)[0] == 6 + 4 * i,
              "a wrong sum in call " + std::to_string(i));
    }
  });
}

TEST(HierarchicalCalls, MayBeInFlightTogetherAndInTurnWithOthers) { run_in_turn(false); }
TEST(HierarchicalProcesses, MayHaveCallsInFlightTogether) { run_in_turn(true); }

TEST(HierarchicalCalls, AStreamOrdersThemWithTheWorkAroundThem) {
  run_device_hosts({.hosts = kTwoByTwo}, [](Communicator& comm) {
    DeviceUser user;
    const auto api = driver();
    const std::size_t count = kMebibyte;
    std::int64_t* const data = user.make(std::vector<std::int64_t>(count, 1));
    std::int64_t* const copy = user.make(std::vector<std::int64_t>(count, 0));
    for (int round = 0; round < 4; ++round) {
      comm.all_reduce(data, copy, count, DataType::kInt64, ops::sum, {.stream = user.stream()});
      api->MemcpyAsync(reinterpret_cast<CUdeviceptr>(data), reinterpret_cast<CUdeviceptr>(copy),
                       count * 8, user.stream());
    }
    user.finish();
    require(user.look(data, count) == std::vector<std::int64_t>(count, 256), "a wrong sum");
  });
}

TEST(HierarchicalCalls, WithoutAStreamReturnWhenTheResultIsThere) {
  run_device_hosts({.hosts = kTwoByTwo}, [](Communicator& comm) {
    DeviceUser user;
    double* const data = user.make(std::vector<double>(kMebibyte, comm.rank() + 1.0));
    comm.all_reduce(data, data, kMebibyte, DataType::kFloat64, ops::average);
    require(user.look(data, kMebibyte) == std::vector<double>(kMebibyte, 2.5), "a wrong average");
  });
}

void run_on_several_gpus(bool processes) {
  if (device_count() < 2) GTEST_SKIP() << "needs two devices";
  run_device_hosts({.hosts = kTwoByTwo, .processes = processes, .devices = {0, 1}},
                   [](Communicator& comm) {
                     DeviceUser user(comm.rank() % 2);
                     run_one(comm,
                             {.collective = Collective::kAllReduce,
                              .type = DataType::kBfloat16,
                              .count = 5 * kMebibyte},
                             user);
                   });
}

TEST(HierarchicalCalls, RunOnSeveralGpusOfAHost) { run_on_several_gpus(false); }
TEST(HierarchicalProcesses, RunOnSeveralGpusOfAHost) { run_on_several_gpus(true); }

// Processes of several ranks have no page of flags for each of them.
TEST(HierarchicalProcesses, WithSeveralRanksEachAreStaged) {
  if (device_count() < 2) GTEST_SKIP() << "needs two devices";
  run_device_hosts(
      {.hosts = {0, 0, 0, 0, 1, 1, 1, 1},
       .processes = true,
       .ranks_of_a_process = 2,
       .devices = {0, 1}},
      [](Communicator& comm) {
        DeviceUser user(comm.rank() % 2);
        run_one(
            comm,
            {.collective = Collective::kAllReduce, .type = DataType::kInt32, .count = kMebibyte},
            user);
      });
}

TEST(HierarchicalCalls, RunOnCommunicatorsThatWereSplit) {
  run_device_hosts({.hosts = {0, 0, 1, 1, 0, 0, 1, 1}}, [](Communicator& comm) {
    DeviceUser user;
    Communicator half = comm.split(comm.rank() % 2, -comm.rank());
    for (Communicator* each : {&half, &comm, &half}) {
      std::int32_t* const data = user.make(std::vector<std::int32_t>(kMebibyte, 1));
      each->all_reduce(data, data, kMebibyte, DataType::kInt32, ops::sum,
                       {.stream = user.stream()});
      user.finish();
      require(user.look(data, 1)[0] == each->size(), "a wrong sum");
      user.clear();
    }
  });
}

TEST(HierarchicalCalls, GoThroughLittleStagingMemory) {
  setenv("UNISONO_SCRATCH_BYTES", "8M", 1);
  run_device_hosts({.hosts = kTwoByTwo}, [](Communicator& comm) {
    DeviceUser user;
    run_one(
        comm,
        {.collective = Collective::kAllReduce, .type = DataType::kInt32, .count = 5 * kMebibyte},
        user);
  });
  unsetenv("UNISONO_SCRATCH_BYTES");
}

// All of them find the same in the exchange of metadata.
TEST(HierarchicalCalls, WithABufferInHostMemoryAreStaged) {
  run_device_hosts({.hosts = kTwoByTwo}, [](Communicator& comm) {
    DeviceUser user;
    std::vector<std::int32_t> start(kMebibyte, comm.rank());
    std::int32_t* const device = user.make(start);
    std::int32_t* const data = comm.rank() == 2 ? start.data() : device;
    const std::vector<std::uint64_t> sent = sent_in(comm, [&] {
      comm.all_reduce(data, data, kMebibyte, DataType::kInt32, ops::sum, {.stream = user.stream()});
      user.finish();
    });
    std::uint64_t all = 0;
    for (const std::uint64_t bytes : sent) all += bytes;
    require(all > kMebibyte * 4 / 2, "a slice went instead of the whole");
    const std::int32_t got = comm.rank() == 2 ? start[7] : user.look(device, 8)[7];
    require(got == 6, "a wrong sum");
  });
}

TEST(HierarchicalCalls, InTheCanonicalOrderHaveTheBitsOfHostMemory) {
  run_device_hosts({.hosts = kTwoByTwo}, [](Communicator& comm) {
    DeviceUser user;
    std::vector<float> start(kMebibyte);
    for (std::size_t i = 0; i < start.size(); ++i) {
      start[i] = 1.0F / static_cast<float>(i + 1 + static_cast<std::size_t>(comm.rank()) * 7);
    }
    float* const data = user.make(start);
    comm.all_reduce(data, data, kMebibyte, DataType::kFloat32, ops::sum,
                    {.order = Order::kCanonical, .stream = user.stream()});
    user.finish();
    std::vector<float> host = start;
    comm.all_reduce(host.data(), host.data(), kMebibyte, DataType::kFloat32, ops::sum,
                    {.order = Order::kCanonical});
    require(user.look(data, kMebibyte) == host, "other bits");
  });
}

TEST(HierarchicalCalls, OfHostsWithUnequalRanksAreStaged) {
  for (const std::vector<int>& hosts : {std::vector<int>{0, 0, 1}, std::vector<int>{0, 1}}) {
    run_device_hosts({.hosts = hosts}, [](Communicator& comm) {
      DeviceUser user;
      run_one(comm,
              {.collective = Collective::kAllReduce, .type = DataType::kInt32, .count = kMebibyte},
              user);
    });
  }
}

// Of ranks that have a device each: a long call goes in parts, which those know who give a stream.
// The last call waits for longest: of calls that are stuck the first one is named.
TEST(StagedCalls, OfAnyLengthMayHaveHostMemoryOnOneRank) {
  constexpr std::size_t kCount = 16 * kMebibyte / sizeof(float);
  std::barrier<> told(2);
  run_device_hosts({.hosts = {0, 1}}, [&](Communicator& comm) {
    const LeaveTogether together(told);
    DeviceUser user;
    const std::vector<float> start(kCount, static_cast<float>(comm.rank()));
    std::vector<float> host = start;
    float* const data = comm.rank() == 1 ? host.data() : user.make(start);
    for (const Rank root : {0, 1}) {
      EXPECT_EQ(failure_of([&] {
                  comm.broadcast(data, kCount, kFloat, root,
                                 {.timeout = kCallTimeout, .stream = user.stream()});
                }),
                "")
          << "from " << root;
      user.finish();
      const std::vector<float> got = comm.rank() == 1 ? host : user.look(data, kCount);
      EXPECT_TRUE(got == std::vector<float>(kCount, 0.0F)) << "a wrong broadcast from " << root;
    }
    const CallOptions longest{.timeout = kCallTimeout + std::chrono::seconds(10)};
    EXPECT_THAT(failure_of([&] { comm.broadcast(data, kCount, kFloat, 0, longest); }),
                testing::AllOf(testing::HasSubstr("calls differ"),
                               testing::HasSubstr("part of a longer call"),
                               testing::HasSubstr("give a stream")));
  });
}

TEST(HierarchicalProcesses, InACaptureAreRefusedOnAllRanks) {
  run_device_hosts({.hosts = kTwoByTwo, .processes = true}, [](Communicator& comm) {
    DeviceUser user;
    float* const data = user.make(std::vector<float>(kMebibyte, 1.0F));
    const auto call = [&] {
      comm.all_reduce(data, data, kMebibyte, DataType::kFloat32, ops::sum,
                      {.stream = user.stream()});
    };
    const std::string failure = failure_of([&] { const DeviceGraph graph(user.stream(), call); });
    require(failure.find("outside of the capture") != std::string::npos, "told: " + failure);
    call();
    user.finish();
    require(user.look(data, 1)[0] == 4, "a wrong sum afterwards");
  });
}

// On rank 0 beside streams of three sends to rank 1, and while rank 2 takes long for its part.
void call_beside_sends(Communicator& comm) {
  DeviceUser user;
  const OwnStream streams[] = {OwnStream(0), OwnStream(0), OwnStream(0)};
  Communicator other = comm.split(0, comm.rank());
  float* const data = user.make(std::vector<float>(kMebibyte, 1.0F));
  float* const message = user.make(std::vector<float>(kMebibyte, 2.0F));
  const CallOptions options{.timeout = kDeadline};
  const auto with = [&](CUstream stream) {
    return CallOptions{.timeout = kDeadline, .stream = stream};
  };
  const auto sum = [&] {
    comm.all_reduce(data, data, kMebibyte, kFloat, ops::sum, with(user.stream()));
  };
  const auto send_in = [&](const OwnStream& stream) {
    comm.send(message, kMebibyte, kFloat, 1, 0, with(stream.get()));
  };
  sum();  // connects
  user.finish();
  CUcontext context = nullptr;
  driver()->CtxGetCurrent(&context);
  const auto share = *device::DeviceShare::of(driver(), 0, context);
  std::unique_ptr<HeldStream> held;
  if (comm.rank() == 2) held = std::make_unique<HeldStream>(share->outward_stream());
  const std::uint64_t before = fake()->calls("cuMemcpyAsync");
  if (comm.rank() == 0) send_in(streams[0]), send_in(streams[1]);
  sum();
  if (comm.rank() == 0) {
    require(eventually([&] { return fake()->calls("cuMemcpyAsync") == before + 3; }),
            "the slice is not on its way");
    send_in(streams[2]);
    for (const OwnStream& stream : streams) {
      require(driver()->StreamQuery(stream.get()) == CUDA_ERROR_NOT_READY, "nothing waits");
    }
  }
  other.barrier(options);
  held.reset();
  for (int i = 0; i < 3 && comm.rank() == 1; ++i) {
    comm.receive(message, kMebibyte, kFloat, 0, 0, options);
  }
  user.finish();
  require(user.look(data, kMebibyte) == std::vector<float>(kMebibyte, 16.0F), "a wrong sum");
}

// Of eight hardware queues half are for streams that wait, as none of the steps does.
TEST(HierarchicalProcesses, TakeOneGateEach) {
  if (fake() == nullptr) GTEST_SKIP() << "needs the fake driver";
  run_device_hosts({.hosts = kTwoByTwo, .processes = true, .watched = false}, call_beside_sends);
}

// Ends with the failure, and the stream is free.
std::string failure_of_calls(Communicator& comm, DeviceUser& user, std::size_t count) {
  float* const data = user.make(std::vector<float>(count, 1.0F));
  const std::string failure = failure_of([&] {
    for (;;) {
      comm.all_reduce(data, data, count, DataType::kFloat32, ops::max, {.stream = user.stream()});
      user.finish();
    }
  });
  user.finish();
  return failure;
}

TEST(HierarchicalFailure, AbortIsToldToAllAndStreamsGoOn) {
  run_device_hosts({.hosts = kTwoByTwo}, [](Communicator& comm) {
    DeviceUser user;
    if (comm.rank() == 3) {
      float* const data = user.make(std::vector<float>(kMebibyte, 1.0F));
      comm.all_reduce(data, data, kMebibyte, DataType::kFloat32, ops::max,
                      {.stream = user.stream()});
      comm.abort("enough");
      user.finish();
      return;
    }
    EXPECT_THAT(failure_of_calls(comm, user, kMebibyte), testing::HasSubstr("enough"));
  });
}

TEST(HierarchicalProcesses, FailureOfTheDriverInAnyStepNamesTheRank) {
  if (fake() == nullptr) GTEST_SKIP() << "needs the fake driver";
  // The first launch scatters and the second one gathers.
  const std::vector<std::pair<const char*, std::uint64_t>> calls = {
      {"cuLaunchKernel", 1}, {"cuLaunchKernel", 2}, {"cuMemcpyAsync", 1}, {"cuMemcpyAsync", 2}};
  for (const auto& [function, call] : calls) {
    SCOPED_TRACE(std::string(function) + ", call " + std::to_string(call));
    run_device_hosts({.hosts = kTwoByTwo, .processes = true},
                     [&, function = function, call = call](Communicator& comm) {
                       DeviceUser user;
                       float* const data = user.make(std::vector<float>(kMebibyte, 1.0F));
                       // Buffers are mapped by a first call: who hears of the failure frees its
                       // own.
                       comm.all_reduce(data, data, kMebibyte, DataType::kFloat32, ops::max);
                       comm.barrier();
                       if (comm.rank() == 2)
                         fake()->fail(function, call, CUDA_ERROR_ILLEGAL_ADDRESS);
                       const std::string failure = failure_of([&] {
                         for (;;)
                           comm.all_reduce(data, data, kMebibyte, DataType::kFloat32, ops::max);
                       });
                       for (const char* words : {"rank 2", "CUDA_ERROR_ILLEGAL_ADDRESS"}) {
                         require(failure.find(words) != std::string::npos,
                                 "rank " + std::to_string(comm.rank()) + " hears: " + failure);
                       }
                       user.finish();
                     });
  }
}

// Those who call do so at the same time: who is late would be named as well.
TEST(HierarchicalFailure, ARankThatNeverCallsIsNamedAtTheDeadline) {
  std::barrier<> told(4);
  std::barrier<> ready(3);
  run_device_hosts({.hosts = kTwoByTwo}, [&](Communicator& comm) {
    const LeaveTogether together(told);
    if (comm.rank() == 1) return;
    const InStep step(ready);
    DeviceUser user;
    float* const data = user.make(std::vector<float>(kMebibyte, 1.0F));
    step.with_all();
    const CallOptions options{.timeout = std::chrono::seconds(3)};
    const std::string failure = failure_of(
        [&] { comm.all_reduce(data, data, kMebibyte, DataType::kFloat32, ops::sum, options); });
    EXPECT_THAT(failure,
                testing::AllOf(testing::HasSubstr("timeout"), testing::HasSubstr("rank 1")));
  });
}

TEST(HierarchicalFailure, DifferingCountsAreToldOnAllRanks) {
  run_device_hosts({.hosts = kTwoByTwo}, [](Communicator& comm) {
    DeviceUser user;
    const std::size_t count = kMebibyte + (comm.rank() == 3 ? 1 : 0);
    EXPECT_THAT(failure_of_calls(comm, user, count), testing::HasSubstr("1048577"));
  });
}

/// When a rank dies: as soon as its process has made so many calls of a driver function more.
struct Moment {
  const char* step;
  const char* function;  ///< null: before its call
  std::uint64_t calls;
};

[[noreturn]] void die(OutcomeBoard& board) {
  board.killed_at_ns = now_ns();
  kill(getpid(), SIGKILL);
  std::abort();
}

[[noreturn]] void die_in(Communicator& comm, OutcomeBoard& board, DeviceUser& user,
                         const Moment& moment) {
  float* const data = user.make(std::vector<float>(kMebibyte, 1.0F));
  const auto call = [&] {
    comm.all_reduce(data, data, kMebibyte, DataType::kFloat32, ops::max, {.stream = user.stream()});
  };
  call();
  user.finish();
  if (moment.function != nullptr) {
    const std::uint64_t before = fake()->calls(moment.function);
    call();
    const auto comes = [&] {
      usleep(100);  // each look takes the driver's lock
      return fake()->calls(moment.function) >= before + moment.calls;
    };
    require(eventually(comes), "the moment to die has not come");
  }
  die(board);
}

void survive(Communicator& comm, OutcomeBoard& board, DeviceUser& user) {
  const auto self = static_cast<std::size_t>(comm.rank());
  float* const data = user.make(std::vector<float>(kMebibyte, 1.0F));
  board.blocking[self] = outcome_of([&] {
    for (;;) {
      comm.all_reduce(data, data, kMebibyte, DataType::kFloat32, ops::max,
                      {.stream = user.stream()});
      user.finish();  // ends although the call fails
    }
  });
  board.later[self] = outcome_of([&] {
    comm.all_reduce(data, data, kMebibyte, DataType::kFloat32, ops::max, {.stream = user.stream()});
  });
}

TEST(HierarchicalProcesses, KilledInEveryStepIsToldToAllSurvivors) {
  if (fake() == nullptr) GTEST_SKIP() << "needs the fake driver";
  for (const Moment& moment :
       {Moment{"metadata", nullptr, 0}, Moment{"scatter", "cuLaunchKernel", 1},
        Moment{"exchange", "cuMemcpyAsync", 1}, Moment{"gather", "cuLaunchKernel", 2}}) {
    for (const Rank victim : {0, 3}) {
      SCOPED_TRACE(std::string(moment.step) + ", rank " + std::to_string(victim));
      SharedBoard board;
      try {
        // Each rank of a host launches on a device of its own.
        const HostJob job{.hosts = kTwoByTwo, .processes = true, .devices = {0, 1}};
        spawn_device_hosts(job, [&](Communicator& comm) {
          DeviceUser user(comm.rank() % 2);
          if (comm.rank() == victim) die_in(comm, *board.operator->(), user, moment);
          survive(comm, *board.operator->(), user);
        });
        ADD_FAILURE() << "nobody died";
      } catch (const Error& error) {
        EXPECT_EQ(error.rank(), victim) << error.what();
      }
      for (Rank rank = 0; rank < 4; ++rank) {
        if (rank == victim) continue;
        const auto index = static_cast<std::size_t>(rank);
        for (const Outcome& outcome : {board->blocking[index], board->later[index]}) {
          EXPECT_TRUE(outcome.written) << "rank " << rank << " heard nothing";
          EXPECT_EQ(outcome.code, ErrorCode::kRankFailed) << outcome.message;
          EXPECT_EQ(outcome.rank, victim) << outcome.message;
        }
      }
    }
  }
}

}  // namespace
}  // namespace unisono::test
