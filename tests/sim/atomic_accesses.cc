// What the compiler calls in code that it makes for the thread sanitizer. The native code is
// compiled so once more for the simulation, without that sanitizer: its atomic accesses come here,
// and Interleaving hears of them. Plain accesses go by.
//
// Thread rule: one thread.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tests/sim/interleaving.h"

namespace {

using unisono::sim::Interleaving;

constexpr int kSeqCst = __ATOMIC_SEQ_CST;

template <typename T>
T load(const volatile T* from) {
  T value;
  if (Interleaving* const rank = Interleaving::current()) {
    rank->on_access();
    if (rank->find_stored(from, &value, sizeof value)) return value;
  }
  return __atomic_load_n(from, __ATOMIC_SEQ_CST);
}

template <typename T>
void store(volatile T* to, T value, int order) {
  Interleaving* const rank = Interleaving::current();
  if (rank == nullptr) return __atomic_store_n(to, value, __ATOMIC_SEQ_CST);
  rank->on_access();
  rank->store(to, &value, sizeof value);
  if (order == kSeqCst) rank->flush();
  rank->on_access();  // what is written afterwards is late
}

// All that it has stored is seen before what it changes.
void before_change() {
  Interleaving* const rank = Interleaving::current();
  if (rank == nullptr) return;
  rank->on_access();
  rank->flush();
}

}  // namespace

// NOLINTBEGIN: the names are the compiler's.
#define UNISONO_SIM_CHANGE(T, bits, name, builtin)               \
  T __tsan_atomic##bits##_##name(volatile T* at, T value, int) { \
    before_change();                                             \
    return builtin(at, value, kSeqCst);                          \
  }
#define UNISONO_SIM_COMPARE(T, bits, strength)                                                  \
  int __tsan_atomic##bits##_compare_exchange_##strength(volatile T* at, T* expected, T desired, \
                                                        int, int) {                             \
    before_change();                                                                            \
    return __atomic_compare_exchange_n(at, expected, desired, false, kSeqCst, kSeqCst) ? 1 : 0; \
  }
#define UNISONO_SIM_ATOMIC(T, bits)                                                \
  T __tsan_atomic##bits##_load(const volatile T* from, int) { return load(from); } \
  void __tsan_atomic##bits##_store(volatile T* to, T value, int order) {           \
    store(to, value, order);                                                       \
  }                                                                                \
  UNISONO_SIM_CHANGE(T, bits, exchange, __atomic_exchange_n)                       \
  UNISONO_SIM_CHANGE(T, bits, fetch_add, __atomic_fetch_add)                       \
  UNISONO_SIM_CHANGE(T, bits, fetch_sub, __atomic_fetch_sub)                       \
  UNISONO_SIM_CHANGE(T, bits, fetch_and, __atomic_fetch_and)                       \
  UNISONO_SIM_CHANGE(T, bits, fetch_or, __atomic_fetch_or)                         \
  UNISONO_SIM_CHANGE(T, bits, fetch_xor, __atomic_fetch_xor)                       \
  UNISONO_SIM_COMPARE(T, bits, strong)                                             \
  UNISONO_SIM_COMPARE(T, bits, weak)
#define UNISONO_SIM_PLAIN(bytes)               \
  void __tsan_read##bytes(void*) {}            \
  void __tsan_write##bytes(void*) {}           \
  void __tsan_unaligned_read##bytes(void*) {}  \
  void __tsan_unaligned_write##bytes(void*) {} \
  void __tsan_volatile_read##bytes(void*) {}   \
  void __tsan_volatile_write##bytes(void*) {}  \
  void __tsan_read_write##bytes(void*) {}

extern "C" {

UNISONO_SIM_ATOMIC(std::uint8_t, 8)
UNISONO_SIM_ATOMIC(std::uint16_t, 16)
UNISONO_SIM_ATOMIC(std::uint32_t, 32)
UNISONO_SIM_ATOMIC(std::uint64_t, 64)

void __tsan_atomic_thread_fence(int order) {
  if (order == kSeqCst) before_change();
}
void __tsan_atomic_signal_fence(int) {}

UNISONO_SIM_PLAIN(1)
UNISONO_SIM_PLAIN(2)
UNISONO_SIM_PLAIN(4)
UNISONO_SIM_PLAIN(8)
UNISONO_SIM_PLAIN(16)
void __tsan_read_range(void*, std::size_t) {}
void __tsan_write_range(void*, std::size_t) {}
void __tsan_vptr_read(void*) {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_init() {}
void* __tsan_memcpy(void* to, const void* from, std::size_t bytes) {
  return std::memcpy(to, from, bytes);
}
void* __tsan_memmove(void* to, const void* from, std::size_t bytes) {
  return std::memmove(to, from, bytes);
}
void* __tsan_memset(void* to, int value, std::size_t bytes) {
  return std::memset(to, value, bytes);
}
}
// NOLINTEND
