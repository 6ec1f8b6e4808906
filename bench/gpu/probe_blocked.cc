// What goes on beside streams that wait: the library's gates rest on copies of the highest priority
// that are not held up by them, and on a driver that returns from what it is asked meanwhile. Every
// case has a process of its own, which is ended where the answer does not come.
#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <vector>

#include "bench/gpu/probe.h"

namespace unisono::gpu_probe {
namespace {

constexpr int kReadyMs = 3000, kAnswerMs = 1000;
constexpr std::size_t kBytes = std::size_t{1} << 20;

/// What a case has before any stream waits.
struct Scene {
  Gpu gpu;
  CUdeviceptr memory = 0;
  void* host = nullptr;
  void* unused = nullptr;     // page-locked too
  CUstream first = nullptr;   // of the highest priority
  CUstream second = nullptr;  // of the one behind it
  CUstream equal = nullptr;   // of none, as most of those that wait

  Scene() {
    gpu.must(gpu->MemAlloc(&memory, kBytes), "allocating");
    gpu.must(gpu->MemHostAlloc(&host, kBytes, CU_MEMHOSTALLOC_DEVICEMAP), "page-locking");
    gpu.must(gpu->MemHostAlloc(&unused, kBytes, CU_MEMHOSTALLOC_PORTABLE), "page-locking");
    gpu.must(
        gpu->StreamCreateWithPriority(&first, CU_STREAM_NON_BLOCKING, cuda::kHighestStreamPriority),
        "making a stream");
    int highest = 0;
    gpu.must(gpu->StreamGetPriority(first, &highest), "asking for a priority");
    gpu.must(gpu->StreamCreateWithPriority(&second, CU_STREAM_NON_BLOCKING, highest + 1),
             "making a stream");
    equal = gpu.make_stream();
  }
};

struct Case {
  const char* name;
  void (*act)(Scene& scene);
  bool is_needed = false;      // the library's gates rest on it
  bool beside_raised = false;  // the streams that wait are of the second priority
};

void copy(Scene& scene, CUstream stream) {
  const auto host = reinterpret_cast<CUdeviceptr>(scene.host);
  scene.gpu.must(scene.gpu->MemcpyAsync(host + 64, scene.memory, kBytes - 64, stream), "copying");
  scene.gpu.finish(stream);
}

void fill(Scene& scene, CUstream stream) {
  scene.gpu.must(scene.gpu->MemsetD8Async(scene.memory, 1, kBytes, stream), "filling");
  scene.gpu.finish(stream);
}

constexpr Case kCases[]{
    {"copy_of_highest_priority", [](Scene& scene) { copy(scene, scene.first); }, true},
    {"work_of_second_priority", [](Scene& scene) { fill(scene, scene.second); }, true},
    {"copy_beside_second_priority", [](Scene& scene) { copy(scene, scene.first); }, true, true},
    {"copy_of_equal_priority", [](Scene& scene) { copy(scene, scene.equal); }},
    {"memset_of_equal_priority", [](Scene& scene) { fill(scene, scene.equal); }},
    {"event",
     [](Scene& scene) {
       CUevent event = scene.gpu.make_event();
       scene.gpu.must(scene.gpu->EventRecord(event, scene.first), "recording");
       while (scene.gpu->EventQuery(event) == CUDA_ERROR_NOT_READY) {
       }
     }},
    {"page_locking",
     [](Scene& scene) {
       void* more = nullptr;
       scene.gpu.must(scene.gpu->MemHostAlloc(&more, kBytes, CU_MEMHOSTALLOC_PORTABLE), "locking");
     }},
    {"allocation",
     [](Scene& scene) {
       CUdeviceptr more = 0;
       scene.gpu.must(scene.gpu->MemAlloc(&more, kBytes), "allocating");
     }},
    {"freeing", [](Scene& scene) { scene.gpu.must(scene.gpu->MemFree(scene.memory), "freeing"); }},
    {"freeing_page_locked",
     [](Scene& scene) { scene.gpu.must(scene.gpu->MemFreeHost(scene.unused), "freeing"); }},
    {"new_stream", [](Scene& scene) { static_cast<void>(scene.gpu.make_stream()); }},
};

/// In the case's process: `waits` streams wait for a word, then the case is timed. Writes a number
/// when it begins and one when it is done.
[[noreturn]] void run_case(const Case& asked, int waits, int answer_to) {
  Scene scene;
  std::vector<CUstream> streams;
  int priority = 0;
  if (asked.beside_raised) scene.gpu->StreamGetPriority(scene.second, &priority);
  for (int i = 0; i < waits; ++i) {
    scene.gpu.must(scene.gpu->StreamCreateWithPriority(&streams.emplace_back(),
                                                       CU_STREAM_NON_BLOCKING, priority),
                   "making a stream");
  }
  new (scene.host) std::uint32_t(0);
  for (CUstream stream : streams) {
    batch(scene.gpu, stream, {wait_value(reinterpret_cast<CUdeviceptr>(scene.host), 1)});
  }
  const double start = now_us();
  static_cast<void>(!write(answer_to, &start, sizeof start));
  asked.act(scene);
  const double took = now_us() - start;
  static_cast<void>(!write(answer_to, &took, sizeof took));
  _exit(0);  // the streams wait on
}

/// False where the answer does not come.
bool ask_case(const Case& asked, int waits) {
  int ends[2];
  if (pipe(ends) != 0) throw std::runtime_error("no pipe");
  const pid_t child = fork();
  if (child == 0) {
    try {
      run_case(asked, waits, ends[1]);
    } catch (const std::exception&) {
      _exit(1);
    }
  }
  close(ends[1]);
  double took = 0;
  const auto hear = [&](int limit_ms) {
    pollfd entry{ends[0], POLLIN, 0};
    return poll(&entry, 1, limit_ms) > 0 && read(ends[0], &took, sizeof took) == sizeof took;
  };
  const bool began = hear(kReadyMs);
  const bool done = began && hear(kAnswerMs);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  close(ends[0]);
  const std::string what = fmt::format("{}_beside_{}_us", asked.name, waits);
  if (done) {
    answer(what, took);
  } else {
    answer(what, began ? "held up" : "failed");
  }
  return done;
}

}  // namespace

void ask_blocked_streams() {
  bool gates_are_safe = true;
  for (const int waits : {1, 16}) {
    for (const Case& asked : kCases) {
      const bool answered = ask_case(asked, waits);
      if (asked.is_needed) gates_are_safe = gates_are_safe && answered;
    }
  }
  if (!gates_are_safe) {
    throw std::runtime_error(
        "streams that wait hold up copies or work of higher priority: so would gates");
  }
}

}  // namespace unisono::gpu_probe
