// Pages of flags of peers that cannot be had: whose fault that is.
#include "cuda/synchronisation/shared_pages.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "base/memfd.h"
#include "tests/cuda/driver_under_test.h"
#include "tests/cuda/kernel_twins.h"
#include "tests/support/limit.h"

namespace unisono::test {
namespace {

using testing::HasSubstr;

class SharedPagesOfTwo : public testing::Test {
 protected:
  void SetUp() override {
    if (fake() == nullptr) GTEST_SKIP() << "needs the fake driver";
    cuda::register_kernel_twins(*fake());
    device_ = std::move(*device::Device::open(driver(), 0, 1 << 20, 0));
    pages_ = std::move(*device::SharedPages::make(*device_, 0, shm::kPageBytes));
  }
  /// As this rank connects to rank 1, which hands out what `exporter` gives.
  Status connect(cuda::DescriptorServer::Exporter exporter) {
    device::PageTicket theirs = pages_->ticket();
    theirs.id = server_->offer(std::move(exporter));
    const device::PageTicket tickets[] = {pages_->ticket(), theirs};
    for (;;) {
      const Result<bool> connected = pages_->connect(tickets);
      if (!connected) return connected.error();
      if (*connected) return Status();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  std::shared_ptr<cuda::DescriptorServer> server_ = *cuda::DescriptorServer::of_process();
  std::unique_ptr<device::Device> device_;
  std::unique_ptr<device::SharedPages> pages_;
};

TEST_F(SharedPagesOfTwo, NameTheRankWhosePageIsNotSealed) {
  const Status refused = connect([]() -> Result<UniqueFd> {
    UniqueFd unsealed = make_memfd("no page", MFD_CLOEXEC);
    EXPECT_EQ(ftruncate(unsealed.get(), shm::kPageBytes), 0);
    return unsealed;
  });
  EXPECT_EQ(refused.code(), ErrorCode::kProtocol);
  EXPECT_EQ(refused.rank(), 1);
  EXPECT_THAT(refused.message(), HasSubstr("rank 1"));
}

TEST_F(SharedPagesOfTwo, NameTheRankThatRefuses) {
  const Status refused =
      connect([]() -> Result<UniqueFd> { return Status(ErrorCode::kSystem, "no luck today"); });
  EXPECT_EQ(refused.rank(), 1);
  EXPECT_THAT(refused.message(), HasSubstr("no luck today"));
}

TEST_F(SharedPagesOfTwo, BlameNobodyElseForDescriptorsThatThisRankLacks) {
  const int next = ::dup(0);
  ::close(next);
  const Limit none_left(RLIMIT_NOFILE, static_cast<rlim_t>(next));
  const Status refused =
      connect([]() -> Result<UniqueFd> { return make_memfd("page", MFD_CLOEXEC); });
  EXPECT_EQ(refused.code(), ErrorCode::kOutOfResources);
  EXPECT_EQ(refused.rank(), -1);
  EXPECT_THAT(refused.message(), HasSubstr("socket"));
}

}  // namespace
}  // namespace unisono::test
