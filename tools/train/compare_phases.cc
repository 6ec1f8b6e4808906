// DataParallel's parts called one by one, its report read in between.
#include "tools/train/compare_phases.h"

#include <numeric>

#include "tools/train/compare_sums.h"
#include "unisono/communicator.h"
#include "unisono/objects.h"
#include "unisono/train/data_parallel.h"
#include "unisono/train/loss.h"
#include "unisono/train/models.h"

namespace unisono::train::comparison {
namespace {

constexpr Span kShort{.warm_up = 2, .steps = 2};

std::vector<TrafficReport> traffic_of(const StepReport& report) {
  std::vector<TrafficReport> traffic;
  for (const DeviceReport& device : report.devices) traffic.push_back(device.traffic);
  return traffic;
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

/// What `trainer`'s broadcasts move in a forward pass.
std::uint64_t broadcast_bytes(DataParallel& trainer, const Batch& batch) {
  trainer.predict({{"inputs", batch.inputs}}, true);
  return bytes_sent(traffic_of(trainer.report()), Collective::kBroadcast);
}

DataParallelOptions options_of(const Workload& workload, int output) {
  DataParallelOptions options;
  options.devices.resize(static_cast<std::size_t>(workload.devices));
  std::iota(options.devices.begin(), options.devices.end(), 0);
  options.gpus = workload.gpus;
  options.output_device = output;
  return options;
}

/// Parameters without buffers: both are broadcast, so a trainer that keeps its buffers tells.
std::uint64_t measure_parameters(const Workload& workload, int output) {
  DataParallelOptions options = options_of(workload, output);
  options.broadcast_buffers = false;
  DataParallel trainer(workload.make_model(), workload.make_optimizer, options);
  return broadcast_bytes(trainer, workload.batch(1));
}

}  // namespace

DpPhases measure_dp_phases(const Workload& workload, int output) {
  DataParallel trainer(workload.make_model(), workload.make_optimizer,
                       options_of(workload, output));
  trainer.step(workload.batch(0), workload.rate);

  const auto holder = static_cast<std::size_t>(output);
  DpPhases phases;
  const Batch& batch = workload.batch(1);
  const Predictions predictions = trainer.predict({{"inputs", batch.inputs}}, true);
  const StepReport forward = trainer.report();
  phases.parameters = measure_parameters(workload, output);
  phases.buffers = bytes_sent(traffic_of(forward), Collective::kBroadcast) - phases.parameters;
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
  phases.rest = bytes_sent(traffic_of(trainer.report())) - phases.parameters - phases.buffers -
                phases.inputs - phases.outputs - phases.output_gradients - phases.gradients;
  phases.output.predicted = output_memory(measure_size(workload).outputs, workload.samples());
  return phases;
}

StepAccount account_of(const Workload& workload, const DpPhases& dp, const Cost& ddp) {
  const std::vector<TrafficReport> gradients = of_ranks_per_step(ddp, &Member::traffic);
  const std::vector<TrafficReport> control = of_ranks_per_step(ddp, &Member::control);
  std::uint64_t rest = bytes_sent(gradients) + bytes_sent(control);
  // Each byte in one cell; what no row explains shows in the last.
  const auto take = [&rest](const std::vector<TrafficReport>& reports, Collective collective) {
    const std::uint64_t bytes = bytes_sent(reports, collective);
    rest -= bytes;
    return bytes;
  };
  StepAccount account;
  account.phases = {
      {"data loader", "first device alone", "each its own", workload.loaded_bytes,
       workload.loaded_bytes},
      {"splitting into mini-batches", "first device", "none: the sampler did it", 0, 0},
      {"sharing mini-batches", "first device to others", "none", dp.inputs,
       take(gradients, Collective::kScatterV)},
      {"sharing parameters", "first to others after each update", "once at the start",
       dp.parameters, take(gradients, Collective::kBroadcast)},
      {"forward", "each", "each", 0, 0},
      {"loss", "others send outputs to the first, which computes it", "each its own", dp.outputs,
       take(gradients, Collective::kGatherV)},
      {"gradients", "first sends the loss's gradient to the others, each computes", "each computes",
       dp.output_gradients, 0},
      {"update", "others send gradients to the first, which updates",
       "all exchange and average gradients, each updates", dp.gradients,
       take(gradients, Collective::kAllReduce)}};
  account.besides = {{"buffers", "first to others with the parameters", "counted apart, below",
                      dp.buffers, take(control, Collective::kBroadcast)},
                     {"average of the loss", "none: it is whole", "all exchange, for people", 0,
                      take(control, Collective::kAllReduce)},
                     {"anything else", "", "", dp.rest, 0}};
  account.besides.back().ddp_bytes = rest;
  return account;
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
