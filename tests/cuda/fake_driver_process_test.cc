// Processes over fake devices: memory opened through legacy IPC and through descriptors, words that
// streams of two processes wait for, and kernels that take turns.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <thread>

#include "base/memfd.h"
#include "tests/cuda/fake_driver_fixture.h"

namespace unisono::test {
namespace {

using testing::HasSubstr;
using Words = std::vector<std::uint32_t>;

std::string hex_of(const void* bytes, std::size_t count) {
  std::string text;
  char digits[3];
  for (std::size_t i = 0; i < count; ++i) {
    std::snprintf(digits, sizeof(digits), "%02x", static_cast<const unsigned char*>(bytes)[i]);
    text += digits;
  }
  return text;
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  require(value != nullptr, name);
  return value;
}

CUipcMemHandle handle_from_environment() {
  const std::string text = variable("TEST_IPC_HANDLE");
  CUipcMemHandle handle{};
  for (std::size_t i = 0; i < sizeof(handle.reserved); ++i) {
    handle.reserved[i] = static_cast<char>(std::stoi(text.substr(2 * i, 2), nullptr, 16));
  }
  return handle;
}

// Adds one to the words behind an IPC handle, opened twice as a careless program would.
int use_ipc() {
  Gpu gpu(1);
  CUstream stream = gpu.stream();
  const CUipcMemHandle handle = handle_from_environment();
  CUdeviceptr first = 0;
  CUdeviceptr second = 0;
  const auto& api = *driver();
  require(api.IpcOpenMemHandle(&first, handle, 0) == CUDA_ERROR_INVALID_VALUE,
          "another device's memory needs the flag of peer access");
  const unsigned flags = CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS;
  require(api.IpcOpenMemHandle(&first, handle, flags) == CUDA_SUCCESS, "opened");
  require(api.IpcOpenMemHandle(&second, handle, flags) == CUDA_SUCCESS, "opened again");
  require(first == second, "the same address");
  CUdeviceptr base = 0;
  std::size_t bytes = 0;
  require(api.MemGetAddressRange(&base, &bytes, first) == CUDA_SUCCESS, "a range");
  require(base == first && bytes == 4000, "the whole allocation from its base");
  const Increment work{reinterpret_cast<std::uint32_t*>(first), 1000, 1};
  require(launch(gpu.function("increment"), stream, work) == CUDA_SUCCESS, "launched");
  require(api.StreamSynchronize(stream) == CUDA_SUCCESS, "ran");
  require(api.IpcCloseMemHandle(first + 4) == CUDA_ERROR_INVALID_VALUE, "closed by its base only");
  {
    Gpu other(0);
    require(api.IpcCloseMemHandle(first) == CUDA_ERROR_INVALID_VALUE, "closed in its context only");
  }
  require(api.IpcCloseMemHandle(first) == CUDA_SUCCESS, "closed");
  require(launch(gpu.function("increment"), stream, work) == CUDA_SUCCESS, "still open once");
  require(api.StreamSynchronize(stream) == CUDA_SUCCESS, "ran");
  require(api.IpcCloseMemHandle(first) == CUDA_SUCCESS, "closed again");
  require(launch(gpu.function("increment"), stream, work) == CUDA_SUCCESS, "launched");
  require(api.StreamSynchronize(stream) == CUDA_ERROR_ILLEGAL_ADDRESS, "gone");
  return 0;
}
const RoleEntry ipc_role("use ipc", use_ipc);

int use_stale_ipc() {
  Gpu gpu;
  CUdeviceptr pointer = 0;
  require(driver()->IpcOpenMemHandle(&pointer, handle_from_environment(), 1) ==
              CUDA_ERROR_INVALID_VALUE,
          "memory that its owner freed cannot be opened");
  return 0;
}
const RoleEntry stale_role("use stale ipc", use_stale_ipc);

TEST(FakeProcesses, OpenTheWholeAllocationThroughIpc) {
  Gpu gpu;
  CUstream stream = gpu.stream();
  const CUdeviceptr pointer = gpu.allocate(4000);
  write_words(stream, pointer, Words(1000, 40));
  ASSERT_EQ(driver()->StreamSynchronize(stream), CUDA_SUCCESS);
  CUipcMemHandle handle{};
  ASSERT_EQ(driver()->IpcGetMemHandle(&handle, pointer + 400), CUDA_SUCCESS);
  const std::string text = "TEST_IPC_HANDLE=" + hex_of(&handle, sizeof(handle));
  ChildProcess user = start("use ipc", {text});
  EXPECT_EQ(user.wait(), 0) << user.output();
  EXPECT_EQ(read_words(stream, pointer, 1000), Words(1000, 42));
  gpu.free(pointer);
  ChildProcess late = start("use stale ipc", {text});
  EXPECT_EQ(late.wait(), 0) << late.output();
}

// The descriptor of the other process, as it would come through a socket.
int use_descriptor() {
  Gpu gpu;
  CUstream stream = gpu.stream();
  const int fd = open(variable("TEST_DESCRIPTOR").c_str(), O_RDWR);
  require(fd >= 0, "the descriptor is there");
  const auto& api = *driver();
  CUmemGenericAllocationHandle handle = 0;
  const auto type = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  const auto import = [&](int file) {
    return api.MemImportFromShareableHandle(
        &handle, reinterpret_cast<void*>(static_cast<std::intptr_t>(file)), type);
  };
  require(import(0) == CUDA_ERROR_INVALID_VALUE, "another file is no memory");
  require(import(fd) == CUDA_SUCCESS, "imported");
  require(close(fd) == 0, "the descriptor is still the importer's to close");
  const VirtualMemory memory = map_memory(handle, kGranularity);
  require(allow(memory, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE) == CUDA_SUCCESS, "allowed");
  const Increment work{reinterpret_cast<std::uint32_t*>(memory.pointer), 3, 1};
  require(launch(gpu.function("increment"), stream, work) == CUDA_SUCCESS, "launched");
  require(api.StreamSynchronize(stream) == CUDA_SUCCESS, "ran");
  unmap_memory(memory);
  return 0;
}
const RoleEntry descriptor_role("use descriptor", use_descriptor);

TEST(FakeProcesses, ShareMappedMemoryThroughADescriptor) {
  Gpu gpu;
  CUstream stream = gpu.stream();
  const CUmemAllocationProp wanted = exportable_memory(0);
  CUmemGenericAllocationHandle handle = 0;
  ASSERT_EQ(driver()->MemCreate(&handle, kGranularity, &wanted, 0), CUDA_SUCCESS);
  const VirtualMemory memory = map_memory(handle, kGranularity);
  ASSERT_EQ(allow(memory, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE), CUDA_SUCCESS);
  write_words(stream, memory.pointer, {1, 2, 3});
  ASSERT_EQ(driver()->StreamSynchronize(stream), CUDA_SUCCESS);
  int fd = -1;
  ASSERT_EQ(driver()->MemExportToShareableHandle(&fd, handle,
                                                 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
            CUDA_SUCCESS);
  ChildProcess user = start("use descriptor", {"TEST_DESCRIPTOR=/proc/" + std::to_string(getpid()) +
                                               "/fd/" + std::to_string(fd)});
  EXPECT_EQ(user.wait(), 0) << user.output();
  EXPECT_EQ(close(fd), 0);
  EXPECT_EQ(read_words(stream, memory.pointer, 3), (Words{2, 3, 4}));
  unmap_memory(memory);
}

// A page that two processes see.
class SharedPage {
 public:
  SharedPage() : SharedPage(make_memfd("shared page", 0).release()) {
    EXPECT_EQ(ftruncate(fd_, 4096), 0);
    std::memset(words(), 0, 4096);
  }
  explicit SharedPage(int fd) : fd_(fd) {
    if (ftruncate(fd, 4096) != 0) std::abort();
    page_ = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (page_ == MAP_FAILED) std::abort();
  }
  ~SharedPage() {
    munmap(page_, 4096);
    close(fd_);
  }
  SharedPage(const SharedPage&) = delete;
  std::uint32_t* words() const { return static_cast<std::uint32_t*>(page_); }
  std::string place() const {
    return "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(fd_);
  }

 private:
  const int fd_;
  void* page_ = nullptr;
};

// The owner's stream waits for word 1, this process's for word 0.
CUresult exchange(CUstream stream, std::uint32_t* words, int own, std::uint32_t value) {
  CUstreamBatchMemOpParams batch[2] = {};
  batch[0].operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  batch[0].writeValue.address = address(&words[own]);
  batch[0].writeValue.value = value;
  batch[1].operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  batch[1].waitValue.address = address(&words[1 - own]);
  batch[1].waitValue.value = value;
  batch[1].waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
  return driver()->StreamBatchMemOp(stream, 2, batch, 0);
}

int meet() {
  Gpu gpu;
  CUstream stream = gpu.stream();
  const SharedPage page(open(variable("TEST_PAGE").c_str(), O_RDWR));
  require(driver()->MemHostRegister(page.words(), 4096, 0) == CUDA_SUCCESS, "registered");
  for (std::uint32_t value = 1; value <= 100; ++value) {
    require(exchange(stream, page.words(), 1, value) == CUDA_SUCCESS, "enqueued");
  }
  require(driver()->StreamSynchronize(stream) == CUDA_SUCCESS, "met");
  require(driver()->MemHostUnregister(page.words()) == CUDA_SUCCESS, "unregistered");
  return 0;
}
const RoleEntry meet_role("meet", meet);

TEST(FakeProcesses, MeetOnWordsThatTheirStreamsWaitFor) {
  Gpu gpu;
  CUstream stream = gpu.stream();
  const SharedPage page;
  ASSERT_EQ(driver()->MemHostRegister(page.words(), 4096, 0), CUDA_SUCCESS);
  ASSERT_EQ(exchange(stream, page.words(), 0, 1), CUDA_SUCCESS);
  EXPECT_EQ(driver()->StreamQuery(stream), CUDA_ERROR_NOT_READY);
  ChildProcess peer = start("meet", {"TEST_PAGE=" + page.place()});
  for (std::uint32_t value = 2; value <= 100; ++value) {
    ASSERT_EQ(exchange(stream, page.words(), 0, value), CUDA_SUCCESS);
  }
  EXPECT_EQ(driver()->StreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(peer.wait(), 0) << peer.output();
  EXPECT_EQ(driver()->MemHostUnregister(page.words()), CUDA_SUCCESS);
}

// Kernel "visit": counts who is in the room. Word 0: now, word 1: the most that ever were.
struct Visit {
  std::uint32_t* words = nullptr;
};

void translate_visit(void* parameters, fake_cuda::Translator& translator) {
  auto* visit = static_cast<Visit*>(parameters);
  visit->words =
      static_cast<std::uint32_t*>(translator.at(visit->words, 8, fake_cuda::Access::kWrite));
}

void run_visit(const void* parameters, fake_cuda::Dimensions, fake_cuda::Dimensions) {
  std::uint32_t* words = static_cast<const Visit*>(parameters)->words;
  const std::uint32_t inside = std::atomic_ref<std::uint32_t>(words[0]).fetch_add(1) + 1;
  std::atomic_ref<std::uint32_t> most(words[1]);
  for (std::uint32_t known = most.load();
       known < inside && !most.compare_exchange_weak(known, inside);) {
  }
  for (int i = 0; i < 50; ++i) std::this_thread::yield();
  std::atomic_ref<std::uint32_t>(words[0]).fetch_sub(1);
}

int visit() {
  fake()->register_kernel({"visit", sizeof(Visit), &translate_visit, &run_visit});
  Gpu gpu;
  CUstream stream = gpu.stream();
  CUfunction function = gpu.function("visit");
  const SharedPage page(open(variable("TEST_PAGE").c_str(), O_RDWR));
  require(driver()->MemHostRegister(page.words(), 4096, 0) == CUDA_SUCCESS, "registered");
  require(exchange(stream, page.words() + 2, std::stoi(variable("TEST_NUMBER")), 1) == CUDA_SUCCESS,
          "both are there");
  Visit work{page.words()};
  void* parameters[]{&work};
  for (int i = 0; i < 200; ++i) {
    require(driver()->LaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, parameters, nullptr) ==
                CUDA_SUCCESS,
            "launched");
  }
  require(driver()->StreamSynchronize(stream) == CUDA_SUCCESS, "ran");
  require(driver()->MemHostUnregister(page.words()) == CUDA_SUCCESS, "unregistered");
  return 0;
}
const RoleEntry visit_role("visit", visit);

std::uint32_t most_visitors(std::vector<std::string> environment) {
  const SharedPage page;
  environment.push_back("TEST_PAGE=" + page.place());
  environment.push_back("FAKE_CUDA_DELAY_US=0");
  environment.push_back("TEST_NUMBER=0");
  ChildProcess first = start("visit", environment);
  environment.back() = "TEST_NUMBER=1";
  ChildProcess second = start("visit", environment);
  EXPECT_EQ(first.wait(), 0) << first.output();
  EXPECT_EQ(second.wait(), 0) << second.output();
  return page.words()[1];
}

TEST(FakeProcesses, TakeTurnsWithTheirKernelsInTheModeOfTimeSlices) {
  EXPECT_EQ(most_visitors({}), 2u);
  const std::string file = "/tmp/fake_cuda_slice_" + std::to_string(getpid());
  EXPECT_EQ(most_visitors({"FAKE_CUDA_SLICE=" + file}), 1u);
  EXPECT_EQ(unlink(file.c_str()), 0);
}

}  // namespace
}  // namespace unisono::test
