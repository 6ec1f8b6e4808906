// GPUDirect: messages of device memory over a transport that takes them where they lie. The
// reference transport does (a network device is a copy there), so what is left to test is which
// calls go that way and that the results are right.
#include <gmock/gmock.h>

#include <cstdlib>

#include "tests/cuda/device_user.h"
#include "tests/cuda/odd_world.h"

namespace unisono::test {
namespace {

using testing::Each;
using testing::HasSubstr;

// Before the driver reads its settings.
const int kSettings = setenv("FAKE_CUDA_DMA_BUF", "on", 0);

constexpr std::size_t kLarge = 100'001;  // of int32
constexpr std::size_t kSmall = 1000;

Call receive_call(std::int32_t* out, std::size_t count, Rank peer, CUstream stream) {
  return {.collective = Collective::kReceive,
          .out = out,
          .count = count,
          .type = DataType::kInt32,
          .peer = peer,
          .options = {.stream = stream}};
}
Call send_call(const std::int32_t* in, std::size_t count, Rank peer, CUstream stream) {
  Call call = receive_call(nullptr, count, peer, stream);
  call.collective = Collective::kSend;
  call.in = in;
  return call;
}

class DeviceDirect : public testing::Test {
 protected:
  void SetUp() override {
    if (fake() == nullptr) GTEST_SKIP() << "needs the fake driver, which counts";
    ASSERT_EQ(kSettings, 0);
  }
  /// What a transport wrote is flushed once a message that went that way.
  static std::uint64_t direct_receives() { return fake()->calls("cuFlushGPUDirectRDMAWrites"); }
  static void run(const std::function<void(Communicator&)>& body) {
    run_device_ranks({.ranks = 2, .transport = "loopback"}, body);
  }
};

// Rank 1 gets `count` numbers of rank 0's, which rank 0 writes in its stream, and looks at them in
// its own.
void pass(Communicator& comm, std::size_t count, int first) {
  DeviceUser user;
  std::vector<std::int32_t> numbers(count);
  for (std::size_t i = 0; i < count; ++i) numbers[i] = first + static_cast<int>(i);
  std::int32_t* const data =
      user.make(comm.rank() == 0 ? numbers : std::vector<std::int32_t>(count));
  user.finish();  // receives are direct where the stream has come to them
  comm.barrier();
  const std::vector<Call> calls{comm.rank() == 0 ? send_call(data, count, 1, user.stream())
                                                 : receive_call(data, count, 0, user.stream())};
  comm.group(calls);
  user.finish();
  EXPECT_EQ(user.look(data, count), numbers) << "on rank " << comm.rank();
}

TEST_F(DeviceDirect, LargeMessagesGoWhereTheyLie) {
  const std::uint64_t before = direct_receives();
  run([](Communicator& comm) {
    for (int round = 0; round < 3; ++round) pass(comm, kLarge, round);
  });
  EXPECT_EQ(direct_receives() - before, 3u);
}

TEST_F(DeviceDirect, SmallMessagesAreStaged) {
  const std::uint64_t before = direct_receives();
  run([](Communicator& comm) { pass(comm, kSmall, 5); });
  EXPECT_EQ(direct_receives(), before);
}

TEST_F(DeviceDirect, MessagesFromAnyRankAreStagedAndRight) {
  const std::uint64_t before = direct_receives();
  run([](Communicator& comm) {
    DeviceUser user;
    std::int32_t* const data =
        user.make(std::vector<std::int32_t>(kLarge, comm.rank() == 0 ? 7 : 0));
    comm.group(std::vector<Call>{comm.rank() == 0
                                     ? send_call(data, kLarge, 1, user.stream())
                                     : receive_call(data, kLarge, kAnyRank, user.stream())});
    user.finish();
    EXPECT_THAT(user.look(data, kLarge), Each(7));
  });
  EXPECT_EQ(direct_receives(), before);
}

TEST_F(DeviceDirect, IsOffWhereTheUserWantsIt) {
  const std::uint64_t before = direct_receives();
  setenv("UNISONO_CUDA_DIRECT", "off", 1);
  run([](Communicator& comm) { pass(comm, kLarge, 5); });
  unsetenv("UNISONO_CUDA_DIRECT");
  EXPECT_EQ(direct_receives(), before);
}

TEST_F(DeviceDirect, TransportsThatCannotStageAsEver) {
  const std::uint64_t before = direct_receives();
  run_device_ranks({.ranks = 2, .transport = "tcp"},
                   [](Communicator& comm) { pass(comm, kLarge, 5); });
  EXPECT_EQ(direct_receives(), before);
}

// The host's memory at one end, a message that is shorter than its room.
TEST_F(DeviceDirect, EachEndIsDirectForItself) {
  run([](Communicator& comm) {
    DeviceUser user;
    std::vector<std::int32_t> host(kLarge, 3);
    if (comm.rank() == 0) {
      comm.send(std::span<const std::int32_t>(host), 1);
      std::int32_t* const data = user.make(std::vector<std::int32_t>(kLarge, 4));
      comm.group(std::vector<Call>{send_call(data, kLarge, 1, user.stream())});
      user.finish();
    } else {
      std::int32_t* const data = user.make(std::vector<std::int32_t>(kLarge + 10, -1));
      comm.group(std::vector<Call>{receive_call(data, kLarge + 10, 0, user.stream())});
      user.finish();
      std::vector<std::int32_t> expected(kLarge, 3);
      expected.resize(kLarge + 10, -1);
      EXPECT_EQ(user.look(data, kLarge + 10), expected);
      comm.receive(std::span<std::int32_t>(host), 0);
      EXPECT_THAT(host, Each(4));
    }
  });
}

// The message is dropped, so nothing has moved.
TEST_F(DeviceDirect, AReceiveThatIsTooShortIsNoTraffic) {
  run([](Communicator& comm) {
    DeviceUser user;
    std::int32_t* const data = user.make(std::vector<std::int32_t>(kSmall, 4));
    user.finish();
    if (comm.rank() == 0) {
      comm.send(data, kSmall, DataType::kInt32, 1);
      EXPECT_EQ(comm.traffic().by_peer[1].bytes_sent, kSmall * sizeof *data);
    } else {
      EXPECT_THROW(comm.receive(data, kSmall - 1, DataType::kInt32, 0), Error);
      EXPECT_EQ(comm.traffic().by_peer[0].bytes_received, 0u);
      EXPECT_EQ(comm.traffic().by_peer[0].messages_received, 0u);
    }
    comm.barrier();
  });
}

// The send's gate is in the stream in front of the receive: were the receive to wait for the
// stream, both ranks would wait for each other's.
TEST_F(DeviceDirect, BothRanksMaySendAndReceiveInOneStreamAtOnce) {
  run([](Communicator& comm) {
    DeviceUser user;
    const Rank peer = 1 - comm.rank();
    std::int32_t* const mine = user.make(std::vector<std::int32_t>(kLarge, comm.rank() + 5));
    std::int32_t* const theirs = user.make(std::vector<std::int32_t>(kLarge));
    for (int round = 0; round < 3; ++round) {
      comm.group(std::vector<Call>{send_call(mine, kLarge, peer, user.stream()),
                                   receive_call(theirs, kLarge, peer, user.stream())});
    }
    user.finish();
    EXPECT_THAT(user.look(theirs, kLarge), Each(peer + 5));
  });
}

TEST_F(DeviceDirect, MemoryThatIsFreedAndGivenOutAnewIsKnownAnew) {
  const std::uint64_t before = direct_receives();
  run([](Communicator& comm) {
    for (int round = 0; round < 3; ++round) {
      auto* const data = static_cast<std::int32_t*>(
          allocate(comm, kLarge * sizeof(std::int32_t), MemoryKind::kCuda));
      DeviceUser user;
      const std::vector<std::int32_t> numbers(kLarge, 10 * round + comm.rank());
      user.write(reinterpret_cast<std::byte*>(data),
                 reinterpret_cast<const std::byte*>(numbers.data()), kLarge * sizeof(std::int32_t));
      user.finish();
      comm.barrier();
      comm.group(std::vector<Call>{comm.rank() == 0
                                       ? send_call(data, kLarge, 1, user.stream())
                                       : receive_call(data, kLarge, 0, user.stream())});
      user.finish();
      EXPECT_THAT(user.look(data, kLarge), Each(10 * round));
      comm.barrier();
      release(comm, data);
    }
  });
  EXPECT_EQ(direct_receives() - before, 3u);
}

// A message for the device whose flush, or whose copy by the transport, fails.
std::vector<std::string> failures_with(const char* function) {
  std::vector<std::string> failures(2);
  run_device_ranks({.ranks = 2, .transport = "loopback"}, [&](Communicator& comm) {
    DeviceUser user;
    std::int32_t* const data = user.make(std::vector<std::int32_t>(kLarge, 1));
    user.finish();
    comm.barrier();
    if (comm.rank() == 1) fake()->fail(function, 1, CUDA_ERROR_UNKNOWN);
    comm.barrier();
    // The default stream, for which a call waits, is the ranks' together: one of them uses it.
    Call call = comm.rank() == 0 ? send_call(data, kLarge, 1, user.stream())
                                 : receive_call(data, kLarge, 0, nullptr);
    if (comm.rank() == 1) call.options.stream.reset();
    failures[static_cast<std::size_t>(comm.rank())] = failure_of([&] {
      comm.group(std::vector<Call>{call});
      comm.barrier();
    });
    user.finish();
  });
  return failures;
}

TEST_F(DeviceDirect, AFailedFlushIsTheReceivesFailure) {
  const std::string failure = failures_with("cuFlushGPUDirectRDMAWrites")[1];
  EXPECT_THAT(failure, HasSubstr("flushing what network devices wrote to device 0"));
  EXPECT_THAT(failure, HasSubstr("rank 1"));
}

// At either end: a send is over when its message has left.
TEST_F(DeviceDirect, AFailedCopyOfTheTransportsIsAFailureOfItsRank) {
  const std::vector<std::string> failures = failures_with("cuMemcpyAsync");
  EXPECT_THAT(failures[0] + failures[1],
              HasSubstr("bytes of a message or block to or from device 0"));
}

}  // namespace
}  // namespace unisono::test
