// Copies and additions on one and two cores, in the caches and out of them, and first touch.
#include <immintrin.h>

#include <thread>

#include "bench/peers/limits.h"

namespace limits {
namespace {

using Kernel = void (*)(char*, const char*, std::size_t);

void copy_plain(char* to, const char* from, std::size_t bytes) { std::memcpy(to, from, bytes); }

void copy_streaming(char* to, const char* from, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; i += 16) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + i),
                     _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i)));
  }
  _mm_sfence();
}

void copy_rep(char* to, const char* from, std::size_t bytes) {
  asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes)::"memory");
}

void add_into(char* to, const char* from, std::size_t bytes) {
  float* __restrict sum = reinterpret_cast<float*>(to);
  const float* __restrict addend = reinterpret_cast<const float*>(from);
  for (std::size_t i = 0; i < bytes / sizeof(float); ++i) sum[i] += addend[i];
}

void evict(const char* memory, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; i += 64) _mm_clflush(memory + i);
  _mm_mfence();
}

/// Each thread works on `bytes` of its own; all threads' bytes over the slowest one's time.
double bandwidth(Kernel kernel, std::size_t bytes, int threads, bool cold,
                 const std::vector<char*>& from, const std::vector<char*>& to) {
  const int repeats = std::clamp(static_cast<int>(6e8 / static_cast<double>(bytes)), 3, 400);
  const int calls = cold ? 1 : std::max(1, static_cast<int>((std::size_t{1} << 20) / bytes));
  std::atomic<int> ready{0}, started{0};
  std::vector<std::vector<double>> times(threads, std::vector<double>(repeats));
  const auto body = [&](int id) {
    pin(id);
    kernel(to[id], from[id], bytes);
    for (int r = 0; r < repeats; ++r) {
      if (cold) {
        evict(to[id], bytes);
        evict(from[id], bytes);
      }
      ready.fetch_add(1);
      if (id == 0) {
        while (ready.load() != threads * (r + 1)) _mm_pause();
        started.store(r + 1);
      }
      while (started.load() != r + 1) _mm_pause();
      const double begin = now_s();
      for (int i = 0; i < calls; ++i) kernel(to[id], from[id], bytes);
      times[id][r] = (now_s() - begin) / calls;
    }
  };
  std::vector<std::thread> others;
  for (int i = 1; i < threads; ++i) others.emplace_back(body, i);
  body(0);
  for (std::thread& other : others) other.join();
  std::vector<double> slowest(repeats);
  for (int r = 0; r < repeats; ++r) {
    for (int i = 0; i < threads; ++i) slowest[r] = std::max(slowest[r], times[i][r]);
  }
  return threads * static_cast<double>(bytes) / median(slowest) * 1e-9;
}

void measure_first_touch() {
  const std::size_t bytes = std::size_t{64} << 20;
  const char* const names[] = {"private", "shared", "private, huge pages"};
  for (int kind = 0; kind < 3; ++kind) {
    std::vector<double> times;
    for (int r = 0; r < 3; ++r) {
      const int flags = (kind == 1 ? MAP_SHARED : MAP_PRIVATE) | MAP_ANONYMOUS;
      void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
      if (memory == MAP_FAILED) return;
      if (kind == 2) madvise(memory, bytes, MADV_HUGEPAGE);
      const double begin = now_s();
      std::memset(memory, 1, bytes);
      times.push_back(now_s() - begin);
      munmap(memory, bytes);
    }
    row("first_touch_memset", names[kind], bytes, static_cast<double>(bytes) / median(times) * 1e-9,
        "GB/s");
  }
}

}  // namespace

void measure_memory() {
  const std::size_t largest = std::size_t{256} << 20;
  const std::vector<char*> from{map(largest), map(largest)}, to{map(largest), map(largest)};
  struct Named {
    const char* name;
    Kernel kernel;
  };
  constexpr Named kKernels[] = {{"memcpy", copy_plain},
                                {"copy_streaming", copy_streaming},
                                {"copy_rep_movsb", copy_rep},
                                {"add_float", add_into}};
  for (const Named& named : kKernels) {
    for (int threads = 1; threads <= 2; ++threads) {
      for (const bool cold : {false, true}) {
        const std::string variant = std::to_string(threads) +
                                    (threads == 1 ? " thread" : " threads") +
                                    (cold ? ", cold" : ", warm");
        for (std::size_t bytes = 64 << 10; bytes <= largest; bytes *= 4) {
          row(named.name, variant, bytes, bandwidth(named.kernel, bytes, threads, cold, from, to),
              "GB/s");
        }
      }
    }
  }
  for (char* memory : from) munmap(memory, largest);
  for (char* memory : to) munmap(memory, largest);
  measure_first_touch();
}

}  // namespace limits
