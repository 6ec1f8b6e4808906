// Large blocks of memory, kept for the next that asks: the thread sanitizer's allocator gives each
// back to the system, shadow and all, and tests of large messages spent most of their time in page
// faults. For programs of that sanitizer alone; elsewhere this is empty.
#ifdef __SANITIZE_THREAD__
#include <malloc.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace {

constexpr std::size_t kLarge = 256 * 1024;  // smaller ones the allocator keeps itself
constexpr std::size_t kKeptBytesMax = std::size_t{1} << 30;

// Whoever takes a block sees all that was done with it before, so reuse is no race.
std::array<std::atomic<void*>, 64> kept;
std::atomic<std::size_t> kept_bytes{0};

void* take(std::size_t bytes) {
  for (std::atomic<void*>& slot : kept) {
    if (slot.load(std::memory_order_relaxed) == nullptr) continue;
    void* const block = slot.exchange(nullptr, std::memory_order_acq_rel);
    if (block == nullptr) continue;
    const std::size_t usable = malloc_usable_size(block);
    kept_bytes.fetch_sub(usable, std::memory_order_relaxed);
    if (usable >= bytes && usable / 2 <= bytes) return block;
    std::free(block);  // of another size: the test has moved on
  }
  return nullptr;
}

bool keep(void* block, std::size_t usable) {
  if (kept_bytes.load(std::memory_order_relaxed) + usable > kKeptBytesMax) return false;
  for (std::atomic<void*>& slot : kept) {
    void* empty = nullptr;
    if (!slot.compare_exchange_strong(empty, block, std::memory_order_acq_rel)) continue;
    kept_bytes.fetch_add(usable, std::memory_order_relaxed);
    return true;
  }
  return false;
}

void* allocate(std::size_t bytes) {
  if (bytes >= kLarge) {
    if (void* const block = take(bytes)) return block;
  }
  void* const block = std::malloc(bytes == 0 ? 1 : bytes);
  if (block == nullptr) throw std::bad_alloc();
  return block;
}

void release(void* block) noexcept {
  if (block == nullptr) return;
  const std::size_t usable = malloc_usable_size(block);
  if (usable < kLarge || !keep(block, usable)) std::free(block);
}

}  // namespace

void* operator new(std::size_t bytes) { return allocate(bytes); }
void* operator new[](std::size_t bytes) { return allocate(bytes); }
void operator delete(void* block) noexcept { release(block); }
void operator delete[](void* block) noexcept { release(block); }
void operator delete(void* block, std::size_t) noexcept { release(block); }
void operator delete[](void* block, std::size_t) noexcept { release(block); }
#endif
