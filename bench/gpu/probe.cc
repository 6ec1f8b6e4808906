// Asks a machine's driver what the library's design rests on: run.sh runs it first.
//
//   gpu_probe [QUESTION ...]     all of them without an argument
//   gpu_probe devices            how many the driver has; status 1 and why, where there is none,
//                                and 3 and why, where the first one cannot load the kernels
//   gpu_probe hold PARENT        keeps a context alive, and with it the driver ready, until it is
//                                told to end or the process PARENT, which started it, has ended
#include "bench/gpu/probe.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <exception>
#include <string>

#include "cuda/driver/survey.h"
#include "cuda/kernels/kernels.h"

namespace unisono::gpu_probe {
namespace {

struct Question {
  const char* name;
  void (*ask)();
};

constexpr std::array kQuestions{
    Question{"attributes", ask_attributes},
    Question{"memory_operations", ask_memory_operations},
    Question{"freed_handle", ask_freed_handle},
};
constexpr unsigned kSecondsMax = 30;  // a stream that waits for ever is an answer too

/// In a child: what breaks one question's context leaves the others alone.
bool run_question(const Question& question) {
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    alarm(kSecondsMax);
    set_question(question.name);
    int status = 0;
    try {
      question.ask();
    } catch (const std::exception& error) {
      answer("failed", error.what());
      status = 1;
    }
    std::fflush(stdout);
    _exit(status);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) {
    set_question(question.name);
    answer("failed", WTERMSIG(status) == SIGALRM
                         ? fmt::format("no answer within {} s", kSecondsMax)
                         : fmt::format("ended by signal {}", WTERMSIG(status)));
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

int count_devices() {
  const auto survey = cuda::survey_devices("auto", driver_file());
  if (!survey) {
    fmt::print("{}\n", survey.error().message());
    return 1;
  }
  if (survey->devices.empty()) {
    fmt::print("the driver has no device; see CUDA_VISIBLE_DEVICES\n");
    return 1;
  }
  try {
    const Gpu gpu;
    const auto kernels = cuda::Kernels::load(gpu.api(), gpu.device(), gpu.context());
    if (!kernels) throw std::runtime_error(kernels.error().message());
  } catch (const std::exception& error) {
    fmt::print("{}\n", error.what());
    return 3;
  }
  fmt::print("{}\n", survey->devices.size());
  return 0;
}

int hold_context(std::string_view parent) {
  // No run of the script that was killed may leave a context behind, before the request either.
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (std::to_string(getppid()) != parent) return 0;
  try {
    const Gpu gpu;
    int mode = CU_COMPUTEMODE_DEFAULT;
    gpu->DeviceGetAttribute(&mode, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, gpu.device());
    if (mode != CU_COMPUTEMODE_DEFAULT) {
      fmt::print("the device is one process's alone: its context is not held\n");
      return 0;
    }
    fmt::print("held\n");
    std::fflush(stdout);
    for (;;) pause();
  } catch (const std::exception& error) {
    fmt::print(stderr, "gpu_probe: {}\n", error.what());
    return 1;
  }
}

}  // namespace

void ask_attributes() {
  const Gpu gpu;
  std::array<char, 256> name{};
  gpu.must(gpu->DeviceGetName(name.data(), name.size() - 1, gpu.device()), "the name");
  answer("name", name.data());
  answer("driver_version", gpu->version);
  std::size_t bytes = 0;
  gpu.must(gpu->DeviceTotalMem(&bytes, gpu.device()), "the size of memory");
  answer("memory_bytes", static_cast<double>(bytes));
  int least = 0;
  int greatest = 0;
  const auto range = gpu.find<CUresult (*)(int*, int*)>("cuCtxGetStreamPriorityRange");
  gpu.must(range(&least, &greatest), "the range of priorities");
  answer("stream_priority_least", least);
  answer("stream_priority_greatest", greatest);
  struct Asked {
    const char* what;
    int attribute;
  };
  // By number where headers before 13.0 lack the name.
  constexpr int kMpsEnabled = 133, kMulticast = 132;
  for (const Asked& asked : std::initializer_list<Asked>{
           {"capability_major", CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR},
           {"capability_minor", CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR},
           {"multiprocessors", CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT},
           {"l2_bytes", CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE},
           {"compute_mode", CU_DEVICE_ATTRIBUTE_COMPUTE_MODE},
           {"copy_engines", CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT},
           {"mps_enabled", kMpsEnabled},
           {"multicast_supported", kMulticast},
           {"vmm_supported", CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED},
           {"posix_fd_supported", CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED},
           {"ipc_event_supported", CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED},
           {"dma_buf_supported", CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED},
           {"gpu_direct_rdma_supported", CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED},
           {"memops_64_bit", CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS},
           {"memops_flush_remote", CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES},
           {"registered_host_pointer_usable",
            CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM},
           {"pageable_memory_access", CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS}}) {
    int value = -1;
    const auto attribute = static_cast<CUdevice_attribute>(asked.attribute);
    if (gpu->DeviceGetAttribute(&value, attribute, gpu.device()) == CUDA_SUCCESS) {
      answer(asked.what, value);
    } else {
      answer(asked.what, "the driver does not know it");
    }
  }
}

}  // namespace unisono::gpu_probe

int main(int argc, char** argv) {
  using namespace unisono::gpu_probe;
  const std::string_view first = argc >= 2 ? argv[1] : "";
  if (first == "devices" && argc == 2) return count_devices();
  if (first == "hold" && argc == 3) return hold_context(argv[2]);
  int failed = 0, asked = 0;
  for (const Question& question : kQuestions) {
    bool is_wanted = argc < 2;
    for (int i = 1; i < argc; ++i) is_wanted |= std::string_view(argv[i]) == question.name;
    if (!is_wanted) continue;
    ++asked;
    if (!run_question(question)) ++failed;
  }
  if (asked == 0) {
    std::string names;
    for (const Question& question : kQuestions) names += fmt::format(" {}", question.name);
    fmt::print(stderr, "gpu_probe: the questions are:{}\n", names);
    return 2;
  }
  return failed == 0 ? 0 : 1;
}
