#include "tests/cuda/device_user.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <thread>

#include "tests/collective/matrix_cases.h"
#include "tests/cuda/kernel_twins.h"
#include "tests/support/eventually.h"
#include "tests/support/rank_job.h"
#include "tests/support/watchdog.h"

namespace unisono::test {
namespace {

// Read by the fake driver when it is first asked; what the caller has set stays. A program that
// leaves something in the driver fails.
[[maybe_unused]] const int leaks_fail = setenv("FAKE_CUDA_LEAKS", "fail", 0);
[[maybe_unused]] const int two_devices = setenv("FAKE_CUDA_DEVICES", "2", 0);

}  // namespace

DeviceUser::DeviceUser(int ordinal) : api_(driver()) {
  check(api_->DeviceGet(&device_, ordinal), "cuDeviceGet");
  check(api_->DevicePrimaryCtxRetain(&context_, device_), "cuDevicePrimaryCtxRetain");
  check(api_->CtxPushCurrent(context_), "cuCtxPushCurrent");
  check(api_->StreamCreateWithPriority(&stream_, CU_STREAM_NON_BLOCKING, 0), "cuStreamCreate");
  check(api_->MemAlloc(&arena_, kArenaBytes), "cuMemAlloc");
}

DeviceUser::~DeviceUser() {
  api_->StreamSynchronize(stream_);
  api_->MemFree(arena_);
  api_->StreamDestroy(stream_);
  CUcontext popped = nullptr;
  api_->CtxPopCurrent(&popped);
  api_->DevicePrimaryCtxRelease(device_);
}

void DeviceUser::check(CUresult result, const char* what) const {
  if (const Status status = api_->check(result, what); !status) {
    throw std::runtime_error(status.message());
  }
}

std::byte* DeviceUser::take(std::size_t bytes) {
  constexpr std::size_t kAlignment = 256;
  const std::size_t first = used_;
  used_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  if (used_ > kArenaBytes) throw std::runtime_error("the test's device arena is too small");
  return reinterpret_cast<std::byte*>(arena_ + first);
}

void DeviceUser::write(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes == 0) return;
  check(api_->MemcpyAsync(reinterpret_cast<CUdeviceptr>(to), reinterpret_cast<CUdeviceptr>(from),
                          bytes, stream_),
        "copying to the device");
  finish();
}

void DeviceUser::read(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes == 0) return;
  check(api_->MemcpyAsync(reinterpret_cast<CUdeviceptr>(to), reinterpret_cast<CUdeviceptr>(from),
                          bytes, stream_),
        "copying from the device");
  finish();
}

void DeviceUser::finish() { check(api_->StreamSynchronize(stream_), "cuStreamSynchronize"); }

std::vector<CollectiveCase> device_cases(std::size_t job, int ranks) {
  const std::vector<CollectiveCase> all = cases_of_job(job, ranks);
  if (!is_sanitized()) return all;
  // Of a full run's cases as many as a run without sanitizers has that is not full.
  const std::size_t step = is_full_run() ? 13 : 3;
  std::vector<CollectiveCase> some;
  for (std::size_t i = job % step; i < all.size(); i += step) some.push_back(all[i]);
  return some;
}

std::vector<int> device_rank_counts() {
  if (is_sanitized() && !is_full_run()) return {2, 3};
  return {1, 2, 3, 4, 8};
}

void run_device_ranks(const DeviceJob& job, const std::function<void(Communicator&)>& body) {
  // Before the ranks' devices load their kernels, and before the fork of those that are processes.
  if (fake() != nullptr) cuda::register_kernel_twins(*fake());
  SpawnOptions options;
  options.as = job.processes ? SpawnOptions::As::kProcesses : SpawnOptions::As::kThreads;
  options.transport = job.transport;
  options.timeout = kCallTimeout;
  options.devices = job.devices;
  try {
    spawn(job.ranks, body, options);
  } catch (const std::exception& failure) {
    ADD_FAILURE() << job.ranks << " ranks with a device: " << failure.what();
  }
}

void run_for_device_ranks(const DeviceJob& job,
                          const std::function<void(const std::vector<Communicator*>&)>& calls) {
  std::vector<Communicator*> comms(static_cast<std::size_t>(job.ranks));
  std::atomic<int> here{0};
  std::atomic<bool> is_over{false};
  std::thread ranks([&] {
    run_device_ranks(job, [&](Communicator& comm) {
      comms[static_cast<std::size_t>(comm.rank())] = &comm;
      ++here;
      while (!is_over) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    });
  });
  try {
    require(eventually([&] { return here == job.ranks; }), "not all ranks have joined");
    calls(comms);
  } catch (const std::exception& failure) {
    ADD_FAILURE() << failure.what();
  }
  is_over = true;
  ranks.join();
}

void require(bool holds, const std::string& complaint) {
  if (!holds) throw std::runtime_error(complaint);
}

void run_one(Communicator& comm, CollectiveCase c, DeviceUser& user) {
  c.options.stream = user.stream();
  const std::string wrong = run_case(comm, c, &user.memory());
  require(wrong.empty(), describe(c) + ": " + wrong);
}

}  // namespace unisono::test
