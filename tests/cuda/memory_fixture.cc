#include "tests/cuda/memory_fixture.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace unisono::test {
namespace {

/// A stream of the device with its context current, for one copy or fill.
class Work {
 public:
  explicit Work(const cuda::DeviceMemory& memory) : current_(*driver(), memory.context()) {
    EXPECT_TRUE(current_.status()) << current_.status().message();
    EXPECT_EQ(driver()->StreamCreateWithPriority(&stream_, CU_STREAM_NON_BLOCKING, 0), 0);
  }
  ~Work() { EXPECT_EQ(driver()->StreamDestroy(stream_), 0); }
  CUstream stream() const { return stream_; }
  CUresult finish() const { return driver()->StreamSynchronize(stream_); }

 private:
  cuda::CurrentContext current_;
  CUstream stream_ = nullptr;
};

CUdeviceptr address(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

/// New memory at the place of piece `index`, which only the device itself may use.
void map_piece(const cuda::DeviceMemory& memory, std::size_t index, MappedRange* range) {
  CUmemAllocationProp wanted{};
  wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  wanted.location.id = memory.device();
  if (range->is_exportable) wanted.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  const auto& api = *driver();
  CUmemGenericAllocationHandle& handle = range->handles[index];
  EXPECT_EQ(api.MemCreate(&handle, range->piece_bytes, &wanted, 0), CUDA_SUCCESS);
  const CUdeviceptr piece = address(range->pointer) + range->piece_bytes * index;
  EXPECT_EQ(api.MemMap(piece, range->piece_bytes, 0, handle, 0), CUDA_SUCCESS);
  const CUmemAccessDesc access{wanted.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  EXPECT_EQ(api.MemSetAccess(piece, range->piece_bytes, &access, 1), CUDA_SUCCESS);
}

}  // namespace

void expect_clean_driver() {
  if (fake() == nullptr) return;
  EXPECT_EQ(fake()->report_leaks(), 0u);
  static std::uint64_t blamed = 0;  // on earlier tests
  const std::uint64_t errors = fake()->counts().errors;
  EXPECT_EQ(errors, blamed) << "the driver was used wrongly, see its lines above";
  blamed = errors;
}

std::unique_ptr<cuda::DeviceMemory> open_device(int ordinal) {
  auto memory = cuda::DeviceMemory::open(driver(), ordinal);
  EXPECT_TRUE(memory) << memory.status().message();
  return memory ? std::move(*memory) : nullptr;
}

void* cuda_malloc(const cuda::DeviceMemory& memory, std::size_t bytes) {
  const cuda::CurrentContext current(*driver(), memory.context());
  CUdeviceptr pointer = 0;
  return driver()->MemAlloc(&pointer, bytes) == CUDA_SUCCESS ? reinterpret_cast<void*>(pointer)
                                                             : nullptr;
}

void cuda_free(const cuda::DeviceMemory& memory, void* pointer) {
  const cuda::CurrentContext current(*driver(), memory.context());
  EXPECT_EQ(driver()->MemFree(address(pointer)), CUDA_SUCCESS);
}

MappedRange map_range(const cuda::DeviceMemory& memory, std::size_t piece_bytes, int pieces,
                      bool exportable) {
  const std::size_t bytes = piece_bytes * static_cast<std::size_t>(pieces);
  CUdeviceptr base = 0;
  EXPECT_EQ(driver()->MemAddressReserve(&base, bytes, 0, 0, 0), CUDA_SUCCESS);
  MappedRange range{reinterpret_cast<void*>(base), piece_bytes, exportable, {}};
  range.handles.resize(static_cast<std::size_t>(pieces));
  for (std::size_t i = 0; i < range.handles.size(); ++i) map_piece(memory, i, &range);
  return range;
}

void remap_piece(const cuda::DeviceMemory& memory, std::size_t index, MappedRange* range) {
  EXPECT_EQ(
      driver()->MemUnmap(address(range->pointer) + index * range->piece_bytes, range->piece_bytes),
      CUDA_SUCCESS);
  EXPECT_EQ(driver()->MemRelease(range->handles[index]), CUDA_SUCCESS);
  map_piece(memory, index, range);
}

void unmap_range(const MappedRange& range) {
  const auto& api = *driver();
  const std::size_t bytes = range.piece_bytes * range.handles.size();
  EXPECT_EQ(api.MemUnmap(address(range.pointer), bytes), CUDA_SUCCESS);
  for (const auto handle : range.handles) EXPECT_EQ(api.MemRelease(handle), CUDA_SUCCESS);
  EXPECT_EQ(api.MemAddressFree(address(range.pointer), bytes), CUDA_SUCCESS);
}

void fill(const cuda::DeviceMemory& memory, void* pointer, std::size_t bytes, std::uint8_t value) {
  const Work work(memory);
  EXPECT_EQ(driver()->MemsetD8Async(address(pointer), value, bytes, work.stream()), CUDA_SUCCESS);
  EXPECT_EQ(work.finish(), CUDA_SUCCESS);
}

int common_byte(const cuda::DeviceMemory& memory, const void* pointer, std::size_t bytes) {
  std::vector<std::uint8_t> host(bytes);
  const Work work(memory);
  if (driver()->MemcpyAsync(address(host.data()), address(pointer), bytes, work.stream()) !=
          CUDA_SUCCESS ||
      work.finish() != CUDA_SUCCESS) {
    return -1;
  }
  const bool equal =
      std::all_of(host.begin(), host.end(), [&](std::uint8_t byte) { return byte == host[0]; });
  return equal ? host[0] : -1;
}

bool has_numbers_of_windows(cuda::DeviceMemory& memory) {
  const auto window = memory.allocate(kMiB);
  if (!window) return false;
  std::uint64_t number = 0;
  CUpointer_attribute attribute = CU_POINTER_ATTRIBUTE_BUFFER_ID;
  void* place = &number;
  const CUresult asked = driver()->PointerGetAttributes(1, &attribute, &place, address(*window));
  EXPECT_TRUE(memory.release(*window));
  return asked == CUDA_SUCCESS && number != 0;
}

std::uint64_t memory_calls() {
  std::uint64_t sum = 0;
  for (const char* function :
       {"cuPointerGetAttributes", "cuMemGetAddressRange", "cuCtxPushCurrent", "cuCtxPopCurrent",
        "cuCtxEnablePeerAccess", "cuMemSetAccess", "cuMemMap", "cuMemUnmap",
        "cuMemRetainAllocationHandle", "cuMemExportToShareableHandle", "cuIpcGetMemHandle",
        "cuMemImportFromShareableHandle", "cuIpcOpenMemHandle", "cuIpcCloseMemHandle"}) {
    sum += fake()->calls(function);
  }
  return sum;
}

}  // namespace unisono::test
