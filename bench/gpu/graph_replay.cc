// One all_reduce of ranks that are threads, captured into a graph and replayed many times: is the
// result right, and what does a replay cost?
//
//   gpu_graph RANKS REPLAYS [BYTES]     JSON lines on standard output
#include <fmt/format.h>

#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <utility>
#include <vector>

#include "bench/gpu/probe.h"
#include "unisono/unisono.hpp"

namespace unisono::gpu_probe {
namespace {

/// The ranks' streams become part of what is captured on rank 0's, and end in it.
class Capture {
 public:
  explicit Capture(int ranks) : step_(ranks), events_(static_cast<std::size_t>(ranks)) {}

  template <typename Body>
  CUgraph run(const Gpu& gpu, Rank rank, const Body& body) {
    CUevent& mine = events_[static_cast<std::size_t>(rank)];
    mine = gpu.make_event();
    CUevent fork = gpu.make_event();
    if (rank == 0) {
      const auto begin = gpu.find<decltype(&cuStreamBeginCapture)>("cuStreamBeginCapture");
      gpu.must(begin(gpu.stream(), CU_STREAM_CAPTURE_MODE_RELAXED), "beginning a capture");
      gpu.must(gpu->EventRecord(fork, gpu.stream()), "recording");
      fork_ = fork;
    }
    meet();
    if (rank != 0) gpu.must(gpu->StreamWaitEvent(gpu.stream(), fork_, 0), "joining the capture");
    meet();
    body();
    if (rank != 0) gpu.must(gpu->EventRecord(mine, gpu.stream()), "recording");
    meet();
    CUgraph graph = nullptr;
    if (rank == 0) {
      for (std::size_t r = 1; r < events_.size(); ++r) {
        gpu.must(gpu->StreamWaitEvent(gpu.stream(), events_[r], 0), "leaving the capture");
      }
      const auto end = gpu.find<decltype(&cuStreamEndCapture)>("cuStreamEndCapture");
      gpu.must(end(gpu.stream(), &graph), "ending a capture");
    }
    meet();
    gpu->EventDestroy(mine);
    gpu->EventDestroy(fork);
    return graph;
  }
  /// Until all ranks are here. Throws what the first of those that have left failed with: what a
  /// rank does without them fails too, and would be told in place of the cause.
  void meet() {
    step_.arrive_and_wait();
    const std::scoped_lock lock(mutex_);
    if (failure_) std::rethrow_exception(failure_);
  }
  /// Of a rank that has failed: the others wait for it no more.
  void leave(std::exception_ptr failure) {
    {
      const std::scoped_lock lock(mutex_);
      if (!failure_) failure_ = std::move(failure);
    }
    step_.arrive_and_drop();
  }

 private:
  std::barrier<> step_;
  std::mutex mutex_;
  std::exception_ptr failure_;
  std::vector<CUevent> events_;
  CUevent fork_ = nullptr;
};

/// The time of one of `replays`.
double replay(const Gpu& gpu, CUgraph graph, int replays) {
  CUgraphExec executable = nullptr;
  const auto instantiate =
      gpu.find<decltype(&cuGraphInstantiateWithFlags)>("cuGraphInstantiateWithFlags");
  const auto launch = gpu.find<decltype(&cuGraphLaunch)>("cuGraphLaunch");
  gpu.must(instantiate(&executable, graph, 0), "instantiating");
  gpu.must(launch(executable, gpu.stream()), "launching a graph");
  gpu.finish(gpu.stream());
  const double start = now_us();
  for (int i = 0; i < replays; ++i) gpu.must(launch(executable, gpu.stream()), "launching a graph");
  gpu.finish(gpu.stream());
  const double us = (now_us() - start) / replays;
  gpu.find<decltype(&cuGraphExecDestroy)>("cuGraphExecDestroy")(executable);
  gpu.find<decltype(&cuGraphDestroy)>("cuGraphDestroy")(graph);
  return us;
}

CUdeviceptr address(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

std::size_t count_wrong(const Gpu& gpu, const std::int32_t* out, std::size_t count,
                        std::int32_t expected) {
  std::vector<std::int32_t> found(count);
  gpu.must(
      gpu->MemcpyAsync(address(found.data()), address(out), count * sizeof expected, gpu.stream()),
      "copying from the device");
  gpu.finish(gpu.stream());
  std::size_t wrong = 0;
  for (const std::int32_t value : found) wrong += value != expected;
  return wrong;
}

void run_rank(Communicator& communicator, Capture& capture, int replays, std::size_t bytes) {
  const Gpu gpu;
  const std::size_t count = bytes / sizeof(std::int32_t);
  const int ranks = communicator.size();
  auto* const in = static_cast<std::int32_t*>(allocate(communicator, bytes, MemoryKind::kCuda));
  auto* const out = static_cast<std::int32_t*>(allocate(communicator, bytes, MemoryKind::kCuda));
  const std::vector<std::int32_t> mine(count, communicator.rank() + 1);
  gpu.must(gpu->MemcpyAsync(address(in), address(mine.data()), bytes, gpu.stream()), "copying");
  gpu.must(gpu->MemsetD8Async(address(out), 0xff, bytes, gpu.stream()), "filling");
  gpu.finish(gpu.stream());
  const CUgraph graph = capture.run(gpu, communicator.rank(), [&] {
    communicator.all_reduce(in, out, count, DataType::kInt32, ops::sum, {.stream = gpu.stream()});
  });
  double us = 0;
  if (communicator.rank() == 0) us = replay(gpu, graph, replays);
  capture.meet();
  std::vector<std::uint64_t> wrong{count_wrong(gpu, out, count, ranks * (ranks + 1) / 2)};
  communicator.all_reduce(wrong, ops::sum);
  if (communicator.rank() == 0) {
    fmt::print("{{\"ranks\":{},\"bytes\":{},\"replays\":{},\"replay_us\":{:.3f},\"wrong\":{}}}\n",
               ranks, bytes, replays, us, wrong[0]);
  }
  release(communicator, in);
  release(communicator, out);
  if (wrong[0] != 0) throw std::runtime_error("the replays' result is wrong");
}

}  // namespace
}  // namespace unisono::gpu_probe

int main(int argc, char** argv) {
  using namespace unisono;
  const int ranks = argc > 2 ? std::atoi(argv[1]) : 0;
  const int replays = argc > 2 ? std::atoi(argv[2]) : 0;
  const std::size_t bytes = argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 64 << 10;
  if (ranks < 1 || ranks > 64 || replays < 1 || bytes < 4) {
    fmt::print(stderr, "usage: gpu_graph RANKS REPLAYS [BYTES]\n");
    return 2;
  }
  try {
    gpu_probe::Capture capture(ranks);
    SpawnOptions options;
    options.devices = {0};
    options.timeout = std::chrono::seconds(30);
    const auto body = [&](Communicator& communicator) {
      try {
        gpu_probe::run_rank(communicator, capture, replays, bytes);
      } catch (...) {
        capture.leave(std::current_exception());
        throw;
      }
    };
    spawn(ranks, body, options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "gpu_graph: {}\n", error.what());
    return 1;
  }
  return 0;
}
