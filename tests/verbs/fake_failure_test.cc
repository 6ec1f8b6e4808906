// What a fake device refuses, how that is reported to either side, and the levers that make things
// fail when a test wants it.
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>

#include "tests/verbs/fake_pair.h"

namespace unisono::verbs::test {
namespace {

TEST(FakeFailure, ReportsAWrongRemoteKeyToBothSidesAndFlushesTheRest) {
  Pair pair;
  Request wrong = pair.write(0, 8);
  wrong.rkey = pair.b.mr->lkey;
  ASSERT_EQ(post(pair.a, pair.to_b, wrong), 0);
  ASSERT_EQ(post(pair.a, pair.to_b, pair.write(0, 8)), 0);
  const auto done = pair.a.poll(2);
  ASSERT_EQ(done.size(), 2u);
  EXPECT_EQ(done[0].status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(done[1].status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(pair.b.next_event(), IBV_EVENT_QP_ACCESS_ERR);
  EXPECT_EQ(pair.b.next_event(), IBV_EVENT_QP_LAST_WQE_REACHED);
  // The peer's queue pair is broken too.
  EXPECT_EQ(post(pair.b, pair.to_a, {.pieces = {pair.b.piece(0, 8)}}), 0);
  EXPECT_EQ(pair.b.poll(1).at(0).status, IBV_WC_WR_FLUSH_ERR);
}

TEST(FakeFailure, ChecksBoundsRightsAndDomainsOfTheTarget) {
  const auto refuses = [](auto&& change, const Wiring& wiring = {}) {
    Pair pair(fake_world(2, 1), wiring);
    Request request = pair.write(0, 64);
    ibv_mr* other = nullptr;
    ibv_pd* domain = nullptr;
    change(pair, request, other, domain);
    const ibv_wc_status status = pair.status_of(request);
    if (other != nullptr) {
      EXPECT_EQ(pair.b.api->dereg_mr(other), 0);
    }
    if (domain != nullptr) {
      EXPECT_EQ(pair.b.api->dealloc_pd(domain), 0);
    }
    return status;
  };
  EXPECT_EQ(refuses([](Pair& pair, Request& request, auto&, auto&) {
              request.remote = pair.b.address(2 * kHalf - 63);
            }),
            IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(refuses([](Pair&, Request& request, auto&, auto&) { request.remote = ~0ull - 8; }),
            IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(refuses([](Pair& pair, Request& request, ibv_mr*& other, auto&) {
              other = pair.b.api->reg_mr(pair.b.pd, pair.b.memory.data(), 64,
                                         IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
              request.rkey = other->rkey;
            }),
            IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(refuses([](Pair& pair, Request& request, ibv_mr*& other, auto&) {
              other = pair.b.api->reg_mr(pair.b.pd, pair.b.memory.data(), 16, kAllAccess);
              request.rkey = other->rkey;
            }),
            IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(refuses([](Pair& pair, Request& request, ibv_mr*& other, ibv_pd*& domain) {
              domain = pair.b.api->alloc_pd(pair.b.context);
              other = pair.b.api->reg_mr(domain, pair.b.memory.data(), 64, kAllAccess);
              request.rkey = other->rkey;
            }),
            IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(refuses([](Pair&, Request&, auto&, auto&) {}, {.access = IBV_ACCESS_REMOTE_READ}),
            IBV_WC_REM_INV_REQ_ERR);
}

TEST(FakeFailure, ChecksItsOwnSideFirst) {
  const auto refuses = [](auto&& change) {
    Pair pair;
    Request request = pair.write(0, 64);
    change(pair, request);
    return pair.status_of(request);
  };
  EXPECT_EQ(refuses([](Pair& pair, Request& request) { request.pieces[0].lkey = pair.a.mr->rkey; }),
            IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(refuses([](Pair& pair, Request& request) {
              request.pieces.push_back(pair.a.piece(2 * kHalf - 1, 2));
            }),
            IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(refuses([](Pair& pair, Request& request) {
              EXPECT_EQ(pair.a.api->dereg_mr(pair.a.mr), 0);
              pair.a.mr = pair.a.api->reg_mr(pair.a.pd, pair.a.memory.data(), 64, 0);
              request.opcode = IBV_WR_RDMA_READ;
              request.pieces[0].lkey = pair.a.mr->lkey;
            }),
            IBV_WC_LOC_PROT_ERR);
}

TEST(FakeFailure, RefusesMessagesAboveItsLimit) {
  Pair pair(fake_world(2, 1, {.message_bytes_max = 4096}));
  EXPECT_EQ(pair.status_of(pair.write(0, 4096)), IBV_WC_SUCCESS);
  EXPECT_EQ(pair.status_of(pair.write(0, 4097)), IBV_WC_LOC_LEN_ERR);
}

TEST(FakeFailure, GivesUpWhereThePeerHasNoReceive) {
  Pair pair(fake_world(2, 1), {.rnr_retry = 2});
  EXPECT_EQ(pair.status_of(pair.announce(0, 64, 1)), IBV_WC_RNR_RETRY_EXC_ERR);
  EXPECT_EQ(pair.fabric.counters(0).rnr_waits, 2u);
}

TEST(FakeFailure, LinkDownIsAnEventAStateAndTheEndOfTrafficBothWays) {
  Pair pair;
  pollfd waiting{pair.b.context->async_fd, POLLIN, 0};
  EXPECT_EQ(::poll(&waiting, 1, 0), 0);
  pair.fabric.set_link(1, 0, false);
  EXPECT_EQ(::poll(&waiting, 1, 0), 1);
  EXPECT_EQ(pair.b.next_event(), IBV_EVENT_PORT_ERR);
  EXPECT_EQ(pair.a.next_event(), -1);
  ibv_port_attr port{};
  EXPECT_EQ(pair.b.api->query_port(pair.b.context, 1, &port), 0);
  EXPECT_EQ(port.state, IBV_PORT_DOWN);
  EXPECT_EQ(pair.status_of(pair.write(0, 8)), IBV_WC_RETRY_EXC_ERR);
  ASSERT_EQ(post(pair.b, pair.to_a, {.pieces = {pair.b.piece(0, 8)}}), 0);
  EXPECT_EQ(pair.b.poll(1).at(0).status, IBV_WC_RETRY_EXC_ERR);

  pair.fabric.set_link(1, 0, true);
  // What its broken queue pair had to say comes before.
  int event = pair.b.next_event();
  while (event != IBV_EVENT_PORT_ACTIVE && event != -1) event = pair.b.next_event();
  EXPECT_EQ(event, IBV_EVENT_PORT_ACTIVE);
  pair.to_b = pair.a.make_qp();
  pair.to_a = pair.b.make_qp();
  connect(pair.a, pair.to_b, pair.b, pair.to_a);
  EXPECT_EQ(pair.status_of(pair.write(0, 8)), IBV_WC_SUCCESS);
}

TEST(FakeFailure, RidesOutALinkThatComesBackInTime) {
  FakeFabricOptions options = fake_world(2, 1);
  options.retry_wait = std::chrono::seconds(1);
  Pair pair(options);
  pair.fabric.hold(0);
  fill(pair.a, 0, 64, 9);
  ASSERT_EQ(post(pair.a, pair.to_b, pair.write(0, 64)), 0);
  pair.fabric.set_link(0, 0, false);
  pair.fabric.release(0);
  pair.fabric.set_link(0, 0, true);
  EXPECT_EQ(pair.a.poll(1).at(0).status, IBV_WC_SUCCESS);
  EXPECT_TRUE(holds(pair.b, 0, 64, 9));
}

TEST(FakeFailure, AnUnpluggedHostAnswersNobodyAndIsNotFound) {
  Pair pair;
  pair.fabric.unplug(1);
  EXPECT_EQ(pair.status_of(pair.read(0, 8)), IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(pair.b.next_event(), -1);
  ibv_qp* late = pair.a.make_qp();
  EXPECT_EQ(to_init(pair.a, late, {}), 0);
  EXPECT_EQ(to_receive(pair.a, late, pair.b, pair.to_a, {}), ETIMEDOUT);
}

TEST(FakeFailure, ABrokenDeviceSaysSoAndCompletesNothing) {
  Pair pair;
  pair.fabric.hold(0);
  ASSERT_EQ(post(pair.a, pair.to_b, pair.write(0, 8)), 0);
  pair.fabric.break_device(0, 0);
  pair.fabric.release(0);
  EXPECT_EQ(pair.a.next_event(), IBV_EVENT_DEVICE_FATAL);
  pair.fabric.wait_until_idle();
  ibv_wc none;
  EXPECT_EQ(pair.a.api->poll_cq(pair.a.cq, 1, &none), 0);
  EXPECT_EQ(post(pair.a, pair.to_b, pair.write(0, 8)), EIO);
  EXPECT_EQ(pair.a.api->alloc_pd(pair.a.context), nullptr);
  EXPECT_EQ(errno, EIO);
}

TEST(FakeFailure, EndsThatDisagreeNeverHearEachOther) {
  const auto status_with = [](auto&& change) {
    Pair pair(fake_world(2, 1, {.pkeys = {0xffff, 0x8001, 0x0001}}));
    Wiring mine;
    Wiring theirs;
    change(mine, theirs);
    pair.to_b = pair.a.make_qp();
    pair.to_a = pair.b.make_qp();
    EXPECT_EQ(to_init(pair.a, pair.to_b, mine), 0);
    EXPECT_EQ(to_init(pair.b, pair.to_a, theirs), 0);
    EXPECT_EQ(to_receive(pair.a, pair.to_b, pair.b, pair.to_a, mine), 0);
    EXPECT_EQ(to_receive(pair.b, pair.to_a, pair.a, pair.to_b, theirs), 0);
    EXPECT_EQ(to_send(pair.a, pair.to_b, mine), 0);
    const auto status = pair.status_of(pair.write(0, 8));
    EXPECT_EQ(pair.fabric.complaints().size(), status == IBV_WC_SUCCESS ? 0u : 1u);
    return status;
  };
  EXPECT_EQ(status_with([](Wiring&, Wiring&) {}), IBV_WC_SUCCESS);
  EXPECT_EQ(status_with([](Wiring& mine, Wiring&) { mine.psn = 9; }), IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(status_with([](Wiring& mine, Wiring&) { mine.mtu = IBV_MTU_256; }),
            IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(status_with([](Wiring& mine, Wiring&) { mine.pkey_index = 1; }), IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(status_with([](Wiring& mine, Wiring& theirs) {
              mine.pkey_index = 1;
              theirs.pkey_index = 2;
            }),
            IBV_WC_SUCCESS);
  EXPECT_EQ(
      status_with([](Wiring& mine, Wiring& theirs) { mine.pkey_index = theirs.pkey_index = 2; }),
      IBV_WC_RETRY_EXC_ERR);
}

TEST(FakeFailure, RefusesReadsBeyondWhatThePeerAnswersAtOnce) {
  Pair pair(fake_world(2, 1), {.rd_atomic = 4, .dest_rd_atomic = 1});
  pair.fabric.hold(0);
  for (int i = 0; i < 40; ++i) ASSERT_EQ(post(pair.a, pair.to_b, pair.read(0, kHalf)), 0);
  pair.fabric.release(0);
  const auto done = pair.a.poll(40);
  EXPECT_EQ(done.back().status, IBV_WC_WR_FLUSH_ERR);
  const auto failed = std::find_if(done.begin(), done.end(), [](const ibv_wc& completion) {
    return completion.status != IBV_WC_SUCCESS;
  });
  EXPECT_EQ(failed->status, IBV_WC_REM_INV_REQ_ERR);
}

TEST(FakeFailure, FailsTheCallThatATestNames) {
  FakeFabric fabric(seeded(fake_world(1, 1)));
  Fixture fixture(fabric.api(0), 0, 4096);
  fabric.fail_call(0, FakeCall::kRegMr, 2, ENOMEM);
  ibv_mr* first = fixture.api->reg_mr(fixture.pd, fixture.memory.data(), 64, kAllAccess);
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(fixture.api->reg_mr(fixture.pd, fixture.memory.data(), 64, kAllAccess), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  ibv_mr* third = fixture.api->reg_mr(fixture.pd, fixture.memory.data(), 64, kAllAccess);
  ASSERT_NE(third, nullptr);
  EXPECT_EQ(fixture.api->dereg_mr(first), 0);
  EXPECT_EQ(fixture.api->dereg_mr(third), 0);
  fabric.fail_call(0, FakeCall::kPollCq, 1, EIO);
  ibv_wc none;
  EXPECT_EQ(fixture.api->poll_cq(fixture.cq, 1, &none), -1);
  EXPECT_EQ(fixture.api->poll_cq(fixture.cq, 1, &none), 0);
}

TEST(FakeFailure, CompletesTheNextRequestAsATestWants) {
  Pair pair;
  fill(pair.a, 0, 64, 5);
  pair.fabric.fail_next_request(0, 0, IBV_WC_FATAL_ERR);
  EXPECT_EQ(pair.status_of(pair.write(0, 64)), IBV_WC_FATAL_ERR);
  EXPECT_FALSE(holds(pair.b, 0, 64, 5));
}

TEST(FakeFailure, LosesACompletionAsATestWants) {
  Pair pair;
  pair.fabric.lose_next_completion(0, 0);
  ASSERT_EQ(post(pair.a, pair.to_b, pair.write(0, 8)), 0);
  Request second = pair.write(0, 8);
  second.id = 2;
  ASSERT_EQ(post(pair.a, pair.to_b, second), 0);
  EXPECT_EQ(pair.a.poll(1).at(0).wr_id, 2u);
}

}  // namespace
}  // namespace unisono::verbs::test
