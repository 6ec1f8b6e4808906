// A rail's queues, what it gives back when something fails, and what it makes of events.
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <unistd.h>

#include <new>
#include <stdexcept>

#include "base/log.h"
#include "rail_scripted_api.h"
#include "tests/support/refused_allocation.h"
#include "tests/support/watchdog.h"

namespace unisono::verbs {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string>& warnings() {
  static std::vector<std::string> list;
  return list;
}

class RailTest : public ::testing::Test {
 protected:
  RailTest() {
    api_->devices.push_back(device_of("mlx5_0", {roce_port(), roce_port("::ffff:10.0.0.2")}));
    warnings().clear();
    log::set_hook([](log::Level, std::string_view text) { warnings().emplace_back(text); });
  }
  ~RailTest() override {
    log::set_hook(nullptr);
    rail_.reset();
    EXPECT_EQ(api_->open.sum(), 0) << "something was left open";
    EXPECT_EQ(api_->events_taken, api_->events_acknowledged);
    if (!may_warn_) {
      EXPECT_THAT(warnings(), ElementsAre());
    }
  }

  PortSurvey survey() {
    Result<std::vector<PortSurvey>> surveys = survey_ports(*api_, options_);
    EXPECT_TRUE(surveys) << surveys.status().message();
    api_->released.clear();
    return surveys ? surveys->front() : PortSurvey{};
  }
  Status try_open(const PortSurvey& port, int peers = 3) {
    Result<std::unique_ptr<Rail>> rail = Rail::open(api_, port, options_, peers);
    if (!rail) return rail.error();
    rail_ = std::move(*rail);
    return {};
  }
  void open(int peers = 3) {
    const Status status = try_open(survey(), peers);
    if (!status) throw std::runtime_error(status.message());  // ends this test alone
  }
  ibv_device_attr& limits() { return api_->devices.front().attributes; }
  ScriptedPort& port() { return api_->devices.front().ports.front(); }

  std::shared_ptr<ScriptedApi> api_ = std::make_shared<ScriptedApi>();
  VerbsOptions options_;
  std::unique_ptr<Rail> rail_;
  bool may_warn_ = false;
};

TEST_F(RailTest, ReleasesEverythingInOrder) {
  open();
  EXPECT_EQ(rail_->name(), "mlx5_0 port 1");
  EXPECT_EQ(api_->open.sum(), 4) << "context, domain and two queues; the trial region is gone";
  rail_.reset();
  EXPECT_THAT(api_->released, ElementsAre("srq", "cq", "pd", "context"));
  EXPECT_NE(api_->async_flags & O_NONBLOCK, 0);
}

TEST_F(RailTest, EveryFailingCallIsNamedAndReleasesWhatWasOpened) {
  struct Case {
    const char* call;
    const char* says;
  };
  for (const Case& each :
       {Case{"get_device_list", "ibv_get_device_list"}, Case{"open_device", "ibv_open_device"},
        Case{"alloc_pd", "ibv_alloc_pd"}, Case{"reg_mr", "ibv_reg_mr"},
        Case{"create_cq", "ibv_create_cq"}, Case{"create_srq", "ibv_create_srq"},
        Case{"post_srq_recv", "ibv_post_srq_recv"}}) {
    api_->failing.clear();
    const PortSurvey port = survey();
    api_->failing = {{each.call, ENOMEM}};
    const Status status = try_open(port);
    EXPECT_EQ(status.code(), ErrorCode::kOutOfResources) << each.call;
    EXPECT_THAT(status.message(),
                AllOf(HasSubstr("mlx5_0 port 1"), HasSubstr(each.says), HasSubstr("memlock")));
    EXPECT_EQ(api_->open.sum(), 0) << each.call;
  }
}

TEST_F(RailTest, DoesNotOpenWhatCannotBeUsedOrHasGone) {
  PortSurvey port = survey();
  port.shown.usable = false;
  port.shown.reason = "the port is DOWN";
  EXPECT_THAT(try_open(port).message(), HasSubstr("mlx5_0 port 1: the port is DOWN"));
  port.shown.usable = true;
  api_->devices.front().name = "mlx5_3";
  EXPECT_THAT(try_open(port).message(), HasSubstr("the device has gone"));
}

TEST_F(RailTest, GivesFewPeersTheMostImmediates) {
  open(3);
  EXPECT_EQ(rail_->immediates_per_peer(), 256);
  EXPECT_EQ(rail_->sends_per_queue_pair(), kSendsPerQueuePair);
  EXPECT_EQ(api_->srq_entries, 3u * (256 + kAcknowledgementsPerPeer));
  EXPECT_EQ(api_->cq_entries, 3 * (256 + kAcknowledgementsPerPeer) + 3 * 64);
}

TEST_F(RailTest, CountsEveryQueuePairsSends) {
  options_.queue_pairs = 4;
  open(2);
  EXPECT_EQ(api_->cq_entries, 2 * (256 + kAcknowledgementsPerPeer) + 2 * 4 * 64);
}

TEST_F(RailTest, DividesAShortReceiveQueueAmongPeers) {
  limits().max_srq_wr = 800;
  open(8);
  EXPECT_EQ(api_->srq_entries, 800u);
  EXPECT_EQ(rail_->immediates_per_peer(), 100 - kAcknowledgementsPerPeer);
}

TEST_F(RailTest, NeverPromisesFewerThanSixteenImmediates) {
  limits().max_srq_wr = 800;
  open(100);
  EXPECT_EQ(api_->srq_entries, 800u);
  EXPECT_EQ(rail_->immediates_per_peer(), 16);
}

TEST_F(RailTest, NeverLetsTheCompletionQueueOverrun) {
  for (const int entries_max : {100, 200, 400, 1000, 4000}) {
    for (const int peers : {1, 3, 7}) {
      limits().max_cqe = entries_max;
      const Status status = try_open(survey(), peers);
      if (!status) {
        EXPECT_EQ(status.code(), ErrorCode::kOutOfResources);
        EXPECT_THAT(status.message(), HasSubstr("max_cqe " + std::to_string(entries_max)));
        continue;
      }
      EXPECT_LE(api_->cq_entries, entries_max);
      const auto receives = static_cast<int>(api_->srq_entries);
      EXPECT_LE(receives + peers * rail_->sends_per_queue_pair(), api_->cq_entries);
      EXPECT_GE(rail_->immediates_per_peer(), 16);
      EXPECT_GE(rail_->sends_per_queue_pair(), 4);
      rail_.reset();
    }
  }
}

TEST_F(RailTest, ShortensReceivesFirstAndSendsOnlyWhenHalfTheQueueIsTheirs) {
  limits().max_cqe = 200;
  open(1);
  EXPECT_EQ(api_->srq_entries, 200u - 64);
  EXPECT_EQ(rail_->sends_per_queue_pair(), 64);
  EXPECT_EQ(rail_->immediates_per_peer(), 200 - 64 - kAcknowledgementsPerPeer);
  limits().max_cqe = 400;
  open(7);
  EXPECT_EQ(api_->srq_entries, 200u);
  EXPECT_EQ(rail_->sends_per_queue_pair(), 200 / 7);
}

TEST_F(RailTest, SaysWhichQueueIsTooShort) {
  limits().max_cqe = 50;
  const Status status = try_open(survey(), 7);
  EXPECT_EQ(status.code(), ErrorCode::kOutOfResources);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("7 peers"), HasSubstr("max_cqe 50"), HasSubstr("max_srq_wr 32767")));
}

TEST_F(RailTest, KeepsSendsWithinTheQueuePairsLimit) {
  limits().max_qp_wr = 20;
  open(2);
  EXPECT_EQ(rail_->sends_per_queue_pair(), 20);
}

TEST_F(RailTest, FillsTheReceiveQueueWithReceivesThatTakeNoData) {
  open(3);
  EXPECT_EQ(api_->receives, static_cast<int>(api_->srq_entries));
  EXPECT_EQ(api_->receives_with_data, 0);
  EXPECT_EQ(api_->receives_unmarked, 0);
}

TEST_F(RailTest, ReplenishesInChains) {
  open(3);
  api_->receives = api_->post_calls = 0;
  EXPECT_TRUE(rail_->replenish(0));
  EXPECT_EQ(api_->post_calls, 0);
  EXPECT_TRUE(rail_->replenish(1));
  EXPECT_EQ(api_->receives, 1);
  EXPECT_TRUE(rail_->replenish(130));
  EXPECT_EQ(api_->receives, 131);
  EXPECT_LE(api_->post_calls, 4);
  EXPECT_EQ(api_->receives_unmarked, 0);
  api_->failing["post_srq_recv"] = EIO;
  EXPECT_EQ(rail_->replenish(1).code(), ErrorCode::kSystem);
}

TEST_F(RailTest, UsesRelaxedOrderingWhereTheDeviceAcceptsIt) {
  constexpr int kPlain = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ;
  open();
  EXPECT_EQ(rail_->access(), kPlain | IBV_ACCESS_RELAXED_ORDERING);
  api_->refused_access = IBV_ACCESS_RELAXED_ORDERING;
  open();
  EXPECT_EQ(rail_->access(), kPlain);
}

TEST_F(RailTest, LeavesRelaxedOrderingAloneWhenTheOptionIsOff) {
  options_.relaxed_ordering = false;
  open();
  EXPECT_EQ(rail_->access(), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
  EXPECT_THAT(api_->access_tried, ElementsAre(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ));
}

TEST_F(RailTest, IsWellWhileNothingIsReported) {
  open();
  EXPECT_FALSE(rail_->has_failed());
  EXPECT_EQ(rail_->failure(), "");
}

TEST_F(RailTest, FailsWhenThePortGoesDownAndNamesIt) {
  open();
  api_->report(IBV_EVENT_PORT_ERR);
  EXPECT_TRUE(rail_->has_failed());
  EXPECT_TRUE(rail_->has_failed()) << "it stays so";
  EXPECT_THAT(rail_->failure(), AllOf(HasSubstr("mlx5_0 port 1"), HasSubstr("PORT_ERR (10)")));
}

TEST_F(RailTest, IsNotConcernedByItsNeighbourPort) {
  open();
  api_->report(IBV_EVENT_PORT_ERR, 2);
  EXPECT_FALSE(rail_->has_failed());
  api_->report(IBV_EVENT_PORT_ERR, 1);
  api_->report(IBV_EVENT_PORT_ACTIVE, 2);
  EXPECT_TRUE(rail_->has_failed());
}

TEST_F(RailTest, TakesManyEventsAtOnceAndAcknowledgesEach) {
  open();
  for (int index = 0; index < 40; ++index) api_->report(IBV_EVENT_SM_CHANGE);
  api_->report(IBV_EVENT_PORT_ERR);
  EXPECT_TRUE(rail_->has_failed());
  EXPECT_EQ(api_->events_acknowledged, 41);
}

// The destruction of what an event names would wait for that.
TEST_F(RailTest, AcknowledgesAnEventThatMemoryIsLackingFor) {
  if (unisono::test::is_sanitized()) GTEST_SKIP() << "sanitizers bring their own allocator";
  open();
  api_->report(IBV_EVENT_SM_CHANGE);
  unisono::test::refused_bytes = 16;
  EXPECT_THROW(rail_->has_failed(), std::bad_alloc);
  unisono::test::refused_bytes = 0;
  EXPECT_EQ(api_->events_taken, 1);
  EXPECT_EQ(api_->events_acknowledged, 1);
}

TEST_F(RailTest, KeepsAnEventThatMemoryIsLackingFor) {
  if (unisono::test::is_sanitized()) GTEST_SKIP() << "sanitizers bring their own allocator";
  open();
  const auto look_without_memory = [&] {
    unisono::test::refused_bytes = 16;
    EXPECT_THROW(rail_->has_failed(), std::bad_alloc);
    unisono::test::refused_bytes = 0;
  };
  api_->report(IBV_EVENT_PORT_ERR);
  look_without_memory();
  EXPECT_TRUE(rail_->has_failed());
  api_->report(IBV_EVENT_PORT_ACTIVE);
  look_without_memory();
  EXPECT_FALSE(rail_->has_failed());
  // Its queue pair may be gone by then.
  const std::size_t page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  void* const memory =
      mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  api_->report_queue_pair(IBV_EVENT_QP_FATAL, static_cast<ibv_qp*>(memory));
  look_without_memory();
  ASSERT_EQ(munmap(memory, page), 0);
  EXPECT_FALSE(rail_->has_failed());
}

TEST_F(RailTest, LivesOnAfterEventsOfQueuePairsAndTables) {
  open();
  ibv_qp qp{};
  qp.qp_num = 17;
  for (const ibv_event_type type :
       {IBV_EVENT_QP_FATAL, IBV_EVENT_QP_REQ_ERR, IBV_EVENT_QP_ACCESS_ERR, IBV_EVENT_COMM_EST,
        IBV_EVENT_SQ_DRAINED, IBV_EVENT_PATH_MIG, IBV_EVENT_PATH_MIG_ERR,
        IBV_EVENT_QP_LAST_WQE_REACHED}) {
    api_->report_queue_pair(type, &qp);
    api_->report_queue_pair(type, nullptr);
    EXPECT_FALSE(rail_->has_failed()) << type;
  }
  for (const ibv_event_type type :
       {IBV_EVENT_LID_CHANGE, IBV_EVENT_PKEY_CHANGE, IBV_EVENT_SM_CHANGE,
        IBV_EVENT_SRQ_LIMIT_REACHED, IBV_EVENT_CLIENT_REREGISTER, IBV_EVENT_GID_CHANGE,
        IBV_EVENT_PORT_ACTIVE, static_cast<ibv_event_type>(31)}) {
    api_->report(type);
    EXPECT_FALSE(rail_->has_failed()) << type;
  }
}

TEST_F(RailTest, RecoversWhenItsPortComesBack) {
  open();
  api_->report(IBV_EVENT_PORT_ERR);
  EXPECT_TRUE(rail_->has_failed());
  api_->report(IBV_EVENT_PORT_ACTIVE);
  EXPECT_FALSE(rail_->has_failed());
  EXPECT_EQ(rail_->failure(), "");
  api_->report(IBV_EVENT_PORT_ERR);
  EXPECT_TRUE(rail_->has_failed()) << "and may fail again";
}

TEST_F(RailTest, KnowsTheNewNumbersOfItsGidAndLid) {
  open();
  ASSERT_EQ(rail_->port().gid_index, 3);
  port().gids.insert(port().gids.begin(), gid_entry(IBV_GID_TYPE_ROCE_V2, "fe80::9"));
  port().attributes.lid = 42;
  port().pkeys = {0x8001, 0xffff};
  api_->report(IBV_EVENT_GID_CHANGE);
  EXPECT_FALSE(rail_->has_failed());
  EXPECT_EQ(rail_->port().gid_index, 4);
  EXPECT_EQ(rail_->port().attributes.lid, 42);
  EXPECT_EQ(rail_->port().pkey_index, 1);
}

TEST_F(RailTest, StaysFailedUntilItsAddressIsBack) {
  open();
  const std::vector<ibv_gid_entry> before = port().gids;
  api_->report(IBV_EVENT_PORT_ERR);
  port().gids.resize(2);
  api_->report(IBV_EVENT_PORT_ACTIVE);
  EXPECT_TRUE(rail_->has_failed());
  EXPECT_THAT(rail_->failure(), HasSubstr("its GID ::ffff:10.0.0.1 is gone"));
  port().gids = before;
  api_->report(IBV_EVENT_GID_CHANGE);
  EXPECT_FALSE(rail_->has_failed());
}

TEST_F(RailTest, BelievesThePortsStateMoreThanAnOldEvent) {
  open();
  api_->report(IBV_EVENT_PORT_ERR);
  api_->report(IBV_EVENT_PORT_ACTIVE);
  port().attributes.state = IBV_PORT_DOWN;
  EXPECT_TRUE(rail_->has_failed());
  EXPECT_THAT(rail_->failure(), HasSubstr("DOWN"));
}

TEST_F(RailTest, NeverRecoversFromALostDeviceOrQueue) {
  for (const ibv_event_type type : {IBV_EVENT_DEVICE_FATAL, IBV_EVENT_CQ_ERR, IBV_EVENT_SRQ_ERR}) {
    open();
    api_->report(IBV_EVENT_PORT_ERR);
    api_->report(type);
    api_->report(IBV_EVENT_PORT_ACTIVE);
    EXPECT_TRUE(rail_->has_failed()) << type;
    ibv_async_event event{};
    event.event_type = type;
    EXPECT_THAT(rail_->failure(), HasSubstr(describe(event)));
  }
}

TEST_F(RailTest, SaysAloudThatSomethingCouldNotBeReleasedAndGoesOn) {
  may_warn_ = true;
  open();
  api_->failing["destroy_cq"] = EBUSY;
  rail_.reset();
  EXPECT_EQ(api_->open.sum(), 0);
  ASSERT_EQ(warnings().size(), 1u);
  EXPECT_THAT(warnings().front(), AllOf(HasSubstr("ibv_destroy_cq"), HasSubstr("mlx5_0 port 1")));
}

}  // namespace
}  // namespace unisono::verbs
