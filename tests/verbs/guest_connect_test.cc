// The kernel's own rdma_cm: paths that it finds between real ports, and what a job says that wants
// it where it is not. Whole jobs with UNISONO_VERBS_CONNECT=cm are run_tests.sh's.
#include <gmock/gmock.h>

#include <cstring>
#include <filesystem>
#include <thread>

#include "tests/support/rank_job.h"
#include "tests/verbs/guest_ports.h"
#include "transports/verbs/path_resolver.h"

namespace unisono::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using verbs::Path;
using verbs::PathQuery;
using verbs::PathResolver;
using verbs::QueuePairEnd;
using verbs::Rail;

class KernelPaths : public testing::Test {
 protected:
  void SetUp() override {
    if (guest_devices().empty()) GTEST_SKIP() << "no device here";
    options_.traffic_class = 104;
    const auto api = verbs::load_verbs_library();
    ASSERT_TRUE(api) << api.error().message();
    const auto ports = verbs::survey_ports(**api, options_);
    ASSERT_TRUE(ports) << ports.error().message();
    for (const verbs::PortSurvey& port : *ports) {
      auto rail = Rail::open(*api, port, options_, 1);
      ASSERT_TRUE(rail) << rail.error().message();
      rails_.push_back(std::move(*rail));
    }
    const auto cm = verbs::load_cm_library();
    ASSERT_TRUE(cm) << cm.error().message();
    // One try for each step.
    auto resolver = PathResolver::make(*cm, std::chrono::seconds(1));
    ASSERT_TRUE(resolver) << resolver.error().message();
    resolver_ = std::move(*resolver);
  }
  /// As the port would say in its hello.
  static QueuePairEnd end_of(const Rail& rail) {
    QueuePairEnd end;
    end.mtu = static_cast<std::uint8_t>(rail.port().attributes.active_mtu);
    std::memcpy(end.gid.data(), rail.port().gid.raw, end.gid.size());
    return end;
  }
  void finish(const PathQuery& query) {
    while (!query.is_done()) {
      resolver_->poll();
      std::this_thread::yield();
    }
  }

  VerbsOptions options_;
  std::vector<std::unique_ptr<Rail>> rails_;
  std::unique_ptr<PathResolver> resolver_;
};

TEST_F(KernelPaths, LeadFromEachPortToEachAsBothEndsWouldTell) {
  for (const auto& from : rails_) {
    for (const auto& to : rails_) {
      SCOPED_TRACE(from->name() + " to " + to->name());
      const auto query = resolver_->ask(*from, end_of(*to), options_);
      finish(*query);
      ASSERT_TRUE(query->answer()) << query->answer().error().message();
      const Path& found = query->answer().value();
      const Path told = told_path(from->port(), end_of(*to), options_);
      EXPECT_EQ(std::memcmp(found.address.grh.dgid.raw, told.address.grh.dgid.raw, 16), 0);
      EXPECT_EQ(found.address.grh.sgid_index, told.address.grh.sgid_index);
      EXPECT_EQ(found.address.grh.traffic_class, 104);
      EXPECT_EQ(found.address.port_num, told.address.port_num);
      EXPECT_EQ(found.address.dlid, 0);
      EXPECT_EQ(found.mtu, told.mtu);
      EXPECT_EQ(found.ack_timeout, told.ack_timeout);
    }
  }
}

TEST_F(KernelPaths, ToAnAddressThatNobodyHasEndInWords) {
  if (rails_.size() < 2) GTEST_SKIP() << "the interface of a single device answers for all";
  QueuePairEnd nobody = end_of(*rails_[0]);
  nobody.gid[15] = 77;
  const auto query = resolver_->ask(*rails_[0], nobody, options_);
  finish(*query);
  ASSERT_FALSE(query->answer());
  EXPECT_THAT(query->answer().error().message(),
              AllOf(HasSubstr("rxe0 port 1"), HasSubstr("to ::ffff:10.77.0.77"),
                    HasSubstr("onnection timed out, errno 110")));
}

TEST_F(KernelPaths, LeaveNothingInTheKernelHoweverTheyEnd) {
  const std::vector<std::string> before = kernel_resources();
  QueuePairEnd nobody = end_of(*rails_[0]);
  nobody.gid[15] = 77;
  const auto found = resolver_->ask(*rails_[0], end_of(*rails_[0]), options_);
  auto dropped = resolver_->ask(*rails_[0], nobody, options_);
  finish(*found);
  dropped.reset();
  EXPECT_TRUE(are_back(before));
}

TEST(ConnectByCm, WithAServiceLevelIsRefused) {
  if (guest_devices().empty()) GTEST_SKIP() << "no device here";
  const Environment environment{{"UNISONO_VERBS_CONNECT", "cm"},
                                {"UNISONO_VERBS_SERVICE_LEVEL", "3"}};
  const Error error = error_of_job(2, "verbs", [](Communicator& comm) { add_up(comm, 10); });
  EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(error.what(), HasSubstr("UNISONO_VERBS_CONNECT=cm"));
}

// A container that got uverbs0 and nothing else.
TEST(ConnectByCm, WithoutItsDeviceFileIsRefusedWithTheRemedyAndAutoWorks) {
  if (guest_devices().empty()) GTEST_SKIP() << "no device here";
  const std::filesystem::path folder = "/dev/infiniband";
  std::filesystem::rename(folder / "rdma_cm", folder / "away");
  const Environment environment{{"UNISONO_VERBS_CONNECT", "cm"}};
  const Error error = error_of_job(2, "verbs", [](Communicator& comm) { add_up(comm, 10); });
  EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
  EXPECT_THAT(error.what(), AllOf(HasSubstr("rdma_cm"), HasSubstr("modprobe rdma_ucm")));
  run_ranks(2, "auto", [](Communicator& comm) { add_up(comm, 10); });
  std::filesystem::rename(folder / "away", folder / "rdma_cm");
}

}  // namespace
}  // namespace unisono::test
