// How long a training step takes on n ranks, and how much of it is communication:
//
//   ddp_step RANKS ROUNDS STEPS BATCH
//
// Each round takes STEPS steps in each way, so that what disturbs the machine disturbs all of them.
// One line per way with the median of the slowest rank's step in milliseconds:
//   unisono,RANKS,alone,MS        every rank trains for itself, all at the same time
//   unisono,RANKS,ddp,MS          gradients averaged, overlapped with the backward pass
//   unisono,RANKS,no_overlap,MS   gradients averaged after the backward pass
//   unisono,RANKS,average,MS      the gradients' all-reduce by itself
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <numeric>
#include <vector>

#include "unisono/train/distributed_data_parallel.h"
#include "unisono/train/loader.h"
#include "unisono/train/models.h"

namespace {

using namespace unisono;
using train::Batch;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kBatches = 8;
constexpr float kRate = 0.01F;

struct Plan {
  int ranks = 1;
  std::size_t rounds = 5, steps = 20, batch = 128;
};

double loss_of(const train::Tensor& outputs, std::span<const std::int32_t> targets,
               train::Tensor* gradient, float scale) {
  return train::cross_entropy(outputs, targets, gradient, scale);
}

std::vector<Batch> batches_of(const Plan& plan, int rank) {
  const auto data = train::load(train::open_idx({}), nullptr, {.mode = train::LoadMode::kLocal});
  std::vector<Batch> batches;
  for (std::size_t b = 0; b < kBatches; ++b) {
    std::vector<std::size_t> indices(plan.batch);
    const auto place = b * static_cast<std::size_t>(plan.ranks) + static_cast<std::size_t>(rank);
    std::iota(indices.begin(), indices.end(), place * plan.batch);
    batches.push_back(train::make_batch(*data, indices));
  }
  return batches;
}

/// A model of its own with its optimizer, and a step of it.
class Trainee {
 public:
  Trainee() : model(train::make_cnn()) {
    optimizer = train::make_sgd(model->parameters().values().size());
  }
  void step_alone(const Batch& batch) const {
    train::Pass pass;
    std::ranges::fill(model->gradients().values(), 0.0F);
    train::Tensor gradient;
    loss_of(model->forward(batch.inputs, pass), batch.targets, &gradient, 1.0F);
    model->backward(gradient, pass);
    optimizer->step(model->parameters().values(), model->gradients().values(), kRate);
  }

  std::unique_ptr<train::Model> model;
  std::unique_ptr<train::Optimizer> optimizer;
};

struct Way {
  const char* name;
  std::function<void(const Batch&)> step;
  std::vector<double> milliseconds;
};

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

void measure(Communicator& comm, const Plan& plan, std::vector<Way>& ways) {
  const std::vector<Batch> batches = batches_of(plan, comm.rank());
  for (std::size_t round = 0; round <= plan.rounds; ++round) {
    for (Way& way : ways) {
      for (std::size_t step = 0; step < plan.steps; ++step) {
        comm.barrier();
        const auto begin = Clock::now();
        way.step(batches[step % kBatches]);
        std::vector<double> took{
            std::chrono::duration<double, std::milli>(Clock::now() - begin).count()};
        comm.all_reduce(std::span(took), ops::max);
        // The first round warms up: buckets are rebuilt after the first step.
        if (round > 0) way.milliseconds.push_back(took[0]);
      }
    }
  }
}

void run_rank(Communicator& comm, const Plan& plan) {
  const Trainee alone, overlapped, after;
  train::DistributedDataParallel ddp(*overlapped.model, comm);
  train::DistributedDataParallel late(*after.model, comm, {.overlap = false});
  std::vector<Way> ways{
      {"alone", [&](const Batch& batch) { alone.step_alone(batch); }, {}},
      {"ddp",
       [&](const Batch& batch) { ddp.step(batch, loss_of, *overlapped.optimizer, kRate); },
       {}},
      {"no_overlap",
       [&](const Batch& batch) { late.step(batch, loss_of, *after.optimizer, kRate); },
       {}},
      {"average",
       [&](const Batch&) { comm.all_reduce(alone.model->gradients().values(), ops::average); },
       {}}};
  if (plan.ranks == 1) ways.resize(1);
  measure(comm, plan, ways);
  if (comm.rank() != 0) return;
  for (const Way& way : ways) {
    std::printf("unisono,%d,%s,%.4f\n", plan.ranks, way.name, median(way.milliseconds));
  }
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 5) {
    std::fprintf(stderr, "usage: ddp_step RANKS ROUNDS STEPS BATCH\n");
    return 2;
  }
  const auto number = [&](int i) { return static_cast<std::size_t>(std::atol(argv[i])); };
  const Plan plan{static_cast<int>(number(1)), number(2), number(3), number(4)};
  spawn(plan.ranks, [&](Communicator& comm) { run_rank(comm, plan); },
        {.as = SpawnOptions::As::kProcesses});
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "ddp_step: %s\n", error.what());
  return 1;
}
