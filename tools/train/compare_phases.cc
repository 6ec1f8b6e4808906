// DataParallel's parts called one by one, its report read in between.
#include "tools/train/compare_phases.h"

#include <fmt/format.h>

#include <numeric>

#include "tools/train/compare_sums.h"
#include "unisono/communicator.h"
#include "unisono/objects.h"
#include "unisono/train/data_parallel.h"
#include "unisono/train/loss.h"
#include "unisono/train/models.h"
#include "unisono/train/scatter_chunks.h"

namespace unisono::train::comparison {
namespace {

constexpr Span kShort{.warm_up = 2, .steps = 2};

std::vector<TrafficReport> traffic_of(const StepReport& report) {
  std::vector<TrafficReport> traffic;
  for (const DeviceReport& device : report.devices) traffic.push_back(device.traffic);
  return traffic;
}

std::string join(const std::vector<std::size_t>& counts) {
  std::string text;
  for (const std::size_t count : counts)
    text += (text.empty() ? "" : " + ") + fmt::to_string(count);
  return text;
}

std::vector<TrafficReport> of_ranks_per_step(const Cost& cost, TrafficReport Member::*part) {
  std::vector<TrafficReport> reports;
  for (const Member& member : cost.members) reports.push_back(per_step(member.*part, cost.steps));
  return reports;
}

/// What `more` has beyond `less`.
std::vector<TrafficReport> beyond(std::vector<TrafficReport> more,
                                  const std::vector<TrafficReport>& less) {
  for (std::size_t i = 0; i < more.size(); ++i) more[i] -= less[i];
  return more;
}

}  // namespace

DpPhases measure_dp_phases(const Workload& workload, int output) {
  DataParallelOptions options;
  options.devices.resize(static_cast<std::size_t>(workload.devices));
  std::iota(options.devices.begin(), options.devices.end(), 0);
  options.gpus = workload.gpus;
  options.output_device = output;
  DataParallel trainer(workload.make_model(), workload.make_optimizer, options);
  trainer.step(workload.batch(0), workload.rate);

  const auto holder = static_cast<std::size_t>(output);
  DpPhases phases;
  const Batch& batch = workload.batch(1);
  const Predictions predictions = trainer.predict({{"inputs", batch.inputs}}, true);
  const StepReport forward = trainer.report();
  phases.parameters = bytes_sent(traffic_of(forward), Collective::kBroadcast);
  phases.inputs = bytes_sent(traffic_of(forward), Collective::kScatterV);

  const std::vector<Tensor> gathered = trainer.gather(predictions, output);
  const StepReport outputs = trainer.report();
  phases.outputs = bytes_sent(traffic_of(outputs), Collective::kGatherV);
  phases.output.output = output;
  phases.output.outputs = outputs.devices[holder].memory - forward.devices[holder].memory;

  DeviceMemory of_loss;
  std::vector<Tensor> gradients(1);
  {
    const DeviceMemory::Scope scope(of_loss);
    cross_entropy(gathered.front(), batch.targets, &gradients.front());
  }
  // On a GPU it lies beside the outputs.
  phases.output.gradient =
      of_loss.use().now + trainer.report().devices[holder].memory - outputs.devices[holder].memory;
  trainer.propagate(gradients);
  const StepReport backward = trainer.report();
  phases.output_gradients = bytes_sent(traffic_of(backward), Collective::kScatterV) - phases.inputs;
  phases.gradients = bytes_sent(traffic_of(backward), Collective::kReduce);

  trainer.update(workload.rate);
  phases.update = bytes_sent(traffic_of(trainer.report())) - bytes_sent(traffic_of(backward));
  phases.output.predicted = output_memory(measure_size(workload).outputs, workload.samples());
  return phases;
}

std::vector<Phase> phases_of(const Workload& workload, const DpPhases& dp, const Cost& ddp) {
  const std::vector<TrafficReport> gradients = of_ranks_per_step(ddp, &Member::traffic);
  const std::vector<TrafficReport> control = of_ranks_per_step(ddp, &Member::control);
  std::uint64_t rest = bytes_sent(gradients) + bytes_sent(control);
  // Each byte in one cell; what no phase accounts for shows in the last.
  const auto take = [&rest](std::uint64_t bytes) { return rest -= bytes, bytes; };
  const auto both = [&](Collective collective) {
    return take(bytes_sent(gradients, collective) + bytes_sent(control, collective));
  };
  const std::string samples =
      join(even_chunks(workload.samples(), static_cast<std::size_t>(workload.devices))) +
      " samples, ";
  const std::string holder = fmt::to_string(dp.output.output);
  std::vector<Phase> phases{
      {"data loader", "one, for all devices", "one for each rank", workload.loaded_bytes,
       workload.loaded_bytes},
      {"split", "device 0 scatters the batch", "each rank's sampler takes its part", dp.inputs,
       both(Collective::kScatterV)},
      {"mini-batch", samples + "received", samples + "its own", 0, both(Collective::kScatter)},
      {"parameters", "from device 0 in every step", "stay on each rank", dp.parameters,
       both(Collective::kBroadcast)},
      {"forward", "outputs gathered on device " + holder, "outputs stay", dp.outputs,
       both(Collective::kGatherV)},
      {"loss", "on device " + holder + ", gradients sent back", "on each rank, then averaged",
       dp.output_gradients, take(bytes_sent(control, Collective::kAllReduce))},
      {"gradient", "reduced to device 0", "averaged by rings during backward", dp.gradients,
       take(bytes_sent(gradients, Collective::kAllReduce))},
      {"update", "on device 0 alone", "the same on each rank", dp.update, 0}};
  phases.back().ddp_bytes = rest;
  return phases;
}

std::vector<Extra> measure_extras(const Workload& workload, const Cost& ddp) {
  const std::unique_ptr<Model> model = workload.make_model();
  const std::uint64_t parameters = model->parameters().values().size();
  const std::uint64_t buffers = model->buffers().values().size();
  std::vector<Extra> extras;
  const std::vector<TrafficReport> loss = of_ranks_per_step(ddp, &Member::control);
  extras.push_back({"loss average", false, sizeof(double), loss});

  const Cost with_buffers =
      run_ranks(workload, {.name = "ddp with buffers", .broadcast_buffers = true}, kShort);
  extras.push_back({"buffers", false, buffers * sizeof(float),
                    beyond(of_ranks_per_step(with_buffers, &Member::control), loss)});

  const Cost with_bitmap =
      run_ranks(workload, {.name = "ddp with unused parameters", .find_unused = true}, kShort);
  extras.push_back({"used bitmap", false,
                    model->parameters().entries().size() * sizeof(std::int32_t),
                    beyond(of_ranks_per_step(with_bitmap, &Member::control), loss)});

  const Cost synchronised =
      run_ranks(workload, {.name = "ddp with SyncBN", .sync_batch_norm = true}, kShort);
  // Mean, variance and count forward, two sums backward, of each channel; the buffers are a mean
  // and a variance of each.
  const std::uint64_t norms = convert_sync_batch_norm(*model);
  extras.push_back({"SyncBN", false, (2 * buffers + norms) * sizeof(float),
                    of_ranks_per_step(synchronised, &Member::statistics)});

  Extra once{"first broadcast", true, (parameters + buffers) * sizeof(float), {}};
  for (const Member& member : ddp.members) once.members.push_back(member.once);
  extras.push_back(std::move(once));
  return extras;
}

ObjectGather measure_object_gather(const Workload& workload) {
  ObjectGather result;
  spawn(workload.devices,
        [&](Communicator& communicator) {
          DeviceMemory memory = memory_of_rank(workload, communicator.rank());
          const DeviceMemory::Scope scope(memory);
          Pass pass;
          pass.training = false;
          const Tensor outputs = workload.make_model()->forward(workload.batch(0).inputs, pass);
          const Tensor here = outputs.to_host();
          memory.reset_peak();
          const std::size_t before = memory.use().now;
          const auto all = all_gather_objects(communicator, std::as_bytes(here.values()));
          if (communicator.rank() != 0) return;
          for (const ObjectBytes& object : all) result.payload += object.size();
          result.device_memory = memory.use().peak - before;
        },
        {.transport = workload.transport, .devices = workload.gpus});
  return result;
}

}  // namespace unisono::train::comparison
