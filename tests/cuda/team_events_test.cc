// What ranks that are threads of one process know of each other's launches.
#include "cuda/synchronisation/team_events.h"

#include <gtest/gtest.h>

#include "cuda/driver/driver_section.h"
#include "tests/cuda/driver_under_test.h"
#include "tests/cuda/kernel_twins.h"

namespace unisono::test {
namespace {

// A launch may take the driver long: the others go on meanwhile, and know of it.
TEST(TeamEvents, ALaunchOfARankHoldsUpNoOther) {
  if (fake() == nullptr) GTEST_SKIP() << "needs the fake driver";
  cuda::register_kernel_twins(*fake());
  const auto device = std::move(*device::Device::open(driver(), 0, 1 << 20, 0));
  const cuda::DriverSection section(device->api(), device->context());
  const auto team = device::TeamEvents::join(device->shared_api(), "a team", 2);
  ASSERT_TRUE(team->event_of(0, *device));
  {
    const device::TeamEvents::Launch launch(*team, 0);
    EXPECT_TRUE(team->event_of(1, *device));
    team->abort();
    EXPECT_FALSE(team->is_idle(0));
    EXPECT_TRUE(team->is_idle(1));
  }
  EXPECT_TRUE(team->is_idle(0));
}

}  // namespace
}  // namespace unisono::test
