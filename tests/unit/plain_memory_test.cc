// What allocate() gives where no memory is shared.
#include "comm/plain_memory.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>

namespace unisono {
namespace {

TEST(PlainMemory, IsAlignedAndReleasedOnce) {
  PlainMemory memory;
  for (const std::size_t bytes : {0, 1, 64, 1000}) {
    const Result<void*> pointer = memory.allocate(bytes);
    ASSERT_TRUE(pointer);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(*pointer) % 64, 0u);
    std::memset(*pointer, 1, bytes);
    EXPECT_TRUE(memory.release(*pointer));
    EXPECT_EQ(memory.release(*pointer).code(), ErrorCode::kInvalidArgument);
  }
}

TEST(PlainMemory, FreesWhatIsLeft) {  // or the leak check says so
  PlainMemory memory;
  EXPECT_TRUE(memory.allocate(1000));
}

}  // namespace
}  // namespace unisono
