// Kernels: which exist, what the compiler made of them, and launches through the driver's table. On
// the fake driver host twins run in the kernels' place; on a real one the kernels themselves do.
#include "cuda/kernels/kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <regex>
#include <set>
#include <sstream>

#include "compute/compute.h"
#include "cuda/kernels/kernel_names.h"
#include "tests/cuda/device_graph.h"
#include "tests/cuda/driver_under_test.h"
#include "tests/cuda/kernel_reports.h"
#include "tests/cuda/kernel_twins.h"
#include "tests/unit/compute_oracle.h"

namespace unisono::cuda {
namespace {

using namespace compute_test;

constexpr Order kOrders[] = {Order::kAny, Order::kCanonical};

std::vector<WorkKind> supported_kinds() {
  std::vector<WorkKind> kinds = {{DataType::kUint8, false}};
  for (const DataType type : all_types()) {
    for (const OpKind op : operators_of(type)) {
      for (const Order order : kOrders) kinds.push_back({type, true, op, order});
    }
  }
  return kinds;
}

TEST(KernelTable, HasAKernelForEveryMeaningfulKindAndNoneInVain) {
  std::set<std::string> embedded;
  for (const KernelImage& image : kernel_images()) {
    for (const std::string& name : image.names) EXPECT_TRUE(embedded.insert(name).second) << name;
  }
  std::set<std::string> used{kCopyKernel};
  for (const char* const storage : {"f32", "f16", "bf16"}) {
    for (const char* const inputs : {"2", "4", "8"}) {
      used.insert(std::string("unisono_sum_") + storage + "_of_" + inputs);
    }
  }
  for (const WorkKind& kind : supported_kinds()) {
    EXPECT_TRUE(Kernels::supports(kind).ok());
    EXPECT_EQ(embedded.count(kernel_name(kind)), 1u) << kernel_name(kind);
    used.insert(kernel_name(kind));
  }
  EXPECT_EQ(used, embedded);
  for (const std::string& name : embedded) EXPECT_NE(find_body(name), nullptr) << name;
}

TEST(KernelTable, RefusesWhatHasNoKernel) {
  const auto code = [](const WorkKind& kind) { return Kernels::supports(kind).code(); };
  EXPECT_EQ(code({DataType::kFloat32, true, OpKind::kUser}), ErrorCode::kUnsupported);
  EXPECT_EQ(code({DataType::kFloat32, true, OpKind::kBitAnd}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code({DataType::kComplex64, true, OpKind::kMin}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code({DataType::kBool, true, OpKind::kAverage}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code({static_cast<DataType>(99), false}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code({DataType::kInt8, true, static_cast<OpKind>(99)}), ErrorCode::kInvalidArgument);
}

std::string ptxas_reports() {
  std::stringstream text;
  for (const char* family : {"float", "half", "float8", "integer", "bits"}) {
    std::ifstream file(test::kernel_report(UNISONO_KERNEL_IMAGES, family));
    text << file.rdbuf();
  }
  return text.str();
}

TEST(KernelImages, HoldEveryKernelByName) {
  const std::string reports = ptxas_reports();
  for (const KernelImage& image : kernel_images()) {
    constexpr std::uint32_t kFatBinary = 0xba55ed50;
    std::uint32_t magic = 0;
    ASSERT_GT(image.end - image.begin, 1000);
    std::memcpy(&magic, image.begin, sizeof magic);
    EXPECT_EQ(magic, kFatBinary);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(image.begin) % 8, 0u);
    for (const std::string& name : image.names) {
      EXPECT_NE(reports.find("'" + name + "' for 'sm_"), std::string::npos)
          << name << " was not compiled";
    }
  }
}

/// Bytes through memory decide the speed, and spilled registers are such bytes.
TEST(KernelImages, SpillNoRegisters) {
  std::istringstream reports(ptxas_reports());
  const std::regex entry("entry function '(\\w+)' for 'sm_90'");
  const std::regex spills("(\\d+) bytes stack frame, (\\d+) bytes spill stores");
  std::string kernel;
  std::smatch match;
  int checked = 0;
  for (std::string line; std::getline(reports, line);) {
    if (line.find("entry function") != std::string::npos)
      kernel = std::regex_search(line, match, entry) ? match[1].str() : "";
    if (kernel.empty() || !std::regex_search(line, match, spills)) continue;
    EXPECT_EQ(match[1], "0") << kernel << " has a stack";
    EXPECT_EQ(match[2], "0") << kernel;
    ++checked;
  }
  if (checked == 0) GTEST_SKIP() << "not built for compute capability 9.0";
  EXPECT_GE(checked, static_cast<int>(kernel_bodies().size()));
}

TEST(Geometry, CoversSmallWorkAndFillsTheDeviceWithLarge) {
  DeviceWork work;
  work.piece_count = 1;
  work.pieces[0] = {.count = 1, .inputs = 2, .outputs = 2};
  Geometry grid = geometry_of(work, 4, 132);
  EXPECT_EQ(grid.blocks, 1u);
  EXPECT_EQ(grid.pieces, 1u);
  EXPECT_GE(grid.threads, 32u);
  EXPECT_LE(grid.threads, 1024u);
  work.pieces[0].count = std::uint64_t{1} << 32;
  const Geometry whole = geometry_of(work, 4, 132);
  EXPECT_GE(whole.blocks, 132u);
  for (work.piece_count = 1; work.piece_count <= kWorkPiecesMax; ++work.piece_count) {
    work.pieces[work.piece_count - 1] = work.pieces[0];
    grid = geometry_of(work, 4, 132);
    EXPECT_EQ(grid.pieces, work.piece_count);
    EXPECT_GE(grid.blocks * grid.pieces, whole.blocks);
    EXPECT_LT(grid.blocks * grid.pieces, whole.blocks + grid.pieces);
  }
}

DeviceWork even_sum(void* memory, std::size_t bytes_each, int inputs) {
  DeviceWork work;
  work.piece_count = 2;
  for (int p = 0; p < 2; ++p) {
    work.pieces[p] = {.count = bytes_each / 4,
                      .first_input = static_cast<std::uint16_t>(8 * p),
                      .inputs = static_cast<std::uint16_t>(inputs),
                      .first_output = static_cast<std::uint16_t>(8 * p),
                      .outputs = 1};
    for (int i = 0; i < inputs; ++i) {
      work.pointers[8 * p + i] = static_cast<std::byte*>(memory) + (8 * p + i) * bytes_each;
    }
  }
  return work;
}

TEST(Geometry, ByUnitsIsForPiecesThatAllLieAlike) {
  alignas(64) std::byte memory[16 * 64];
  const auto changed = [&](auto change) {
    DeviceWork work = even_sum(memory, 64, 4);
    change(work);
    return inputs_by_units(work, 4);
  };
  EXPECT_EQ(changed([](DeviceWork&) {}), 4);
  const auto shift = [](DeviceWork& work, int pointer, int bytes) {
    work.pointers[pointer] = static_cast<std::byte*>(work.pointers[pointer]) + bytes;
  };
  EXPECT_EQ(changed([&](DeviceWork& work) { shift(work, 9, 4); }), 0);
  EXPECT_EQ(changed([&](DeviceWork& work) {
              for (int i = 0; i < 4; ++i) shift(work, i, 4);
            }),
            4);
  EXPECT_EQ(changed([&](DeviceWork& work) {
              for (int i = 0; i < 4; ++i) shift(work, i, 2);
            }),
            0);
  EXPECT_EQ(changed([](DeviceWork& work) { work.pieces[1].inputs = 2; }), 0);
  EXPECT_EQ(changed([](DeviceWork& work) { work.pieces[1].mode = PieceMode::kPrefix; }), 0);
  EXPECT_EQ(changed([](DeviceWork& work) { work.premultiplied = true; }), 0);
}

// A thread for each unit, and none for what small pieces do not have.
TEST(Geometry, ByUnitsHasAThreadForEachUnitAndFewForNothing) {
  alignas(64) std::byte memory[64];
  DeviceWork work = even_sum(memory, 64, 2);
  for (int p = 0; p < 2; ++p) work.pieces[p].count = std::uint64_t{1} << 24;
  const auto wanted =
      static_cast<unsigned>((std::uint64_t{1} << 22) / geometry_by_units(work, 4).threads);
  EXPECT_EQ(geometry_by_units(work, 4).blocks, wanted);
  EXPECT_EQ(geometry_by_units(work, 4).pieces, 2u);
  for (int p = 2; p < 16; ++p) {
    work.pieces[p] = work.pieces[0];
    work.pieces[p].count = 8;
  }
  work.piece_count = 16;
  work.pieces[1].count = 8;
  const Geometry uneven = geometry_by_units(work, 4);
  EXPECT_LE(uneven.blocks * uneven.pieces, 2 * wanted + 16);
  EXPECT_GE(uneven.blocks, wanted / 8);
}

TEST(Geometry, TakesWorkOfNothing) {
  DeviceWork work;
  work.piece_count = 2;
  const Geometry grid = geometry_of(work, 16, 1);
  EXPECT_EQ(grid.blocks, 1u);
  EXPECT_EQ(grid.pieces, 2u);
}

class DeviceKernels : public testing::Test {
 protected:
  void SetUp() override {
    if (test::fake() != nullptr) register_kernel_twins(*test::fake());
    api_ = test::driver();
    ASSERT_EQ(api_->DeviceGet(&device_, 0), CUDA_SUCCESS);
    ASSERT_EQ(api_->DevicePrimaryCtxRetain(&context_, device_), CUDA_SUCCESS);
    current_.emplace(*api_, context_);
    ASSERT_EQ(api_->StreamCreateWithPriority(&stream_, CU_STREAM_NON_BLOCKING, 0), CUDA_SUCCESS);
  }
  void TearDown() override {
    for (const CUdeviceptr pointer : allocations_) EXPECT_EQ(api_->MemFree(pointer), CUDA_SUCCESS);
    EXPECT_EQ(api_->StreamDestroy(stream_), CUDA_SUCCESS);
    current_.reset();
    EXPECT_EQ(api_->DevicePrimaryCtxRelease(device_), CUDA_SUCCESS);
  }

  std::unique_ptr<Kernels> load() {
    auto loaded = Kernels::load(api_, device_, context_);
    EXPECT_TRUE(loaded.has_value()) << loaded.status().message();
    return loaded.has_value() ? std::move(*loaded) : nullptr;
  }
  void* to_device(const Bytes& bytes) {
    CUdeviceptr pointer = 0;
    EXPECT_EQ(api_->MemAlloc(&pointer, bytes.size()), CUDA_SUCCESS);
    allocations_.push_back(pointer);
    const auto host = reinterpret_cast<CUdeviceptr>(bytes.data());
    EXPECT_EQ(api_->MemcpyAsync(pointer, host, bytes.size(), stream_), CUDA_SUCCESS);
    return reinterpret_cast<void*>(pointer);
  }
  Bytes from_device(const void* pointer, std::size_t bytes) {
    Bytes host(bytes);
    EXPECT_EQ(api_->MemcpyAsync(reinterpret_cast<CUdeviceptr>(host.data()),
                                reinterpret_cast<CUdeviceptr>(pointer), bytes, stream_),
              CUDA_SUCCESS);
    EXPECT_EQ(api_->StreamSynchronize(stream_), CUDA_SUCCESS);
    return host;
  }
  void free_all() {
    for (const CUdeviceptr pointer : allocations_) EXPECT_EQ(api_->MemFree(pointer), CUDA_SUCCESS);
    allocations_.clear();
  }

  std::shared_ptr<const CudaApi> api_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  std::optional<CurrentContext> current_;
  CUstream stream_ = nullptr;
  std::vector<CUdeviceptr> allocations_;
};

/// One piece of so many inputs to two outputs. Sums over powers of two have kernels of their own.
TEST_F(DeviceKernels, ComputeEveryKindLikeTheCpu) {
  constexpr std::size_t kCount = 211;
  const auto kernels = load();
  ASSERT_NE(kernels, nullptr);
  for (const int inputs : {2, 3, 4, 8}) {
    for (const WorkKind& kind : supported_kinds()) {
      if (!kind.reduces || kind.order != Order::kCanonical) continue;
      DeviceWork work;
      work.ranks = inputs;
      std::vector<Bytes> prepared;
      std::vector<const void*> pointers;
      for (int i = 0; i < inputs; ++i) {
        Bytes input = random_elements(kind.type, kCount, 77 + i);
        work.scalars[i] = 0.5 * i - 1;
        work.pointers[i] = to_device(input);
        ASSERT_EQ(api_->StreamSynchronize(stream_), CUDA_SUCCESS);
        const auto rank = compute::Reduction::make(kind.type, {kind.op, work.scalars[i]}, inputs);
        rank.value().prepare(input.data(), input.data(), kCount);
        prepared.push_back(std::move(input));
      }
      for (const Bytes& input : prepared) pointers.push_back(input.data());
      const auto cpu = compute::Reduction::make(kind.type, ReduceOp{kind.op}, inputs).value();
      Bytes expected(prepared[0].size());
      cpu.combine_tree(expected.data(), pointers.data(), inputs, kCount, false);
      cpu.finish(expected.data(), kCount);
      const Bytes poison(expected.size(), 0xee);
      work.pointers[10] = to_device(poison);
      work.pointers[11] = to_device(poison);
      work.piece_count = 1;
      work.pieces[0] = {.count = kCount,
                        .inputs = static_cast<std::uint16_t>(inputs),
                        .first_output = 10,
                        .outputs = 2};
      const Status status = kernels->launch(stream_, work, kind, Runs::kOnce);
      ASSERT_TRUE(status.ok()) << status.message();
      for (const int output : {10, 11}) {
        const Bytes actual = from_device(work.pointers[output], expected.size());
        EXPECT_EQ(first_difference(kind.type, actual.data(), expected.data(), kCount), "")
            << kernel_name(kind) << " " << name_of(kind.op) << " of " << inputs;
      }
      free_all();
    }
  }
}

/// Two ranks give each other their halves, in place, in one launch of two pieces.
TEST_F(DeviceKernels, MoveBytesOfAnyType) {
  const auto kernels = load();
  ASSERT_NE(kernels, nullptr);
  const Bytes first = random_elements(DataType::kInt8, 3000, 1);
  const Bytes second = random_elements(DataType::kInt8, 3000, 2);
  DeviceWork work;
  work.pointers[0] = to_device(first);
  work.pointers[1] = to_device(second);
  work.pointers[2] = work.pointers[1];
  work.pointers[3] = work.pointers[0];
  work.pointers[4] = to_device(Bytes(3000, 0));
  work.piece_count = 1;
  work.pieces[0] = {
      .count = 1000, .inputs = 2, .first_output = 2, .outputs = 2, .mode = PieceMode::kPermute};
  for (std::uint64_t at : {0, 1000, 2000}) {  // in units of one byte, then of two and of eight
    DeviceWork part = work;
    for (int i = 0; i < 4; ++i) part.pointers[i] = static_cast<std::byte*>(work.pointers[i]) + at;
    const DataType type = at == 0      ? DataType::kBool
                          : at == 1000 ? DataType::kFloat16
                                       : DataType::kComplex64;
    part.pieces[0].count = 1000 / size_of(type);
    ASSERT_TRUE(kernels->launch(stream_, part, {type, false}, Runs::kOnce).ok());
  }
  work.pieces[0] = {.count = 3000, .inputs = 1, .first_output = 4, .outputs = 1};
  ASSERT_TRUE(kernels->launch(stream_, work, {DataType::kInt8, false}, Runs::kOnce).ok());
  EXPECT_EQ(from_device(work.pointers[0], 3000), second);
  EXPECT_EQ(from_device(work.pointers[1], 3000), first);
  EXPECT_EQ(from_device(work.pointers[4], 3000), second);
}

TEST_F(DeviceKernels, TouchNothingOnceTheCallIsCalledOff) {
  const auto kernels = load();
  ASSERT_NE(kernels, nullptr);
  void* word = nullptr;
  ASSERT_EQ(api_->MemHostAlloc(&word, 4096, CU_MEMHOSTALLOC_DEVICEMAP), CUDA_SUCCESS);
  CUdeviceptr seen_by_device = 0;
  ASSERT_EQ(api_->MemHostGetDevicePointer(&seen_by_device, word, 0), CUDA_SUCCESS);
  DeviceWork work;
  const Bytes ones(64, 1);
  work.pointers[0] = to_device(ones);
  work.abort = reinterpret_cast<const std::uint32_t*>(seen_by_device);
  work.piece_count = 1;
  work.pieces[0] = {.count = 16, .inputs = 1, .first_output = 1, .outputs = 1};
  for (const bool reduces : {false, true}) {
    for (const std::uint32_t value : {0, 1}) {
      std::memcpy(word, &value, sizeof value);
      const Bytes poison(64, 0xee);
      work.pointers[1] = to_device(poison);
      ASSERT_TRUE(kernels->launch(stream_, work, {DataType::kInt32, reduces}, Runs::kOnce).ok());
      EXPECT_EQ(from_device(work.pointers[1], 64), value == 0 ? ones : poison);
    }
  }
  EXPECT_EQ(api_->MemFreeHost(word), CUDA_SUCCESS);
}

// Many blocks, which share one answer, in launches that follow each other in two streams.
TEST_F(DeviceKernels, OfManyBlocksAreCalledOffWholeOrNotAtAll) {
  const auto kernels = load();
  ASSERT_NE(kernels, nullptr);
  constexpr std::size_t kBytes = std::size_t{1} << 20;
  constexpr int kLaunches = 50;
  void* memory = nullptr;
  ASSERT_EQ(api_->MemHostAlloc(&memory, 4096, CU_MEMHOSTALLOC_DEVICEMAP), CUDA_SUCCESS);
  CUdeviceptr words = 0;
  ASSERT_EQ(api_->MemHostGetDevicePointer(&words, memory, 0), CUDA_SUCCESS);
  const std::uint32_t values[]{0, 1};
  std::memcpy(memory, values, sizeof values);
  CUstream other = nullptr;
  ASSERT_EQ(api_->StreamCreateWithPriority(&other, CU_STREAM_NON_BLOCKING, 0), CUDA_SUCCESS);
  const Bytes ones(kBytes, 1), poison(kBytes, 0xee);
  DeviceWork moved, called_off;
  moved.pointers[0] = called_off.pointers[0] = to_device(ones);
  moved.pointers[1] = to_device(poison);
  called_off.pointers[1] = to_device(poison);
  moved.piece_count = called_off.piece_count = 1;
  moved.pieces[0] =
      called_off.pieces[0] = {.count = kBytes, .inputs = 1, .first_output = 1, .outputs = 1};
  moved.abort = reinterpret_cast<const std::uint32_t*>(words);
  called_off.abort = moved.abort + 1;
  for (int i = 0; i < kLaunches; ++i) {
    const WorkKind kind{DataType::kInt8, false};
    ASSERT_TRUE(kernels->launch(stream_, moved, kind, Runs::kOnce).ok());
    ASSERT_TRUE(kernels->launch(other, called_off, kind, Runs::kOnce).ok());
  }
  EXPECT_EQ(api_->StreamSynchronize(other), CUDA_SUCCESS);
  EXPECT_EQ(from_device(moved.pointers[1], kBytes), ones);
  EXPECT_EQ(from_device(called_off.pointers[1], kBytes), poison);
  EXPECT_EQ(api_->StreamDestroy(other), CUDA_SUCCESS);
  EXPECT_EQ(api_->MemFreeHost(memory), CUDA_SUCCESS);
}

// The same captured once: what the word says is another thing in each run of replays.
TEST_F(DeviceKernels, OfManyBlocksInReplaysAreCalledOffWholeOrNotAtAll) {
  const auto kernels = load();
  ASSERT_NE(kernels, nullptr);
  constexpr std::size_t kBytes = std::size_t{1} << 20;
  void* word = nullptr;
  ASSERT_EQ(api_->MemHostAlloc(&word, 4096, CU_MEMHOSTALLOC_DEVICEMAP), CUDA_SUCCESS);
  CUdeviceptr seen_by_device = 0;
  ASSERT_EQ(api_->MemHostGetDevicePointer(&seen_by_device, word, 0), CUDA_SUCCESS);
  const Bytes ones(kBytes, 1), poison(kBytes, 0xee);
  DeviceWork work;
  work.pointers[0] = to_device(ones);
  work.pointers[1] = to_device(poison);
  work.abort = reinterpret_cast<const std::uint32_t*>(seen_by_device);
  work.piece_count = 1;
  work.pieces[0] = {.count = kBytes, .inputs = 1, .first_output = 1, .outputs = 1};
  {
    const test::DeviceGraph graph(stream_, [&] {
      EXPECT_TRUE(kernels->launch(stream_, work, {DataType::kInt8, false}, Runs::kInGraph).ok());
    });
    for (const std::uint32_t value : {0, 1, 0, 0, 1}) {
      std::memcpy(word, &value, sizeof value);
      const auto output = reinterpret_cast<CUdeviceptr>(work.pointers[1]);
      ASSERT_EQ(api_->MemsetD8Async(output, 0xee, kBytes, stream_), CUDA_SUCCESS);
      for (int replay = 0; replay < 70; ++replay) graph.launch(stream_);
      ASSERT_EQ(api_->StreamSynchronize(stream_), CUDA_SUCCESS);
      EXPECT_EQ(from_device(work.pointers[1], kBytes), value == 0 ? ones : poison);
    }
  }
  EXPECT_EQ(api_->MemFreeHost(word), CUDA_SUCCESS);
}

TEST_F(DeviceKernels, RefuseWorkThatNoKernelMayTouch) {
  const auto kernels = load();
  ASSERT_NE(kernels, nullptr);
  DeviceWork good;
  good.pointers[0] = good.pointers[1] = to_device(Bytes(64, 1));
  good.piece_count = 1;
  good.pieces[0] = {.count = 16, .inputs = 1, .first_output = 1, .outputs = 1};
  const WorkKind move{DataType::kFloat32, false};
  const WorkKind sum{DataType::kFloat32, true, OpKind::kSum};
  const auto code_with = [&](const WorkKind& kind, auto change) {
    DeviceWork work = good;
    change(work, work.pieces[0]);
    return kernels->launch(stream_, work, kind, Runs::kOnce).code();
  };
  const auto kInvalid = ErrorCode::kInvalidArgument;
  using W = DeviceWork;
  using P = WorkPiece;
  EXPECT_EQ(code_with(move, [](W&, P&) {}), ErrorCode::kOk);
  EXPECT_EQ(code_with(move, [](W& w, P&) { w.piece_count = 0; }), ErrorCode::kOk);
  EXPECT_EQ(code_with(move, [](W& w, P&) { w.piece_count = 17; }), kInvalid);
  EXPECT_EQ(code_with(sum, [](W&, P& p) { p.inputs = 0; }), kInvalid);
  EXPECT_EQ(code_with(sum, [](W&, P& p) { p.inputs = 17; }), kInvalid);
  EXPECT_EQ(code_with(sum, [](W&, P& p) { p.outputs = 17; }), kInvalid);
  EXPECT_EQ(code_with(sum, [](W&, P& p) { p.first_input = 160; }), kInvalid);
  EXPECT_EQ(code_with(sum, [](W&, P& p) { p.first_output = 65535; }), kInvalid);
  EXPECT_EQ(code_with(sum, [](W&, P& p) { p.first_input = 50; }), kInvalid) << "null input";
  EXPECT_EQ(code_with(sum, [](W&, P& p) { p.count = ~std::uint64_t{0}; }), kInvalid);
  EXPECT_EQ(code_with(move, [](W&, P& p) { p.inputs = 2; }), kInvalid) << "no operator";
  EXPECT_EQ(code_with(move, [](W&, P& p) { p.mode = PieceMode::kPrefix; }), kInvalid);
  EXPECT_EQ(code_with(sum, [](W&, P& p) { p.mode = PieceMode::kPermute; }), kInvalid);
  EXPECT_EQ(code_with(sum,
                      [](W&, P& p) {
                        p.mode = PieceMode::kPrefix;
                        p.outputs = 2;
                      }),
            kInvalid);
  EXPECT_EQ(code_with({DataType::kInt8, true, OpKind::kAverage}, [](W& w, P&) { w.ranks = 0; }),
            kInvalid);
  EXPECT_EQ(code_with({DataType::kInt8, true, OpKind::kUser}, [](W&, P&) {}),
            ErrorCode::kUnsupported);
  EXPECT_EQ(api_->StreamSynchronize(stream_), CUDA_SUCCESS);
}

TEST_F(DeviceKernels, AreAllLoadedAtOnceAndUnloadedAtTheEnd) {
  const auto* const fake = test::fake();
  if (fake == nullptr) GTEST_SKIP() << "only the fake driver counts";
  const std::uint64_t libraries = fake->counts().libraries;
  const std::uint64_t loads = fake->calls("cuFuncLoad");
  {
    const auto kernels = load();
    ASSERT_NE(kernels, nullptr);
    EXPECT_EQ(fake->counts().libraries, libraries + kernel_images().size());
    EXPECT_EQ(fake->calls("cuFuncLoad"), loads + kernel_bodies().size());
  }
  EXPECT_EQ(fake->counts().libraries, libraries);
}

TEST_F(DeviceKernels, SayWhenTheyHaveNoCodeForTheDevice) {
  const auto* const fake = test::fake();
  if (fake == nullptr) GTEST_SKIP() << "only the fake driver fails to order";
  const std::uint64_t libraries = fake->counts().libraries;
  const auto expect_refusal = [&](const std::string& words = "UNISONO_CUDA_ARCHITECTURES",
                                  ErrorCode code = ErrorCode::kUnsupported) {
    const auto loaded = Kernels::load(api_, device_, context_);
    ASSERT_FALSE(loaded.has_value());
    EXPECT_EQ(loaded.error().code(), code);
    for (const std::string& told : {words, std::string("built with toolkit ")}) {
      EXPECT_NE(loaded.error().message().find(told), std::string::npos) << loaded.error().message();
    }
    EXPECT_EQ(fake->counts().libraries, libraries)
        << "what was loaded before the failure is unloaded";
  };
  fake->fail("cuLibraryGetKernel", 3, CUDA_ERROR_NO_BINARY_FOR_GPU);
  expect_refusal();
  for (const CUresult result : {CUDA_ERROR_INVALID_IMAGE, CUDA_ERROR_INVALID_PTX}) {
    fake->fail("cuLibraryLoadData", 1, result);
    expect_refusal();
  }
  fake->fail("cuLibraryLoadData", 1, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
  expect_refusal("this driver serves CUDA " + std::to_string(api_->version / 1000) + ".",
                 ErrorCode::kSystem);
  auto older = std::make_shared<CudaApi>(*api_);
  older->version = 1000 * (CUDA_VERSION / 1000 - 1) + 20;
  api_ = std::move(older);
  fake->fail("cuLibraryLoadData", 1, CUDA_ERROR_INVALID_IMAGE);
  expect_refusal("update it, or build with a toolkit " + std::to_string(CUDA_VERSION / 1000 - 1) +
                 ".x");
}

TEST_F(DeviceKernels, ReportALaunchThatTheDriverRefuses) {
  const auto* const fake = test::fake();
  if (fake == nullptr) GTEST_SKIP() << "only the fake driver fails to order";
  const auto kernels = load();
  ASSERT_NE(kernels, nullptr);
  DeviceWork work;
  work.pointers[0] = work.pointers[1] = to_device(Bytes(64, 1));
  work.piece_count = 1;
  work.pieces[0] = {.count = 16, .inputs = 1, .first_output = 1, .outputs = 1};
  fake->fail("cuLaunchKernel", 1, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
  const Status status = kernels->launch(stream_, work, {DataType::kFloat32, false}, Runs::kOnce);
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.message().find("unisono_move"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("device 0"), std::string::npos) << status.message();
  EXPECT_TRUE(kernels->launch(stream_, work, {DataType::kFloat32, false}, Runs::kOnce).ok());
  EXPECT_EQ(api_->StreamSynchronize(stream_), CUDA_SUCCESS);
}

}  // namespace
}  // namespace unisono::cuda
