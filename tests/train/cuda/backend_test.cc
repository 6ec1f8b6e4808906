// What the GPU backend owes beside its arithmetic: memory, streams, errors, and nothing left
// behind.
#include <cuda.h>
#include <gmock/gmock.h>

#include <array>
#include <cstring>
#include <thread>

#include "tests/cuda/driver_under_test.h"
#include "tests/train/cuda/fixture.h"
#include "train/cuda/cublas_api.h"

namespace unisono::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

TEST(CudaBackend, IsNoHostAndHasTwoStreams) {
  const auto backend = make_backend();
  EXPECT_FALSE(backend->is_host());
  ASSERT_TRUE(backend->stream().has_value());
  ASSERT_TRUE(backend->side_stream().has_value());
  EXPECT_NE(*backend->stream(), nullptr);
  EXPECT_NE(*backend->stream(), *backend->side_stream());
}

TEST(CudaBackend, WriteLeavesTheHostsMemoryFreeAndReadBringsItBack) {
  const auto backend = make_backend();
  // More than staging holds at once.
  for (const std::size_t count : {0, 1, 33, 1 << 18, (3 << 20) + 5}) {
    const Floats values = random_values(count, count);
    Floats passing = values;
    auto* block = static_cast<float*>(backend->take(count * sizeof(float)));
    backend->write(passing.data(), count, block);
    passing.assign(count, -1);
    Floats back(count);
    backend->read(block, count, back.data());
    backend->give(block, count * sizeof(float));
    EXPECT_EQ(back, values);
  }
}

TEST(CudaBackend, PageLockedMemoryIsFreeToo) {
  const auto backend = make_backend();
  const auto memory = train::make_page_locked_memory(0);
  constexpr std::size_t kCount = 1000;
  auto* host = static_cast<float*>(memory->take(kCount * sizeof(float)));
  std::fill_n(host, kCount, 7.0F);
  auto* block = static_cast<float*>(backend->take(kCount * sizeof(float)));
  backend->write(host, kCount, block);
  std::fill_n(host, kCount, -1.0F);
  backend->read(block, kCount, host);
  EXPECT_EQ(host[0], 7.0F);
  EXPECT_EQ(host[kCount - 1], 7.0F);
  backend->give(block, kCount * sizeof(float));
  memory->give(host);
  memory->give(memory->take(0));
}

TEST(CudaBackend, BlocksAreAlignedApartAndUsedAgain) {
  const auto backend = make_backend();
  void* first = backend->take(1000);
  void* second = backend->take(1000);
  void* empty = backend->take(0);
  EXPECT_NE(first, second);
  EXPECT_NE(empty, nullptr);
  for (void* block : {first, second, empty}) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % 64, 0U);
  }
  backend->give(second, 1000);
  EXPECT_EQ(backend->take(990), second);  // of the same rounded size
  backend->give(second, 990);
  backend->give(first, 1000);
  backend->give(empty, 0);
}

TEST(CudaBackend, ABlockGivenBackMayStillBeInUse) {
  const auto backend = make_backend();
  constexpr std::size_t kCount = 100'000;
  const DeviceFloats result(*backend, Floats(kCount));
  for (int round = 0; round < 20; ++round) {
    auto* block = static_cast<float*>(backend->take(kCount * sizeof(float)));
    backend->fill(block, kCount, static_cast<float>(round));
    backend->add(block, kCount, result);
    backend->give(block, kCount * sizeof(float));
  }
  EXPECT_EQ(result.values(), Floats(kCount, 190));
}

TEST(CudaBackend, ThreadsMayTakeAndGive) {
  const auto backend = make_backend();
  std::array<std::thread, 3> threads;
  for (std::thread& thread : threads) {
    thread = std::thread([&] {
      for (std::size_t n = 0; n < 200; ++n) {
        void* block = backend->take(n * 100);
        backend->give(block, n * 100);
      }
    });
  }
  const DeviceFloats values(*backend, Floats(100, 2));
  for (int n = 0; n < 50; ++n) backend->scale(values, 100, -1, values);
  EXPECT_EQ(values.values(), Floats(100, 2));
  for (std::thread& thread : threads) thread.join();
}

TEST(CudaBackend, StreamsFollowEachOtherWhenTold) {
  const auto backend = make_backend();
  if (fake() == nullptr) GTEST_SKIP() << "only the fake driver's streams can be held";
  const auto api = driver();
  const auto main = static_cast<CUstream>(*backend->stream());
  const auto side = static_cast<CUstream>(*backend->side_stream());
  fake()->hold_stream(main);
  EXPECT_EQ(api->StreamQuery(side), CUDA_SUCCESS);
  backend->side_follows_main();  // behind the record, which is in the held stream
  EXPECT_EQ(api->StreamQuery(side), CUDA_ERROR_NOT_READY);
  fake()->release_stream(main);
  EXPECT_EQ(api->StreamSynchronize(side), CUDA_SUCCESS);

  EXPECT_EQ(api->StreamSynchronize(main), CUDA_SUCCESS);
  fake()->hold_stream(side);
  backend->main_follows_side();
  EXPECT_EQ(api->StreamQuery(main), CUDA_ERROR_NOT_READY);
  fake()->release_stream(side);
  EXPECT_EQ(api->StreamSynchronize(main), CUDA_SUCCESS);
}

TEST(CudaBackend, WaitsForItsWorkAtTheEnd) {
  if (fake() == nullptr) GTEST_SKIP() << "only the fake driver counts";
  auto backend = make_backend();
  constexpr std::size_t kCount = 50'000;
  auto* block = static_cast<float*>(backend->take(kCount * sizeof(float)));
  const std::uint64_t launches = fake()->counts().launches;
  for (int n = 0; n < 100; ++n) backend->fill(block, kCount, 1);
  backend->give(block, kCount * sizeof(float));
  backend.reset();
  EXPECT_EQ(fake()->counts().launches, launches + 100);
  EXPECT_EQ(fake()->counts().errors, 0U);
}

TEST(CudaBackend, LeavesNothingBehind) {
  if (fake() == nullptr) GTEST_SKIP() << "only the fake driver counts";
  static_cast<void>(make_backend());  // what a process makes once is made now
  const fake_cuda::Counts before = fake()->counts();
  {
    const auto backend = make_backend(), beside = make_backend();
    const auto memory = train::make_page_locked_memory(0);
    memory->give(memory->take(100));
    const DeviceFloats a(*backend, Floats(10'000, 1)), b(*beside, Floats(10'000, 1));
    backend->multiply({100, 100, 100, {a, 100}, {a, 100}, a, 100, true});
    beside->multiply({10, 10, 10, {b, 100}, {b, 100}, b, 100, true});
    EXPECT_GT(fake()->counts().streams, before.streams);
  }
  const fake_cuda::Counts after = fake()->counts();
  EXPECT_EQ(after.allocations, before.allocations);
  EXPECT_EQ(after.host_ranges, before.host_ranges);
  EXPECT_EQ(after.streams, before.streams);
  EXPECT_EQ(after.events, before.events);
  EXPECT_EQ(after.libraries, before.libraries);
  EXPECT_EQ(after.contexts, before.contexts);
  EXPECT_EQ(after.errors, before.errors);
}

TEST(CudaBackendErrors, NameTheDeviceTheReasonAndTheRemedy) {
  static_cast<void>(make_backend());
  const auto open = [](int device) {
    return error_of([device] { train::make_cuda_backend(device); });
  };
  EXPECT_THAT(open(77), AllOf(StartsWith("device 77: there is no such device; the driver sees "),
                              HasSubstr("CUDA_VISIBLE_DEVICES")));
  EXPECT_THAT(open(-1), StartsWith("device -1: there is no such device"));
  {
    const Variable off("UNISONO_CUDA", "off");
    EXPECT_EQ(open(0), "device 0: UNISONO_CUDA=off: set it to auto, or train on the host");
  }
  {
    const Variable nowhere("UNISONO_CUDA_LIBRARY", "/nowhere/libcuda.so.1");
    EXPECT_THAT(open(1), AllOf(StartsWith("device 1: no CUDA driver (/nowhere/libcuda.so.1"),
                               HasSubstr("install NVIDIA's driver")));
    EXPECT_THAT(error_of([] { train::make_page_locked_memory(1); }),
                StartsWith("device 1: no CUDA driver"));
  }
  {
    const Variable nowhere("UNISONO_CUBLAS_LIBRARY", "/nowhere/libcublas.so.13");
    EXPECT_THAT(open(0), AllOf(StartsWith("device 0: no cuBLAS (/nowhere/libcublas.so.13"),
                               HasSubstr("UNISONO_CUBLAS_LIBRARY")));
  }
  {
    const Variable other("UNISONO_CUBLAS_LIBRARY", "libc.so.6");
    EXPECT_THAT(open(0), AllOf(StartsWith("device 0: libc.so.6 lacks cublasCreate_v2"),
                               HasSubstr("install a newer one")));
  }
  {
    const Variable unknown("UNISONO_CUDA_BACKEND", "1");
    EXPECT_THAT(open(0), StartsWith("device 0: unknown variable UNISONO_CUDA_BACKEND"));
  }
}

TEST(CudaBackend, TriesNoCublasThatTheDriverIsTooOldFor) {
  try {
    train::load_cublas("", 12);
    GTEST_SKIP() << "cuBLAS 11 or 12 is installed";
  } catch (const std::runtime_error& refusal) {
    EXPECT_THAT(refusal.what(), AllOf(StartsWith("no cuBLAS (libcublas.so.12"),
                                      HasSubstr("libcublas.so.11"), Not(HasSubstr("so.13"))));
  }
}

TEST(CudaBackendErrors, OutOfMemoryGivesBackWhatWaitsAndThenNamesTheBytes) {
  const auto backend = make_backend();
  constexpr std::size_t kBlock = std::size_t{200} << 20;
  void* block = backend->take(kBlock);
  backend->give(block, kBlock);
  try {
    backend->take(std::size_t{1} << 50);
    FAIL() << "a petabyte fits";
  } catch (const train::OutOfDeviceMemory& error) {
    EXPECT_EQ(error.bytes(), std::size_t{1} << 50);
    EXPECT_LT(error.in_use(), error.limit());
    EXPECT_THAT(error.what(),
                AllOf(StartsWith("device 0: out of memory: 1125899906842624 bytes asked for, "),
                      HasSubstr("use gradient checkpointing or a smaller batch")));
  }
  // It goes on.
  const DeviceFloats values(*backend, Floats(10, 1));
  backend->add(values, 10, values);
  EXPECT_EQ(values.values(), Floats(10, 2));
}

TEST(CudaBackendErrors, WaitingBlocksMakeRoomForOtherSizes) {
  if (fake() == nullptr) GTEST_SKIP() << "only the fake driver's memory is known to be small";
  const auto backend = make_backend();
  CUdevice device = 0;
  std::size_t total = 0;
  ASSERT_EQ(driver()->DeviceGet(&device, 0), CUDA_SUCCESS);
  ASSERT_EQ(driver()->DeviceTotalMem(&total, device), CUDA_SUCCESS);
  // A block that waits, and one for which there is room without it alone.
  const std::size_t first_bytes = total / 5, second_bytes = total / 100 * 83;
  void* first = backend->take(first_bytes);
  backend->give(first, first_bytes);
  void* second = backend->take(second_bytes);
  EXPECT_THROW(backend->take(first_bytes), train::OutOfDeviceMemory);
  backend->give(second, second_bytes);
}

TEST(CudaBackendErrors, AFailingCallNamesTheDeviceAndWhatItDid) {
  if (fake() == nullptr) GTEST_SKIP() << "only the fake driver fails when told";
  const auto backend = make_backend();
  const DeviceFloats values(*backend, Floats(10, 1));
  fake()->fail("cuLaunchKernel", 1, CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_THAT(error_of([&] { backend->fill(values, 10, 0); }),
              StartsWith("device 0: launching unisono_train_fill: "
                         "CUDA_ERROR_NOT_SUPPORTED"));
  fake()->fail("cuLaunchKernel", 1, CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_THAT(error_of([&] {
                backend->multiply({1, 1, 1, {values, 1}, {values, 1}, values, 1});
              }),
              AllOf(StartsWith("device 0: a product of [1, 1] by [1, 1]: cuBLAS says "),
                    HasSubstr("EXECUTION_FAILED")));
  fake()->fail("cuMemHostAlloc", 1, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_THAT(error_of([] { train::make_page_locked_memory(0)->take(4096); }),
              StartsWith("device 0: page-locking 4096 bytes of host memory"));
  EXPECT_EQ(values.values(), Floats(10, 1));
}

TEST(CudaBackendErrors, AProductThatCublasCannotTakeSaysSo) {
  const auto backend = make_backend();
  const DeviceFloats values(*backend, Floats(10, 1));
  const std::size_t huge = std::size_t{1} << 32;
  EXPECT_THAT(error_of([&] {
                backend->multiply({1, 1, 1, {values, huge}, {values, 1}, values, 1});
              }),
              AllOf(StartsWith("device 0: a product of [1, 1] by [1, 1]: "),
                    HasSubstr("up to 2147483647, not 4294967296")));
}

TEST(CudaBackendErrors, AHalfMadeBackendLeavesNothing) {
  if (fake() == nullptr) GTEST_SKIP() << "only the fake driver fails when told";
  static_cast<void>(make_backend());
  const fake_cuda::Counts before = fake()->counts();
  for (const char* function :
       {"cuDevicePrimaryCtxRetain", "cuLibraryLoadData", "cuKernelGetFunction", "cuFuncLoad",
        "cuStreamCreateWithPriority", "cuEventCreate", "cuMemHostAlloc", "cuMemAlloc"}) {
    const std::uint64_t calls = fake()->calls(function);
    static_cast<void>(make_backend());
    const std::uint64_t of_one = fake()->calls(function) - calls;
    ASSERT_GT(of_one, 0U) << function;
    for (const std::uint64_t call : {std::uint64_t{1}, of_one}) {
      SCOPED_TRACE(testing::Message() << "call " << call << " of " << function);
      fake()->fail(function, call, CUDA_ERROR_UNKNOWN);
      EXPECT_THAT(error_of([] { make_backend(); }), StartsWith("device 0: "));
      const fake_cuda::Counts after = fake()->counts();
      EXPECT_EQ(after.allocations, before.allocations);
      EXPECT_EQ(after.host_ranges, before.host_ranges);
      EXPECT_EQ(after.streams, before.streams);
      EXPECT_EQ(after.events, before.events);
      EXPECT_EQ(after.libraries, before.libraries);
      EXPECT_EQ(after.contexts, before.contexts);
    }
  }
}

// Last: the context is broken for good, as after an illegal address on hardware.
TEST(CudaBackendErrorsLast, AFailureOfTheDeviceShowsAtALaterCall) {
  if (fake() == nullptr) GTEST_SKIP() << "a device that is broken is no use to other tests";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto broken = [] {
    const auto backend = make_backend();
    float host = 0;
    backend->fill(&host, 1, 1);  // host memory, where the device finds nothing
    const std::string words = error_of([&] { backend->read(&host, 1, &host); });
    std::fprintf(stderr, "says: %s\n", words.c_str());
    std::_Exit(words.starts_with("device 0: ") ? 0 : 1);
  };
  EXPECT_EXIT(broken(), testing::ExitedWithCode(0), "says: device 0: .*CUDA_ERROR_ILLEGAL_ADDRESS");
}

}  // namespace
}  // namespace unisono::test
