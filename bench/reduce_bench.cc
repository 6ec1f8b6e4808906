// Does the reduction arithmetic run at memory speed? Each kernel alternates with the plainest loop
// over as many bytes of float (exact sums: with the canonical tree), compiled for this processor's
// widest vectors, so that noise of the machine hits both. `of_plain` is the kernel's rate divided
// by the loop's, from the best round of each. Bytes are those of one operand.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <random>
#include <vector>

#include "compute/compute.h"

namespace unisono::compute {
namespace {

// g++ vectorises this loop from -O3 on, clang always.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("O3")
#endif
#if defined(__x86_64__)
[[gnu::noinline, gnu::target("avx512f,avx512vl")]] void add_512(float* x, const float* y,
                                                                std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) x[i] += y[i];
}
[[gnu::noinline, gnu::target("avx2")]] void add_256(float* x, const float* y, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) x[i] += y[i];
}
void add_into(float* x, const float* y, std::size_t n) {
  static const auto chosen = __builtin_cpu_supports("avx512vl") ? add_512 : add_256;
  chosen(x, y, n);
}
#else
void add_into(float* x, const float* y, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) x[i] += y[i];
}
#endif
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif

struct FreeAligned {
  void operator()(void* data) const { ::operator delete (data, std::align_val_t{4096}); }
};
using Buffer = std::unique_ptr<void, FreeAligned>;

/// Memory that begins on a page, filled with zeros: valid and finite in every type.
Buffer make_buffer(std::size_t bytes) {
  void* const data = ::operator new (bytes, std::align_val_t{4096});
  std::memset(data, 0, bytes);
  return Buffer(data);
}

template <class Work>
double seconds_of(std::size_t repeats, const Work& work) {
  const auto begin = std::chrono::steady_clock::now();
  for (std::size_t i = 0; i < repeats; ++i) {
    work();
    benchmark::ClobberMemory();
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// Alternates `work` with `plain` until the harness has enough, and reports their best rounds.
template <class Work, class Plain>
void compare(benchmark::State& state, std::size_t bytes, const Work& work, const Plain& plain) {
  const std::size_t repeats = std::max<std::size_t>(1, (std::size_t{1} << 20) / bytes);
  double best = std::numeric_limits<double>::max();
  double best_plain = best;
  for (auto _ : state) {
    const double seconds = seconds_of(repeats, work);
    state.SetIterationTime(seconds);
    best = std::min(best, seconds);
    best_plain = std::min(best_plain, seconds_of(repeats, plain));
  }
  const double moved = static_cast<double>(bytes * repeats);
  state.counters["GB/s"] = moved / best * 1e-9;
  state.counters["plain"] = moved / best_plain * 1e-9;
  state.counters["of_plain"] = best_plain / best;
}

void sum_in_place(benchmark::State& state, DataType type) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  const auto reduction = Reduction::make(type, ops::sum, 2);
  const Buffer x = make_buffer(bytes);
  const Buffer y = make_buffer(bytes);
  compare(
      state, bytes, [&] { reduction->combine(x.get(), x.get(), y.get(), bytes / size_of(type)); },
      [&] {
        add_into(static_cast<float*>(x.get()), static_cast<const float*>(y.get()), bytes / 4);
      });
}

/// The tree over `n` inputs; the loop it is compared with adds n - 1 of them one after the other.
void sum_tree(benchmark::State& state, int n, bool streaming) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  const auto reduction = Reduction::make(DataType::kFloat32, ops::sum, n);
  std::vector<Buffer> inputs;
  std::vector<const void*> pointers;
  for (int i = 0; i < n; ++i) {
    pointers.push_back(inputs.emplace_back(make_buffer(bytes)).get());
  }
  const Buffer out = make_buffer(bytes);
  compare(
      state, bytes,
      [&] { reduction->combine_tree(out.get(), pointers.data(), n, bytes / 4, streaming); },
      [&] {
        for (const void* input : pointers) {
          if (input == pointers[0]) continue;
          add_into(static_cast<float*>(out.get()), static_cast<const float*>(input), bytes / 4);
        }
      });
}

/// fp32 of both signs whose magnitudes lie 2^-`spread` to 1 apart, evenly by exponent.
void fill(void* data, std::size_t count, int spread, std::mt19937& random) {
  std::uniform_real_distribution<float> magnitude(0.5f, 1.0f);
  for (std::size_t i = 0; i < count; ++i) {
    const auto drawn = random();
    const int exponent = -static_cast<int>(drawn >> 1) % (spread + 1);
    static_cast<float*>(data)[i] =
        std::ldexp(drawn % 2 == 0 ? magnitude(random) : -magnitude(random), exponent);
  }
}

/// Sums that are rounded once, of `n` inputs, beside the canonical tree. The wider the magnitudes
/// are `spread`, in bits, the more sums take one of the longer ways.
void sum_exactly(benchmark::State& state, int n, int spread) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  const auto exact = Reduction::make(DataType::kFloat32, ops::sum, n, Order::kExact);
  const auto tree = Reduction::make(DataType::kFloat32, ops::sum, n);
  std::mt19937 random(1);
  std::vector<Buffer> inputs;
  std::vector<const void*> pointers;
  for (int i = 0; i < n; ++i) {
    pointers.push_back(inputs.emplace_back(make_buffer(bytes)).get());
    fill(inputs.back().get(), bytes / 4, spread, random);
  }
  const Buffer out = make_buffer(bytes);
  const auto sum = [&](const Reduction& reduction) {
    return
        [&, pointers] { reduction.combine_tree(out.get(), pointers.data(), n, bytes / 4, false); };
  };
  compare(state, bytes, sum(*exact), sum(*tree));
}

void copy_with(benchmark::State& state, void (*function)(void*, const void*, std::size_t)) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  const Buffer x = make_buffer(bytes);
  const Buffer y = make_buffer(bytes);
  compare(
      state, bytes, [&] { function(x.get(), y.get(), bytes); },
      [&] { std::memcpy(x.get(), y.get(), bytes); });
}

void sizes(benchmark::internal::Benchmark* benchmark) {
  benchmark->RangeMultiplier(4)->Range(4 << 10, 64 << 20)->UseManualTime()->MinTime(0.3);
}
void copy_sizes(benchmark::internal::Benchmark* benchmark) {
  for (const int mebibytes : {1, 2, 4, 6, 8, 10, 12, 16, 64, 256}) benchmark->Arg(mebibytes << 20);
  benchmark->UseManualTime()->MinTime(0.3);
}

BENCHMARK_CAPTURE(sum_in_place, float32, DataType::kFloat32)->Apply(sizes);
BENCHMARK_CAPTURE(sum_in_place, float64, DataType::kFloat64)->Apply(sizes);
BENCHMARK_CAPTURE(sum_in_place, float16, DataType::kFloat16)->Apply(sizes);
BENCHMARK_CAPTURE(sum_in_place, bfloat16, DataType::kBfloat16)->Apply(sizes);
BENCHMARK_CAPTURE(sum_in_place, int8, DataType::kInt8)->Apply(sizes);
BENCHMARK_CAPTURE(sum_in_place, float8_e4m3, DataType::kFloat8E4m3)->Apply(sizes);
BENCHMARK_CAPTURE(sum_in_place, float8_e5m2, DataType::kFloat8E5m2)->Apply(sizes);
BENCHMARK_CAPTURE(sum_tree, of_2, 2, false)->Apply(sizes);
BENCHMARK_CAPTURE(sum_tree, of_3, 3, false)->Apply(sizes);
BENCHMARK_CAPTURE(sum_tree, of_4, 4, false)->Apply(sizes);
BENCHMARK_CAPTURE(sum_tree, of_8, 8, false)->Apply(sizes);
BENCHMARK_CAPTURE(sum_tree, of_2_streaming, 2, true)->Apply(sizes);
BENCHMARK_CAPTURE(sum_tree, of_8_streaming, 8, true)->Apply(sizes);
BENCHMARK_CAPTURE(sum_exactly, of_4, 4, 20)->Apply(sizes);
BENCHMARK_CAPTURE(sum_exactly, of_8, 8, 20)->Apply(sizes);
BENCHMARK_CAPTURE(sum_exactly, of_4_spread_40_bits, 4, 40)->Apply(sizes);
BENCHMARK_CAPTURE(sum_exactly, of_4_spread_120_bits, 4, 120)->Apply(sizes);
BENCHMARK_CAPTURE(copy_with, copy, copy)->Apply(copy_sizes);
BENCHMARK_CAPTURE(copy_with, copy_streaming, copy_streaming)->Apply(copy_sizes);

}  // namespace
}  // namespace unisono::compute

BENCHMARK_MAIN();
