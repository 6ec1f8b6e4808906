// The strategies of one process: DataParallel counts its steps itself.
#include <algorithm>
#include <chrono>
#include <numeric>

#include "tools/train/compare_run.h"
#include "unisono/train/data_parallel.h"
#include "unisono/train/scatter_chunks.h"

namespace unisono::train::comparison {
namespace {

DataParallelOptions options_of(const Workload& workload, const DeviceStrategy& strategy) {
  DataParallelOptions options;
  options.devices.resize(static_cast<std::size_t>(strategy.devices));
  std::iota(options.devices.begin(), options.devices.end(), 0);
  options.gpus = workload.gpus;
  options.output_device = strategy.output;
  options.first_batch = strategy.first_batch;
  options.parallel_loss = strategy.parallel_loss;
  return options;
}

BatchCut cut_of(const Workload& workload, const DeviceStrategy& strategy) {
  BatchCut cut;
  cut.devices = static_cast<std::size_t>(strategy.devices);
  cut.output = static_cast<std::size_t>(strategy.output);
  cut.chunks = strategy.first_batch
                   ? balanced_chunks(workload.samples(), *strategy.first_batch, cut.devices)
                   : even_chunks(workload.samples(), cut.devices);
  return cut;
}

void add_step(const StepReport& report, Cost* cost) {
  cost->threads_started += report.threads_started;
  for (std::size_t i = 0; i < report.devices.size(); ++i) {
    Member& member = cost->members[i];
    member.samples = report.devices[i].samples;
    member.peak_memory = std::max(member.peak_memory, report.devices[i].peak_memory);
    member.traffic += report.devices[i].traffic;
  }
}

}  // namespace

Cost run_devices(const Workload& workload, const DeviceStrategy& strategy, const Span& span) {
  DataParallel trainer(workload.make_model(), workload.make_optimizer,
                       options_of(workload, strategy));
  for (std::size_t step = 0; step < span.warm_up; ++step) {
    trainer.step(workload.batch(step), workload.rate);
  }
  Cost cost;
  cost.strategy = strategy.name;
  cost.is_on_gpus = !workload.gpus.empty();
  cost.samples = workload.samples();
  cost.steps = span.steps;
  cost.members.resize(trainer.devices());
  for (std::size_t step = 0; step < span.steps; ++step) {
    const Batch& batch = workload.batch(span.warm_up + step);
    const auto start = std::chrono::steady_clock::now();
    cost.loss = trainer.step(batch, workload.rate);
    cost.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    add_step(trainer.report(), &cost);
  }
  const ModelSize size = measure_size(workload);
  const BatchCut cut = cut_of(workload, strategy);
  cost.predicted = strategy.parallel_loss ? dp_criterion_traffic(size, cut) : dp_traffic(size, cut);
  return cost;
}

}  // namespace unisono::train::comparison
