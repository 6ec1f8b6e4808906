// Collectives of processes that share a GPU, captured into a graph on each rank and replayed
// without the host: results of many replays with changing inputs, graphs in turn with each other
// and with plain calls, ranks at different speeds, and what cannot be captured. Each test forks its
// ranks before this process has touched a driver; a rank complains by throwing.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "tests/cuda/device_graph.h"
#include "tests/cuda/device_user.h"
#include "tests/cuda/odd_world.h"
#include "tests/support/watchdog.h"

namespace unisono::test {
namespace {

using Numbers = std::vector<std::int32_t>;

constexpr int kReplays = 200;
constexpr int kReplaysAtOnce = 50;   // that a driver takes before any of them can run
constexpr std::size_t kBlock = 257;  // elements; no multiple of anything

void run_processes(int ranks, const std::function<void(Communicator&)>& body) {
  run_device_ranks({.ranks = ranks, .processes = true}, body);
}

void copy(void* to, const void* from, std::size_t bytes, CUstream stream) {
  if (bytes == 0) return;
  const CUresult copied = driver()->MemcpyAsync(reinterpret_cast<CUdeviceptr>(to),
                                                reinterpret_cast<CUdeviceptr>(from), bytes, stream);
  require(copied == CUDA_SUCCESS, "a copy within the device was refused");
}

// The elements of a collective, and what they are in one replay.
struct Subject {
  Collective collective;
  std::size_t in = 0, out = 0;  // elements on this rank
  std::vector<std::size_t> counts;
  bool in_place = false;
};

Numbers numbers_of(Rank rank, int replay, std::size_t count) {
  Numbers numbers(count);
  for (std::size_t i = 0; i < count; ++i) {
    numbers[i] = static_cast<std::int32_t>((static_cast<std::size_t>(rank) + 3) * (i + 7) +
                                           static_cast<std::size_t>(replay) * 1009);
  }
  return numbers;
}

std::vector<Subject> every_collective(Rank rank, int size, Rank root) {
  const auto ranks = static_cast<std::size_t>(size);
  const std::size_t all = ranks * kBlock;
  const bool is_root = rank == root;
  std::vector<std::size_t> uneven(ranks, kBlock);
  uneven[0] = 3;
  const std::size_t uneven_all = all - kBlock + 3;
  const std::size_t mine = uneven[static_cast<std::size_t>(rank)];
  const std::vector<std::size_t> even(ranks, kBlock);
  return {
      {.collective = Collective::kBarrier},
      {.collective = Collective::kAllReduce, .in = kBlock, .out = kBlock},
      {.collective = Collective::kAllReduce, .in = kBlock, .out = kBlock, .in_place = true},
      {.collective = Collective::kReduce, .in = kBlock, .out = is_root ? kBlock : 0},
      {.collective = Collective::kBroadcast, .in = kBlock, .out = kBlock, .in_place = true},
      {.collective = Collective::kScan, .in = kBlock, .out = kBlock},
      {.collective = Collective::kExscan, .in = kBlock, .out = kBlock},
      {.collective = Collective::kAllGather, .in = kBlock, .out = all},
      {.collective = Collective::kAllGatherV, .in = mine, .out = uneven_all, .counts = uneven},
      {.collective = Collective::kReduceScatter, .in = all, .out = kBlock},
      {.collective = Collective::kReduceScatterV, .in = uneven_all, .out = mine, .counts = uneven},
      {.collective = Collective::kGather, .in = kBlock, .out = is_root ? all : 0},
      {.collective = Collective::kGatherV,
       .in = mine,
       .out = is_root ? uneven_all : 0,
       .counts = uneven},
      {.collective = Collective::kScatter, .in = is_root ? all : 0, .out = kBlock},
      {.collective = Collective::kScatterV,
       .in = is_root ? uneven_all : 0,
       .out = mine,
       .counts = uneven},
      {.collective = Collective::kAllToAll, .in = all, .out = all},
      {.collective = Collective::kAllToAllV, .in = all, .out = all, .counts = even}};
}

Call call_of(const Subject& s, Rank rank, Rank root, const std::int32_t* in, std::int32_t* out) {
  Call call{.collective = s.collective,
            .in = s.in == 0 ? nullptr : in,
            .out = s.out == 0 ? nullptr : out,
            .count = s.collective == Collective::kBarrier ? 0 : kBlock,
            .type = DataType::kInt32,
            .op = ops::sum,
            .root = root};
  const auto self = static_cast<std::size_t>(rank);
  const bool is_root = rank == root;
  const bool gathers =
      s.collective == Collective::kAllGatherV || (s.collective == Collective::kGatherV && is_root);
  const bool scatters = s.collective == Collective::kReduceScatterV ||
                        (s.collective == Collective::kScatterV && is_root);
  if (s.collective == Collective::kGatherV || s.collective == Collective::kScatterV) {
    call.count = s.counts[self];
  }
  if (gathers || s.collective == Collective::kAllToAllV) call.out_counts = s.counts;
  if (scatters || s.collective == Collective::kAllToAllV) call.in_counts = s.counts;
  return call;
}

// Replays that follow each other at once. Each gets its own numbers through the stream and leaves
// its result in a place of its own. What is right, the same collective on host memory says.
void replay_often(Communicator& comm, DeviceUser& user, const Subject& s, Rank root) {
  user.clear();
  const Rank rank = comm.rank();
  auto* const in = user.make(Numbers(s.in));
  auto* const out = s.in_place ? in : user.make(Numbers(s.out));
  std::vector<std::int32_t*> given, results;
  for (int i = 0; i < kReplays; ++i) {
    given.push_back(user.make(numbers_of(rank, i, s.in)));
    results.push_back(user.make(Numbers(s.out)));
  }
  Call call = call_of(s, rank, root, in, out);
  call.options.stream = user.stream();
  const DeviceGraph graph(user.stream(), [&] { comm.run(call); });
  const Numbers nothing(s.out, -1);
  auto* const empty = user.make(nothing);
  for (std::size_t i = 0; i < kReplays; ++i) {
    if (!s.in_place) copy(out, empty, s.out * sizeof(std::int32_t), user.stream());
    copy(in, given[i], s.in * sizeof(std::int32_t), user.stream());
    graph.launch(user.stream());
    copy(results[i], out, s.out * sizeof(std::int32_t), user.stream());
  }
  user.finish();
  for (int i = 0; i < kReplays; ++i) {
    Numbers mine = numbers_of(rank, i, s.in);
    Numbers expected = s.in_place ? mine : nothing;
    comm.run(call_of(s, rank, root, s.in_place ? expected.data() : mine.data(), expected.data()));
    require(user.look(results[static_cast<std::size_t>(i)], s.out) == expected,
            std::string(name_of(s.collective)) + " is wrong in replay " + std::to_string(i));
  }
}

class DeviceReplay : public testing::TestWithParam<int> {};

TEST_P(DeviceReplay, OfEveryCollectiveEqualsTheHosts) {
  run_processes(GetParam(), [](Communicator& comm) {
    DeviceUser user;
    const Rank root = comm.size() - 1;
    std::size_t number = 0;
    for (const Subject& s : every_collective(comm.rank(), comm.size(), root)) {
      if (!is_anothers_case(number++, 2)) replay_often(comm, user, s, root);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, DeviceReplay, testing::Values(2, 3),
                         testing::PrintToStringParamName());

// One collective whose input is its result of before, so that what goes wrong once is seen in all
// that follows. Of an odd number of ranks: powers of two would soon be 0.
class Chain {
 public:
  static constexpr std::size_t kCount = 1000;
  Chain(Communicator& comm, DeviceUser& user)
      : comm_(comm), user_(user), data_(user.make(std::vector<std::uint64_t>(kCount, 1))) {}
  Call call(CUstream stream) const {
    return {.collective = Collective::kAllReduce,
            .in = data_,
            .out = data_,
            .count = kCount,
            .type = DataType::kUint64,
            .op = ops::sum,
            .options = {.stream = stream}};
  }
  void enqueue(CUstream stream) { comm_.run(call(stream)); }
  void expect_links(int count) {
    std::uint64_t expected = 1;
    for (int i = 0; i < count; ++i) expected *= static_cast<std::uint64_t>(comm_.size());
    require(user_.look(data_, kCount) == std::vector<std::uint64_t>(kCount, expected),
            "a chain is wrong behind " + std::to_string(count) + " links");
  }

 private:
  Communicator& comm_;
  DeviceUser& user_;
  std::uint64_t* data_;
};

class SecondStream {
 public:
  SecondStream() {
    require(driver()->StreamCreateWithPriority(&stream_, CU_STREAM_NON_BLOCKING, 0) == CUDA_SUCCESS,
            "no second stream");
  }
  ~SecondStream() {
    finish();
    driver()->StreamDestroy(stream_);
  }
  SecondStream(const SecondStream&) = delete;
  CUstream get() const { return stream_; }
  void finish() { driver()->StreamSynchronize(stream_); }

 private:
  CUstream stream_ = nullptr;
};

/// What makes another stream take part in a capture, and come to its end in it.
class Branch {
 public:
  Branch() {
    driver()->EventCreate(&forked_, CU_EVENT_DISABLE_TIMING);
    driver()->EventCreate(&joined_, CU_EVENT_DISABLE_TIMING);
  }
  ~Branch() {
    driver()->EventDestroy(forked_);
    driver()->EventDestroy(joined_);
  }
  Branch(const Branch&) = delete;
  void fork(CUstream from, CUstream to) { pass(forked_, from, to); }
  void join(CUstream from, CUstream to) { pass(joined_, from, to); }

 private:
  static void pass(CUevent event, CUstream from, CUstream to) {
    driver()->EventRecord(event, from);
    driver()->StreamWaitEvent(to, event, 0);
  }

  CUevent forked_ = nullptr, joined_ = nullptr;
};

TEST(DeviceReplays, OfTwoGraphsComeInTurn) {
  run_processes(3, [](Communicator& comm) {
    DeviceUser user;
    Chain one(comm, user), two(comm, user);
    const DeviceGraph single(user.stream(), [&] { one.enqueue(user.stream()); });
    const DeviceGraph triple(user.stream(), [&] {
      two.enqueue(user.stream());
      one.enqueue(user.stream());
      two.enqueue(user.stream());
    });
    for (int i = 0; i < 100; ++i) {
      single.launch(user.stream());
      triple.launch(user.stream());
    }
    user.finish();
    one.expect_links(200);
    two.expect_links(200);
  });
}

class DeviceReplaysOfTheFake : public DeviceOddWorld {};

// Nothing puts the two streams in an order, and the ranks launch in different ones. A real driver
// may have one queue for both.
TEST_F(DeviceReplaysOfTheFake, DoNotMixWhereTwoGraphsMeetInTwoStreams) {
  run_processes(3, [](Communicator& comm) {
    DeviceUser user;
    SecondStream other;
    Chain one(comm, user), two(comm, user);
    const DeviceGraph first(user.stream(), [&] { one.enqueue(user.stream()); });
    const DeviceGraph second(other.get(), [&] { two.enqueue(other.get()); });
    for (int i = 0; i < 100; ++i) {
      if (comm.rank() == 0) first.launch(user.stream());
      second.launch(other.get());
      if (comm.rank() != 0) first.launch(user.stream());
    }
    other.finish();
    user.finish();
    one.expect_links(100);
    two.expect_links(100);
  });
}

// Calls from two streams of one capture are one behind the other: the driver may run what is side
// by side in any order, and would run another one on each rank.
TEST(DeviceReplays, OfAGraphWithTwoBranchesKeepTheOrderOfItsCalls) {
  run_processes(3, [](Communicator& comm) {
    DeviceUser user;
    SecondStream other;
    Chain one(comm, user), two(comm, user);
    Branch branch;
    const DeviceGraph graph(user.stream(), [&] {
      branch.fork(user.stream(), other.get());
      one.enqueue(user.stream());
      two.enqueue(other.get());
      one.enqueue(user.stream());
      branch.join(other.get(), user.stream());
    });
    for (int i = 0; i < 50; ++i) graph.launch(user.stream());
    user.finish();
    one.expect_links(100);
    two.expect_links(50);
  });
}

TEST_F(DeviceReplaysOfTheFake, OfAGraphKeepTheOrderOfItsCallsBesideAnotherCapture) {
  expect_success_alone([] {
    run_processes(3, [](Communicator& comm) {
      DeviceUser user;
      SecondStream other, third;
      Chain one(comm, user), two(comm, user);
      Branch branch;
      const DeviceGraph graph(user.stream(), [&] {
        branch.fork(user.stream(), other.get());
        one.enqueue(user.stream());
        const DeviceGraph inner(third.get(), [&] { one.enqueue(third.get()); });
        two.enqueue(other.get());
        branch.join(other.get(), user.stream());
      });
      for (int i = 0; i < 50; ++i) graph.launch(user.stream());
      user.finish();
      one.expect_links(50);
      two.expect_links(50);
    });
  });
}

TEST(DeviceReplays, OfGroupsAndCallsWithoutWaitingAreRight) {
  run_processes(3, [](Communicator& comm) {
    DeviceUser user;
    Chain one(comm, user), two(comm, user);
    const DeviceGraph graph(user.stream(), [&] {
      const std::vector<Call> calls{one.call(user.stream()), two.call(user.stream())};
      comm.group(calls);
      Request first = comm.start(one.call(user.stream()));
      Request second = comm.start(two.call(user.stream()));
      second.wait();
      first.wait();
    });
    for (int i = 0; i < 20; ++i) graph.launch(user.stream());
    user.finish();
    one.expect_links(40);
    two.expect_links(40);
  });
}

TEST(DeviceReplays, AndPlainCallsComeInTurn) {
  run_processes(3, [](Communicator& comm) {
    DeviceUser user;
    Chain chain(comm, user);
    const DeviceGraph graph(user.stream(), [&] { chain.enqueue(user.stream()); });
    for (int i = 0; i < 100; ++i) {
      graph.launch(user.stream());
      chain.enqueue(user.stream());
      if (i % 10 == 0) comm.barrier();
    }
    user.finish();
    chain.expect_links(200);
  });
}

// The stream of the call before is being captured: an event there would take the call along.
TEST_F(DeviceReplaysOfTheFake, HaveNoPlainCallThatCameMeanwhileInAnotherStream) {
  run_processes(2, [](Communicator& comm) {
    DeviceUser user;
    SecondStream other;
    Chain one(comm, user), two(comm, user);
    HeldStream held(user.stream());
    one.enqueue(user.stream());
    const DeviceGraph graph(user.stream(), [&] {
      std::atomic<bool> is_enqueued = false;
      std::thread let_go([&, before = fake()->calls("cuStreamIsCapturing")] {
        while (!is_enqueued && fake()->calls("cuStreamIsCapturing") < before + 10) {
          std::this_thread::yield();
        }
        held.let_go();
      });
      two.enqueue(other.get());
      is_enqueued = true;
      let_go.join();
    });
    other.finish();
    user.finish();
    one.expect_links(1);
    two.expect_links(1);
  });
}

// One rank after the other enqueues all of its replays before the next begins with its own.
TEST(DeviceReplays, AreRightHoweverFarAheadARankIs) {
  run_processes(3, [](Communicator& comm) {
    DeviceUser user;
    Chain chain(comm, user);
    const DeviceGraph graph(user.stream(), [&] { chain.enqueue(user.stream()); });
    for (Rank rank = 0; rank < comm.size(); ++rank) {
      comm.barrier();
      for (int i = 0; i < kReplaysAtOnce && rank == comm.rank(); ++i) graph.launch(user.stream());
    }
    user.finish();
    chain.expect_links(kReplaysAtOnce);
  });
}

// Flags are handed out for many calls at a time: 1365 of three ranks.
TEST(DeviceReplays, OfMoreCallsThanFlagsAreHandedOutForAtOnce) {
  run_processes(3, [](Communicator& comm) {
    DeviceUser user;
    Chain chain(comm, user);
    constexpr int kCalls = 1400;
    const DeviceGraph graph(user.stream(), [&] {
      for (int i = 0; i < kCalls; ++i) chain.enqueue(user.stream());
    });
    graph.launch(user.stream());
    graph.launch(user.stream());
    user.finish();
    chain.expect_links(2 * kCalls);
  });
}

// What `call` throws in a capture of the stream, and that calls go on afterwards.
std::string refusal(Communicator& comm, DeviceUser& user, CUstream captured,
                    const std::function<void()>& call) {
  std::string told;
  try {
    const DeviceGraph graph(captured, call);
  } catch (const Error& error) {
    told = error.what();
  }
  comm.barrier();
  Chain chain(comm, user);
  chain.enqueue(user.stream());
  user.finish();
  chain.expect_links(1);
  return told;
}

std::string refusal(Communicator& comm, DeviceUser& user, const std::function<void()>& call) {
  return refusal(comm, user, user.stream(), call);
}

void require_words(const std::string& told, const std::vector<std::string>& all) {
  for (const std::string& words : all) {
    require(told.find(words) != std::string::npos, "'" + told + "' lacks '" + words + "'");
  }
}

TEST(DeviceCaptureOfProcesses, OfOneRankAloneIsRefusedOnAllAndTheCommunicatorGoesOn) {
  run_processes(2, [](Communicator& comm) {
    DeviceUser user;
    Chain chain(comm, user);
    const auto call = [&] { chain.enqueue(user.stream()); };
    std::string told;
    if (comm.rank() == 1) {
      told = refusal(comm, user, call);
    } else {
      told = failure_of(call);
      refusal(comm, user, [] {});
    }
    require_words(told, {"rank 1 calls all_reduce in a capture and rank 0 outside of one",
                         "on all ranks or on none"});
  });
}

// The caller has done in the capture what is forbidden there.
TEST(DeviceCaptureOfProcesses, ThatIsSpoiltOnAnyRankIsRefusedOnAllAndTheCommunicatorGoesOn) {
  for (const Rank first_spoilt : {0, 1}) {
    run_processes(2, [=](Communicator& comm) {
      DeviceUser user;
      Chain chain(comm, user);
      const auto call = [&] {
        if (comm.rank() >= first_spoilt) driver()->StreamSynchronize(user.stream());
        chain.enqueue(user.stream());
      };
      require_words(refusal(comm, user, call),
                    {"rank " + std::to_string(first_spoilt) + " has a stream whose capture",
                     "outside of the capture"});
    });
  }
}

// The default stream waits for a stream like that one, which would end the capture.
TEST(DeviceCaptureOfProcesses, OfABlockingStreamGoesOnBesideACallInTheDefaultStream) {
  run_processes(2, [](Communicator& comm) {
    DeviceUser user;
    const OwnStream blocking(0, CU_STREAM_DEFAULT);
    float* const data = user.make<float>({1, 2});
    for (const CallOptions& options : {CallOptions{}, CallOptions{.stream = nullptr}}) {
      std::string told;
      refusal(comm, user, blocking.get(), [&] {
        told = failure_of(
            [&] { comm.all_reduce(data, data, 1, DataType::kFloat32, ops::sum, options); });
      });
      require_words(told, {"default stream", "all_reduce", "give"});
    }
  });
}

// Ranks that do not share device memory, as on several hosts.
TEST(DeviceCaptureOfProcesses, OfAStagedCallIsRefused) {
  run_device_ranks({.ranks = 2, .processes = true, .devices = {}}, [](Communicator& comm) {
    DeviceUser user;
    Chain chain(comm, user);
    require_words(refusal(comm, user, [&] { chain.enqueue(user.stream()); }),
                  {"all_reduce on device 0", "goes through host memory", "cannot hold",
                   "share memory on one host"});
  });
}

TEST(DeviceCaptureOfProcesses, RefusesWhatNeedsTheHost) {
  run_processes(2, [](Communicator& comm) {
    DeviceUser user;
    float* const data = user.make<float>({1, 2});
    const CallOptions options{.stream = user.stream()};
    const ReduceOp op =
        ops::user_op("add", [](const void*, void*, std::size_t, DataType, void*) {});
    require_words(
        refusal(comm, user,
                [&] { comm.all_reduce(data, data, 1, DataType::kFloat32, op, options); }),
        {"a CUDA graph cannot hold all_reduce", "function of the host", "outside of the capture"});
    float host[2] = {};
    require_words(
        refusal(comm, user,
                [&] { comm.all_reduce(host, host, 1, DataType::kFloat32, ops::sum, options); }),
        {"a CUDA graph cannot hold all_reduce", "rank 0 has a buffer in host memory"});
    const Rank peer = 1 - comm.rank();
    require_words(refusal(comm, user,
                          [&] {
                            comm.run({.collective = comm.rank() == 0 ? Collective::kSend
                                                                     : Collective::kReceive,
                                      .in = comm.rank() == 0 ? data : nullptr,
                                      .out = comm.rank() == 0 ? nullptr : data,
                                      .count = 1,
                                      .type = DataType::kFloat32,
                                      .peer = peer,
                                      .options = options});
                          }),
                  {"goes through host memory", "CUDA graph cannot hold", "device 0"});
  });
}

class DeviceCaptureOfOddDevices : public DeviceOddWorld {};

// A driver's settings are read once: those of these ranks begin anew.
void refuse_with(const char* variable, const char* value, const std::vector<std::string>& words) {
  const Setting setting(variable, value);
  expect_success_alone([&words] {
    run_processes(2, [&words](Communicator& comm) {
      DeviceUser user;
      Chain chain(comm, user);
      require_words(refusal(comm, user, [&] { chain.enqueue(user.stream()); }), words);
    });
  });
}

TEST_F(DeviceCaptureOfOddDevices, WithoutStreamMemoryOperationsIsRefused) {
  refuse_with("FAKE_CUDA_MEMOPS", "off",
              {"a CUDA graph cannot hold all_reduce", "a device without stream memory operations"});
}

TEST_F(DeviceCaptureOfOddDevices, WithoutWideStreamMemoryOperationsIsRefused) {
  refuse_with("FAKE_CUDA_MEMOPS", "32",
              {"a CUDA graph cannot hold all_reduce", "stream memory operations of 64 bits"});
}

TEST_F(DeviceCaptureOfOddDevices, WithADriverThatCannotTellGraphsApartIsRefused) {
  refuse_with("FAKE_CUDA_MISSING", "cuStreamGetCaptureInfo",
              {"cannot tell which graph a stream is captured into",
               "call all_reduce outside of the capture"});
}

}  // namespace
}  // namespace unisono::test
