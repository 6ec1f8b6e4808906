// What goes on beside streams that wait: the library's gates rest on copies of the highest priority
// that are not held up by them, and on a driver that returns from what it is asked meanwhile. Every
// case has a process of its own, which is ended where the answer does not come: `held up`.
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bench/gpu/probe.h"
#include "cuda/kernels/kernels.h"
#include "cuda/memory/window.h"

namespace unisono::gpu_probe {
namespace {

constexpr int kReadyMs = 10'000, kAnswerMs = 1000;  // a start may make two contexts
constexpr std::size_t kBytes = std::size_t{1} << 20;
constexpr double kCopiesUs = 200'000;  // how long copies go on beside a thread that frees

/// What a case has before any stream waits.
struct Scene {
  Gpu gpu;
  CUdeviceptr memory = 0;
  void* host = nullptr;
  void* unused = nullptr;  // page-locked too
  void* registered = nullptr;
  // Where the case wants them.
  CUipcMemHandle handle{};   // of another process's memory
  CUdeviceptr imported = 0;  // the same, opened here
  std::unique_ptr<cuda::Kernels> kernels;
  std::unique_ptr<cuda::Window> window;
  std::unique_ptr<cuda::Window> mapped;  // the same memory once more
  UniqueFd descriptor;                   // of the window
  CUstream first = nullptr;              // of the highest priority
  CUstream second = nullptr;             // of the one behind it
  CUstream equal = nullptr;              // of none, as most of those that wait

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
    registered = new_pages();
    gpu.must(gpu->MemHostRegister(registered, kBytes, CU_MEMHOSTREGISTER_PORTABLE), "registering");
  }

  static void* new_pages() { return std::aligned_alloc(4096, kBytes); }
  void load_kernels() {
    auto loaded = cuda::Kernels::load(gpu.api(), gpu.device(), gpu.context());
    if (!loaded) throw std::runtime_error(loaded.error().message());
    kernels = std::move(*loaded);
  }
  void make_window() {
    auto made = cuda::Window::make(*gpu.api(), gpu.device(), "the device", kBytes);
    if (!made) throw std::runtime_error(made.error().message());
    window = std::move(*made);
    auto exported = window->export_descriptor();
    if (!exported) throw std::runtime_error(exported.error().message());
    descriptor = std::move(*exported);
  }
  void open_handle() {
    gpu.must(gpu->IpcOpenMemHandle(&imported, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
             "cuIpcOpenMemHandle");
  }
};

enum class Needs : std::uint8_t { kNothing, kKernels, kHandle, kImport, kWindow };
/// Whether a case that is held up breaks what the library's gates and locks rest on.
enum class Must : bool { kNot, kGoOn };

struct Case {
  const char* name;
  Must must;
  void (*act)(Scene& scene);
  bool beside_raised = false;  // the streams that wait are of the second priority
  Needs needs = Needs::kNothing;
};

/// Out and in.
void copy(Scene& scene, CUstream stream) {
  const CUdeviceptr host = reinterpret_cast<CUdeviceptr>(scene.host) + 64;
  scene.gpu.must(scene.gpu->MemcpyAsync(host, scene.memory, kBytes - 64, stream), "copying");
  scene.gpu.must(scene.gpu->MemcpyAsync(scene.memory, host, kBytes - 64, stream), "copying");
  scene.gpu.finish(stream);
}

void fill(Scene& scene, CUstream stream) {
  scene.gpu.must(scene.gpu->MemsetD8Async(scene.memory, 1, kBytes, stream), "filling");
  scene.gpu.finish(stream);
}

void move_by_kernel(Scene& scene) {
  cuda::DeviceWork work;
  work.pieces[0] = {.count = kBytes / 2, .inputs = 1, .first_output = 1, .outputs = 1};
  work.pointers[0] = reinterpret_cast<void*>(scene.memory);
  work.pointers[1] = reinterpret_cast<void*>(scene.memory + kBytes / 2);
  work.piece_count = 1;
  const Status launched = scene.kernels->launch(scene.second, work, {}, cuda::Runs::kOnce);
  if (!launched) throw std::runtime_error(launched.message());
  scene.gpu.finish(scene.second);
}

/// A thread frees memory, for which it may have to wait, and this one copies meanwhile.
void copy_beside_freeing(Scene& scene) {
  CUdeviceptr more = 0;
  scene.gpu.must(scene.gpu->MemAlloc(&more, kBytes), "allocating");
  std::thread([&scene, more] {
    scene.gpu->CtxPushCurrent(scene.gpu.context());
    scene.gpu->MemFree(more);
  }).detach();
  for (const double end = now_us() + kCopiesUs; now_us() < end;) copy(scene, scene.first);
}

void map_window(Scene& scene) {
  auto mapped = cuda::Window::import(*scene.gpu.api(), scene.gpu.device(), "the device",
                                     std::move(scene.descriptor), scene.window->bytes());
  if (!mapped) throw std::runtime_error(mapped.error().message());
  scene.mapped = std::move(*mapped);
}

void use_event(Scene& scene) {
  CUevent event = scene.gpu.make_event();
  scene.gpu.must(scene.gpu->EventRecord(event, scene.first), "recording");
  while (scene.gpu->EventQuery(event) == CUDA_ERROR_NOT_READY) {
  }
}

/// The library's gates rest on these.
constexpr Case kBesideGates[]{
    {"copy_of_highest_priority", Must::kGoOn, [](Scene& scene) { copy(scene, scene.first); }},
    {"work_of_second_priority", Must::kGoOn, [](Scene& scene) { fill(scene, scene.second); }},
    {"copy_beside_second_priority", Must::kGoOn, [](Scene& scene) { copy(scene, scene.first); },
     true},
};

/// Those that must go on are a hierarchical call's kernels, and what the library asks of the driver
/// while it has the engine's lock. Threads of their own do the rest.
constexpr Case kOthers[]{
    {"kernel_of_second_priority", Must::kGoOn, move_by_kernel, false, Needs::kKernels},
    {"new_event", Must::kGoOn, [](Scene& scene) { static_cast<void>(scene.gpu.make_event()); }},
    {"event", Must::kGoOn, use_event},
    {"new_stream", Must::kGoOn, [](Scene& scene) { static_cast<void>(scene.gpu.make_stream()); }},
    {"opening_a_handle", Must::kGoOn, [](Scene& scene) { scene.open_handle(); }, false,
     Needs::kHandle},
    {"mapping_a_window", Must::kGoOn, map_window, false, Needs::kWindow},
    {"copy_beside_freeing", Must::kNot, copy_beside_freeing},
    {"registering", Must::kNot,
     [](Scene& scene) {
       scene.gpu.must(
           scene.gpu->MemHostRegister(Scene::new_pages(), kBytes, CU_MEMHOSTREGISTER_PORTABLE),
           "registering");
     }},
    {"unregistering", Must::kNot,
     [](Scene& scene) {
       scene.gpu.must(scene.gpu->MemHostUnregister(scene.registered), "unregistering");
     }},
    {"closing_a_handle", Must::kNot,
     [](Scene& scene) {
       scene.gpu.must(scene.gpu->IpcCloseMemHandle(scene.imported), "cuIpcCloseMemHandle");
     },
     false, Needs::kImport},
    {"copy_of_equal_priority", Must::kNot, [](Scene& scene) { copy(scene, scene.equal); }},
    {"memset_of_equal_priority", Must::kNot, [](Scene& scene) { fill(scene, scene.equal); }},
    {"page_locking", Must::kNot,
     [](Scene& scene) {
       void* more = nullptr;
       scene.gpu.must(scene.gpu->MemHostAlloc(&more, kBytes, CU_MEMHOSTALLOC_PORTABLE), "locking");
     }},
    {"allocation", Must::kNot,
     [](Scene& scene) {
       CUdeviceptr more = 0;
       scene.gpu.must(scene.gpu->MemAlloc(&more, kBytes), "allocating");
     }},
    {"freeing", Must::kNot,
     [](Scene& scene) { scene.gpu.must(scene.gpu->MemFree(scene.memory), "freeing"); }},
    {"freeing_page_locked", Must::kNot,
     [](Scene& scene) { scene.gpu.must(scene.gpu->MemFreeHost(scene.unused), "freeing"); }},
};

/// Of memory of another process, which lives as long as this one. Before this one has the driver.
CUipcMemHandle handle_of_another_process() {
  int sockets[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets) != 0) throw std::runtime_error("no sockets");
  const pid_t parent = getpid();
  CUipcMemHandle handle{};
  if (fork() == 0) {
    end_with(parent);
    try {
      const Gpu gpu;
      CUdeviceptr memory = 0;
      gpu.must(gpu->MemAlloc(&memory, kBytes), "allocating");
      gpu.must(gpu->IpcGetMemHandle(&handle, memory), "cuIpcGetMemHandle");
      send_bytes(sockets[1], &handle, sizeof handle);
      for (;;) pause();
    } catch (const std::exception&) {
      _exit(1);
    }
  }
  close(sockets[1]);
  receive_bytes(sockets[0], &handle, sizeof handle);
  return handle;
}

/// In the case's process: `waits` streams wait for a word, then the case is timed. Writes a number
/// when it begins and one when it is done.
[[noreturn]] void run_case(const Case& asked, int waits, int answer_to) {
  CUipcMemHandle handle{};
  if (asked.needs == Needs::kHandle || asked.needs == Needs::kImport) {
    handle = handle_of_another_process();
  }
  Scene scene;
  scene.handle = handle;
  if (asked.needs == Needs::kImport) scene.open_handle();
  if (asked.needs == Needs::kKernels) scene.load_kernels();
  if (asked.needs == Needs::kWindow) scene.make_window();
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

enum class Outcome : std::uint8_t { kWentOn, kHeldUp, kNotBegun };

Outcome ask_case(const Case& asked, int waits) {
  int ends[2];
  if (pipe(ends) != 0) throw std::runtime_error("no pipe");
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child == 0) {
    end_with(parent);
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
    answer(what, began ? "held up" : "not begun");
  }
  return done ? Outcome::kWentOn : began ? Outcome::kHeldUp : Outcome::kNotBegun;
}

/// More than there are hardware queues, and half of these: the library lets so many streams wait.
constexpr int kManyStreams = 16, kFewStreams = 4;

/// Asks all of them beside many streams that wait, and those that were held up beside few. Throws
/// where one of them must go on beside few.
void ask_all(std::span<const Case> cases) {
  std::string held_up, not_begun;
  for (const Case& asked : cases) {
    Outcome outcome = ask_case(asked, kManyStreams);
    if (outcome == Outcome::kHeldUp) outcome = ask_case(asked, kFewStreams);
    if (outcome == Outcome::kWentOn || asked.must == Must::kNot) continue;
    std::string& names = outcome == Outcome::kHeldUp ? held_up : not_begun;
    names += std::string(names.empty() ? "" : ", ") + asked.name;
  }
  std::string words;
  if (!held_up.empty()) words = "does not go on beside streams that wait, as it must: " + held_up;
  if (!not_begun.empty()) {
    words += fmt::format("{}could not be asked, no start within {} s or none at all: {}",
                         words.empty() ? "" : "; ", kReadyMs / 1000, not_begun);
  }
  if (!words.empty()) throw std::runtime_error(words);
}

}  // namespace

void ask_blocked_streams() { ask_all(kBesideGates); }

void ask_beside_waits() { ask_all(kOthers); }

}  // namespace unisono::gpu_probe
