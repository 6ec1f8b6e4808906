#include "transports/shm/cold_memory.h"

#include <array>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/median.h"
#include "transports/shm/segment.h"

namespace unisono::shm {
namespace {

// Most of these must come slowly: one may have been late for another reason.
constexpr std::size_t kLines = 3;
constexpr int kSlowLines = 2;

// Lines flushed and read back; the median says what memory takes. It may change under a virtual
// machine, so it is asked again.
constexpr std::size_t kFlushedLines = 5;
constexpr std::uint32_t kAsksUntilNext = 64;

void read(const std::byte& line) {
  [[maybe_unused]] const std::byte got = *static_cast<const volatile std::byte*>(&line);
}

Duration time_of_reading(const std::byte& line) {
  const TimePoint begin = Clock::now();
  read(line);
  return Clock::now() - begin;
}

void flush(const std::byte& line) {
#if defined(__x86_64__)
  _mm_clflush(&line);
  _mm_mfence();
#elif defined(__aarch64__)
  asm volatile("dc civac, %0\n\tdsb ish" : : "r"(&line) : "memory");
#else
  static_cast<void>(line);
#endif
}

const std::byte* first_page_of(std::span<const std::byte> memory) {
  const auto begins = reinterpret_cast<std::uintptr_t>(memory.data());
  return memory.data() + (round_up(begins, kPageBytes) - begins);
}

}  // namespace

constexpr LineProbe kLineProbe{&time_of_reading, &flush};

// Nearer to memory than to the nearest cache, because a third-level one may be more than half as
// far.
Duration ColdMemory::least_of_memory() const {
  alignas(kLineBytes) const std::array<std::byte, kLineBytes> own{};
  std::array<Duration, kFlushedLines> from_memory{};
  std::array<Duration, kFlushedLines> from_cache{};
  for (std::size_t i = 0; i < kFlushedLines; ++i) {
    probe_.flush(own[0]);
    from_memory[i] = probe_.time_of_reading(own[0]);
    from_cache[i] = probe_.time_of_reading(own[0]);
  }
  const Duration memory = median(from_memory);
  const Duration cache = median(from_cache);
  return memory > 2 * cache ? (3 * memory + cache) / 4 : Duration{};
}

// A page's translation may be as far as memory where the line itself is not, so another line of the
// page is read first; no prefetcher looks half a page ahead.
bool ColdMemory::comes_late(std::span<const std::byte> memory) const {
  const std::byte* const page = first_page_of(memory);
  const std::size_t stride = memory.size() / kLines / kPageBytes * kPageBytes;
  for (std::size_t line = 0; line < kLines; ++line) read(page[stride * line]);
  int slow = 0;
  for (std::size_t line = 0; line < kLines && slow < kSlowLines; ++line) {
    if (probe_.time_of_reading(page[stride * line + kPageBytes / 2]) > least_) ++slow;
  }
  return slow == kSlowLines;
}

bool ColdMemory::has(std::span<const std::byte> place) {
  const bool asks = place.size() >= kColdBytesMin && place.data() != last_;
  if (asks && asked_++ % kAsksUntilNext == 0) least_ = least_of_memory();
  const bool is_cold = asks && least_ > Duration{} && comes_late(place);
  last_ = is_cold ? place.data() : nullptr;
  return is_cold;
}

}  // namespace unisono::shm
