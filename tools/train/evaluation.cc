#include "tools/train/evaluation.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

#include "unisono/train/distributed_data_parallel.h"
#include "unisono/train/loss.h"

namespace unisono::train {
namespace {

struct Count {
  std::uint64_t right = 0, all = 0;
};

// Without padding: it is easy to predict, and there may be more of it than of anything else.
Count count_places(const Tensor& outputs, const Batch& batch, const Dataset& data) {
  const std::size_t per_sample = data.targets_per_sample(), classes = outputs.dim(1);
  Count count;
  for (std::size_t sample = 0; sample < batch.samples(); ++sample) {
    const std::size_t places = std::min(per_sample, data.length(batch.indices[sample]));
    for (std::size_t place = 0; place < places; ++place) {
      const std::size_t row = sample * per_sample + place;
      const float* logits = outputs.data() + row * classes;
      const auto best = std::max_element(logits, logits + classes) - logits;
      count.right += best == batch.targets[row] ? 1 : 0;
    }
    count.all += places;
  }
  return count;
}

}  // namespace

TestResult evaluate(Strategy& strategy, Loader& loader, const Dataset& data,
                    Communicator& communicator) {
  // Running statistics are rank 0's in every step of training; in between each rank has moved its
  // own. The test is of the model that a checkpoint would keep.
  broadcast_buffers(strategy.model(), communicator);
  std::uint64_t correct = 0, places = 0, targets = 0, samples = 0;
  double loss = 0;
  loader.begin(0);
  while (const std::optional<Batch> mine = loader.next()) {
    const Tensor outputs = strategy.predict(mine->inputs);
    loss += cross_entropy(outputs, mine->targets) * static_cast<double>(mine->targets.size());
    const Count count = count_places(outputs.to_host(), *mine, data);
    correct += count.right;
    places += count.all;
    targets += mine->targets.size();
    samples += mine->samples();
  }
  // Ranks have different numbers of samples, so counts are summed, not means.
  std::array counts{correct, places, targets, samples};
  if (communicator.size() > 1) {
    communicator.all_reduce(counts, ops::sum);
    communicator.all_reduce(std::span(&loss, 1), ops::sum);
  }
  if (counts[3] == 0) return {};
  return {.loss = loss / static_cast<double>(counts[2]),
          .accuracy = static_cast<double>(counts[0]) / static_cast<double>(counts[1]),
          .samples = static_cast<std::size_t>(counts[3])};
}

}  // namespace unisono::train
