// A process is killed behind its last step, while the streams of the other still wait for its GPU
// work: no step of the survivor succeeds with what was never reduced, and the error names the rank.
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <stdexcept>

#include "tests/cuda/device_user.h"
#include "tests/cuda/kernel_twins.h"
#include "tests/fault/outcome_board.h"
#include "tests/support/rank_job.h"
#include "tests/train/cuda/cublas_under_test.h"
#include "tests/train/cuda/training_fixture.h"
#include "unisono/train/distributed_data_parallel.h"
#include "unisono/train/loss.h"
#include "unisono/train/micro_batches.h"
#include "unisono/train/models.h"
#include "unisono/train/zero.h"

namespace unisono::test {
namespace {

// Streams far behind the host. Before the driver is loaded.
[[maybe_unused]] const int late = setenv("FAKE_CUDA_DELAY_US", "20000", 0);

constexpr std::size_t kStepsOfTheVictim = 2;
constexpr double kTolerance = 3e-4;

TrainingProblem small_problem() {
  TrainingProblem problem = training_problems()[0];
  problem.make_model = [] { return train::make_mlp({.widths = {12, 9, 5}}); };
  return problem;
}

/// One step of a strategy on this rank's share.
using Step = std::function<void(std::size_t step)>;
using MakeStep = std::function<Step(train::Model& model, Communicator& comm)>;

Step make_ddp(train::Model& model, Communicator& comm) {
  auto optimizer = std::shared_ptr<train::Optimizer>(make_optimizer(model));
  auto ddp = std::make_shared<train::DistributedDataParallel>(model, comm);
  return [=, &comm](std::size_t step) {
    ddp->step(share_of(small_problem(), step, comm), train::cross_entropy, *optimizer, kRate);
  };
}

Step make_zero(train::Model& model, Communicator& comm) {
  auto zero = std::make_shared<train::ZeroOptimizer>(
      model, comm, [](std::size_t count) { return train::make_sgd(count); });
  return [=, &comm](std::size_t step) {
    zero->step(share_of(small_problem(), step, comm), train::cross_entropy, kRate, {});
  };
}

Step make_micro_batches(train::Model& model, Communicator& comm) {
  auto optimizer = std::shared_ptr<train::Optimizer>(make_optimizer(model));
  auto trainer = std::make_shared<train::MicroBatchTrainer>(model, comm, 2);
  return [=, &comm](std::size_t step) {
    const std::vector<train::Batch> mine{share_of(small_problem(), step, comm)};
    trainer->step(mine, train::cross_entropy, *optimizer, kRate, {});
  };
}

/// Parameters after each step on the host.
std::vector<TrainingResult> expected_steps(std::size_t steps) {
  std::vector<TrainingResult> results(steps);
  const TrainingProblem problem = small_problem();
  auto model = problem.make_model();
  const auto optimizer = make_optimizer(*model);
  for (std::size_t step = 0; step < steps; ++step) {
    const train::Batch batch = whole_batch(problem, step);
    model->gradients().zero();
    train::Pass pass;
    train::Tensor gradient;
    train::cross_entropy(model->forward(batch.inputs, pass), batch.targets, &gradient);
    model->backward(gradient, pass);
    train::step(*optimizer, *model, kRate);
    results[step].parameters = model->parameters().read();
  }
  return results;
}

void run_doomed(const MakeStep& make_step) {
  SharedBoard board;
  if (fake() != nullptr) cuda::register_kernel_twins(*fake());
  use_cublas_under_test();
  const std::vector<TrainingResult> expected = expected_steps(kStepsOfTheVictim);
  try {
    spawn(2,
          [&](Communicator& comm) {
            train::DeviceMemory memory(train::Residence::kCuda);
            const train::DeviceMemory::Scope scope(memory);
            const auto model = small_problem().make_model();
            const Step step = make_step(*model, comm);
            if (comm.rank() == 1) {
              for (std::size_t i = 0; i < kStepsOfTheVictim; ++i) step(i);
              kill(getpid(), SIGKILL);
            }
            board->blocking[0] = outcome_of([&] {
              for (std::size_t i = 0;; ++i) {
                step(i);
                TrainingResult got;
                got.parameters = model->parameters().read();
                require_alike(got, expected.at(i), kTolerance);
                ++board->finished;
              }
            });
          },
          {.as = SpawnOptions::As::kProcesses, .timeout = kCallTimeout, .devices = {0}});
    ADD_FAILURE() << "nobody died";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kRankFailed) << error.what();
    EXPECT_EQ(error.rank(), 1) << error.what();
  }
  const Outcome& outcome = board->blocking[0];
  EXPECT_TRUE(outcome.written) << "the survivor heard nothing";
  EXPECT_EQ(outcome.code, ErrorCode::kRankFailed) << outcome.message;
  EXPECT_EQ(outcome.rank, 1) << outcome.message;
  EXPECT_GE(board->finished, 1);
}

TEST(TrainKill, LeavesNoStepOfDdpThatWasNotReduced) { run_doomed(make_ddp); }
TEST(TrainKill, LeavesNoStepOfZeroThatWasNotReduced) { run_doomed(make_zero); }
TEST(TrainKill, LeavesNoStepOfMicroBatchesThatWasNotReduced) { run_doomed(make_micro_batches); }

}  // namespace
}  // namespace unisono::test
