// What a fake device moves, when it touches memory and in which order it says so: as real reliable
// connections do, and no better.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "base/memfd.h"
#include "tests/support/watchdog.h"
#include "tests/verbs/fake_pair.h"

namespace unisono::verbs::test {
namespace {

TEST(FakeTraffic, MovesAMessageOfAnyLengthFromSeveralPiecesAndThenAnnouncesIt) {
  const unisono::test::SeedTrace trace;
  Pair pair;
  auto random = unisono::test::random_stream(1);
  for (unsigned round = 0; round < 200; ++round) {
    Request request = pair.announce(0, 0, round);
    request.pieces.clear();
    std::size_t bytes = 0;
    for (std::uint64_t piece = unisono::test::below(random, 5); piece > 0; --piece) {
      const std::size_t part = unisono::test::below(random, 5000);
      request.pieces.push_back(pair.a.piece(bytes, part));
      bytes += part;
    }
    fill(pair.a, 0, bytes, round);
    ASSERT_TRUE(pair.b.post_receives(1));
    ASSERT_EQ(post(pair.a, pair.to_b, request), 0);
    const auto arrived = pair.b.poll(1);
    ASSERT_EQ(arrived.size(), 1u);
    EXPECT_EQ(arrived[0].opcode, IBV_WC_RECV_RDMA_WITH_IMM);
    EXPECT_EQ(arrived[0].imm_data, round);
    EXPECT_EQ(arrived[0].byte_len, bytes);
    EXPECT_EQ(arrived[0].qp_num, pair.to_a->qp_num);
    ASSERT_TRUE(holds(pair.b, 0, bytes, round)) << bytes << " bytes in round " << round;
    ASSERT_EQ(pair.a.poll(1).size(), 1u);
  }
}

TEST(FakeTraffic, ReadsScatterWhatThePeerHolds) {
  Pair pair;
  fill(pair.b, 0, 10000, 3);
  Request request = pair.read(0, 4000);
  request.pieces.push_back(pair.a.piece(4000, 0));
  request.pieces.push_back(pair.a.piece(4000, 6000));
  request.id = 77;
  ASSERT_EQ(post(pair.a, pair.to_b, request), 0);
  const auto done = pair.a.poll(1);
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].status, IBV_WC_SUCCESS);
  EXPECT_EQ(done[0].opcode, IBV_WC_RDMA_READ);
  EXPECT_EQ(done[0].byte_len, 10000u);
  EXPECT_EQ(done[0].wr_id, 77u);
  EXPECT_TRUE(holds(pair.a, 0, 10000, 3));
}

TEST(FakeTraffic, TakesAnInlinePayloadAtOnceAndAnyOtherWhenItIsCarriedOut) {
  FakeFabricOptions options = fake_world(2, 1);
  options.exact_order = false;  // it changes a payload that is lent: a race, and said to be one
  Pair pair(options);
  pair.fabric.hold(0);
  fill(pair.a, 0, 128, 1);
  Request captured = pair.write(0, 64);
  captured.flags |= IBV_SEND_INLINE;
  ASSERT_EQ(post(pair.a, pair.to_b, captured), 0);
  ASSERT_EQ(post(pair.a, pair.to_b, pair.write(64, 64)), 0);
  fill(pair.a, 0, 128, 100);
  pair.fabric.release(0);
  pair.a.poll(2);
  EXPECT_TRUE(holds(pair.b, 0, 64, 1));
  EXPECT_TRUE(holds(pair.b, 64, 64, 100 + 64 * 7));
  EXPECT_EQ(pair.fabric.counters(0).inlined, 1u);
  captured.pieces[0].length = 65;
  EXPECT_EQ(post(pair.a, pair.to_b, captured), EINVAL);
}

TEST(FakeTraffic, CompletesInOrderAndUnsignalledRequestsOnlyWhenTheyFail) {
  Pair pair;
  for (std::uint64_t i = 0; i < 30; ++i) {
    Request request = i % 3 == 0 ? pair.read(i * 100, 100) : pair.write(i * 100, 100);
    request.id = i;
    request.flags = i % 2 == 0 ? IBV_SEND_SIGNALED : 0;
    ASSERT_EQ(post(pair.a, pair.to_b, request), 0);
  }
  const auto done = pair.a.poll(15);
  for (std::size_t i = 0; i < done.size(); ++i) EXPECT_EQ(done[i].wr_id, 2 * i);
  Request wrong = pair.write(0, 8);
  wrong.rkey = 12345;
  wrong.flags = 0;
  ASSERT_EQ(post(pair.a, pair.to_b, wrong), 0);
  ASSERT_EQ(post(pair.a, pair.to_b, wrong), 0);
  const auto broken = pair.a.poll(2);
  ASSERT_EQ(broken.size(), 2u);
  EXPECT_EQ(broken[0].status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(broken[1].status, IBV_WC_WR_FLUSH_ERR);
}

TEST(FakeTraffic, WaitsForAReceiveForEverWhenToldSo) {
  Pair pair(fake_world(2, 1), {.rnr_retry = 7});
  ASSERT_EQ(post(pair.a, pair.to_b, pair.announce(0, 64, 1)), 0);
  ibv_wc none;
  while (pair.fabric.counters(0).rnr_waits < 9) {
    ASSERT_EQ(pair.a.api->poll_cq(pair.a.cq, 1, &none), 0) << "gave up";
    std::this_thread::yield();
  }
  pair.fabric.wait_until_idle();
  ASSERT_TRUE(pair.b.post_receives(1));
  EXPECT_EQ(pair.b.poll(1).at(0).imm_data, 1u);
  EXPECT_EQ(pair.a.poll(1).at(0).status, IBV_WC_SUCCESS);
}

/// A request over all memory, in pieces so large that what interrupts it mostly falls into one.
struct LongMove {
  static constexpr std::size_t kBytes = 2 << 20;
  static int rounds() { return unisono::test::is_sanitized() ? 6 : 20; }
  static FakeFabricOptions options() {
    FakeFabricOptions options = seeded(fake_world(2, 1));
    options.piece_bytes_max = kBytes;
    return options;
  }
  explicit LongMove(ibv_wr_opcode opcode)
      : a(fabric.api(0), 0, kBytes), b(fabric.api(1), 0, kBytes) {
    to_b = a.make_qp();
    to_a = b.make_qp();
    connect(a, to_b, b, to_a);
    EXPECT_EQ(post(a, to_b,
                   {.opcode = opcode,
                    .pieces = {a.piece(0, kBytes)},
                    .remote = b.address(0),
                    .rkey = b.mr->rkey}),
              0);
  }
  static void mark(Fixture& fixture) {
    std::fill(fixture.memory.begin(), fixture.memory.end(), std::byte{0xff});
  }
  static bool is_marked(const Fixture& fixture) {
    return std::count(fixture.memory.begin(), fixture.memory.end(), std::byte{0xff}) ==
           static_cast<std::ptrdiff_t>(kBytes);
  }
  static void let_it_begin(int round) {
    for (int i = 0; i < round; ++i) std::this_thread::yield();
  }

  FakeFabric fabric{options()};
  Fixture a;
  Fixture b;
  ibv_qp* to_b = nullptr;
  ibv_qp* to_a = nullptr;
};

TEST(FakeTraffic, NeverTouchesMemoryAfterItIsDeregistered) {
  for (int round = 0; round < LongMove::rounds(); ++round) {
    LongMove move(IBV_WR_RDMA_WRITE);
    LongMove::let_it_begin(round);
    EXPECT_EQ(move.b.api->dereg_mr(move.b.mr), 0);
    move.b.mr = nullptr;
    LongMove::mark(move.b);
    const auto status = move.a.poll(1).at(0).status;
    EXPECT_TRUE(status == IBV_WC_SUCCESS || status == IBV_WC_REM_ACCESS_ERR) << status;
    ASSERT_TRUE(LongMove::is_marked(move.b)) << "round " << round;
  }
}

TEST(FakeTraffic, NeverTouchesMemoryForAQueuePairAfterItIsDestroyed) {
  for (int round = 0; round < LongMove::rounds(); ++round) {
    LongMove move(IBV_WR_RDMA_READ);
    LongMove::let_it_begin(round);
    move.a.destroy_qp(move.to_b);
    LongMove::mark(move.a);
    move.fabric.wait_until_idle();
    ASSERT_TRUE(LongMove::is_marked(move.a)) << "round " << round;
  }
}

TEST(FakeTraffic, NeverTouchesMemoryForAPeerAfterItsQueuePairIsDestroyed) {
  for (int round = 0; round < LongMove::rounds(); ++round) {
    LongMove move(IBV_WR_RDMA_WRITE);
    LongMove::let_it_begin(round);
    move.b.destroy_qp(move.to_a);
    LongMove::mark(move.b);
    const auto status = move.a.poll(1).at(0).status;
    EXPECT_TRUE(status == IBV_WC_SUCCESS || status == IBV_WC_RETRY_EXC_ERR) << status;
    ASSERT_TRUE(LongMove::is_marked(move.b)) << "round " << round;
  }
}

TEST(FakeTraffic, LetsAWriteOvertakeAReadUnlessFenced) {
  const auto overtakes = [](unsigned flags) {
    bool seen = false;
    for (int round = 0; round < 40 && !seen; ++round) {
      FakeFabricOptions options = fake_world(2, 1);
      options.piece_bytes_max = 1024;
      Pair pair(options);
      fill(pair.b, 0, kHalf, 1);
      pair.fabric.hold(0);
      EXPECT_EQ(post(pair.a, pair.to_b, pair.read(0, kHalf)), 0);
      // Sends on what the read brings, to the other half: too early without a fence.
      Request forward = pair.write(0, kHalf);
      forward.remote = pair.b.address(kHalf);
      forward.flags |= flags;
      EXPECT_EQ(post(pair.a, pair.to_b, forward), 0);
      pair.fabric.release(0);
      pair.a.poll(2);
      seen = !holds(pair.b, kHalf, kHalf, 1);
    }
    return seen;
  };
  EXPECT_TRUE(overtakes(0));
  EXPECT_FALSE(overtakes(IBV_SEND_FENCE));
}

TEST(FakeTraffic, HoldsAHostStillAndLetsItGoOn) {
  Pair pair;
  pair.fabric.hold(0);
  fill(pair.a, 0, 64, 5);
  ASSERT_EQ(post(pair.a, pair.to_b, pair.write(0, 64)), 0);
  ASSERT_EQ(post(pair.b, pair.to_a,
                 {.pieces = {pair.b.piece(kHalf, 8)},
                  .remote = pair.a.address(kHalf),
                  .rkey = pair.a.mr->rkey}),
            0);
  EXPECT_EQ(pair.b.poll(1).at(0).status, IBV_WC_SUCCESS);
  pair.fabric.wait_until_idle();
  ibv_wc none;
  EXPECT_EQ(pair.a.api->poll_cq(pair.a.cq, 1, &none), 0);
  pair.fabric.release(0);
  EXPECT_EQ(pair.a.poll(1).at(0).status, IBV_WC_SUCCESS);
  EXPECT_TRUE(holds(pair.b, 0, 64, 5));
}

TEST(FakeTraffic, ReachesMemoryBehindADmabuf) {
  Pair pair;
  const int fd = make_memfd("gpu", MFD_CLOEXEC).release();
  ASSERT_EQ(::ftruncate(fd, 4096), 0);
  constexpr std::uint64_t kAddress = 0x7000000000;
  ibv_mr* gpu = pair.b.api->reg_dmabuf_mr(pair.b.pd, 0, 4096, kAddress, fd, kAllAccess);
  ASSERT_NE(gpu, nullptr);
  fill(pair.a, 0, 64, 8);
  Request request = pair.write(0, 64);
  request.remote = kAddress + 128;
  request.rkey = gpu->rkey;
  EXPECT_EQ(pair.status_of(request), IBV_WC_SUCCESS);
  std::byte seen[64];
  ASSERT_EQ(::pread(fd, seen, sizeof(seen), 128), 64);
  EXPECT_EQ(std::memcmp(seen, pair.a.memory.data(), sizeof(seen)), 0);
  EXPECT_EQ(pair.b.api->dereg_mr(gpu), 0);
  ::close(fd);
}

TEST(FakeTraffic, ConnectsInfinibandPortsByTheirLids) {
  Pair pair(fake_world(2, 1, {.link_layer = IBV_LINK_LAYER_INFINIBAND}));
  fill(pair.a, 0, 64, 5);
  EXPECT_EQ(pair.status_of(pair.write(0, 64)), IBV_WC_SUCCESS);
  EXPECT_TRUE(holds(pair.b, 0, 64, 5));
}

/// One rank: sends `rounds` messages over every device to the next rank, checks those from the one
/// before, and gives each receive back.
void pass_around(std::vector<std::unique_ptr<Fixture>>& rigs,
                 std::vector<std::unique_ptr<Fixture>>& next, unsigned rounds, std::size_t bytes) {
  for (unsigned round = 0; round < rounds; ++round) {
    for (std::size_t d = 0; d < rigs.size(); ++d) {
      Fixture& fixture = *rigs[d];
      fill(fixture, 0, bytes, round);
      ASSERT_EQ(post(fixture, fixture.qps[0],
                     {.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
                      .pieces = {fixture.piece(0, bytes)},
                      .remote = next[d]->address(bytes),
                      .rkey = next[d]->mr->rkey,
                      .immediate = round}),
                0);
      // Its own completion, the message from the rank before, the word that the next one has read.
      int awaited = 3;
      while (awaited > 0) {
        const auto found = fixture.poll(1);
        ASSERT_EQ(found.size(), 1u);
        ASSERT_EQ(found[0].status, IBV_WC_SUCCESS);
        --awaited;
        if (found[0].qp_num != fixture.qps[1]->qp_num || found[0].opcode == IBV_WC_RDMA_WRITE)
          continue;
        ASSERT_EQ(found[0].imm_data, round);
        ASSERT_TRUE(holds(fixture, bytes, bytes, round));
        ASSERT_TRUE(fixture.post_receives(1));
        ASSERT_EQ(post(fixture, fixture.qps[1], {.opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .flags = 0}),
                  0);
      }
      ASSERT_TRUE(fixture.post_receives(1));
    }
  }
}

TEST(FakeTraffic, ServesRanksOnThreadsOfTheirOwnOnSeveralDevices) {
  constexpr int kRanks = 4;
  constexpr int kDevices = 2;
  constexpr std::size_t kBytes = 20000;
  for (const bool exact : {true, false}) {
    FakeFabricOptions options = seeded(fake_world(kRanks, kDevices));
    options.exact_order = exact;
    FakeFabric fabric(options);
    std::vector<std::vector<std::unique_ptr<Fixture>>> ranks(kRanks);
    for (int rank = 0; rank < kRanks; ++rank) {
      for (int device = 0; device < kDevices; ++device) {
        auto fixture = std::make_unique<Fixture>(fabric.api(rank), device, 2 * kBytes);
        fixture->make_qp();  // to the next rank
        fixture->make_qp();  // to the one before
        ASSERT_TRUE(fixture->post_receives(4));
        ranks[rank].push_back(std::move(fixture));
      }
    }
    for (int rank = 0; rank < kRanks; ++rank) {
      for (int device = 0; device < kDevices; ++device) {
        Fixture& fixture = *ranks[rank][device];
        Fixture& next = *ranks[(rank + 1) % kRanks][device];
        connect(fixture, fixture.qps[0], next, next.qps[1]);
      }
    }
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back(
          [&, rank] { pass_around(ranks[rank], ranks[(rank + 1) % kRanks], 50, kBytes); });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_TRUE(fabric.complaints().empty()) << fabric.complaints()[0];
  }
}

}  // namespace
}  // namespace unisono::verbs::test
