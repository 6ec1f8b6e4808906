// The devices' threads: who runs what, which failure is told, and that nobody is left waiting.
#include "train/dp/device_group.h"

#include <gmock/gmock.h>
#include <sched.h>

#include <atomic>
#include <stdexcept>
#include <thread>

#include "comm/communicator_state.h"
#include "comm/init.h"
#include "unisono/train/data_parallel.h"

namespace unisono::train {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(DeviceGroup, RunsJobsOnTheThreadsItStartedOnce) {
  DeviceGroup group({3, 1, 2}, true);
  std::vector<std::thread::id> first(3), second(3);
  group.run_all([&](Device& device) { first[device.index] = std::this_thread::get_id(); });
  group.run_all([&](Device& device) { second[device.index] = std::this_thread::get_id(); });
  EXPECT_EQ(first, second);
  EXPECT_NE(first[0], first[1]);
  EXPECT_NE(first[0], std::this_thread::get_id());
  EXPECT_EQ(group.threads_started(), 0U);
}

TEST(DeviceGroup, AppliesInThreadsOfTheirOwnThatAreChargedToTheDevice) {
  DeviceGroup group({0, 1}, true);
  std::vector<std::thread::id> lasting(2), applied(2);
  std::vector<Tensor> tensors(2);
  group.run_all([&](Device& device) { lasting[device.index] = std::this_thread::get_id(); });
  group.apply([](const Device& device) { return device.index == 1; },
              [&](Device& device) {
                applied[device.index] = std::this_thread::get_id();
                tensors[device.index] = Tensor({100});
              });
  EXPECT_EQ(group.threads_started(), 1U);
  EXPECT_NE(applied[1], lasting[1]);
  EXPECT_EQ(applied[0], std::thread::id());
  EXPECT_GE(group[1].memory.use().now, 100 * sizeof(float));
  EXPECT_EQ(group[0].memory.use().now, 0U);
}

// Who hands out the jobs wants a processor beside the devices.
TEST(DeviceGroup, IsCountedWithItsCaller) {
  const int before = ProcessThreads::count();
  {
    DeviceGroup group({0, 1}, true);
    EXPECT_EQ(ProcessThreads::count(), before + 3);
  }
  EXPECT_EQ(ProcessThreads::count(), before);
  DeviceGroup alone({0}, true);
  EXPECT_EQ(ProcessThreads::count(), before) << "no device waits for another";
}

// What the calling thread, and so the ranks that it spawns, may run on: two processors.
class TwoProcessors {
 public:
  TwoProcessors() {
    sched_getaffinity(0, sizeof before_, &before_);
    cpu_set_t two;
    CPU_ZERO(&two);
    for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&two) < 2; ++cpu) {
      if (CPU_ISSET(cpu, &before_)) CPU_SET(cpu, &two);
    }
    sched_setaffinity(0, sizeof two, &two);
  }
  ~TwoProcessors() { sched_setaffinity(0, sizeof before_, &before_); }

 private:
  cpu_set_t before_;
};

bool spins(Communicator& world) {
  return CommunicatorAccess::state(world)->runtime().engine().idle().probes;
}

// Two ranks have two processors to themselves; two devices share them with who hands out the jobs.
TEST(DeviceGroup, WaitsAsOneOfThreeThreadsOnTwoProcessors) {
  const TwoProcessors few;
  std::vector<int> of_devices(2, -1);  // no vector<bool>: two threads write
  DeviceGroup group({0, 1}, true);
  group.run_all([&](Device& device) { of_devices[device.index] = spins(*device.world); });
  EXPECT_THAT(of_devices, ElementsAre(0, 0));
}

TEST(DeviceGroup, OfOneDeviceRunsInTheCallersThread) {
  DeviceGroup group({5}, true);
  std::thread::id ran;
  group.apply([](const Device&) { return true; },
              [&](Device&) { ran = std::this_thread::get_id(); });
  EXPECT_EQ(ran, std::this_thread::get_id());
  EXPECT_EQ(group.threads_started(), 0U);
  EXPECT_EQ(group[0].among(1), nullptr);
}

TEST(DeviceGroup, TellsTheFailureOfTheFirstReplicaWhicheverCameFirst) {
  DeviceGroup group({10, 11, 12}, false);
  std::atomic<bool> last_has_failed{false};
  const auto all = [](const Device&) { return true; };
  EXPECT_THAT(
      [&] {
        group.apply(all, [&](Device& device) {
          if (device.index == 2) {
            last_has_failed = true;
            throw std::logic_error("the last");
          }
          if (device.index == 1) {
            while (!last_has_failed) std::this_thread::yield();
            throw std::logic_error("the middle");
          }
        });
      },
      ThrowsMessage<ReplicaError>("replica 1 on device 11: the middle"));
  group.run_all([](Device&) {});
}

TEST(DeviceGroup, EndsTheOthersCallsWhenADeviceGivesUpInAnExchange) {
  for (const std::size_t devices : {2U, 3U}) {
    DeviceGroup group({0, 1, 2}, false);
    std::vector<std::string> told(3);
    EXPECT_THAT(
        [&] {
          group.exchange(devices, [&](Device& device) {
            if (device.index == 1) throw std::runtime_error("no room");
            try {
              device.among(devices)->barrier();
            } catch (const Error& error) {
              told[device.index] = error.what();
              throw;
            }
          });
        },
        ThrowsMessage<std::runtime_error>("no room"));
    EXPECT_THAT(told[0], HasSubstr("device 1 gave up: no room"));
    EXPECT_THROW(group.exchange(3, [](Device& device) { device.among(3)->barrier(); }), Error)
        << "the group is of no more use, and says so";
  }
}

TEST(DeviceGroup, ExchangesAmongTheFirstDevicesOnly) {
  DeviceGroup group({0, 1, 2, 3}, false);
  for (int round = 0; round < 2; ++round) {
    for (const std::size_t devices : {3U, 2U, 4U, 1U}) {
      std::vector<int> sizes(4, 0);
      group.exchange(devices, [&](Device& device) {
        Communicator* part = device.among(devices);
        sizes[device.index] = part == nullptr ? 1 : part->size();
        if (part != nullptr) part->barrier();
      });
      for (std::size_t i = 0; i < 4; ++i) {
        EXPECT_EQ(sizes[i], i < devices ? static_cast<int>(devices) : 0);
      }
    }
  }
}

}  // namespace
}  // namespace unisono::train
