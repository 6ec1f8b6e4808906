// How device memory gets from one process to another: descriptors of virtual memory, passed over a
// socket and fetched by number, and the older handles.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <numeric>

#include "bench/gpu/probe.h"

namespace unisono::gpu_probe {
namespace {

constexpr std::size_t kWords = 1024;
using Words = std::array<std::uint32_t, kWords>;

Words words_from(std::uint32_t first) {
  Words words;
  std::iota(words.begin(), words.end(), first);
  return words;
}

void write(const Gpu& gpu, CUdeviceptr to, const Words& words) {
  gpu.must(
      gpu->MemcpyAsync(to, reinterpret_cast<CUdeviceptr>(words.data()), sizeof words, gpu.stream()),
      "copying to the device");
  gpu.finish(gpu.stream());
}

void expect(const Gpu& gpu, CUdeviceptr from, std::uint32_t first) {
  Words words{};
  gpu.must(gpu->MemcpyAsync(reinterpret_cast<CUdeviceptr>(words.data()), from, sizeof words,
                            gpu.stream()),
           "copying from the device");
  gpu.finish(gpu.stream());
  if (words != words_from(first)) throw std::runtime_error("the peer's memory has other contents");
}

CUmemAllocationProp properties(const Gpu& gpu) {
  CUmemAllocationProp wanted{};
  wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  wanted.location = {CU_MEM_LOCATION_TYPE_DEVICE, gpu.device()};
  return wanted;
}

void map_at(const Gpu& gpu, CUdeviceptr address, CUmemGenericAllocationHandle handle,
            std::size_t bytes) {
  gpu.must(gpu->MemMap(address, bytes, 0, handle, 0), "mapping");
  CUmemAccessDesc access{};
  access.location = {CU_MEM_LOCATION_TYPE_DEVICE, gpu.device()};
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  gpu.must(gpu->MemSetAccess(address, bytes, &access, 1), "setting access");
}

CUdeviceptr map(const Gpu& gpu, CUmemGenericAllocationHandle handle, std::size_t bytes) {
  CUdeviceptr address = 0;
  gpu.must(gpu->MemAddressReserve(&address, bytes, 0, 0, 0), "reserving addresses");
  map_at(gpu, address, handle, bytes);
  return address;
}

void unmap(const Gpu& gpu, CUdeviceptr address, std::size_t bytes,
           CUmemGenericAllocationHandle handle) {
  gpu.must(gpu->MemUnmap(address, bytes), "unmapping");
  gpu.must(gpu->MemRelease(handle), "releasing the handle");
  gpu.must(gpu->MemAddressFree(address, bytes), "freeing addresses");
}

/// The length of what a handle opened rests on this: "BYTES at OFFSET", or the driver's error.
void tell_range(const char* what, const Gpu& gpu, CUdeviceptr address) {
  CUdeviceptr base = 0;
  std::size_t bytes = 0;
  const CUresult asked = gpu->MemGetAddressRange(&base, &bytes, address);
  answer(what, asked == CUDA_SUCCESS ? fmt::format("{} bytes at {}", bytes, address - base)
                                     : fmt::format("error {}", static_cast<int>(asked)));
}

/// Freed memory is told from what took its place by this number; 0: it has none.
unsigned long long tell_number(const char* what, const Gpu& gpu, CUdeviceptr address) {
  unsigned long long number = 0;
  CUpointer_attribute attribute = CU_POINTER_ATTRIBUTE_BUFFER_ID;
  void* place = &number;
  gpu.must(gpu->PointerGetAttributes(1, &attribute, &place, address), "asking for a number");
  answer(what, static_cast<double>(number));
  return number;
}

/// What is mapped where other memory lay must not have that one's number.
void tell_numbers_of_remapped(const Gpu& gpu, std::size_t bytes) {
  const CUmemAllocationProp wanted = properties(gpu);
  CUmemGenericAllocationHandle first = 0, second = 0;
  gpu.must(gpu->MemCreate(&first, bytes, &wanted, 0), "making memory with a descriptor");
  const CUdeviceptr address = map(gpu, first, bytes);
  const unsigned long long before = tell_number("buffer_id", gpu, address);
  gpu.must(gpu->MemUnmap(address, bytes), "unmapping");
  gpu.must(gpu->MemRelease(first), "releasing the handle");
  gpu.must(gpu->MemCreate(&second, bytes, &wanted, 0), "making memory with a descriptor");
  map_at(gpu, address, second, bytes);
  const unsigned long long after = tell_number("buffer_id_after_remapping", gpu, address);
  unmap(gpu, address, bytes, second);
  if (before != 0 && before == after) {
    throw std::runtime_error("memory that was mapped anew has the number of what lay there before");
  }
}

/// What the owner tells its peer: where the memory's descriptor is, and how long it is.
struct Offer {
  std::uint64_t bytes = 0;
  std::int32_t pid = 0;
  std::int32_t fd = -1;
};

void offer_descriptor(int socket) {
  const Gpu gpu;
  const CUmemAllocationProp wanted = properties(gpu);
  std::size_t bytes = 0;
  gpu.must(gpu->MemGetAllocationGranularity(&bytes, &wanted, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
           "asking for the granularity");
  answer("granularity_bytes", static_cast<double>(bytes));
  CUmemGenericAllocationHandle handle = 0;
  gpu.must(gpu->MemCreate(&handle, bytes, &wanted, 0), "making memory with a descriptor");
  const CUdeviceptr memory = map(gpu, handle, bytes);
  write(gpu, memory, words_from(7));
  int fd = -1;
  gpu.must(
      gpu->MemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
      "exporting a descriptor");
  answer("export", "works");
  // Where only parents may look into processes, this peer may.
  prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
  const Offer offer{bytes, getpid(), fd};
  send_bytes(socket, &offer, sizeof offer, fd);
  char done = 0;
  receive_bytes(socket, &done, 1);
  expect(gpu, memory, 1000);
  answer("peer_writes_are_seen", "yes");
  close(fd);
  unmap(gpu, memory, bytes, handle);
  tell_numbers_of_remapped(gpu, bytes);
}

CUmemGenericAllocationHandle import(const Gpu& gpu, int fd) {
  CUmemGenericAllocationHandle handle = 0;
  const CUresult imported = gpu->MemImportFromShareableHandle(
      &handle, reinterpret_cast<void*>(static_cast<std::intptr_t>(fd)),
      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  close(fd);
  gpu.must(imported, "importing a descriptor");
  return handle;
}

/// The same memory once more, by the number that its descriptor has in the owner.
void fetch_by_number(const Gpu& gpu, const Offer& offer) {
  const int owner = static_cast<int>(syscall(SYS_pidfd_open, offer.pid, 0));
  const int fd = owner < 0 ? -1 : static_cast<int>(syscall(SYS_pidfd_getfd, owner, offer.fd, 0));
  if (fd < 0) {
    answer("pidfd_getfd", fmt::format("refused: {}", std::strerror(errno)));
  } else {
    const CUmemGenericAllocationHandle handle = import(gpu, fd);
    const CUdeviceptr memory = map(gpu, handle, offer.bytes);
    expect(gpu, memory, 1000);
    unmap(gpu, memory, offer.bytes, handle);
    answer("pidfd_getfd", "works");
  }
  if (owner >= 0) close(owner);
}

void take_descriptor(int socket) {
  Offer offer;
  const int fd = receive_bytes(socket, &offer, sizeof offer);
  const Gpu gpu;
  const CUmemGenericAllocationHandle handle = import(gpu, fd);
  const CUdeviceptr memory = map(gpu, handle, offer.bytes);
  expect(gpu, memory, 7);
  answer("import", "works");
  write(gpu, memory, words_from(1000));
  fetch_by_number(gpu, offer);
  unmap(gpu, memory, offer.bytes, handle);
  send_bytes(socket, "d", 1);
}

}  // namespace

void ask_descriptors() { run_two(offer_descriptor, take_descriptor); }

void ask_legacy_handles() {
  const auto offer = [](int socket) {
    const Gpu gpu;
    CUdeviceptr memory = 0;
    gpu.must(gpu->MemAlloc(&memory, sizeof(Words)), "allocating");
    write(gpu, memory, words_from(7));
    CUipcMemHandle handle{};
    gpu.must(gpu->IpcGetMemHandle(&handle, memory), "cuIpcGetMemHandle");
    answer("export", "works");
    send_bytes(socket, &handle, sizeof handle);
    // Of the same block of the driver's, most likely.
    CUdeviceptr neighbour = 0;
    gpu.must(gpu->MemAlloc(&neighbour, sizeof(Words)), "allocating");
    write(gpu, neighbour, words_from(70));
    gpu.must(gpu->IpcGetMemHandle(&handle, neighbour), "cuIpcGetMemHandle");
    send_bytes(socket, &handle, sizeof handle);
    char done = 0;
    receive_bytes(socket, &done, 1);
    expect(gpu, memory, 1000);
    answer("peer_writes_are_seen", "yes");
    gpu.must(gpu->MemFree(neighbour), "freeing");
    gpu.must(gpu->MemFree(memory), "freeing");
  };
  const auto take = [](int socket) {
    CUipcMemHandle handle{}, of_neighbour{};
    receive_bytes(socket, &handle, sizeof handle);
    receive_bytes(socket, &of_neighbour, sizeof of_neighbour);
    const Gpu gpu;
    CUdeviceptr memory = 0;
    gpu.must(gpu->IpcOpenMemHandle(&memory, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
             "cuIpcOpenMemHandle");
    expect(gpu, memory, 7);
    answer("import", "works");
    tell_range("range_of_import", gpu, memory);
    CUdeviceptr neighbour = 0;
    const CUresult second =
        gpu->IpcOpenMemHandle(&neighbour, of_neighbour, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    if (second == CUDA_SUCCESS) {
      expect(gpu, neighbour, 70);
      tell_range("range_of_neighbour", gpu, neighbour);
      gpu.must(gpu->IpcCloseMemHandle(neighbour), "cuIpcCloseMemHandle");
    } else {
      answer("range_of_neighbour", fmt::format("opening it: error {}", static_cast<int>(second)));
    }
    write(gpu, memory, words_from(1000));
    gpu.must(gpu->IpcCloseMemHandle(memory), "cuIpcCloseMemHandle");
    send_bytes(socket, "d", 1);
  };
  run_two(offer, take);
}

}  // namespace unisono::gpu_probe
