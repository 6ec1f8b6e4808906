// The table of driver functions: what it takes to have one, and what is said where there is none.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "cuda/driver/survey.h"
#include "tests/cuda/fake_driver_fixture.h"

namespace unisono::test {
namespace {

using cuda::CudaApi;
using cuda::load_cuda_driver;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST(DriverTable, SaysThatThereIsNoDriver) {
  const auto api = load_cuda_driver("/nowhere/libcuda.so.1");
  ASSERT_FALSE(api);
  EXPECT_EQ(api.error().code(), ErrorCode::kUnsupported);
  EXPECT_THAT(api.error().message(),
              AllOf(HasSubstr("no CUDA driver (/nowhere/libcuda.so.1"), HasSubstr("install")));
}

TEST(DriverTable, SaysThatALibraryIsNoDriverOfToday) {
  const auto api = load_cuda_driver("libm.so.6");
  ASSERT_FALSE(api);
  EXPECT_EQ(api.error().code(), ErrorCode::kUnsupported);
  EXPECT_THAT(api.error().message(),
              AllOf(HasSubstr("libm.so.6 is a driver for a CUDA older than 12.0"),
                    HasSubstr("install NVIDIA driver 525 or newer")));
}

TEST(DriverTable, IsTheSameForTheSameFileWhoeverAsks) {
  const auto first = load_cuda_driver(driver_file());
  ASSERT_TRUE(first) << first.error().message();
  EXPECT_GE((*first)->version, 12000);
  std::vector<const CudaApi*> seen(8);
  std::vector<std::thread> threads;
  for (const CudaApi*& each : seen) {
    threads.emplace_back([&each] { each = load_cuda_driver(driver_file())->get(); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(seen, testing::Each(first->get()));
}

TEST(DriverTable, HoldsEveryRequiredFunction) {
  const auto& api = *driver();
#define UNISONO_EXPECT_FUNCTION(name) EXPECT_NE(api.name, nullptr) << #name;
  UNISONO_CUDA_REQUIRED(UNISONO_EXPECT_FUNCTION)
#undef UNISONO_EXPECT_FUNCTION
}

// A younger form of either function takes one parameter more and reads or writes through it.
TEST(DriverTable, HoldsTheFormsThatTheHeaderDeclares) {
  if (fake() == nullptr) GTEST_SKIP() << "a real driver does not tell the forms apart";
  Gpu gpu(1);
  const auto& api = *driver();
  CUdevice device = -1;
  EXPECT_EQ(api.CtxGetDevice(&device), CUDA_SUCCESS);
  EXPECT_EQ(device, 1);
  CUcontext context = nullptr;
  EXPECT_EQ(api.StreamGetCtx(gpu.stream(), &context), CUDA_SUCCESS);
  EXPECT_EQ(context, gpu.context());
  EXPECT_NE(api.FuncLoad, nullptr);
  EXPECT_NE(api.StreamGetCaptureInfo, nullptr);
}

int load_and_tell() {
  const auto api = load_cuda_driver(driver_file());
  if (!api) {
    std::printf("refused: %s\n", api.error().message().c_str());
    return 0;
  }
  std::printf("version %d, memops %d, funcload %d, info %d\n", (*api)->version,
              (*api)->StreamBatchMemOp != nullptr, (*api)->FuncLoad != nullptr,
              (*api)->StreamGetCaptureInfo != nullptr);
  return 0;
}
const RoleEntry load_role("load and tell", load_and_tell);

std::string load_with(const std::string& variable) {
  ChildProcess child = start("load and tell", {variable});
  EXPECT_EQ(child.wait(), 0);
  return child.output();
}

TEST(DriverTable, RefusesADriverOlderThan12) {
  if (fake() == nullptr) GTEST_SKIP() << "a real driver cannot be made so";
  EXPECT_THAT(load_with("FAKE_CUDA_VERSION=11080"),
              AllOf(HasSubstr("refused: "), HasSubstr("for CUDA 11.8, and CUDA 12.0 is needed"),
                    HasSubstr("525 or newer"), HasSubstr("UNISONO_CUDA=off")));
}

TEST(DriverTable, NamesTheRequiredFunctionsThatAreMissing) {
  if (fake() == nullptr) GTEST_SKIP() << "a real driver cannot be made so";
  EXPECT_THAT(load_with("FAKE_CUDA_MISSING=cuMemAlloc,cuLaunchKernel,cuIpcOpenMemHandle"),
              AllOf(HasSubstr("lacks cuMemAlloc, cuLaunchKernel: "), Not(HasSubstr("cuIpc"))));
}

TEST(DriverTable, DoesWithoutTheOthers) {
  if (fake() == nullptr) GTEST_SKIP() << "a real driver cannot be made so";
  EXPECT_THAT(load_with("FAKE_CUDA_MISSING=cuStreamBatchMemOp,cuFuncLoad"),
              HasSubstr("version 13000, memops 0, funcload 0, info 1"));
  // What came after 12.0 is missing there.
  EXPECT_THAT(load_with("FAKE_CUDA_VERSION=12000"),
              HasSubstr("version 12000, memops 1, funcload 0, info 0"));
}

TEST(DriverTable, TellsErrorsInTheDriversWords) {
  const auto& api = *driver();
  EXPECT_TRUE(api.check(CUDA_SUCCESS, "anything"));
  const Status refused = api.check(CUDA_ERROR_INVALID_CONTEXT, "copying 4096 bytes to device 0");
  EXPECT_EQ(refused.code(), ErrorCode::kSystem);
  EXPECT_EQ(refused.message(),
            "copying 4096 bytes to device 0: CUDA_ERROR_INVALID_CONTEXT (invalid device context)");
  EXPECT_EQ(api.check(CUDA_ERROR_OUT_OF_MEMORY, "x").code(), ErrorCode::kOutOfResources);
  EXPECT_THAT(api.check(static_cast<CUresult>(998), "x").message(), HasSubstr("998"));
}

TEST(CurrentContext, IsThereForItsTimeAndThenTheOneBefore) {
  if (fake() == nullptr) GTEST_SKIP() << "needs two devices";
  Gpu outer(0);
  const auto& api = *driver();
  CUcontext inner = nullptr;
  CUcontext seen = nullptr;
  CUdevice device = 0;
  ASSERT_EQ(api.DeviceGet(&device, 1), CUDA_SUCCESS);
  ASSERT_EQ(api.DevicePrimaryCtxRetain(&inner, device), CUDA_SUCCESS);
  {
    const cuda::CurrentContext current(api, inner);
    ASSERT_TRUE(current.status());
    EXPECT_EQ(api.CtxGetCurrent(&seen), CUDA_SUCCESS);
    EXPECT_EQ(seen, inner);
  }
  EXPECT_EQ(api.CtxGetCurrent(&seen), CUDA_SUCCESS);
  EXPECT_EQ(seen, outer.context());
  EXPECT_EQ(api.DevicePrimaryCtxRelease(device), CUDA_SUCCESS);
  {
    const cuda::CurrentContext gone(api, inner);
    EXPECT_THAT(gone.status().message(), HasSubstr("CUDA_ERROR_CONTEXT_IS_DESTROYED"));
  }
  EXPECT_EQ(api.CtxGetCurrent(&seen), CUDA_SUCCESS);
  EXPECT_EQ(seen, outer.context());
}

TEST(Survey, ListsTheDevices) {
  const auto survey = cuda::survey_devices("auto", driver_file());
  ASSERT_TRUE(survey) << survey.error().message();
  ASSERT_FALSE(survey->devices.empty());
  const cuda::DeviceRow& first = survey->devices[0];
  EXPECT_EQ(first.ordinal, 0);
  EXPECT_FALSE(first.name.empty());
  EXPECT_THAT(first.bus_id, HasSubstr(":"));
  EXPECT_GT(first.memory_bytes, 0u);
  EXPECT_GT(first.multiprocessors, 0);
  EXPECT_GE(first.capability_major, 5);
  EXPECT_EQ(cuda::version_text(12080), "12.8");
}

TEST(Survey, SaysWhyThereIsNone) {
  EXPECT_EQ(cuda::survey_devices("off", driver_file()).status().message(), "UNISONO_CUDA=off");
  EXPECT_THAT(cuda::survey_devices("auto", "/nowhere/libcuda.so.1").status().message(),
              HasSubstr("no CUDA driver"));
}

int survey_here() {
  const auto survey = cuda::survey_devices("auto", driver_file());
  std::printf("%s\n", survey ? "found" : survey.error().message().c_str());
  return 0;
}
const RoleEntry survey_role("survey here", survey_here);

TEST(Survey, SaysThatEveryDeviceIsHidden) {
  ChildProcess child = start("survey here", {"CUDA_VISIBLE_DEVICES="});
  EXPECT_EQ(child.wait(), 0);
  EXPECT_THAT(child.output(), HasSubstr("sees no GPU: CUDA_VISIBLE_DEVICES"));
}

}  // namespace
}  // namespace unisono::test
