// What two processes ask of the driver: that streams wait for each other's words, without which
// rows of processes would hang, and what it makes of memory at the place of freed memory.
#include <fmt/format.h>

#include "bench/gpu/probe.h"

namespace unisono::gpu_probe {
namespace {

constexpr int kRoundTrips = 500;
constexpr std::size_t kBytes = std::size_t{32} << 20;  // no part of a block of the driver's

/// Both processes at once: {write mine, wait for the other's}, again and again.
void meet_again_and_again(int socket, const SharedPage& shared, int me) {
  const Gpu gpu;
  const CUdeviceptr page = shared.open(gpu);
  const auto meet = [&](std::uint32_t round) {
    batch(gpu, gpu.stream(),
          {write_value(word(page, me), round), wait_value(word(page, 1 - me), round)});
  };
  char ready = 0;
  meet(1);
  gpu.finish(gpu.stream());
  send_bytes(socket, "r", 1);
  receive_bytes(socket, &ready, 1);
  const double start = now_us();
  for (std::uint32_t round = 2; round < kRoundTrips + 2; ++round) meet(round);
  gpu.finish(gpu.stream());
  if (me == 0) answer("two_processes_meet_us", (now_us() - start) / kRoundTrips);
  shared.close(gpu);
}

CUdeviceptr offer(const Gpu& gpu, int socket) {
  CUdeviceptr memory = 0;
  CUipcMemHandle handle{};
  gpu.must(gpu->MemAlloc(&memory, kBytes), "allocating");
  gpu.must(gpu->IpcGetMemHandle(&handle, memory), "cuIpcGetMemHandle");
  send_bytes(socket, &handle, sizeof handle);
  return memory;
}

void free_and_allocate_again(int socket) {
  const Gpu gpu;
  char done = 0;
  const CUdeviceptr first = offer(gpu, socket);
  receive_bytes(socket, &done, 1);
  gpu.must(gpu->MemFree(first), "freeing");
  const CUdeviceptr second = offer(gpu, socket);
  answer("address_after_freeing", second == first ? "the same" : "another one");
  receive_bytes(socket, &done, 1);
  gpu.must(gpu->MemFree(second), "freeing");
}

void open_beside_freed_one(int socket) {
  const Gpu gpu;
  const auto open = [&](const CUipcMemHandle& handle, CUdeviceptr* memory) {
    return gpu->IpcOpenMemHandle(memory, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
  };
  CUipcMemHandle handle{};
  CUdeviceptr freed = 0, memory = 0;
  receive_bytes(socket, &handle, sizeof handle);
  gpu.must(open(handle, &freed), "cuIpcOpenMemHandle");
  send_bytes(socket, "o", 1);
  receive_bytes(socket, &handle, sizeof handle);
  const CUresult beside = open(handle, &memory);
  answer("opened_beside_freed_one",
         beside == CUDA_SUCCESS ? "works" : fmt::format("error {}", static_cast<int>(beside)));
  if (beside == CUDA_SUCCESS) gpu.must(gpu->IpcCloseMemHandle(memory), "cuIpcCloseMemHandle");
  gpu.must(gpu->IpcCloseMemHandle(freed), "closing the handle of freed memory");
  gpu.must(open(handle, &memory), "opening the handle behind that");
  gpu.must(gpu->IpcCloseMemHandle(memory), "cuIpcCloseMemHandle");
  answer("opened_behind_freed_one", "works");
  send_bytes(socket, "d", 1);
}

}  // namespace

void ask_memory_operations() {
  const SharedPage shared;
  run_two([&](int socket) { meet_again_and_again(socket, shared, 0); },
          [&](int socket) { meet_again_and_again(socket, shared, 1); });
}

void ask_freed_handle() { run_two(free_and_allocate_again, open_beside_freed_one); }

}  // namespace unisono::gpu_probe
