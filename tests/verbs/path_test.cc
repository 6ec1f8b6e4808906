// What a path becomes of: the hellos of both ends, or a record of the network. And what rdma_cm may
// do wrong: answers that say no, come late, never, in the wrong order or not at all.
#include <gmock/gmock.h>

#include <stdexcept>

#include "rail_scripted_api.h"
#include "scripted_cm.h"
#include "transports/verbs/path_resolver.h"

namespace unisono::verbs {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

class PathTest : public ::testing::Test {
 protected:
  void use(ScriptedPort port) {
    api_->devices.push_back(device_of("mlx5_0", {std::move(port)}));
    Result<std::vector<PortSurvey>> surveys = survey_ports(*api_, options_);
    if (!surveys) throw std::runtime_error(surveys.error().message());
    Result<std::unique_ptr<Rail>> rail = Rail::open(api_, surveys->front(), options_, 1);
    if (!rail) throw std::runtime_error(rail.error().message());
    rail_ = std::move(*rail);
    cm_->device = "mlx5_0";
    Result<std::unique_ptr<PathResolver>> resolver = PathResolver::make(cm_, patience_);
    if (!resolver) throw std::runtime_error(resolver.error().message());
    resolver_ = std::move(*resolver);
  }
  static QueuePairEnd peer_at(const std::string& gid) {
    QueuePairEnd peer;
    peer.mtu = IBV_MTU_4096;
    peer.lid = 3;
    peer.pkey = 0xffff;
    EXPECT_EQ(inet_pton(AF_INET6, gid.c_str(), peer.gid.data()), 1);
    return peer;
  }
  std::shared_ptr<PathQuery> ask(const std::string& gid = "::ffff:10.0.0.2") {
    return resolver_->ask(*rail_, peer_at(gid), options_);
  }
  /// Polls as often as any answer takes that comes at all.
  Status error_of_query(const std::shared_ptr<PathQuery>& query) {
    for (int polls = 0; polls < 8 && !query->is_done(); ++polls) resolver_->poll();
    if (!query->is_done()) return Status(ErrorCode::kTimeout, "there is no answer");
    return query->answer().status();
  }

  std::shared_ptr<ScriptedApi> api_ = std::make_shared<ScriptedApi>();
  std::shared_ptr<ScriptedCm> cm_ = std::make_shared<ScriptedCm>();
  std::chrono::milliseconds patience_ = kPathPatience;
  VerbsOptions options_;
  std::unique_ptr<Rail> rail_;
  std::unique_ptr<PathResolver> resolver_;
};

TEST_F(PathTest, ToldIsWhatTheOptionsAndTheSmallerMtuSay) {
  options_.service_level = 3;
  options_.traffic_class = 104;
  use(roce_port());
  QueuePairEnd peer = peer_at("::ffff:10.0.0.2");
  peer.mtu = IBV_MTU_1024;
  const Path path = told_path(rail_->port(), peer, options_);
  EXPECT_EQ(path.mtu, IBV_MTU_1024);
  EXPECT_EQ(path.ack_timeout, 14);
  EXPECT_EQ(path.address.sl, 3);
  EXPECT_EQ(path.address.is_global, 1);
  EXPECT_EQ(path.address.grh.traffic_class, 104);
  EXPECT_EQ(path.address.grh.sgid_index, 3);
  EXPECT_EQ(path.address.grh.hop_limit, 64);
  EXPECT_EQ(std::memcmp(path.address.grh.dgid.raw, peer.gid.data(), 16), 0);
}

// A switch of virtual functions may tell them apart by their GIDs alone.
TEST_F(PathTest, WithinASubnetHasAGlobalHeaderOnlyWhereEitherEndNeedsIt) {
  for (const bool here : {false, true}) {
    for (const bool there : {false, true}) {
      ScriptedPort port = infiniband_port();
      port.attributes.flags = here ? IBV_QPF_GRH_REQUIRED : 0;
      rail_.reset();
      api_->devices.clear();
      use(port);
      QueuePairEnd peer = peer_at("fe80::2:c904");
      peer.infiniband = true;
      peer.needs_grh = there;
      const Path path = told_path(rail_->port(), peer, options_);
      EXPECT_EQ(path.address.is_global, here || there ? 1 : 0);
      EXPECT_EQ(path.address.dlid, 3);
      if (path.address.is_global == 0) continue;
      EXPECT_EQ(path.address.grh.hop_limit, 64);
      EXPECT_EQ(std::memcmp(path.address.grh.dgid.raw, peer.gid.data(), 16), 0);
    }
  }
}

TEST_F(PathTest, RecordedOfRoceHasTheRecordsMtuAndClassesButNoConstantsOfTheKernel) {
  options_.traffic_class = 104;
  use(roce_port());
  cm_->record.mtu = IBV_MTU_2048;
  cm_->record.sl = 5;
  cm_->record.traffic_class = 105;
  cm_->record.flow_label = htobe32(0xabcde);
  cm_->record.hop_limit = 17;
  cm_->record.rate = 7;
  cm_->record.dlid = htobe16(258);
  const auto query = ask();
  EXPECT_FALSE(query->is_done());
  ASSERT_TRUE(error_of_query(query).ok()) << query->answer().error().message();
  const Path& path = query->answer().value();
  EXPECT_EQ(path.mtu, IBV_MTU_2048);
  EXPECT_EQ(path.address.sl, 5);
  EXPECT_EQ(path.address.static_rate, 7);
  EXPECT_EQ(path.address.grh.traffic_class, 105);
  EXPECT_EQ(path.address.grh.flow_label, 0xabcdeu);
  EXPECT_EQ(path.address.grh.hop_limit, 17);
  EXPECT_EQ(path.address.grh.sgid_index, 3);
  EXPECT_EQ(path.address.dlid, 3) << "of the hello";
  EXPECT_EQ(path.ack_timeout, 14) << "of the options";
  ASSERT_THAT(cm_->questions, SizeIs(1));
  EXPECT_EQ(cm_->questions[0].source, "10.0.0.1");
  EXPECT_EQ(cm_->questions[0].target, "10.0.0.2");
  EXPECT_EQ(cm_->questions[0].traffic_class, 104);
  EXPECT_EQ(cm_->ids, 0) << "an answered question keeps nothing of the kernel's";
}

TEST_F(PathTest, RecordedIsNeverWiderThanBothPortsAreAndTakesNoNonsense) {
  use(roce_port());
  cm_->record.mtu = 0;
  cm_->record.hop_limit = 0;
  const auto query = ask();
  ASSERT_TRUE(error_of_query(query).ok());
  EXPECT_EQ(query->answer().value().mtu, IBV_MTU_4096);
  EXPECT_EQ(query->answer().value().address.grh.hop_limit, 64);
  cm_->record.mtu = 63;
  const auto other = ask();
  ASSERT_TRUE(error_of_query(other).ok());
  EXPECT_EQ(other->answer().value().mtu, IBV_MTU_4096);
}

TEST_F(PathTest, OfInfiniBandIsAskedForByGidAndPartitionAndHasLidAndLifeTime) {
  ScriptedPort port = infiniband_port();
  port.attributes.lmc = 2;
  port.pkeys = {0x8012};
  options_.partition_key = 0x8012;
  options_.traffic_class = 32;
  use(port);
  cm_->record.dlid = htobe16(41);
  cm_->record.slid = htobe16(8 + 3);
  cm_->record.sl = 2;
  cm_->record.mtu = IBV_MTU_2048;
  cm_->record.packet_life_time = 18;
  const auto query = ask("fe80::2:c904");
  ASSERT_TRUE(error_of_query(query).ok());
  const Path& path = query->answer().value();
  EXPECT_EQ(path.address.dlid, 41);
  EXPECT_EQ(path.address.src_path_bits, 3);
  EXPECT_EQ(path.address.sl, 2);
  EXPECT_EQ(path.address.is_global, 0);
  EXPECT_EQ(path.mtu, IBV_MTU_2048);
  EXPECT_EQ(path.ack_timeout, 19) << "there and back";
  ASSERT_THAT(cm_->questions, SizeIs(1));
  EXPECT_EQ(cm_->questions[0].source, "fe80::2:c903 pkey 8012");
  EXPECT_EQ(cm_->questions[0].target, "fe80::2:c904 pkey 8012");
  EXPECT_EQ(cm_->questions[0].traffic_class, 32);
  cm_->record.packet_life_time = 10;
  const auto shorter = ask("fe80::2:c904");
  ASSERT_TRUE(error_of_query(shorter).ok());
  EXPECT_EQ(shorter->answer().value().ack_timeout, 14) << "not below the option";
}

TEST_F(PathTest, OverIPv6IsAskedForByIPv6) {
  use(roce_port("fd00::1"));
  const auto query = ask("fd00::2");
  ASSERT_TRUE(error_of_query(query).ok());
  EXPECT_EQ(cm_->questions[0].source, "fd00::1");
  EXPECT_EQ(cm_->questions[0].target, "fd00::2");
  EXPECT_EQ(cm_->questions[0].traffic_class, -1) << "what is not set is the host's default";
}

TEST_F(PathTest, ThatIsRefusedNamesBothEndsAndTheEvent) {
  use(roce_port());
  cm_->address_answers = {{RDMA_CM_EVENT_ADDR_ERROR, -EHOSTUNREACH}};
  EXPECT_THAT(error_of_query(ask()).message(),
              AllOf(HasSubstr("mlx5_0 port 1"), HasSubstr("::ffff:10.0.0.1 to ::ffff:10.0.0.2"),
                    HasSubstr("ADDR_ERROR (No route to host, errno 113)"), HasSubstr("ip route")));
  cm_->route_answers = {{RDMA_CM_EVENT_ROUTE_ERROR, -EINVAL}};
  EXPECT_THAT(error_of_query(ask()).message(), HasSubstr("ROUTE_ERROR (Invalid argument"));
  EXPECT_EQ(cm_->ids, 0);
}

TEST_F(PathTest, ThatNobodyAnsweredForIsAskedForAgain) {
  use(roce_port());
  const ScriptedCm::Answer late_address{RDMA_CM_EVENT_ADDR_ERROR, -ETIMEDOUT};
  const ScriptedCm::Answer late_route{RDMA_CM_EVENT_ROUTE_ERROR, -ETIMEDOUT};
  cm_->address_answers = {late_address, late_address};
  cm_->route_answers = {late_route};
  EXPECT_TRUE(error_of_query(ask()).ok());
  EXPECT_THAT(cm_->questions, SizeIs(3));
  EXPECT_EQ(cm_->routes_asked, 2);
}

TEST_F(PathTest, IsGivenUpWhenTheTimeIsOver) {
  patience_ = std::chrono::milliseconds(0);
  use(roce_port());
  cm_->route_answers = {{RDMA_CM_EVENT_ROUTE_ERROR, -ETIMEDOUT}};
  const auto refused = ask();
  cm_->silent = true;
  const auto silent = ask();
  EXPECT_THAT(error_of_query(silent).message(), HasSubstr("no answer about the address"));
  EXPECT_THAT(error_of_query(refused).message(), HasSubstr("no answer about the address"));
  EXPECT_EQ(cm_->ids, 0);
}

TEST_F(PathTest, IsNotBelievedWhereEventsComeOutOfOrder) {
  use(roce_port());
  cm_->address_answers = {{RDMA_CM_EVENT_ROUTE_RESOLVED}};
  EXPECT_THAT(error_of_query(ask()).message(), HasSubstr("ROUTE_RESOLVED"));
  cm_->route_answers = {{RDMA_CM_EVENT_ADDR_RESOLVED}};
  EXPECT_THAT(error_of_query(ask()).message(), HasSubstr("ADDR_RESOLVED"));
  cm_->route_answers = {{RDMA_CM_EVENT_REJECTED, 8}};
  EXPECT_THAT(error_of_query(ask()).message(), HasSubstr("REJECTED"));
  cm_->address_answers = {{RDMA_CM_EVENT_DEVICE_REMOVAL}};
  EXPECT_THAT(error_of_query(ask()).message(), HasSubstr("DEVICE_REMOVAL"));
  EXPECT_EQ(cm_->ids, 0);
}

TEST_F(PathTest, TakesNothingFromEventsBehindItsAnswer) {
  use(roce_port());
  const auto query = ask();
  cm_->report({RDMA_CM_EVENT_ADDR_ERROR, -EIO});
  EXPECT_THAT(error_of_query(query).message(), HasSubstr("ADDR_ERROR (Input/output error"));
  const auto other = ask();
  EXPECT_TRUE(error_of_query(other).ok());
}

TEST_F(PathTest, IsRefusedAtOnceWhereACallFails) {
  use(roce_port());
  options_.traffic_class = 8;
  for (const char* call : {"create_id", "set_option", "resolve_addr"}) {
    cm_->failing = {{call, ENODEV}};
    const auto query = ask();
    ASSERT_TRUE(query->is_done()) << call;
    EXPECT_THAT(query->answer().error().message(),
                AllOf(HasSubstr(std::string("rdma_") + call), HasSubstr("No such device")));
    EXPECT_EQ(cm_->ids, 0);
  }
  cm_->failing = {{"resolve_route", ENOMEM}};
  EXPECT_THAT(error_of_query(ask()).message(), HasSubstr("rdma_resolve_route (Cannot allocate"));
}

TEST_F(PathTest, OfAnotherPortIsRefused) {
  use(roce_port());
  cm_->device = "mlx5_1";
  EXPECT_THAT(error_of_query(ask()).message(),
              AllOf(HasSubstr("mlx5_0 port 1"), HasSubstr("of mlx5_1 port 1")));
  cm_->device = "mlx5_0";
  cm_->port = 2;
  EXPECT_THAT(error_of_query(ask()).message(), HasSubstr("of mlx5_0 port 2"));
}

TEST_F(PathTest, WithoutARecordIsRefused) {
  use(roce_port());
  cm_->no_path = true;
  EXPECT_THAT(error_of_query(ask()).message(), HasSubstr("a route without a path"));
}

TEST_F(PathTest, FromALinkLocalAddressIsRefusedWithTheRemedy) {
  options_.gid = "fe80::1";
  use(roce_port());
  EXPECT_THAT(error_of_query(ask("fe80::2")).message(),
              AllOf(HasSubstr("link-local GID fe80::1"), HasSubstr("CONNECT=exchange")));
  EXPECT_THAT(cm_->questions, SizeIs(0));
}

TEST_F(PathTest, QuestionsThatAreDroppedLeaveTheOthersAlone) {
  use(roce_port());
  auto first = ask();
  const auto second = ask("::ffff:10.0.0.3");
  first.reset();
  EXPECT_EQ(cm_->ids, 1);
  EXPECT_TRUE(error_of_query(second).ok());
  EXPECT_TRUE(second->leads_to(*rail_, peer_at("::ffff:10.0.0.3")));
  EXPECT_FALSE(second->leads_to(*rail_, peer_at("::ffff:10.0.0.2")));
  EXPECT_EQ(cm_->ids, 0);
}

TEST_F(PathTest, PollCostsNothingWhileNothingIsAsked) {
  use(roce_port());
  EXPECT_TRUE(error_of_query(ask()).ok());
  const int looks = cm_->looks;
  for (int polls = 0; polls < 100; ++polls) EXPECT_FALSE(resolver_->poll());
  EXPECT_EQ(cm_->looks, looks);
}

TEST(PathResolver, WithoutTheKernelsPartSaysWhatToLoad) {
  const auto cm = std::make_shared<ScriptedCm>();
  cm->failing = {{"create_event_channel", ENODEV}};
  const auto resolver = PathResolver::make(cm);
  ASSERT_FALSE(resolver);
  EXPECT_EQ(resolver.error().code(), ErrorCode::kUnsupported);
  EXPECT_THAT(resolver.error().message(),
              AllOf(HasSubstr("modprobe rdma_ucm"), HasSubstr("/dev/infiniband/rdma_cm"),
                    HasSubstr("No such device, errno 19")));
}

TEST(CmLibrary, ThatIsMissingIsNamedWithItsPackage) {
  const auto missing = load_cm_library_file("libno_such_rdmacm.so.1");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code(), ErrorCode::kUnsupported);
  EXPECT_THAT(missing.error().message(),
              AllOf(HasSubstr("libno_such_rdmacm.so.1"), HasSubstr("librdmacm1"),
                    HasSubstr("UNISONO_VERBS_CONNECT=cm")));
  const auto other = load_cm_library_file("libdl.so.2");
  ASSERT_FALSE(other);
  EXPECT_THAT(other.error().message(),
              AllOf(HasSubstr("lacks rdma_create_event_channel"), HasSubstr("librdmacm1")));
}

TEST(CmLibrary, OfThisMachineHasEveryFunction) {
  const auto library = load_cm_library();
  if (!library && library.error().message().find("cannot be loaded") != std::string::npos) {
    GTEST_SKIP() << library.error().message();
  }
  ASSERT_TRUE(library) << library.error().message();
  EXPECT_STREQ((*library)->event_str(RDMA_CM_EVENT_ADDR_ERROR), "RDMA_CM_EVENT_ADDR_ERROR");
}

TEST(ConnectOption, LeavesTheServiceLevelToTheNetwork) {
  VerbsOptions options;
  options.connect = VerbsConnect::kCm;
  EXPECT_TRUE(check_options(options).ok());
  options.service_level = 3;
  EXPECT_EQ(check_options(options).code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(check_options(options).message(),
              AllOf(HasSubstr("service_level is 3"), HasSubstr("UNISONO_VERBS_CONNECT=cm")));
}

}  // namespace
}  // namespace unisono::verbs
