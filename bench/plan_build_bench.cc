// How long the busiest rank, the last one and root, needs to build its plan, for every algorithm at
// 64 and 4096 ranks.
// Bars: 100 us at 64 ranks, 5 ms at 4096.
#include <benchmark/benchmark.h>

#include <string>

#include "algorithms/algorithm.h"

namespace unisono {
namespace {

void build_plan(benchmark::State& state, const algorithms::Algorithm& algorithm) {
  const auto ranks = static_cast<int>(state.range(0));
  const plan::PlanRequest request{.collective = algorithm.collective,
                                  .ranks = ranks,
                                  .rank = ranks - 1,
                                  .root = ranks - 1,
                                  .in_place = state.range(1) != 0};
  std::size_t steps = 0;
  for (auto _ : state) {
    const plan::Plan plan = algorithm.build(request);
    steps = plan.steps.size();
    benchmark::DoNotOptimize(plan.steps.data());
  }
  state.counters["steps"] = static_cast<double>(steps);
}

void register_all() {
  for (const algorithms::Algorithm& algorithm : algorithms::catalog()) {
    const std::string name = "plan_build/" + std::string(name_of(algorithm.collective)) + "/" +
                             std::string(algorithm.name);
    benchmark::RegisterBenchmark(name.c_str(), build_plan, algorithm)
        ->ArgNames({"ranks", "in_place"})
        ->ArgsProduct({{64, 4096}, {0, 1}})
        ->Unit(benchmark::kMicrosecond);
  }
}

}  // namespace
}  // namespace unisono

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  unisono::register_all();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
