// From the options to the printed comparison.
#include "tools/train/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <stdexcept>

#include "config/config.h"
#include "tools/common/output.h"
#include "tools/common/terminal.h"
#include "tools/train/compare_report.h"
#include "tools/train/placement.h"
#include "tools/train/problem.h"
#include "tools/train/strategy.h"
#include "unisono/communicator.h"

namespace unisono::train {
namespace {

using namespace comparison;

/// Distinct batches; more steps than these take them again.
constexpr std::size_t kBatches = 32;
constexpr const char* kDefaultWorkload =
    "This model, the default here, computes long enough that two cores are faster than one; with\n"
    "--model mlp, the default of a training, a single device is.\n";

/// The data set, or images made up where no data were asked for and none are installed.
std::unique_ptr<Model> fill_batches(const Options& options, std::size_t count, Workload* workload,
                                    std::vector<std::string>* notes) {
  try {
    const Problem problem = open_problem(options);
    load_batches(problem.train, options.batch, count, options.seed, workload);
    return make_model(options, *problem.train);
  } catch (const std::runtime_error& missing) {
    if (!options.data.empty() || options.model == ModelKind::kGpt) throw;
    notes->push_back(fmt::format("{}; comparing on made-up images instead", missing.what()));
  }
  return make_up_problem(options, count, workload);
}

Workload make_workload(const CompareOptions& options, Comparison* result) {
  const Options& training = options.training;
  Workload workload;
  workload.devices = training.devices.empty() ? 2 : static_cast<int>(training.devices.size());
  workload.transport = training.transport;
  workload.gpus = gpus_of_devices(training);
  workload.rate = training.rate;
  workload.make_optimizer = optimizer_of(training);
  workload.first_batch =
      training.first_batch.value_or(default_first_batch(training.batch, workload.devices));
  const std::size_t count = std::min(kBatches, options.warm_up + options.steps);
  const std::shared_ptr<const Model> model =
      fill_batches(training, count, &workload, &result->notes);
  result->model = model->describe();
  workload.make_model = [model] { return model->clone(); };
  for (const std::string& note : check(workload)) {
    result->notes.push_back(fmt::format("dp-balanced: {}", note));
  }
  return workload;
}

std::vector<Cost> run_all(const Workload& workload, const Span& span, bool is_quiet) {
  const int n = workload.devices;
  const std::vector<DeviceStrategy> of_devices{
      {.name = "single", .devices = 1},
      {.name = kDpName, .devices = n},
      {.name = kDpOutput1Name, .devices = n, .output = 1},
      {.name = "dp-balanced", .devices = n, .first_batch = workload.first_batch},
      {.name = "dp-criterion", .devices = n, .parallel_loss = true}};
  const std::vector<RankStrategy> of_ranks{{.name = kDdpName}, {.name = "zero1", .zero = true}};
  tools::ProgressLine progress(stderr, of_devices.size() + of_ranks.size());
  std::vector<Cost> costs;
  const auto tell = [&](const std::string& strategy) {
    if (!is_quiet) progress.update(costs.size(), strategy);
  };
  for (const DeviceStrategy& strategy : of_devices) {
    tell(strategy.name);
    costs.push_back(run_devices(workload, strategy, span));
  }
  for (const RankStrategy& strategy : of_ranks) {
    tell(strategy.name);
    costs.push_back(run_ranks(workload, strategy, span));
  }
  return costs;
}

const Cost& cost_of(const std::vector<Cost>& costs, std::string_view strategy) {
  return *std::ranges::find(costs, strategy, &Cost::strategy);
}

/// Rings, which the traffic is predicted for, keep no order of sums. Ranks with GPUs take none.
void refuse_order(const Options& training) {
  const Result<Config> config = Config::from_environment();
  if (!config || config->order == Order::kAny || !gpus_of_devices(training).empty()) return;
  throw std::invalid_argument(fmt::format(
      "UNISONO_ORDER={}: ranks are compared by ring, which keeps no order; unset it for --compare",
      name_of(config->order)));
}

/// A transport that cannot serve is told at once and not after half of the strategies.
void try_transport(const Workload& workload) {
  SpawnOptions options;
  options.transport = workload.transport;
  spawn(
      workload.devices, [](Communicator& communicator) { communicator.barrier(); }, options);
}

// With --json they are lines of the result.
void tell_notes(const Comparison& result, bool is_json) {
  if (is_json) return;
  for (const std::string& note : result.notes) {
    fmt::print(stderr, "unisono train --compare: {}\n", note);
  }
}

Comparison compare(const CompareOptions& options) {
  const Options& training = options.training;
  Comparison result;
  const Workload workload = make_workload(options, &result);
  tell_notes(result, training.json);
  result.samples_note = cut_text(training);
  if (training.is_workload_default) result.workload_note = kDefaultWorkload;
  try_transport(workload);
  result.data = workload.data;
  result.devices = workload.devices;
  result.samples = workload.samples();
  result.gpus = workload.gpus;
  if (!result.gpus.empty()) {
    result.copies = measure_copies(result.gpus.front(), workload.batches.front().inputs.shape());
  }
  result.transport = workload.transport.empty() ? "auto" : workload.transport;
  result.size = measure_size(workload);
  result.costs =
      run_all(workload, {.warm_up = options.warm_up, .steps = options.steps}, training.quiet);
  const Cost& ddp = cost_of(result.costs, kDdpName);
  const DpPhases phases = measure_dp_phases(workload, 0);
  result.account = account_of(workload, phases, ddp);
  result.outputs = {phases.output, measure_dp_phases(workload, 1).output};
  result.extras = measure_extras(workload, ddp);
  if (!result.gpus.empty()) result.objects = measure_object_gather(workload);
  return result;
}

}  // namespace

int compare_main(const CompareOptions& options) {
  int status = 2;
  try {
    if (options.steps == 0 || options.warm_up < 2) {
      throw std::invalid_argument("a comparison takes at least 1 step after 2 of warm-up");
    }
    refuse_order(options.training);
    const Comparison result = compare(options);
    const std::string text = options.training.json ? json_of(result) : text_of(result);
    std::fputs(text.c_str(), stdout);
    status = deviations(result).empty() ? 0 : 1;
  } catch (const std::invalid_argument& wrong) {
    fmt::print(stderr, "unisono train --compare: {}\n", wrong.what());
  } catch (const std::exception& failure) {
    fmt::print(stderr, "unisono train --compare: {}\n", failure.what());
    status = 1;
  }
  return tools::finish_output("unisono train --compare", status);
}

}  // namespace unisono::train
