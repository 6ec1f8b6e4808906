// What the driver's own calls cost, from several threads of a context, and what processes that
// share a GPU pay for taking turns on it.
#include <fmt/format.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <barrier>
#include <csignal>
#include <cstdio>
#include <thread>
#include <utility>
#include <vector>

#include "bench/gpu/probe.h"

namespace unisono::gpu_probe {
namespace {

constexpr int kCalls = 1000, kCallsAhead = 250;  // fewer than a hardware queue has room for
constexpr int kTurns = 100, kTurnsAlone = 20;

/// What a thread calls again and again: things of its own.
struct Things {
  explicit Things(const Gpu& of) : gpu(of), stream(of.make_stream()), event(of.make_event()) {
    gpu.must(gpu->MemAlloc(&memory, 4096), "allocating");
    gpu.must(gpu->MemHostAlloc(&host, 4096, CU_MEMHOSTALLOC_DEVICEMAP), "page-locking");
    gpu.must(gpu->EventRecord(event, stream), "recording");
  }
  ~Things() {
    gpu.finish(stream);
    gpu->EventDestroy(event);
    gpu->StreamDestroy(stream);
    gpu->MemFree(memory);
    gpu->MemFreeHost(host);
  }
  Things(const Things&) = delete;

  const Gpu& gpu;
  CUstream stream;
  CUevent event;
  CUdeviceptr memory = 0;
  void* host = nullptr;
};

struct DriverCall {
  const char* name;
  void (*call)(const Things& things);
};

constexpr std::array kDriverCalls{
    DriverCall{
        "cuEventRecord",
        [](const Things& t) { t.gpu.must(t.gpu->EventRecord(t.event, t.stream), "record"); }},
    DriverCall{
        "cuStreamWaitEvent",
        [](const Things& t) { t.gpu.must(t.gpu->StreamWaitEvent(t.stream, t.event, 0), "wait"); }},
    DriverCall{"cuEventQuery",
               [](const Things& t) { static_cast<void>(t.gpu->EventQuery(t.event)); }},
    DriverCall{"cuMemsetD8Async",
               [](const Things& t) {
                 t.gpu.must(t.gpu->MemsetD8Async(t.memory, 1, 4096, t.stream), "filling");
               }},
    DriverCall{"cuStreamBatchMemOp",
               [](const Things& t) {
                 batch(t.gpu, t.stream, {write_value(reinterpret_cast<CUdeviceptr>(t.host), 1)});
               }},
    DriverCall{"cuCtxPushCurrent_and_PopCurrent",
               [](const Things& t) {
                 CUcontext popped = nullptr;
                 t.gpu->CtxPushCurrent(t.gpu.context());
                 t.gpu->CtxPopCurrent(&popped);
               }},
    DriverCall{"cuPointerGetAttributes",
               [](const Things& t) {
                 unsigned type = 0;
                 CUpointer_attribute asked = CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
                 void* answers = &type;
                 t.gpu->PointerGetAttributes(1, &asked, &answers, t.memory);
               }},
};

double time_calls(const DriverCall& asked, const Things& things) {
  double took = 0;
  for (int done = 0; done < kCalls; done += kCallsAhead) {
    const double start = now_us();
    for (int i = 0; i < kCallsAhead; ++i) asked.call(things);
    took += now_us() - start;
    things.gpu.finish(things.stream);
  }
  return took / kCalls;
}

void ask_with_threads(const Gpu& gpu, int count) {
  std::barrier begin(count);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < count; ++thread) {
    threads.emplace_back([&, thread] {
      gpu->CtxPushCurrent(gpu.context());
      const Things things(gpu);
      for (const DriverCall& asked : kDriverCalls) {
        begin.arrive_and_wait();
        const double us = time_calls(asked, things);
        if (thread == 0) answer(fmt::format("{}_of_{}_threads_us", asked.name, count), us);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

/// What each process does in its stream in a round, beside waiting for the others by words.
struct Round {
  const char* name;
  bool records = false, times = false, fills = false;
};
constexpr std::array kRoundsAsked{Round{"words"}, Round{"events", true},
                                  Round{"timing_events", false, true},
                                  Round{"memsets", false, false, true}};
constexpr int kDoneWord = 32, kArrivedWord = 33;

class Taker {
 public:
  Taker(const SharedPage& shared, int me, int processes)
      : shared_(shared),
        me_(me),
        processes_(processes),
        page_(shared.open(gpu_)),
        event_(gpu_.make_event()) {
    gpu_.must(gpu_->EventCreate(&timing_, CU_EVENT_DEFAULT), "making an event");
    gpu_.must(gpu_->MemAlloc(&memory_, 4096), "allocating");
  }

  void ask(const Round& asked) {
    meet_others();
    double start = now_us();
    for (int i = 0; i < kTurns; ++i) enqueue(asked);
    gpu_.finish(gpu_.stream());
    tell(asked, "one_behind_the_other", (now_us() - start) / kTurns);
    meet_others();
    start = now_us();
    for (int i = 0; i < kTurnsAlone; ++i) {
      enqueue(asked);
      gpu_.finish(gpu_.stream());
    }
    tell(asked, "alone", (now_us() - start) / kTurnsAlone);
  }
  void meet_others() {
    auto* const arrived = reinterpret_cast<std::uint32_t*>(static_cast<std::byte*>(shared_.data()) +
                                                           64 * kArrivedWord);
    const std::atomic_ref<std::uint32_t> count(*arrived);
    ++count;
    ++meetings_;
    while (count < static_cast<std::uint32_t>(processes_ * meetings_)) sched_yield();
  }

 private:
  void enqueue(const Round& asked) {
    ++round_;
    if (asked.fills) gpu_.must(gpu_->MemsetD8Async(memory_, 1, 4096, gpu_.stream()), "filling");
    if (asked.records) gpu_.must(gpu_->EventRecord(event_, gpu_.stream()), "recording");
    if (asked.times) gpu_.must(gpu_->EventRecord(timing_, gpu_.stream()), "recording");
    std::vector<CUstreamBatchMemOpParams> operations{write_value(word(page_, me_), round_)};
    if (me_ == 0) {
      for (int other = 1; other < processes_; ++other) {
        operations.push_back(wait_value(word(page_, other), round_));
      }
      operations.push_back(write_value(word(page_, kDoneWord), round_));
    } else {
      operations.push_back(wait_value(word(page_, kDoneWord), round_));
    }
    batch(gpu_, gpu_.stream(), operations);
  }
  void tell(const Round& asked, const char* how, double us) const {
    if (me_ == 0) answer(fmt::format("{}_of_{}_processes_{}_us", asked.name, processes_, how), us);
  }

  const Gpu gpu_;
  const SharedPage& shared_;
  const int me_;
  const int processes_;
  const CUdeviceptr page_;
  CUevent event_;
  CUevent timing_ = nullptr;
  CUdeviceptr memory_ = 0;
  std::uint32_t round_ = 0;
  int meetings_ = 0;
};

/// Ends the process where it stands: streams of the others may still write into its page.
[[noreturn]] void take_turns(const SharedPage& shared, int me, int processes) {
  try {
    Taker taker(shared, me, processes);
    for (const Round& asked : kRoundsAsked) taker.ask(asked);
    taker.meet_others();
    std::fflush(stdout);
    _exit(0);
  } catch (const std::exception& error) {
    answer("failed", error.what());
    std::fflush(stdout);
    _exit(1);
  }
}

void ask_with_processes(int count) {
  const SharedPage shared;
  const pid_t parent = getpid();
  std::vector<pid_t> children;
  std::fflush(stdout);
  for (int me = 0; me < count; ++me) {
    const pid_t child = fork();
    if (child == 0) {
      end_with(parent);
      take_turns(shared, me, count);
    }
    children.push_back(child);
  }
  bool failed = false;
  // Whoever ends first: the others would wait for one that has failed.
  for (std::size_t ended = 0; ended < children.size(); ++ended) {
    int status = 0;
    waitpid(-1, &status, 0);
    if (status == 0 || std::exchange(failed, true)) continue;
    for (const pid_t child : children) kill(child, SIGKILL);
  }
  if (failed) throw std::runtime_error(fmt::format("{} processes did not come to an end", count));
}

}  // namespace

void ask_call_costs() {
  const Gpu gpu;
  for (const int count : {1, 2, 4, 8}) ask_with_threads(gpu, count);
}

void ask_turns() {
  for (const int count : {2, 4, 8}) ask_with_processes(count);
}

}  // namespace unisono::gpu_probe
