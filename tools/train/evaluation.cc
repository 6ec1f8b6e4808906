#include "tools/train/evaluation.h"

#include <array>
#include <cstdint>
#include <optional>

#include "unisono/train/loss.h"

namespace unisono::train {
namespace {

// Running statistics are rank 0's in every step of training; in between each rank has moved its
// own. The test is of the model that a checkpoint would keep.
void take_buffers_of_rank_zero(Model& model, Communicator& communicator) {
  if (communicator.size() == 1 || model.buffers().values().empty()) return;
  communicator.broadcast(model.buffers().values(), 0);
}

}  // namespace

TestResult evaluate(Strategy& strategy, Loader& loader, Communicator& communicator) {
  take_buffers_of_rank_zero(strategy.model(), communicator);
  std::uint64_t correct = 0, targets = 0, samples = 0;
  double loss = 0;
  loader.begin(0);
  while (const std::optional<Batch> mine = loader.next()) {
    const Tensor outputs = strategy.predict(mine->inputs);
    loss += cross_entropy(outputs, mine->targets) * static_cast<double>(mine->targets.size());
    correct += count_correct(outputs, mine->targets);
    targets += mine->targets.size();
    samples += mine->samples();
  }
  // Ranks have different numbers of samples, so counts are summed, not means.
  std::array counts{correct, targets, samples};
  if (communicator.size() > 1) {
    communicator.all_reduce(counts, sum);
    communicator.all_reduce(std::span(&loss, 1), sum);
  }
  const double all = static_cast<double>(counts[1]);
  if (all == 0) return {};
  return {.loss = loss / all,
          .accuracy = static_cast<double>(counts[0]) / all,
          .samples = static_cast<std::size_t>(counts[2])};
}

}  // namespace unisono::train
