// Capture in the fake driver: what is captured does not run, graphs run as often as they are
// launched, and what would tie a graph to work outside it is refused.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/cuda/fake_driver_fixture.h"

namespace unisono::test {
namespace {

using Words = std::vector<std::uint32_t>;

// Functions that only a program that captures calls.
struct CaptureCalls {
  decltype(&::cuStreamBeginCapture) begin = nullptr;
  decltype(&::cuStreamEndCapture) end = nullptr;
  decltype(&::cuGraphInstantiate) instantiate = nullptr;
  decltype(&::cuGraphLaunch) launch = nullptr;
  decltype(&::cuGraphDestroy) destroy = nullptr;
  decltype(&::cuGraphExecDestroy) destroy_executable = nullptr;
};

template <typename Function>
void find(const char* name, Function* function) {
  *function = reinterpret_cast<Function>(driver_function(name));
  ASSERT_NE(*function, nullptr) << name;
}

class FakeCapture : public testing::Test {
 protected:
  void SetUp() override {
    find("cuStreamBeginCapture", &calls_.begin);
    find("cuStreamEndCapture", &calls_.end);
    find("cuGraphInstantiateWithFlags", &calls_.instantiate);
    find("cuGraphLaunch", &calls_.launch);
    find("cuGraphDestroy", &calls_.destroy);
    find("cuGraphExecDestroy", &calls_.destroy_executable);
    pointer_ = gpu_.allocate(4);
    ASSERT_EQ(driver()->MemsetD8Async(pointer_, 0, 4, stream_), CUDA_SUCCESS);
    ASSERT_EQ(driver()->StreamSynchronize(stream_), CUDA_SUCCESS);
  }

  void begin() {
    ASSERT_EQ(calls_.begin(stream_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), CUDA_SUCCESS);
  }

  CUresult end() {
    CUgraph graph = nullptr;
    const CUresult result = calls_.end(stream_, &graph);
    EXPECT_EQ(result == CUDA_SUCCESS, graph != nullptr);
    if (graph != nullptr) {
      EXPECT_EQ(calls_.instantiate(&executable_, graph, 0), CUDA_SUCCESS);
      EXPECT_EQ(calls_.destroy(graph), CUDA_SUCCESS);
    }
    return result;
  }

  void TearDown() override {
    if (executable_ != nullptr) {
      EXPECT_EQ(calls_.destroy_executable(executable_), CUDA_SUCCESS);
    }
  }

  CUresult add(CUstream stream, std::uint32_t by) {
    return launch(function_, stream, Increment{reinterpret_cast<std::uint32_t*>(pointer_), 1, by});
  }

  Gpu gpu_;
  CaptureCalls calls_;
  CUstream stream_ = gpu_.stream();
  CUfunction function_ = gpu_.function("increment");
  CUdeviceptr pointer_ = 0;
  CUgraphExec executable_ = nullptr;
};

TEST_F(FakeCapture, RunsNothingUntilTheGraphIsLaunched) {
  begin();
  CUstreamCaptureStatus status{};
  ASSERT_EQ(driver()->StreamIsCapturing(stream_, &status), CUDA_SUCCESS);
  EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
  ASSERT_EQ(add(stream_, 1), CUDA_SUCCESS);
  ASSERT_EQ(end(), CUDA_SUCCESS);
  ASSERT_EQ(driver()->StreamIsCapturing(stream_, &status), CUDA_SUCCESS);
  EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_NONE);
  EXPECT_EQ(read_words(stream_, pointer_, 1), Words{0});
  for (int i = 0; i < 3; ++i) ASSERT_EQ(calls_.launch(executable_, stream_), CUDA_SUCCESS);
  EXPECT_EQ(read_words(stream_, pointer_, 1), Words{3});
}

TEST_F(FakeCapture, KeepsTheOrderOfStreamsThatForkAndJoin) {
  CUstream other = gpu_.stream();
  CUevent forked = gpu_.event();
  CUevent joined = gpu_.event();
  begin();
  ASSERT_EQ(driver()->MemsetD8Async(pointer_, 0, 4, stream_), CUDA_SUCCESS);
  ASSERT_EQ(driver()->EventRecord(forked, stream_), CUDA_SUCCESS);
  ASSERT_EQ(driver()->StreamWaitEvent(other, forked, 0), CUDA_SUCCESS);
  ASSERT_EQ(add(other, 1), CUDA_SUCCESS);
  ASSERT_EQ(add(stream_, 10), CUDA_SUCCESS);
  ASSERT_EQ(driver()->EventRecord(joined, other), CUDA_SUCCESS);
  ASSERT_EQ(driver()->StreamWaitEvent(stream_, joined, 0), CUDA_SUCCESS);
  ASSERT_EQ(add(stream_, 100), CUDA_SUCCESS);
  EXPECT_EQ(driver()->EventQuery(joined), CUDA_ERROR_CAPTURED_EVENT);
  ASSERT_EQ(end(), CUDA_SUCCESS);
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(calls_.launch(executable_, stream_), CUDA_SUCCESS);
    EXPECT_EQ(read_words(stream_, pointer_, 1), Words{111});
  }
  // The other stream is free again.
  EXPECT_EQ(driver()->StreamSynchronize(other), CUDA_SUCCESS);
}

// A word of the host's, whose upper half is the host's alone.
TEST_F(FakeCapture, WaitsForAndWritesWordsAtEveryLaunch) {
  alignas(8) std::uint32_t word[2] = {0, 0};
  ASSERT_EQ(driver()->MemHostRegister(word, sizeof word, CU_MEMHOSTREGISTER_DEVICEMAP),
            CUDA_SUCCESS);
  CUdeviceptr at = 0;
  ASSERT_EQ(driver()->MemHostGetDevicePointer(&at, word, 0), CUDA_SUCCESS);
  const std::atomic_ref<std::uint32_t> lower(word[0]);
  const std::atomic_ref<std::uint32_t> upper(word[1]);
  CUstreamBatchMemOpParams batch[2] = {};
  batch[0].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_64;
  batch[0].waitValue.address = at;
  batch[0].waitValue.value64 = 1;
  batch[0].waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
  batch[1].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  batch[1].writeValue.address = at;
  begin();
  ASSERT_EQ(driver()->StreamBatchMemOp(stream_, 2, batch, 0), CUDA_SUCCESS);
  ASSERT_EQ(add(stream_, 1), CUDA_SUCCESS);
  ASSERT_EQ(end(), CUDA_SUCCESS);
  for (std::uint32_t i = 1; i <= 3; ++i) {
    ASSERT_EQ(calls_.launch(executable_, stream_), CUDA_SUCCESS);
    EXPECT_EQ(driver()->StreamQuery(stream_), CUDA_ERROR_NOT_READY);
    lower.store(1);
    EXPECT_EQ(read_words(stream_, pointer_, 1), Words{i});
    EXPECT_EQ(lower.load(), 0u);
  }
  upper.store(1);
  for (std::uint32_t i = 4; i <= 6; ++i) {
    ASSERT_EQ(calls_.launch(executable_, stream_), CUDA_SUCCESS);
    EXPECT_EQ(read_words(stream_, pointer_, 1), Words{i});
  }
  EXPECT_EQ(driver()->MemHostUnregister(word), CUDA_SUCCESS);
}

TEST_F(FakeCapture, RunsAGraphsLaunchesOneBehindTheOther) {
  CUstream other = gpu_.stream();
  begin();
  ASSERT_EQ(add(stream_, 1), CUDA_SUCCESS);
  ASSERT_EQ(end(), CUDA_SUCCESS);
  fake()->hold_stream(stream_);
  ASSERT_EQ(calls_.launch(executable_, stream_), CUDA_SUCCESS);
  ASSERT_EQ(calls_.launch(executable_, other), CUDA_SUCCESS);
  EXPECT_EQ(driver()->StreamQuery(other), CUDA_ERROR_NOT_READY);
  fake()->release_stream(stream_);
  EXPECT_EQ(read_words(other, pointer_, 1), Words{2});
}

TEST_F(FakeCapture, RefusesAForkThatNeverJoins) {
  CUstream other = gpu_.stream();
  CUevent forked = gpu_.event();
  begin();
  ASSERT_EQ(driver()->EventRecord(forked, stream_), CUDA_SUCCESS);
  ASSERT_EQ(driver()->StreamWaitEvent(other, forked, 0), CUDA_SUCCESS);
  ASSERT_EQ(add(other, 1), CUDA_SUCCESS);
  EXPECT_EQ(end(), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
}

TEST_F(FakeCapture, RefusesToWaitForWorkOutside) {
  CUstream other = gpu_.stream();
  CUevent outside = gpu_.event();
  ASSERT_EQ(driver()->EventRecord(outside, other), CUDA_SUCCESS);
  begin();
  EXPECT_EQ(driver()->StreamWaitEvent(stream_, outside, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
  EXPECT_EQ(add(stream_, 1), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_EQ(end(), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_F(FakeCapture, RefusesToMergeTwoGraphs) {
  CUstream other = gpu_.stream();
  CUevent event = gpu_.event();
  begin();
  ASSERT_EQ(calls_.begin(other, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), CUDA_SUCCESS);
  ASSERT_EQ(driver()->EventRecord(event, other), CUDA_SUCCESS);
  EXPECT_EQ(driver()->StreamWaitEvent(stream_, event, 0), CUDA_ERROR_STREAM_CAPTURE_MERGE);
  CUgraph graph = nullptr;
  EXPECT_EQ(calls_.end(other, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_EQ(end(), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_F(FakeCapture, IsSpoiltByCallsThatWait) {
  begin();
  EXPECT_EQ(driver()->StreamSynchronize(stream_), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(end(), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_F(FakeCapture, IsSpoiltByAnAllocationUnlessTheThreadIsRelaxed) {
  CUdeviceptr more = 0;
  begin();
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  ASSERT_EQ(driver()->ThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
  EXPECT_EQ(driver()->MemAlloc(&more, 4), CUDA_SUCCESS);
  EXPECT_EQ(driver()->MemFree(more), CUDA_SUCCESS);
  ASSERT_EQ(driver()->ThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
  ASSERT_EQ(add(stream_, 1), CUDA_SUCCESS);
  EXPECT_EQ(driver()->MemAlloc(&more, 4), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(end(), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_F(FakeCapture, OfEverybodyIsSpoiltByAnotherThread) {
  ASSERT_EQ(calls_.begin(stream_, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  CUevent event = gpu_.event();
  std::thread([&] {
    EXPECT_EQ(driver()->EventQuery(event), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  }).join();
  EXPECT_EQ(end(), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_F(FakeCapture, RefusesTheLegacyStream) {
  CUstream blocking = gpu_.stream(CU_STREAM_DEFAULT);
  EXPECT_EQ(calls_.begin(nullptr, CU_STREAM_CAPTURE_MODE_RELAXED),
            CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  ASSERT_EQ(calls_.begin(blocking, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  CUstreamCaptureStatus status{};
  EXPECT_EQ(driver()->StreamIsCapturing(nullptr, &status), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  ASSERT_EQ(driver()->StreamIsCapturing(blocking, &status), CUDA_SUCCESS);
  EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_ACTIVE) << "a question spoils nothing";
  EXPECT_EQ(add(nullptr, 1), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  CUgraph graph = nullptr;
  EXPECT_EQ(calls_.end(blocking, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

}  // namespace
}  // namespace unisono::test
