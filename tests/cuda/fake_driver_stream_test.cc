// Streams of the fake driver run on their own, in the order of the streams and events and no other.
#include <gtest/gtest.h>

#include <thread>

#include "tests/cuda/fake_driver_fixture.h"

namespace unisono::test {
namespace {

using Words = std::vector<std::uint32_t>;

TEST(FakeStream, RunsLaterThanTheCall) {
  Gpu gpu;
  CUstream stream = gpu.stream();
  const CUdeviceptr pointer = gpu.allocate(64);
  fake()->hold_stream(stream);
  ASSERT_EQ(driver()->MemsetD8Async(pointer, 1, 64, stream), CUDA_SUCCESS);
  EXPECT_EQ(driver()->StreamQuery(stream), CUDA_ERROR_NOT_READY);
  fake()->release_stream(stream);
  EXPECT_EQ(driver()->StreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(driver()->StreamQuery(stream), CUDA_SUCCESS);
  EXPECT_EQ(read_words(stream, pointer, 1), Words{0x01010101});
}

TEST(FakeStream, WaitsForAnEventOfAnother) {
  Gpu gpu;
  CUstream first = gpu.stream();
  CUstream second = gpu.stream();
  CUevent event = gpu.event();
  const CUdeviceptr pointer = gpu.allocate(4);
  fake()->hold_stream(first);
  ASSERT_EQ(driver()->MemsetD8Async(pointer, 1, 4, first), CUDA_SUCCESS);
  ASSERT_EQ(driver()->EventRecord(event, first), CUDA_SUCCESS);
  ASSERT_EQ(driver()->StreamWaitEvent(second, event, 0), CUDA_SUCCESS);
  ASSERT_EQ(launch(gpu.function("increment"), second, Increment{words_at(pointer), 1, 1}),
            CUDA_SUCCESS);
  EXPECT_EQ(driver()->EventQuery(event), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(driver()->StreamQuery(second), CUDA_ERROR_NOT_READY);
  fake()->release_stream(first);
  EXPECT_EQ(read_words(second, pointer, 1), Words{0x01010102});
  EXPECT_EQ(driver()->EventQuery(event), CUDA_SUCCESS);
}

CUresult get_priority(CUstream stream, int* priority) {
  static const auto get =
      reinterpret_cast<decltype(&cuStreamGetPriority)>(driver_function("cuStreamGetPriority"));
  return get(stream, priority);
}

TEST(FakeStream, HasThePriorityThatItWasGivenWithinTheRange) {
  Gpu gpu;
  CUstream urgent = nullptr;
  ASSERT_EQ(driver()->StreamCreateWithPriority(&urgent, CU_STREAM_NON_BLOCKING,
                                               cuda::kHighestStreamPriority),
            CUDA_SUCCESS);
  int priority = 1;
  EXPECT_EQ(get_priority(urgent, &priority), CUDA_SUCCESS);
  EXPECT_EQ(priority, -5);
  EXPECT_EQ(get_priority(gpu.stream(), &priority), CUDA_SUCCESS);
  EXPECT_EQ(priority, 0);
  EXPECT_EQ(driver()->StreamDestroy(urgent), CUDA_SUCCESS);
  EXPECT_NE(get_priority(urgent, &priority), CUDA_SUCCESS);
}

TEST(FakeStream, WaitsForTheRecordThatTheEventHadAtTheCall) {
  Gpu gpu;
  CUstream first = gpu.stream();
  CUstream second = gpu.stream();
  CUevent event = gpu.event();
  // Never recorded: nothing to wait for.
  ASSERT_EQ(driver()->StreamWaitEvent(second, event, 0), CUDA_SUCCESS);
  ASSERT_EQ(driver()->EventRecord(event, first), CUDA_SUCCESS);
  ASSERT_EQ(driver()->StreamSynchronize(first), CUDA_SUCCESS);
  ASSERT_EQ(driver()->StreamWaitEvent(second, event, 0), CUDA_SUCCESS);
  fake()->hold_stream(first);
  ASSERT_EQ(driver()->EventRecord(event, first), CUDA_SUCCESS);
  EXPECT_EQ(driver()->StreamSynchronize(second), CUDA_SUCCESS);
  fake()->release_stream(first);
}

// Whether the stream has something left to do, now and after all the time that it needs to end what
// it does not have to wait for.
bool stands_still(CUstream stream) {
  for (int i = 0; i < 1000; ++i) {
    if (driver()->StreamQuery(stream) != CUDA_ERROR_NOT_READY) return false;
    std::this_thread::yield();
  }
  return true;
}

TEST(FakeStream, WaitsForThatRecordThoughALaterOneIsReachedFirst) {
  Gpu gpu;
  CUstream first = gpu.stream();
  CUstream second = gpu.stream();
  CUstream third = gpu.stream();
  CUevent event = gpu.event();
  const CUdeviceptr pointer = gpu.allocate(4);
  fake()->hold_stream(first);
  ASSERT_EQ(driver()->MemsetD8Async(pointer, 1, 4, first), CUDA_SUCCESS);
  ASSERT_EQ(driver()->EventRecord(event, first), CUDA_SUCCESS);
  ASSERT_EQ(driver()->StreamWaitEvent(second, event, 0), CUDA_SUCCESS);
  ASSERT_EQ(launch(gpu.function("increment"), second, Increment{words_at(pointer), 1, 1}),
            CUDA_SUCCESS);
  ASSERT_EQ(driver()->EventRecord(event, third), CUDA_SUCCESS);
  // Whoever asks the event is told about its latest record.
  EXPECT_EQ(driver()->EventSynchronize(event), CUDA_SUCCESS);
  EXPECT_EQ(driver()->EventQuery(event), CUDA_SUCCESS);
  float milliseconds = -1;
  EXPECT_EQ(driver()->EventElapsedTime(&milliseconds, event, event), CUDA_SUCCESS);
  EXPECT_EQ(milliseconds, 0.f);
  EXPECT_TRUE(stands_still(second));
  fake()->release_stream(first);
  EXPECT_EQ(read_words(second, pointer, 1), Words{0x01010102});
}

TEST(FakeStream, WaitsForTheRecordOfAnEventThatIsGone) {
  Gpu gpu;
  CUstream first = gpu.stream();
  CUstream second = gpu.stream();
  CUevent event = nullptr;
  const CUdeviceptr pointer = gpu.allocate(4);
  ASSERT_EQ(driver()->EventCreate(&event, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  fake()->hold_stream(first);
  ASSERT_EQ(driver()->MemsetD8Async(pointer, 1, 4, first), CUDA_SUCCESS);
  ASSERT_EQ(driver()->EventRecord(event, first), CUDA_SUCCESS);
  ASSERT_EQ(driver()->StreamWaitEvent(second, event, 0), CUDA_SUCCESS);
  ASSERT_EQ(launch(gpu.function("increment"), second, Increment{words_at(pointer), 1, 1}),
            CUDA_SUCCESS);
  ASSERT_EQ(driver()->EventDestroy(event), CUDA_SUCCESS);
  EXPECT_TRUE(stands_still(second));
  fake()->release_stream(first);
  EXPECT_EQ(read_words(second, pointer, 1), Words{0x01010102});
}

TEST(FakeStream, MeasuresTheTimeBetweenEvents) {
  Gpu gpu;
  CUstream stream = gpu.stream();
  CUevent start = gpu.event();
  CUevent end = gpu.event();
  float milliseconds = -1;
  ASSERT_EQ(driver()->EventRecord(start, stream), CUDA_SUCCESS);
  EXPECT_EQ(driver()->EventElapsedTime(&milliseconds, start, end), CUDA_ERROR_INVALID_HANDLE);
  ASSERT_EQ(driver()->EventRecord(end, stream), CUDA_SUCCESS);
  ASSERT_EQ(driver()->EventSynchronize(end), CUDA_SUCCESS);
  EXPECT_EQ(driver()->EventElapsedTime(&milliseconds, start, end), CUDA_SUCCESS);
  EXPECT_GE(milliseconds, 0.f);
}

TEST(FakeStream, LegacyWaitsForBlockingStreamsAloneAndTheyForIt) {
  Gpu gpu;
  CUstream blocking = gpu.stream(CU_STREAM_DEFAULT);
  CUstream free_running = gpu.stream();
  const CUdeviceptr pointer = gpu.allocate(4);
  CUfunction increment = gpu.function("increment");
  fake()->hold_stream(blocking);
  fake()->hold_stream(free_running);
  ASSERT_EQ(driver()->MemsetD8Async(pointer, 0, 4, blocking), CUDA_SUCCESS);
  ASSERT_EQ(launch(increment, nullptr, Increment{words_at(pointer), 1, 10}), CUDA_SUCCESS);
  EXPECT_EQ(driver()->StreamQuery(nullptr), CUDA_ERROR_NOT_READY);
  ASSERT_EQ(launch(increment, blocking, Increment{words_at(pointer), 1, 100}), CUDA_SUCCESS);
  fake()->release_stream(blocking);
  // The stream that stands still does not matter to the legacy one.
  EXPECT_EQ(read_words(blocking, pointer, 1), Words{110});
  fake()->release_stream(free_running);
}

TEST(FakeStream, StandsStillUntilAWordHasTheValue) {
  Gpu gpu;
  CUstream stream = gpu.stream();
  // A counter that wraps around: 1 comes after 0xfffffffe.
  alignas(4) std::uint32_t flags[2] = {0, 0xfffffff0};
  ASSERT_EQ(driver()->MemHostRegister(flags, sizeof(flags), 0), CUDA_SUCCESS);
  CUstreamBatchMemOpParams batch[2] = {};
  batch[0].operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  batch[0].writeValue.address = address(&flags[0]);
  batch[0].writeValue.value = 5;
  batch[1].operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  batch[1].waitValue.address = address(&flags[1]);
  batch[1].waitValue.value = 0xfffffffe;
  batch[1].waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
  ASSERT_EQ(driver()->StreamBatchMemOp(stream, 2, batch, 0), CUDA_SUCCESS);
  std::atomic_ref<std::uint32_t> written(flags[0]);
  while (written.load() != 5) std::this_thread::yield();
  std::atomic_ref<std::uint32_t>(flags[1]).store(0xfffffffd);
  EXPECT_EQ(driver()->StreamQuery(stream), CUDA_ERROR_NOT_READY);
  std::atomic_ref<std::uint32_t>(flags[1]).store(1);
  EXPECT_EQ(driver()->StreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(driver()->MemHostUnregister(flags), CUDA_SUCCESS);
  EXPECT_EQ(driver()->StreamBatchMemOp(stream, 2, batch, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST(FakeStream, IsNoHandleOnceDestroyedOrInAnotherContext) {
  Gpu other(1);
  CUstream foreign = other.stream();
  Gpu gpu(0);
  const CUdeviceptr pointer = gpu.allocate(4);
  EXPECT_EQ(driver()->MemsetD8Async(pointer, 0, 4, foreign), CUDA_ERROR_INVALID_HANDLE);
  CUstream stream = nullptr;
  ASSERT_EQ(driver()->StreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0), CUDA_SUCCESS);
  ASSERT_EQ(driver()->StreamDestroy(stream), CUDA_SUCCESS);
  EXPECT_EQ(driver()->MemsetD8Async(pointer, 0, 4, stream), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(driver()->StreamDestroy(stream), CUDA_ERROR_INVALID_HANDLE);
}

TEST(FakeStream, FinishesWhatItHasAfterItsEnd) {
  Gpu gpu;
  const CUdeviceptr pointer = gpu.allocate(4);
  CUstream stream = nullptr;
  CUevent event = gpu.event();
  ASSERT_EQ(driver()->StreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0), CUDA_SUCCESS);
  ASSERT_EQ(driver()->MemsetD8Async(pointer, 1, 4, stream), CUDA_SUCCESS);
  ASSERT_EQ(driver()->EventRecord(event, stream), CUDA_SUCCESS);
  ASSERT_EQ(driver()->StreamDestroy(stream), CUDA_SUCCESS);
  ASSERT_EQ(driver()->EventSynchronize(event), CUDA_SUCCESS);
  EXPECT_EQ(read_words(gpu.stream(), pointer, 1), Words{0x01010101});
}

// Whether `call`, which is given a stream that stands still, waits for work of the device that is
// already there: it may not return before that work is done.
template <typename Call>
bool waits_for_the_device(Gpu& gpu, const char* function, Call call) {
  CUstream stream = gpu.stream();
  CUevent event = gpu.event();
  fake()->hold_stream(stream);
  EXPECT_EQ(driver()->EventRecord(event, stream), CUDA_SUCCESS);
  CUresult at_return = CUDA_ERROR_UNKNOWN;
  const std::uint64_t calls = fake()->calls(function);
  std::thread caller([&] {
    const cuda::CurrentContext current(*driver(), gpu.context());
    call(stream);
    at_return = driver()->EventQuery(event);
  });
  while (fake()->calls(function) == calls) std::this_thread::yield();
  // A call that does not wait has all the time to return.
  for (int i = 0; i < 1000; ++i) std::this_thread::yield();
  fake()->release_stream(stream);
  caller.join();
  return at_return == CUDA_SUCCESS;
}

TEST(FakeStream, HoldsBackFreeingAndLazyLoading) {
  Gpu gpu;
  const CUdeviceptr pointer = gpu.allocate(4);
  gpu.forget(pointer);
  EXPECT_TRUE(waits_for_the_device(
      gpu, "cuMemFree", [&](CUstream) { EXPECT_EQ(driver()->MemFree(pointer), CUDA_SUCCESS); }));
  CUlibrary library = nullptr;
  CUkernel kernel = nullptr;
  CUfunction function = nullptr;
  ASSERT_EQ(driver()->LibraryLoadData(&library, "x", nullptr, nullptr, 0, nullptr, nullptr, 0),
            CUDA_SUCCESS);
  ASSERT_EQ(driver()->LibraryGetKernel(&kernel, library, "increment"), CUDA_SUCCESS);
  ASSERT_EQ(driver()->KernelGetFunction(&function, kernel), CUDA_SUCCESS);
  CUstream stream = gpu.stream();
  EXPECT_TRUE(waits_for_the_device(gpu, "cuLaunchKernel", [&](CUstream) {
    EXPECT_EQ(launch(function, stream, Increment{nullptr, 0, 0}), CUDA_SUCCESS);
  }));
  EXPECT_EQ(driver()->StreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(driver()->LibraryUnload(library), CUDA_SUCCESS);
  EXPECT_EQ(launch(function, stream, Increment{nullptr, 0, 0}), CUDA_ERROR_INVALID_HANDLE);
}

void set_to_two(void* word) { *static_cast<std::uint32_t*>(word) = 2; }

// A copy from host memory to host memory: of what its stream has left there, done at the return.
void expect_copy_that_waits(Gpu& gpu, bool locked_source, bool locked_target) {
  const auto launch_host =
      reinterpret_cast<decltype(&cuLaunchHostFunc)>(driver_function("cuLaunchHostFunc"));
  Words source{1};
  Words target{0};
  if (locked_source) {
    ASSERT_EQ(driver()->MemHostRegister(source.data(), 4, 0), CUDA_SUCCESS);
  }
  if (locked_target) {
    ASSERT_EQ(driver()->MemHostRegister(target.data(), 4, 0), CUDA_SUCCESS);
  }
  EXPECT_TRUE(waits_for_the_device(gpu, "cuMemcpyAsync", [&](CUstream stream) {
    EXPECT_EQ(launch_host(stream, &set_to_two, source.data()), CUDA_SUCCESS);
    EXPECT_EQ(driver()->MemcpyAsync(address(target.data()), address(source.data()), 4, stream),
              CUDA_SUCCESS);
    EXPECT_EQ(driver()->StreamQuery(stream), CUDA_SUCCESS);
  }));
  EXPECT_EQ(target, Words{2});
  if (locked_source) {
    EXPECT_EQ(driver()->MemHostUnregister(source.data()), CUDA_SUCCESS);
  }
  if (locked_target) {
    EXPECT_EQ(driver()->MemHostUnregister(target.data()), CUDA_SUCCESS);
  }
}

TEST(FakeStream, HoldsBackCopiesFromHostMemoryToHostMemory) {
  Gpu gpu;
  for (const bool locked_source : {false, true}) {
    for (const bool locked_target : {false, true}) {
      SCOPED_TRACE(testing::Message()
                   << "page-locked: source " << locked_source << ", target " << locked_target);
      expect_copy_that_waits(gpu, locked_source, locked_target);
    }
  }
}

TEST(FakeStream, TellsItsFlags) {
  const auto get =
      reinterpret_cast<decltype(&cuStreamGetFlags)>(driver_function("cuStreamGetFlags"));
  ASSERT_NE(get, nullptr);
  Gpu gpu;
  unsigned flags = 9;
  EXPECT_EQ(get(gpu.stream(), &flags), CUDA_SUCCESS);
  EXPECT_EQ(flags, unsigned{CU_STREAM_NON_BLOCKING});
  EXPECT_EQ(get(gpu.stream(CU_STREAM_DEFAULT), &flags), CUDA_SUCCESS);
  EXPECT_EQ(flags, unsigned{CU_STREAM_DEFAULT});
  flags = 9;
  EXPECT_EQ(get(nullptr, &flags), CUDA_SUCCESS);
  EXPECT_EQ(flags, unsigned{CU_STREAM_DEFAULT});
}

int priority_of(CUstream stream) {
  int priority = 9;
  EXPECT_EQ(get_priority(stream, &priority), CUDA_SUCCESS);
  return priority;
}

TEST(FakeStream, HasAPriorityOfTheRangeThatIsTold) {
  const auto range = reinterpret_cast<decltype(&cuCtxGetStreamPriorityRange)>(
      driver_function("cuCtxGetStreamPriorityRange"));
  ASSERT_NE(range, nullptr);
  Gpu gpu;
  int least = 9;
  int greatest = 9;
  EXPECT_EQ(range(&least, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(range(nullptr, &greatest), CUDA_SUCCESS);
  ASSERT_LT(greatest, least);  // smaller numbers go first
  EXPECT_EQ(priority_of(nullptr), 0);
  EXPECT_EQ(priority_of(gpu.stream(CU_STREAM_NON_BLOCKING, greatest)), greatest);
  EXPECT_EQ(priority_of(gpu.stream(CU_STREAM_NON_BLOCKING, greatest + 1)), greatest + 1);
  EXPECT_EQ(priority_of(gpu.stream(CU_STREAM_NON_BLOCKING, greatest - 1)), greatest);
  EXPECT_EQ(priority_of(gpu.stream(CU_STREAM_NON_BLOCKING, least + 1)), least);
}

void wait_for(std::uint32_t* word, CUstream stream) {
  CUstreamBatchMemOpParams wait[1] = {};
  wait[0].operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  wait[0].waitValue.address = address(word);
  wait[0].waitValue.value = 1;
  wait[0].waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
  require(driver()->StreamBatchMemOp(stream, 1, wait, 0) == CUDA_SUCCESS, "waits");
}

// A stream that waits holds up kernels of every priority and no copies; behind a copy out, it holds
// up copies out and nothing else.
int hold_up_one_kind_of_queue() {
  constexpr std::size_t kBytes = 64;
  Gpu gpu;
  alignas(4) std::uint32_t words[2] = {0, 0};
  std::array<char, 4 * kBytes> page{};
  require(driver()->MemHostRegister(words, sizeof words, 0) == CUDA_SUCCESS, "registered");
  require(driver()->MemHostRegister(page.data(), page.size(), 0) == CUDA_SUCCESS, "registered");
  // Each copy has memory of its own.
  const CUdeviceptr sources = gpu.allocate(4 * kBytes), target = gpu.allocate(kBytes);
  const CUdeviceptr host = address(page.data()), filled = gpu.allocate(kBytes);
  const auto copy_out = [&](std::size_t which, CUstream stream) {
    const std::size_t at = which * kBytes;
    require(driver()->MemcpyAsync(host + at, sources + at, kBytes, stream) == CUDA_SUCCESS, "out");
  };
  const auto copy_in = [&](CUstream stream) {
    require(driver()->MemcpyAsync(target, host + 3 * kBytes, kBytes, stream) == CUDA_SUCCESS, "in");
  };
  const auto goes_on = [&](CUstream stream) {
    return driver()->StreamSynchronize(stream) == CUDA_SUCCESS;
  };
  CUstream filling = gpu.stream();
  require(driver()->MemsetD8Async(sources, 1, 4 * kBytes, filling) == CUDA_SUCCESS, "filled");
  require(goes_on(filling), "all is filled");
  CUstream waiting = gpu.stream();
  wait_for(&words[0], waiting);
  CUstream urgent = gpu.stream(CU_STREAM_NON_BLOCKING, -5), out = gpu.stream(), in = gpu.stream();
  require(driver()->MemsetD8Async(filled, 1, kBytes, urgent) == CUDA_SUCCESS, "filled");
  copy_out(0, out);
  copy_in(in);
  require(goes_on(out) && goes_on(in), "copies go on");
  require(stands_still(urgent), "a kernel of the greatest priority does not");
  copy_out(1, out);
  wait_for(&words[1], out);
  CUstream second_out = gpu.stream();
  copy_out(2, second_out);
  copy_in(in);
  require(goes_on(in) && stands_still(second_out), "behind a copy out copies out are held up");
  std::atomic_ref<std::uint32_t>(words[0]).store(1);
  require(goes_on(urgent) && stands_still(second_out), "kernels go on");
  std::atomic_ref<std::uint32_t>(words[1]).store(1);
  require(goes_on(second_out), "all go on");
  require(driver()->MemHostUnregister(words) == CUDA_SUCCESS, "no longer registered");
  require(driver()->MemHostUnregister(page.data()) == CUDA_SUCCESS, "no longer registered");
  return 0;
}
const RoleEntry hold_role("hold up one kind of queue", hold_up_one_kind_of_queue);

TEST(FakeStream, ThatWaitsHoldsUpTheHardwareQueueOfItsLatestWork) {
  ChildProcess child = start("hold up one kind of queue", {"FAKE_CUDA_QUEUES=1"});
  EXPECT_EQ(child.wait(), 0) << child.output();
}

// With two queues a stream that waits has one, and new work gets the other.
int leave_a_queue() {
  Gpu gpu;
  alignas(4) std::uint32_t word[1] = {0};
  require(driver()->MemHostRegister(word, sizeof word, 0) == CUDA_SUCCESS, "registered");
  const CUdeviceptr memory = gpu.allocate(64);
  wait_for(word, gpu.stream());
  for (int i = 0; i < 4; ++i) {
    CUstream stream = gpu.stream();
    require(driver()->MemsetD8Async(memory, 1, 64, stream) == CUDA_SUCCESS, "filled");
    require(driver()->StreamSynchronize(stream) == CUDA_SUCCESS, "goes on");
  }
  std::atomic_ref<std::uint32_t>(word[0]).store(1);
  require(driver()->MemHostUnregister(word) == CUDA_SUCCESS, "no longer registered");
  return 0;
}
const RoleEntry free_queue_role("leave a queue", leave_a_queue);

TEST(FakeStream, WithNewWorkGetsAHardwareQueueThatIsFree) {
  ChildProcess child = start("leave a queue", {"FAKE_CUDA_QUEUES=2"});
  EXPECT_EQ(child.wait(), 0) << child.output();
}

TEST(FakeStream, RefusesKernelsThatNoDeviceRuns) {
  Gpu gpu;
  CUstream stream = gpu.stream();
  CUfunction function = gpu.function("increment");
  Increment work;
  void* parameters[]{&work};
  const auto& api = *driver();
  EXPECT_EQ(api.LaunchKernel(function, 0, 1, 1, 32, 1, 1, 0, stream, parameters, nullptr),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api.LaunchKernel(function, 1, 1, 1, 1025, 1, 1, 0, stream, parameters, nullptr),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api.LaunchKernel(function, 1, 65536, 1, 32, 1, 1, 0, stream, parameters, nullptr),
            CUDA_ERROR_INVALID_VALUE);
  CUlibrary library = nullptr;
  CUkernel kernel = nullptr;
  ASSERT_EQ(api.LibraryLoadData(&library, "x", nullptr, nullptr, 0, nullptr, nullptr, 0),
            CUDA_SUCCESS);
  EXPECT_EQ(api.LibraryGetKernel(&kernel, library, "no_such_kernel"), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(api.LibraryUnload(library), CUDA_SUCCESS);
}

}  // namespace
}  // namespace unisono::test
