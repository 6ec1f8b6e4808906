// Tensors, arenas, and what a device is charged for them.
#include "unisono/train/tensor.h"

#include <gmock/gmock.h>

#include <cstdint>
#include <thread>
#include <utility>

#include "unisono/train/model.h"

namespace unisono::train {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Tensor, StartsAtZeroAndIsAligned) {
  for (const std::size_t size : {1, 3, 17, 1000, 100000}) {
    const Tensor tensor({size});
    EXPECT_THAT(tensor.values(), Each(0.0F));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.data()) % 64, 0U);
  }
}

TEST(Tensor, StartsAtZeroInMemoryThatWasUsedBefore) {
  for (int i = 0; i < 3; ++i) {
    Tensor tensor({100000});
    ASSERT_THAT(tensor.values(), Each(0.0F));
    for (float& value : tensor.values()) value = 1;
  }
}

TEST(Tensor, CopiesDataAndMovesThem) {
  Tensor one({2, 2});
  one.data()[3] = 4;
  Tensor two = one;
  two.data()[0] = 1;
  EXPECT_THAT(one.values(), ElementsAre(0, 0, 0, 4));
  EXPECT_THAT(two.values(), ElementsAre(1, 0, 0, 4));
  const float* data = two.data();
  Tensor three = std::move(two);
  EXPECT_EQ(three.data(), data);
  EXPECT_TRUE(two.empty());  // NOLINT: what a moved-from tensor is, is promised
  EXPECT_EQ(two.shape(), Shape{0});
  one = std::move(three);
  EXPECT_EQ(one.data(), data);
}

TEST(Tensor, ReshapesToAsManyElementsOnly) {
  Tensor tensor = Tensor({2, 3}).reshaped({3, 2});
  EXPECT_EQ(tensor.shape(), (Shape{3, 2}));
  EXPECT_THROW(std::move(tensor).reshaped({4, 2}), std::invalid_argument);
}

TEST(Tensor, RefusesMoreElementsThanThereCanBe) {
  EXPECT_THROW(Tensor({SIZE_MAX / 2, 4}), std::invalid_argument);
  EXPECT_THROW(Tensor({SIZE_MAX}), std::invalid_argument);
  EXPECT_TRUE(Tensor({0, SIZE_MAX / 2}).empty());
}

TEST(DeviceMemory, CountsLiveTensorsAndTheirPeak) {
  DeviceMemory memory;
  const DeviceMemory::Scope scope(memory);
  {
    const Tensor one({10});
    const Tensor two = one;
    EXPECT_EQ(memory.use().now, 80U);
  }
  EXPECT_EQ(memory.use().now, 0U);
  EXPECT_EQ(memory.use().peak, 80U);
  memory.reset_peak();
  EXPECT_EQ(memory.use().peak, 0U);
}

TEST(DeviceMemory, IsCreditedByWhicheverThreadFrees) {
  DeviceMemory memory, other;
  Tensor tensor;
  {
    const DeviceMemory::Scope scope(memory);
    tensor = Tensor({8});
  }
  EXPECT_EQ(memory.use().now, 32U);
  std::thread([&other, moved = std::move(tensor)]() mutable {
    const DeviceMemory::Scope scope(other);
    moved = Tensor();
  }).join();
  EXPECT_EQ(memory.use().now, 0U);
  EXPECT_EQ(other.use().peak, 0U);
}

TEST(DeviceMemory, ScopesNestAndEndAtTheirThread) {
  DeviceMemory outer, inner;
  const DeviceMemory::Scope scope(outer);
  {
    const DeviceMemory::Scope nested(inner);
    const Tensor tensor({1});
    std::thread([] { const Tensor unaccounted({1}); }).join();
    EXPECT_EQ(inner.use().now, 4U);
  }
  const Tensor tensor({2});
  EXPECT_EQ(outer.use().peak, 8U);
  EXPECT_EQ(inner.use().peak, 4U);
}

TEST(DeviceMemory, MayGoBeforeItsTensors) {
  Tensor tensor;
  {
    DeviceMemory memory;
    const DeviceMemory::Scope scope(memory);
    tensor = Tensor({4});
  }
  tensor = Tensor();
}

TEST(DeviceMemory, RefusesWhatIsBeyondTheLimitAndNamesTheFigures) {
  DeviceMemory memory;
  memory.set_limit(100);
  const DeviceMemory::Scope scope(memory);
  const Tensor fits({20});
  try {
    const Tensor too_large({6});
    FAIL() << "104 bytes fit into 100";
  } catch (const OutOfDeviceMemory& error) {
    EXPECT_EQ(error.bytes(), 24U);
    EXPECT_EQ(error.in_use(), 80U);
    EXPECT_EQ(error.limit(), 100U);
    EXPECT_THAT(error.what(), HasSubstr("24 bytes asked for, 80 in use, the limit is 100"));
  }
  EXPECT_EQ(memory.use().now, 80U);
  EXPECT_EQ(memory.use().peak, 80U);
  const Tensor exactly({5});
  EXPECT_EQ(memory.use().now, 100U);
}

TEST(Arena, PutsEntriesEndToEnd) {
  Arena arena;
  EXPECT_EQ(arena.add("a", {3}), 0);
  EXPECT_EQ(arena.add("b", {2, 2}), 1);
  arena.allocate();
  EXPECT_EQ(arena.values().size(), 7U);
  EXPECT_EQ(arena[1].data(), arena.values().data() + 3);
  EXPECT_EQ(arena[1].size(), 4U);
  EXPECT_EQ(arena.find("b"), 1);
  EXPECT_EQ(arena.find("c"), -1);
}

TEST(Arena, RefusesTwoOfOneNameAndLateEntries) {
  Arena arena;
  arena.add("a", {3});
  EXPECT_THROW(arena.add("a", {1}), std::invalid_argument);
  arena.allocate();
  EXPECT_THROW(arena.add("b", {1}), std::invalid_argument);
}

}  // namespace
}  // namespace unisono::train
