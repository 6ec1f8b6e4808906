// What the driver may wait for streams in, where there is no thread to ask it.
#include "cuda/memory/side_work.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "base/clock.h"
#include "cuda/driver/driver_section.h"
#include "tests/cuda/memory_fixture.h"
#include "tests/cuda/memory_owner.h"
#include "tests/support/eventually.h"
#include "tests/support/no_threads.h"

namespace unisono::test {
namespace {

constexpr cuda::Peer kForgotten = other_process(3);

// A stream that stands still; not for ever, or a test that waits for it would never fail.
class StandingStream {
 public:
  explicit StandingStream(const cuda::DeviceMemory& memory)
      : section_(*driver(), memory.context()) {
    EXPECT_EQ(driver()->StreamCreateWithPriority(&stream_, CU_STREAM_NON_BLOCKING, 0), 0);
    EXPECT_EQ(driver()->EventCreate(&event_, CU_EVENT_DISABLE_TIMING), 0);
    fake()->hold_stream(stream_);
    EXPECT_EQ(driver()->EventRecord(event_, stream_), 0);
    thread_ = std::thread([this] {
      const TimePoint limit = Clock::now() + std::chrono::seconds(3);
      while (!is_free_ && Clock::now() < limit) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      fake()->release_stream(stream_);
    });
  }
  ~StandingStream() {
    is_free_ = true;
    thread_.join();
    EXPECT_EQ(driver()->StreamSynchronize(stream_), 0);
    EXPECT_EQ(driver()->StreamDestroy(stream_), 0);
    EXPECT_EQ(driver()->EventDestroy(event_), 0);
  }
  bool is_busy() const { return driver()->StreamQuery(stream_) == CUDA_ERROR_NOT_READY; }

 private:
  cuda::DriverSection section_;
  CUstream stream_ = nullptr;
  CUevent event_ = nullptr;
  std::atomic<bool> is_free_ = false;
  std::thread thread_;
};

// Whoever unmaps may have what a stream waits for.
TEST(SideWorkWithoutAThread, WaitsForOneAndItsCallerDoesNot) {
  if (fake() == nullptr) GTEST_SKIP() << "needs the fake driver";
  auto memory = open_device();
  {
    MemoryOwner owner;
    const auto ticket = owner.ticket_of(*owner.cuda_malloc(kMiB), kMiB);
    ASSERT_TRUE(memory->open(*ticket, kForgotten, kMiB));
    const auto is_open = [&] {
      const auto here = memory->open(*ticket, kForgotten, kMiB);
      return here && *here != nullptr;
    };
    {
      const StandingStream busy(*memory);
      const NoThreads none;
      memory->forget(kForgotten.world_rank);
      EXPECT_TRUE(busy.is_busy()) << "it was waited for";
      EXPECT_FALSE(is_open());
    }
    EXPECT_TRUE(eventually(is_open)) << "there are threads again";
    const NoThreads none;
    memory->forget(kForgotten.world_rank);
    memory->side_work().finish();
    EXPECT_EQ(fake()->counts().imports, 0u) << "the end needs none";
  }
  memory.reset();
  expect_clean_driver();
}

}  // namespace
}  // namespace unisono::test
