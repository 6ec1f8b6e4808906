// What held a key holds nothing of it when the memory goes back.
#include "base/secret_text.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <new>
#include <string_view>

#include "base/handshake.h"

namespace unisono {
namespace {

constexpr char kKey[] = "a key of sixteen or more letters";

// Looks at what comes back.
template <typename T>
struct Witness : std::allocator<T> {
  template <typename U>
  struct rebind {
    using other = Witness<U>;
  };
  void deallocate(T* memory, std::size_t count) {
    ++returned;
    dirty += std::count_if(memory, memory + count, [](T byte) { return byte != 0; });
    std::allocator<T>::deallocate(memory, count);
  }
  static inline int returned = 0;
  static inline std::ptrdiff_t dirty = 0;
};

using WatchedText = BasicSecretText<CleansingAllocator<char, Witness<char>>>;

class SecretTexts : public testing::Test {
 protected:
  SecretTexts() { Witness<char>::returned = Witness<char>::dirty = 0; }
  static void expect_clean(int returned) {
    EXPECT_GE(Witness<char>::returned, returned);
    EXPECT_EQ(Witness<char>::dirty, 0);
  }
};

TEST_F(SecretTexts, AreClearedWhenTheyGo) {
  { const WatchedText text(kKey); }
  expect_clean(1);
}

TEST_F(SecretTexts, AreClearedWhereTheyGrewFrom) {
  WatchedText text(kKey);
  for (int i = 0; i < 10; ++i) text.append(kKey);
  EXPECT_EQ(text.size(), 11 * (sizeof kKey - 1));
  expect_clean(2);
}

TEST_F(SecretTexts, LeaveNothingWhereTheyWereMovedFrom) {
  constexpr char kShort[] = "short";
  WatchedText text(kShort);
  WatchedText other(kKey);
  const WatchedText moved(std::move(text));
  other = WatchedText("another");
  EXPECT_EQ(moved.view(), kShort);
  const auto* object = reinterpret_cast<const char*>(&text);
  EXPECT_EQ(std::string_view(object, sizeof text).find(kShort), std::string_view::npos);
  expect_clean(1);
}

TEST_F(SecretTexts, AreClearedBeyondWhatIsLeft) {
  WatchedText text("front back");
  const char* const memory = text.data();
  text.drop_front(6);
  EXPECT_EQ(text.view(), "back");
  EXPECT_EQ(memory[0], 'b');
  text.resize(1);
  // Within the capacity that it had from the start.
  EXPECT_TRUE(text.view() == "b");
  text.resize(5);
  EXPECT_EQ(text.view(), std::string_view("b\0\0\0\0", 5));
}

TEST(Keys, AreClearedWhenTheyGo) {
  alignas(JobKey) std::byte place[sizeof(JobKey)];
  auto* const key = new (place) JobKey(JobKey::random());
  key->~JobKey();
  // The bytes of `place`, which outlives what stood there.
  EXPECT_TRUE(std::all_of(std::begin(place), std::end(place),
                          [](std::byte byte) { return byte == std::byte{0}; }));
}

TEST(Keys, AreWrittenAsTextThatIsRead) {
  const JobKey key = JobKey::random();
  const SecretText text = key.to_hex();
  EXPECT_EQ(text.size(), 64u);
  EXPECT_TRUE(JobKey::from_text(text.view())->to_hex() == text);
  EXPECT_EQ(random_hex(24).size(), 24u);
}

}  // namespace
}  // namespace unisono
