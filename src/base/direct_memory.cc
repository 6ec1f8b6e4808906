#include "base/direct_memory.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <shared_mutex>
#include <utility>
#include <vector>

#include "base/per_process.h"

namespace unisono {
namespace {

std::uintptr_t address_of(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

struct Offers {
  std::shared_mutex mutex;
  std::vector<std::shared_ptr<DirectMemory>> all;
  // All of them lie between these, so that most of the host's memory is told apart without a lock.
  std::atomic<std::uintptr_t> low{UINTPTR_MAX};
  std::atomic<std::uintptr_t> high{0};

  void find_limits() {
    std::uintptr_t first = UINTPTR_MAX;
    std::uintptr_t last = 0;
    for (const auto& offered : all) {
      first = std::min(first, address_of(offered->bytes().data()));
      last = std::max(last, address_of(offered->bytes().data()) + offered->bytes().size());
    }
    low.store(first, std::memory_order_release);
    high.store(last, std::memory_order_release);
  }
  bool is_outside(const void* pointer) const {
    return address_of(pointer) < low.load(std::memory_order_acquire) ||
           address_of(pointer) >= high.load(std::memory_order_acquire);
  }
};

constinit PerProcess<Offers> offers_of_process;

Offers& offers() { return offers_of_process.get(); }

}  // namespace

bool is_within(std::span<const std::byte> whole, const void* begin, std::size_t bytes) {
  const std::uintptr_t first = address_of(begin);
  const std::uintptr_t base = address_of(whole.data());
  return first >= base && bytes <= whole.size() && first - base <= whole.size() - bytes;
}

void DirectMemory::note_failure(const Status& failure) {
  const std::lock_guard lock(mutex_);
  if (failure_.ok()) failure_ = failure;
}

Status DirectMemory::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void offer_direct_memory(std::shared_ptr<DirectMemory> memory) {
  Offers& known = offers();
  const std::unique_lock lock(known.mutex);
  known.all.push_back(std::move(memory));
  known.find_limits();
}

void withdraw_direct_memory(const DirectMemory& memory) {
  std::shared_ptr<DirectMemory> last;  // its destructor runs without the lock
  Offers& known = offers();
  const std::unique_lock lock(known.mutex);
  const auto found = std::find_if(known.all.begin(), known.all.end(),
                                  [&](const auto& offered) { return offered.get() == &memory; });
  if (found == known.all.end()) return;
  last = std::move(*found);
  known.all.erase(found);
  known.find_limits();
}

std::shared_ptr<DirectMemory> find_direct_memory(const void* begin, std::size_t bytes) {
  Offers& known = offers();
  if (known.is_outside(begin)) return nullptr;
  const std::shared_lock lock(known.mutex);
  const auto found = std::find_if(known.all.begin(), known.all.end(), [&](const auto& offered) {
    return is_within(offered->bytes(), begin, bytes);
  });
  return found == known.all.end() ? nullptr : *found;
}

namespace {

// Ranks that are threads may have offered the same bytes each.
void note_failure(const Status& failure, const void* begin, std::size_t bytes) {
  const std::shared_lock lock(offers().mutex);
  for (const auto& offered : offers().all) {
    if (is_within(offered->bytes(), begin, bytes)) offered->note_failure(failure);
  }
}

}  // namespace

void copy_bytes(void* to, const void* from, std::size_t bytes) {
  std::shared_ptr<DirectMemory> memory = find_direct_memory(to, bytes);
  if (memory == nullptr) memory = find_direct_memory(from, bytes);
  if (memory == nullptr) {
    std::memcpy(to, from, bytes);
    return;
  }
  const Status copied = memory->copy(to, from, bytes);
  if (copied) return;
  note_failure(copied, to, bytes);
  note_failure(copied, from, bytes);
}

}  // namespace unisono
