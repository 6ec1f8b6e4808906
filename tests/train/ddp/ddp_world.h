// What the tests of the strategies share: ranks over a transport, and training on one rank to
// compare with.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/support/rank_job.h"
#include "tests/train/ddp/toy_model.h"
#include "unisono/train/distributed_data_parallel.h"

namespace unisono::test {

inline constexpr std::size_t kGlobalBatch = 16;
/// Steps that the toy model trains without rounding at this rate.
inline constexpr int kExactSteps = 3;
inline constexpr float kExactRate = 0.25F;

/// Plain SGD, nothing else: exact where the numbers are.
std::unique_ptr<train::Optimizer> plain_sgd(const train::Model& model);

/// What a run leaves behind.
struct Trained {
  std::vector<float> parameters, buffers;
  std::vector<double> losses;
};

/// `steps` steps on the whole batch of each, one rank, no communication.
Trained train_alone(ToyModel& model, int steps, float rate);

/// The same through `ddp`, this rank taking its part of each batch.
Trained train_with(train::DistributedDataParallel& ddp, int steps, float rate);

/// Parameters of all ranks must be the same bits: complains by throwing.
void require_equal_on_all(Communicator& comm, std::span<const float> values,
                          const std::string& what);

/// Throws with `what` and the first difference larger than `tolerance`.
void require_near(std::span<const float> have, std::span<const float> want, float tolerance,
                  const std::string& what);
/// Throws std::runtime_error(what) where `condition` is false: a rank's way to fail the test.
void require(bool condition, const std::string& what);

/// The std::exception's text that `call` throws; "" when it throws none.
std::string thrown_by(const std::function<void()>& call);

}  // namespace unisono::test
