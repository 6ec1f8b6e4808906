// The feature probe's part on events: completions that wake, shared receive queues, ports that go
// down.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "tests/vm/feature_probe.h"

namespace unisono::vm {
namespace {

void acknowledge_event(ibv_comp_channel* channel) {
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  ASSERT_EQ(ibv_get_cq_event(channel, &cq, &context), 0);
  ibv_ack_cq_events(cq, 1);
}

TEST_F(DeviceFeature, WakesPollOnACompletion) {
  Link link = make_link({.events = true});
  ASSERT_EQ(ibv_req_notify_cq(link.target.cq.get(), 0), 0);
  ASSERT_EQ(post_receive(link.target, 1, 0, 64), 0);
  EXPECT_FALSE(readable(link.target.channel->fd, milliseconds(0)));
  ASSERT_EQ(post(link.source, Work::of(IBV_WR_SEND, link.source.piece(0, 64))), 0);
  ASSERT_TRUE(readable(link.target.channel->fd, milliseconds(10'000)));
  acknowledge_event(link.target.channel.get());
}

TEST_F(DeviceFeature, WakesForSolicitedSendsAlone) {
  Link link = make_link({.events = true});
  ASSERT_EQ(ibv_req_notify_cq(link.target.cq.get(), 1), 0);
  ASSERT_EQ(post_receive(link.target, 1, 0, 64), 0);
  ASSERT_EQ(post_receive(link.target, 2, 0, 64), 0);
  ASSERT_EQ(post(link.source, Work::of(IBV_WR_SEND, link.source.piece(0, 64))), 0);
  ASSERT_TRUE(succeeds(next_completion(link.target.cq.get())));
  EXPECT_FALSE(readable(link.target.channel->fd, milliseconds(0)));
  ASSERT_EQ(post(link.source, Work::of(IBV_WR_SEND, link.source.piece(0, 64))
                                  .with(IBV_SEND_SIGNALED | IBV_SEND_SOLICITED)),
            0);
  ASSERT_TRUE(readable(link.target.channel->fd, milliseconds(10'000)));
  acknowledge_event(link.target.channel.get());
}

TEST_F(DeviceFeature, TellsWhenAPortGoesDownAndComesBack) {
  // The command is the guest's own; on other machines nobody may pull a cable.
  if (std::system("command -v guest-port >/dev/null") != 0) GTEST_SKIP() << "no guest-port";
  const auto next_event = [this](ibv_event_type& type) {
    if (!readable(second_.context->async_fd, milliseconds(10'000))) return false;
    ibv_async_event event;
    if (ibv_get_async_event(second_.context.get(), &event) != 0) return false;
    type = event.event_type;
    ibv_ack_async_event(&event);
    return true;
  };
  // Changes of addresses come along with those of the port.
  const auto comes = [&next_event](ibv_event_type wanted) {
    for (ibv_event_type type; next_event(type);) {
      if (type == wanted) return true;
    }
    return false;
  };
  ASSERT_EQ(std::system(("guest-port " + second_.name + " down").c_str()), 0);
  EXPECT_TRUE(comes(IBV_EVENT_PORT_ERR));
  ibv_port_attr port;
  ASSERT_EQ(ibv_query_port(second_.context.get(), 1, &port), 0);
  EXPECT_EQ(port.state, IBV_PORT_DOWN);
  ASSERT_EQ(std::system(("guest-port " + second_.name + " up").c_str()), 0);
  EXPECT_TRUE(comes(IBV_EVENT_PORT_ACTIVE));
  Link link = make_link();
  ASSERT_EQ(
      post(link.source, Work::of(IBV_WR_RDMA_WRITE, link.source.piece(0, 4096)).to(link.target, 0)),
      0);
  EXPECT_TRUE(succeeds(next_completion(link.source.cq.get())));
}

class SharedReceives : public DeviceFeature {
 protected:
  void SetUp() override {
    DeviceFeature::SetUp();
    ibv_srq_init_attr attributes{.srq_context = nullptr,
                                 .attr = {.max_wr = 64, .max_sge = 1, .srq_limit = 0}};
    srq_.reset(ibv_create_srq(second_.pd.get(), &attributes));
    ASSERT_TRUE(srq_) << std::strerror(errno);
  }

  void post_receives(const End& end, std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; ++i) {
      ASSERT_EQ(post_receive(srq_.get(), end, i, i * 4096, 4096), 0);
    }
  }

  Owned<ibv_srq> srq_;
};

TEST_F(SharedReceives, ServeSeveralQueuePairs) {
  Link one = make_link({.shared_receives = srq_.get()});
  Link other = make_link({.shared_receives = srq_.get()});
  post_receives(one.target, 8);
  for (std::uint64_t i = 0; i < 4; ++i) {
    Link& link = i % 2 == 0 ? one : other;
    ASSERT_EQ(post(link.source, Work::of(IBV_WR_SEND, link.source.piece(0, 100))), 0);
    const ibv_wc received = next_completion(link.target.cq.get());
    ASSERT_TRUE(succeeds(received));
    EXPECT_EQ(received.wr_id, i);
  }
}

TEST_F(SharedReceives, ServeWritesWithImmediate) {
  Link link = make_link({.shared_receives = srq_.get()});
  post_receives(link.target, 1);
  ASSERT_EQ(post(link.source,
                 Work::of(IBV_WR_RDMA_WRITE_WITH_IMM, link.source.piece(0, 10)).to(link.target, 0)),
            0);
  const ibv_wc received = next_completion(link.target.cq.get());
  ASSERT_TRUE(succeeds(received));
  EXPECT_EQ(received.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
}

TEST_F(SharedReceives, TellWhenTheyRunLow) {
  Link link = make_link({.shared_receives = srq_.get()});
  post_receives(link.target, 4);
  ibv_srq_attr limit{.max_wr = 0, .max_sge = 0, .srq_limit = 3};
  ASSERT_EQ(ibv_modify_srq(srq_.get(), &limit, IBV_SRQ_LIMIT), 0);
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(post(link.source, Work::of(IBV_WR_SEND, link.source.piece(0, 100))), 0);
    ASSERT_TRUE(succeeds(next_completion(link.target.cq.get())));
  }
  ASSERT_TRUE(readable(second_.context->async_fd, milliseconds(10'000)));
  ibv_async_event event;
  ASSERT_EQ(ibv_get_async_event(second_.context.get(), &event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
  ibv_ack_async_event(&event);
}

}  // namespace
}  // namespace unisono::vm
