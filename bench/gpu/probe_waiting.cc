// What waiting costs: two processes whose streams wait for each other's words, streams of one
// process that meet through events, and the same in a graph.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "bench/gpu/probe.h"

namespace unisono::gpu_probe {
namespace {

constexpr int kRoundTrips = 500, kRounds = 200, kReplays = 1000;

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
  // One at a time, with the host waiting in between, as a single call does.
  const double alone = now_us();
  for (std::uint32_t round = 0; round < kRoundTrips / 5; ++round) {
    meet(kRoundTrips + 2 + round);
    gpu.finish(gpu.stream());
  }
  if (me == 0)
    answer("two_processes_meet_and_host_waits_us", (now_us() - alone) / (kRoundTrips / 5));
  shared.close(gpu);
}

/// k streams whose work meets in one and goes on from there: what one call of k ranks costs.
class Fork {
 public:
  Fork(const Gpu& gpu, int ranks) : gpu_(gpu), done_(gpu.make_event()), center_(gpu.make_stream()) {
    gpu.must(gpu->MemAlloc(&word_, 4096), "allocating");
    for (int r = 0; r < ranks; ++r) {
      streams_.push_back(gpu.make_stream());
      ready_.push_back(gpu.make_event());
    }
  }
  ~Fork() {
    for (CUstream stream : streams_) gpu_->StreamDestroy(stream);
    for (CUevent event : ready_) gpu_->EventDestroy(event);
    gpu_->EventDestroy(done_);
    gpu_->StreamDestroy(center_);
    gpu_->MemFree(word_);
  }
  Fork(const Fork&) = delete;

  void round() const {
    for (std::size_t r = 0; r < streams_.size(); ++r) {
      gpu_.must(gpu_->EventRecord(ready_[r], streams_[r]), "recording");
      gpu_.must(gpu_->StreamWaitEvent(center_, ready_[r], 0), "waiting");
    }
    gpu_.must(gpu_->MemsetD8Async(word_, 1, 4096, center_), "filling");
    gpu_.must(gpu_->EventRecord(done_, center_), "recording");
    for (CUstream stream : streams_) gpu_.must(gpu_->StreamWaitEvent(stream, done_, 0), "waiting");
  }
  void finish() const {
    for (CUstream stream : streams_) gpu_.finish(stream);
  }
  CUstream first() const { return streams_.front(); }
  /// The other streams become part of what is captured on the first one, and end in it.
  void captured_round() const {
    gpu_.must(gpu_->EventRecord(ready_[0], streams_[0]), "recording");
    for (std::size_t r = 1; r < streams_.size(); ++r) {
      gpu_.must(gpu_->StreamWaitEvent(streams_[r], ready_[0], 0), "waiting");
    }
    round();
    for (std::size_t r = 1; r < streams_.size(); ++r) {
      gpu_.must(gpu_->EventRecord(ready_[r], streams_[r]), "recording");
      gpu_.must(gpu_->StreamWaitEvent(streams_[0], ready_[r], 0), "waiting");
    }
  }

 private:
  const Gpu& gpu_;
  CUevent done_;
  CUstream center_;
  CUdeviceptr word_ = 0;
  std::vector<CUstream> streams_;
  std::vector<CUevent> ready_;
};

/// The driver's functions for graphs; the library itself captures only into graphs of its users.
class Graph {
 public:
  explicit Graph(const Gpu& gpu)
      : gpu_(gpu),
        begin_(gpu.find<decltype(&cuStreamBeginCapture)>("cuStreamBeginCapture")),
        end_(gpu.find<decltype(&cuStreamEndCapture)>("cuStreamEndCapture")),
        instantiate_(
            gpu.find<decltype(&cuGraphInstantiateWithFlags)>("cuGraphInstantiateWithFlags")),
        launch_(gpu.find<decltype(&cuGraphLaunch)>("cuGraphLaunch")),
        destroy_(gpu.find<decltype(&cuGraphDestroy)>("cuGraphDestroy")),
        destroy_exec_(gpu.find<decltype(&cuGraphExecDestroy)>("cuGraphExecDestroy")) {}
  ~Graph() {
    if (exec_ != nullptr) destroy_exec_(exec_);
  }
  Graph(const Graph&) = delete;

  template <typename Body>
  void capture(CUstream stream, const Body& body) {
    gpu_.must(begin_(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), "beginning a capture");
    CUgraph graph = nullptr;
    try {
      body();
    } catch (...) {
      end_(stream, &graph);
      throw;
    }
    gpu_.must(end_(stream, &graph), "ending a capture");
    gpu_.must(instantiate_(&exec_, graph, 0), "instantiating a graph");
    gpu_.must(destroy_(graph), "destroying a graph");
  }

  /// The time of one of many replays.
  double replay_us(CUstream stream) const {
    gpu_.must(launch_(exec_, stream), "launching a graph");
    gpu_.finish(stream);
    const double start = now_us();
    for (int i = 0; i < kReplays; ++i) gpu_.must(launch_(exec_, stream), "launching a graph");
    gpu_.finish(stream);
    return (now_us() - start) / kReplays;
  }

 private:
  const Gpu& gpu_;
  decltype(&cuStreamBeginCapture) begin_;
  decltype(&cuStreamEndCapture) end_;
  decltype(&cuGraphInstantiateWithFlags) instantiate_;
  decltype(&cuGraphLaunch) launch_;
  decltype(&cuGraphDestroy) destroy_;
  decltype(&cuGraphExecDestroy) destroy_exec_;
  CUgraphExec exec_ = nullptr;
};

/// Constant values and a reset at the end, so that every replay finds the words as the first did.
void replay_memory_operations(const Gpu& gpu, const SharedPage& shared) {
  const CUdeviceptr page = shared.open(gpu);
  Graph graph(gpu);
  graph.capture(gpu.stream(), [&] {
    batch(gpu, gpu.stream(), {write_value(word(page, 0), 1), wait_value(word(page, 0), 1)});
    batch(gpu, gpu.stream(), {write_value(word(page, 0), 0)});
  });
  answer("memory_operations_replay_us", graph.replay_us(gpu.stream()));
  shared.close(gpu);
}

}  // namespace

void ask_memory_operations() {
  const SharedPage shared;
  run_two([&](int socket) { meet_again_and_again(socket, shared, 0); },
          [&](int socket) { meet_again_and_again(socket, shared, 1); });
}

void ask_fork_and_join() {
  const Gpu gpu;
  for (const int ranks : {2, 4, 8}) {
    const Fork fork(gpu, ranks);
    fork.round();
    fork.finish();
    const double start = now_us();
    for (int i = 0; i < kRounds; ++i) fork.round();
    const double enqueued = now_us();
    fork.finish();
    answer(fmt::format("enqueue_{}_us", ranks), (enqueued - start) / kRounds);
    answer(fmt::format("back_to_back_{}_us", ranks), (now_us() - start) / kRounds);
    const double alone = now_us();
    for (int i = 0; i < kRounds; ++i) {
      fork.round();
      fork.finish();
    }
    answer(fmt::format("alone_{}_us", ranks), (now_us() - alone) / kRounds);
  }
}

void ask_graphs() {
  const SharedPage shared;
  const Gpu gpu;
  for (const int ranks : {2, 4, 8}) {
    const Fork fork(gpu, ranks);
    Graph graph(gpu);
    graph.capture(fork.first(), [&] { fork.captured_round(); });
    answer(fmt::format("fork_and_join_{}_replay_us", ranks), graph.replay_us(fork.first()));
  }
  replay_memory_operations(gpu, shared);
}

}  // namespace unisono::gpu_probe
