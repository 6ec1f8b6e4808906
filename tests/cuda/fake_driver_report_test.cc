// Machines that the fake driver can be: without functions, old, with few devices or little memory,
// with calls that fail; and what it says at the end about what was left behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cuda/fake_driver_fixture.h"

namespace unisono::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST(FakeInjection, FailsTheCallThatIsNamed) {
  Gpu gpu;
  fake()->fail("cuMemAlloc", 2, CUDA_ERROR_OUT_OF_MEMORY);
  const CUdeviceptr first = gpu.allocate(16);
  CUdeviceptr second = 0;
  EXPECT_EQ(driver()->MemAlloc(&second, 16), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_NE(gpu.allocate(16), first);
}

int fail_by_environment() {
  Gpu gpu;
  CUevent events[3] = {};
  require(driver()->EventCreate(&events[0], 0) == CUDA_SUCCESS, "the first call works");
  require(driver()->EventCreate(&events[1], 0) == CUDA_ERROR_UNKNOWN, "the second does not");
  require(driver()->EventCreate(&events[2], 0) == CUDA_SUCCESS, "the third works");
  CUdeviceptr pointer = 0;
  require(driver()->MemAlloc(&pointer, 4) == CUDA_ERROR_OUT_OF_MEMORY, "no memory");
  require(driver()->EventDestroy(events[0]) == CUDA_SUCCESS, "destroyed");
  require(driver()->EventDestroy(events[2]) == CUDA_SUCCESS, "destroyed");
  return 0;
}
const RoleEntry fail_role("fail by environment", fail_by_environment);

TEST(FakeInjection, TakesOrdersFromTheEnvironment) {
  ChildProcess child =
      start("fail by environment", {"FAKE_CUDA_FAIL=cuEventCreate:2=999,cuMemAlloc_v2:1=2"});
  EXPECT_EQ(child.wait(), 0) << child.output();
}

int leave_things_behind() {
  const auto& api = *driver();
  CUcontext context = nullptr;
  CUdeviceptr pointer = 0;
  CUstream stream = nullptr;
  CUevent event = nullptr;
  CUmemGenericAllocationHandle handle = 0;
  const CUmemAllocationProp wanted = exportable_memory(0);
  require(api.DevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS, "retained");
  require(api.CtxPushCurrent(context) == CUDA_SUCCESS, "current");
  require(api.MemAlloc(&pointer, 1234) == CUDA_SUCCESS, "allocated");
  require(api.StreamCreateWithPriority(&stream, 0, 0) == CUDA_SUCCESS, "a stream");
  require(api.EventCreate(&event, 0) == CUDA_SUCCESS, "an event");
  require(api.MemCreate(&handle, kGranularity, &wanted, 0) == CUDA_SUCCESS, "a handle");
  return 0;
}
const RoleEntry leave_role("leave things behind", leave_things_behind);

int leave_nothing_behind() {
  Gpu gpu;
  gpu.allocate(16);
  gpu.stream();
  return 0;
}
const RoleEntry tidy_role("leave nothing behind", leave_nothing_behind);

TEST(FakeReport, NamesEverythingLeftBehindAndFailsTheProcess) {
  ChildProcess child = start("leave things behind", {"FAKE_CUDA_LEAKS=fail"});
  EXPECT_EQ(child.wait(), 66);
  EXPECT_THAT(child.output(),
              AllOf(HasSubstr("leak: allocation of 1234 bytes"), HasSubstr("leak: stream"),
                    HasSubstr("leak: event"), HasSubstr("leak: an allocation handle"),
                    HasSubstr("leak: the primary context of device 0, retained 1 times")));
  ChildProcess patient = start("leave things behind", {"FAKE_CUDA_LEAKS=report"});
  EXPECT_EQ(patient.wait(), 0);
  EXPECT_THAT(patient.output(), HasSubstr("leak: "));
}

TEST(FakeReport, IsSilentAboutATidyProgram) {
  ChildProcess child = start("leave nothing behind", {"FAKE_CUDA_LEAKS=fail"});
  EXPECT_EQ(child.wait(), 0);
  EXPECT_THAT(child.output(), Not(HasSubstr("leak")));
}

TEST(FakeReport, NoticesAReleaseTooMany) {
  CUcontext context = nullptr;
  CUdevice device = 0;
  ASSERT_EQ(driver()->DeviceGet(&device, 0), CUDA_SUCCESS);
  ASSERT_EQ(driver()->DevicePrimaryCtxRetain(&context, device), CUDA_SUCCESS);
  ASSERT_EQ(driver()->DevicePrimaryCtxRelease(device), CUDA_SUCCESS);
  EXPECT_EQ(driver()->DevicePrimaryCtxRelease(device), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(driver()->CtxPushCurrent(context), CUDA_ERROR_CONTEXT_IS_DESTROYED);
}

TEST(FakeReport, CountsWhatIsAlive) {
  const fake_cuda::Counts before = fake()->counts();
  {
    Gpu gpu;
    gpu.allocate(16);
    gpu.stream();
    gpu.event();
    const fake_cuda::Counts now = fake()->counts();
    EXPECT_EQ(now.allocations, before.allocations + 1);
    EXPECT_EQ(now.streams, before.streams + 1);
    EXPECT_EQ(now.events, before.events + 1);
    EXPECT_EQ(now.contexts, before.contexts + 1);
    EXPECT_EQ(now.libraries, before.libraries + 1);
  }
  EXPECT_EQ(fake()->counts().allocations, before.allocations);
  EXPECT_EQ(fake()->counts().contexts, before.contexts);
}

int count_devices() {
  const auto api = cuda::load_cuda_driver(driver_file());
  const CUresult started = (*api)->Init(0);
  int count = 0;
  if (started == CUDA_SUCCESS) (*api)->DeviceGetCount(&count);
  std::printf("cuInit %d, %d devices:", static_cast<int>(started), count);
  for (int i = 0; i < count; ++i) {
    char name[64] = {};
    CUdevice device = 0;
    (*api)->DeviceGet(&device, i);
    (*api)->DeviceGetName(name, sizeof(name), device);
    std::printf(" %s,", name);
  }
  int can = 0;
  if (count > 1) (*api)->DeviceCanAccessPeer(&can, 0, 1);
  std::printf(" peers %d\n", can);
  return 0;
}
const RoleEntry count_role("count devices", count_devices);

std::string machine(const std::vector<std::string>& environment) {
  ChildProcess child = start("count devices", environment);
  EXPECT_EQ(child.wait(), 0);
  return child.output();
}

TEST(FakeMachine, HasTheDevicesThatTheEnvironmentSays) {
  EXPECT_THAT(machine({"FAKE_CUDA_DEVICES=8"}),
              AllOf(HasSubstr("cuInit 0, 8 devices: Fake GPU 0,"), HasSubstr("peers 1")));
  EXPECT_THAT(machine({"FAKE_CUDA_DEVICES=2", "FAKE_CUDA_P2P=none"}), HasSubstr("peers 0"));
  EXPECT_THAT(machine({"FAKE_CUDA_DEVICES=4", "CUDA_VISIBLE_DEVICES=3,1"}),
              HasSubstr("2 devices: Fake GPU 3, Fake GPU 1,"));
  EXPECT_THAT(machine({"FAKE_CUDA_DEVICES=4", "CUDA_VISIBLE_DEVICES=2,7,1"}),
              HasSubstr("1 devices: Fake GPU 2,"));
  EXPECT_THAT(machine({"FAKE_CUDA_DEVICES=4", "CUDA_VISIBLE_DEVICES="}),
              HasSubstr("cuInit 100, 0 devices"));
}

int fill_memory() {
  Gpu gpu;
  CUdeviceptr pointer = 0;
  require(driver()->MemAlloc(&pointer, std::size_t{5} << 20) == CUDA_ERROR_OUT_OF_MEMORY, "5 MiB");
  gpu.allocate(std::size_t{3} << 20);
  require(driver()->MemAlloc(&pointer, std::size_t{2} << 20) == CUDA_ERROR_OUT_OF_MEMORY, "3 + 2");
  return 0;
}
const RoleEntry fill_role("fill memory", fill_memory);

TEST(FakeMachine, HasTheMemoryThatTheEnvironmentSays) {
  ChildProcess child = start("fill memory", {"FAKE_CUDA_MEMORY=4M"});
  EXPECT_EQ(child.wait(), 0) << child.output();
}

int write_a_word() {
  Gpu gpu;
  int offered = 9;
  require(driver()->DeviceGetAttribute(&offered, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS,
                                       0) == CUDA_SUCCESS,
          "the attribute is known");
  CUstream stream = gpu.stream();
  CUstreamBatchMemOpParams write{};
  write.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  write.writeValue.address = gpu.allocate(4);
  write.writeValue.value = 5;
  const CUresult result = driver()->StreamBatchMemOp(stream, 1, &write, 0);
  const bool written = read_words(stream, write.writeValue.address, 1).front() == 5;
  write.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
  write.writeValue.address = gpu.allocate(8);
  const CUresult wide = driver()->StreamBatchMemOp(stream, 1, &write, 0);
  std::printf("offered %d, result %d, written %d, wide %d\n", offered, static_cast<int>(result),
              written, static_cast<int>(wide));
  return 0;
}
const RoleEntry write_role("write a word", write_a_word);

TEST(FakeMachine, HasStreamMemoryOperationsUnlessToldNotTo) {
  ChildProcess with = start("write a word", {});
  EXPECT_EQ(with.wait(), 0);
  EXPECT_THAT(with.output(), HasSubstr("offered 1, result 0, written 1, wide 0"));
  ChildProcess without = start("write a word", {"FAKE_CUDA_MEMOPS=off"});
  EXPECT_EQ(without.wait(), 0);
  // CUDA_ERROR_NOT_SUPPORTED is 801.
  EXPECT_THAT(without.output(), HasSubstr("offered 0, result 801, written 0, wide 801"));
  ChildProcess narrow = start("write a word", {"FAKE_CUDA_MEMOPS=32"});
  EXPECT_EQ(narrow.wait(), 0);
  EXPECT_THAT(narrow.output(), HasSubstr("offered 0, result 0, written 1, wide 801"));
}

int use_addresses_again() {
  Gpu gpu;
  const CUdeviceptr first = gpu.allocate(4096);
  gpu.free(first);
  const bool again = gpu.allocate(4096) == first;
  std::printf("%s\n", again ? "again" : "fresh");
  return 0;
}
const RoleEntry again_role("use addresses again", use_addresses_again);

TEST(FakeMachine, GivesFreedAddressesAgainWhereToldTo) {
  ChildProcess fresh = start("use addresses again", {});
  EXPECT_EQ(fresh.wait(), 0);
  EXPECT_THAT(fresh.output(), HasSubstr("fresh"));
  ChildProcess again = start("use addresses again", {"FAKE_CUDA_ADDRESSES=reuse"});
  EXPECT_EQ(again.wait(), 0);
  EXPECT_THAT(again.output(), HasSubstr("again"));
}

TEST(FakeMachine, GivesTheFormOfAFunctionThatIsAskedFor) {
  EXPECT_NE(driver_function("cuCtxGetDevice", 12000), nullptr);
  EXPECT_NE(driver_function("cuCtxGetDevice", 12000), driver_function("cuCtxGetDevice", 13000));
  EXPECT_NE(driver_function("cuStreamGetCtx", 12000), driver_function("cuStreamGetCtx", 12050));
  EXPECT_EQ(driver_function("cuFuncLoad", 12000), nullptr);
  EXPECT_EQ(driver_function("cuNoSuchFunction", 12000), nullptr);
}

TEST(FakeMachine, RefusesAnEnvironmentThatItDoesNotUnderstand) {
  ChildProcess child = start("count devices", {"FAKE_CUDA_DEVICES=many"});
  EXPECT_EQ(child.wait(), 70);
  EXPECT_THAT(child.output(), HasSubstr("FAKE_CUDA_DEVICES=many"));
}

}  // namespace
}  // namespace unisono::test
