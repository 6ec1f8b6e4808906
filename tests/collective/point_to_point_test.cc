// Send and receive through the public API: matching, sizes, groups, self.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/rank_job.h"
#include "tests/support/tested_transports.h"

namespace unisono::test {
namespace {

std::vector<int> numbers(int first, std::size_t count) {
  std::vector<int> data(count);
  std::iota(data.begin(), data.end(), first);
  return data;
}

Call send_of(const std::vector<int>& data, Rank target, Tag tag = 0) {
  return {.collective = Collective::kSend,
          .in = data.data(),
          .count = data.size(),
          .type = DataType::kInt32,
          .peer = target,
          .tag = tag};
}

Call receive_of(std::vector<int>& data, Rank source, Tag tag = 0) {
  return {.collective = Collective::kReceive,
          .out = data.data(),
          .count = data.size(),
          .type = DataType::kInt32,
          .peer = source,
          .tag = tag};
}

class PointToPoint : public testing::TestWithParam<std::string> {};

TEST_P(PointToPoint, TagsMatchIndependentlyAndInOrder) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    if (comm.rank() == 0) {
      for (int i = 0; i < 10; ++i) comm.send(numbers(i, 3), 1, static_cast<Tag>(i % 2));
      return;
    }
    std::vector<int> data(3);
    for (int tag = 1; tag >= 0; --tag) {
      for (int i = tag; i < 10; i += 2) {
        const Received received = comm.receive(data, 0, static_cast<Tag>(tag));
        EXPECT_EQ(data, numbers(i, 3));
        EXPECT_EQ(received.source, 0);
        EXPECT_EQ(received.tag, static_cast<Tag>(tag));
        EXPECT_EQ(received.count, 3u);
      }
    }
  });
}

// Short sends are over at once, perhaps before a connection is there to take them.
TEST_P(PointToPoint, MessagesArriveThoughTheirSenderCallsNothingMore) {
  std::atomic<bool> have_arrived = false;
  run_ranks(2, GetParam(), [&](Communicator& comm) {
    if (comm.rank() == 0) {
      comm.send(nullptr, 0, DataType::kInt32, 1, 1);
      comm.send(numbers(7, 1), 1, 2);
      while (!have_arrived) std::this_thread::yield();
      return;
    }
    const std::shared_ptr<void> at_end(nullptr, [&](void*) { have_arrived = true; });
    std::vector<int> data(1);
    EXPECT_EQ(comm.receive(data, 0, 1).count, 0u);
    EXPECT_EQ(comm.receive(data, 0, 2).count, 1u);
    EXPECT_EQ(data, numbers(7, 1));
  });
}

TEST_P(PointToPoint, EveryTagValueIsAllowed) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    int value = comm.rank();
    const Tag tag = ~Tag{0};
    if (comm.rank() == 0) {
      comm.send(&value, 1, DataType::kInt32, 1, tag);
    } else {
      EXPECT_EQ(comm.receive(&value, 1, DataType::kInt32, 0, tag).tag, tag);
      EXPECT_EQ(value, 0);
    }
  });
}

TEST_P(PointToPoint, AnySourceTakesEachMessageOnce) {
  run_ranks(4, GetParam(), [](Communicator& comm) {
    if (comm.rank() != 0) {
      for (int i = 0; i < 5; ++i) comm.send(numbers(comm.rank() * 100 + i, 2), 0, 9);
      return;
    }
    std::vector<int> next(4, 0);
    for (int i = 0; i < 15; ++i) {
      std::vector<int> data(2);
      const Received received = comm.receive(data, kAnyRank, 9);
      ASSERT_GT(received.source, 0);
      ASSERT_LT(received.source, 4);
      const int expected =
          received.source * 100 + next[static_cast<std::size_t>(received.source)]++;
      EXPECT_EQ(data, numbers(expected, 2));
    }
    EXPECT_EQ(next, (std::vector<int>{0, 5, 5, 5}));
  });
}

TEST_P(PointToPoint, AReceivePostedFirstTakesAnySource) {
  run_ranks(3, GetParam(), [](Communicator& comm) {
    if (comm.rank() == 0) {
      std::vector<std::vector<int>> data(2, std::vector<int>(100'000));
      std::vector<Request> requests;
      for (auto& each : data) {
        requests.push_back(
            comm.receive_async(each.data(), each.size(), DataType::kInt32, kAnyRank, 1));
      }
      comm.barrier();
      for (std::size_t i = 0; i < 2; ++i) {
        requests[i].wait();
        EXPECT_EQ(data[i], numbers(requests[i].source(), 100'000));
        EXPECT_EQ(requests[i].bytes(), 400'000u);
      }
      EXPECT_NE(requests[0].source(), requests[1].source());
    } else {
      comm.barrier();
      comm.send(numbers(comm.rank(), 100'000), 0, 1);
    }
  });
}

TEST_P(PointToPoint, ToItselfIsAllowed) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{300'000}}) {
      const std::vector<int> out = numbers(7, count);
      std::vector<int> in(count);
      Request request = comm.receive_async(in.data(), count, DataType::kInt32, comm.rank(), 3);
      comm.send(out, comm.rank(), 3);
      request.wait();
      EXPECT_EQ(in, out);
    }
  });
}

TEST_P(PointToPoint, AMessageToItselfMayBeSentFirst) {
  run_ranks(1, GetParam(), [](Communicator& comm) {
    std::vector<int> in(50);
    comm.send(numbers(1, 50), 0, 2);
    EXPECT_EQ(comm.receive(in, 0, 2).count, 50u);
    EXPECT_EQ(in, numbers(1, 50));
  });
}

TEST_P(PointToPoint, AllSizesArriveWhole) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    for (const std::size_t count : {0ul, 1ul, 1000ul, 4096ul, 4097ul, 70'000ul, 1'000'003ul}) {
      const std::vector<int> expected = numbers(static_cast<int>(count), count);
      if (comm.rank() == 0) {
        comm.send(expected, 1);
      } else {
        std::vector<int> data(count + 5, -1);
        EXPECT_EQ(comm.receive(data, 0).count, count);
        EXPECT_EQ(std::vector<int>(data.begin() + static_cast<std::ptrdiff_t>(count), data.end()),
                  std::vector<int>(5, -1));
        data.resize(count);
        EXPECT_EQ(data, expected);
      }
    }
  });
}

TEST_P(PointToPoint, AMessageLongerThanTheRoomIsRefusedAndTheNextOneArrives) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    for (const std::size_t count : {2ul, 5000ul, 500'000ul}) {
      for (const bool posted_first : {false, true}) {
        if (comm.rank() == 0) {
          const std::vector<int> first = numbers(1, count);
          const std::vector<int> second = numbers(9, count);
          if (posted_first) comm.barrier();
          Request one = comm.send_async(first.data(), count, DataType::kInt32, 1, 4);
          Request two = comm.send_async(second.data(), count, DataType::kInt32, 1, 4);
          if (!posted_first) comm.barrier();
          one.wait();
          two.wait();
          continue;
        }
        std::vector<int> small(count, -1);
        if (!posted_first) comm.barrier();
        Request request = comm.receive_async(small.data(), count - 1, DataType::kInt32, 0, 4);
        if (posted_first) comm.barrier();
        try {
          request.wait();
          ADD_FAILURE() << "a message of " << count << " fitted into " << count - 1;
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument) << error.what();
        }
        EXPECT_EQ(small.back(), -1);
        EXPECT_TRUE(comm.status().ok()) << comm.status().message();
        EXPECT_EQ(comm.receive(small, 0, 4).count, count);
        EXPECT_EQ(small, numbers(9, count));
      }
    }
  });
}

TEST_P(PointToPoint, AMessageOfABrokenElementIsRefusedAndTheNextOneArrives) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    for (const std::size_t bytes : {5ul, 20'001ul, 2'000'003ul}) {
      if (comm.rank() == 0) {
        const std::vector<std::uint8_t> data(bytes, 7);
        comm.send(data, 1, 6);
        comm.send_async(data.data(), bytes, DataType::kUint8, 1, 6).wait();
        comm.send(numbers(1, bytes), 1, 6);
        continue;
      }
      std::vector<int> room(bytes, -1);
      const auto expect_refusal = [&](const auto& receive) {
        try {
          receive();
          ADD_FAILURE() << bytes << " bytes were taken for elements of 4";
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument) << error.what();
          EXPECT_EQ(error.rank(), 0);
          const std::string what = error.what();
          for (const std::string& part : std::vector<std::string>{
                   "rank 0", "tag 6", std::to_string(bytes) + " bytes", "int32"}) {
            EXPECT_NE(what.find(part), std::string::npos) << what;
          }
        }
      };
      expect_refusal([&] { comm.receive(room, 0, 6); });
      expect_refusal([&] {
        comm.receive_async(room.data(), room.size(), DataType::kInt32, kAnyRank, 6).wait();
      });
      EXPECT_TRUE(comm.status().ok()) << comm.status().message();
      EXPECT_EQ(comm.receive(room, 0, 6).count, bytes);
      EXPECT_EQ(room, numbers(1, bytes));
    }
  });
}

// Longer than any transport takes before the receiver wants it.
TEST_P(PointToPoint, ASendAndAReceiveAtOnceGoRoundARing) {
  run_ranks(3, GetParam(), [](Communicator& comm) {
    constexpr std::size_t kCount = 500'000;
    const Rank next = (comm.rank() + 1) % comm.size();
    const Rank before = (comm.rank() + comm.size() - 1) % comm.size();
    const std::vector<int> out = numbers(comm.rank(), kCount);
    std::vector<int> in(kCount + 5);
    const Received got = comm.send_receive(out, next, in, before, 9);
    in.resize(kCount);
    EXPECT_EQ(in, numbers(before, kCount));
    EXPECT_EQ(got.source, before);
    EXPECT_EQ(got.tag, 9u);
    EXPECT_EQ(got.count, kCount);
    const Received short_one =
        comm.send_receive(out.data(), 1, next, in.data(), 1, kAnyRank, DataType::kInt32);
    EXPECT_EQ(short_one.source, before);
    EXPECT_EQ(in[0], numbers(before, 1)[0]);
    EXPECT_THROW(comm.send_receive(out, comm.size(), in, before), Error);
  });
}

TEST_P(PointToPoint, MessagesOfNothingNeedNoMemory) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    const Rank peer = 1 - comm.rank();
    for (int round = 0; round < 20; ++round) {
      const Received received =
          comm.send_receive(nullptr, 0, peer, nullptr, 0, peer, DataType::kInt32);
      EXPECT_EQ(received.count, 0u);
      EXPECT_EQ(received.source, peer);
    }
  });
}

TEST_P(PointToPoint, ReceivesOfAGroupTakeMessagesInTheirOrder) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    const Rank peer = 1 - comm.rank();
    for (int round = 0; round < 200; ++round) {
      const std::size_t count = std::size_t{1} << (round % 12);
      const std::vector<int> first = numbers(round, count);
      const std::vector<int> second = numbers(round + 5000, count);
      std::vector<int> got_first(count), got_second(count);
      const Call calls[]{receive_of(got_first, peer, 3), send_of(first, peer, 3),
                         receive_of(got_second, peer, 3), send_of(second, peer, 3)};
      comm.group(calls);
      ASSERT_EQ(got_first, first);
      ASSERT_EQ(got_second, second);
    }
  });
}

TEST_P(PointToPoint, ARefusedReceiveOfAGroupKeepsTheSendsAfterIt) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    const Rank peer = 1 - comm.rank();
    const std::vector<int> wrong = numbers(1, 4), right = numbers(7, 4);
    std::vector<int> got(4);
    const Call calls[]{receive_of(got, 2), send_of(wrong, peer)};
    EXPECT_THROW(comm.group(calls), Error);
    const Received received =
        comm.send_receive(right.data(), 4, peer, got.data(), 4, peer, DataType::kInt32);
    EXPECT_EQ(got, right);
    EXPECT_EQ(received.source, peer);
    EXPECT_EQ(received.count, 4u);
  });
}

TEST_P(PointToPoint, GroupsInCrossingOrdersDoNotDeadlock) {
  run_ranks(4, GetParam(), [](Communicator& comm) {
    constexpr std::size_t kCount = 100'000;
    const int n = comm.size();
    const std::vector<int> out = numbers(comm.rank(), kCount);
    std::vector<std::vector<int>> in(static_cast<std::size_t>(n), std::vector<int>(kCount));
    std::vector<Call> calls;
    // Sends first here, receives first there, peers in opposite directions.
    for (int pass = 0; pass < 2; ++pass) {
      for (int i = 0; i < n; ++i) {
        const Rank peer = comm.rank() % 2 == 0 ? i : n - 1 - i;
        if ((pass == 0) == (comm.rank() % 2 == 0)) {
          calls.push_back(send_of(out, peer));
        } else {
          calls.push_back(receive_of(in[static_cast<std::size_t>(peer)], peer));
        }
      }
    }
    comm.group(calls);
    for (int peer = 0; peer < n; ++peer) {
      EXPECT_EQ(in[static_cast<std::size_t>(peer)], numbers(peer, kCount));
    }
  });
}

TEST_P(PointToPoint, ManyInFlightArriveInOrder) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    constexpr std::size_t kMessages = 2000;
    std::vector<std::vector<int>> data(kMessages);
    std::vector<Request> requests;
    for (std::size_t i = 0; i < kMessages; ++i) {
      const std::size_t count = i % 50 == 0 ? 20'000 : i % 7;
      if (comm.rank() == 0) {
        data[i] = numbers(static_cast<int>(i), count);
        requests.push_back(comm.send_async(data[i].data(), count, DataType::kInt32, 1));
      } else {
        data[i].resize(count);
        requests.push_back(comm.receive_async(data[i].data(), count, DataType::kInt32, 0));
      }
    }
    for (std::size_t i = kMessages; i-- > 0;) requests[i].wait();
    for (std::size_t i = 0; i < kMessages; ++i) {
      ASSERT_EQ(data[i], numbers(static_cast<int>(i), data[i].size())) << "message " << i;
    }
  });
}

TEST_P(PointToPoint, FloodsOfUnexpectedMessagesAreBoundedAndDelivered) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    constexpr int kMessages = 3000;
    if (comm.rank() == 0) {
      for (int i = 0; i < kMessages; ++i) comm.send(numbers(i, 300), 1, 8);
      comm.barrier();
      return;
    }
    // The last one first: everything before it is unexpected.
    std::vector<int> last(1);
    Request request = comm.receive_async(last.data(), 1, DataType::kInt32, 0, 99);
    std::vector<int> data(300);
    for (int i = 0; i < kMessages; ++i) {
      comm.receive(data, 0, 8);
      ASSERT_EQ(data, numbers(i, 300));
    }
    comm.barrier();
    int self = 5;
    EXPECT_FALSE(request.test());
    comm.send(&self, 1, DataType::kInt32, 1, 1);
    comm.receive(&self, 1, DataType::kInt32, 1, 1);
    comm.abort("the test is over; a receive is still posted");
    EXPECT_THROW(request.wait(), Error);
  });
}

INSTANTIATE_TEST_SUITE_P(Transports, PointToPoint, testing::ValuesIn(tested_transports()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace unisono::test
