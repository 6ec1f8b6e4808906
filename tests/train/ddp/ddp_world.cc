#include "tests/train/ddp/ddp_world.h"

#include <cmath>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace unisono::test {

std::unique_ptr<train::Optimizer> plain_sgd(const train::Model& model) {
  return train::make_sgd(model.parameters().values().size(), {.momentum = 0.0F});
}

Trained train_alone(ToyModel& model, int steps, float rate) {
  const auto optimizer = plain_sgd(model);
  Trained result;
  for (int step = 0; step < steps; ++step) {
    const train::Batch batch = toy_batch(static_cast<std::uint64_t>(step), 0, kGlobalBatch);
    std::ranges::fill(model.gradients().values(), 0.0F);
    train::Pass pass;
    train::Tensor gradient;
    const train::Tensor outputs = model.forward(batch.inputs, pass);
    result.losses.push_back(squared_loss(outputs, batch.targets, &gradient, 1.0F));
    model.backward(gradient, pass);
    optimizer->step(model.parameters().values(), std::as_const(model.gradients()).values(), rate);
  }
  result.parameters = values_of(model.parameters());
  result.buffers = values_of(model.buffers());
  return result;
}

Trained train_with(train::DistributedDataParallel& ddp, int steps, float rate) {
  const auto optimizer = plain_sgd(ddp.model());
  const auto ranks = static_cast<std::size_t>(ddp.communicator().size());
  const std::size_t share = kGlobalBatch / ranks;
  const std::size_t first = share * static_cast<std::size_t>(ddp.communicator().rank());
  Trained result;
  for (int step = 0; step < steps; ++step) {
    const train::Batch batch = toy_batch(static_cast<std::uint64_t>(step), first, share);
    result.losses.push_back(ddp.step(batch, squared_loss, *optimizer, rate));
  }
  result.parameters = values_of(ddp.model().parameters());
  result.buffers = values_of(ddp.model().buffers());
  return result;
}

void require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

void require_equal_on_all(Communicator& comm, std::span<const float> values,
                          const std::string& what) {
  const std::size_t count = values.size();
  std::vector<float> all(count * static_cast<std::size_t>(comm.size()));
  comm.all_gather(values, all);
  if (count == 0) return;
  for (std::size_t rank = 1; rank < static_cast<std::size_t>(comm.size()); ++rank) {
    require(std::memcmp(all.data(), all.data() + rank * count, count * sizeof(float)) == 0,
            what + " differ between rank 0 and rank " + std::to_string(rank));
  }
}

void require_near(std::span<const float> have, std::span<const float> want, float tolerance,
                  const std::string& what) {
  require(have.size() == want.size(), what + ": " + std::to_string(have.size()) + " values, not " +
                                          std::to_string(want.size()));
  for (std::size_t i = 0; i < have.size(); ++i) {
    require(std::abs(have[i] - want[i]) <= tolerance, what + " at " + std::to_string(i) + ": " +
                                                          std::to_string(have[i]) + ", not " +
                                                          std::to_string(want[i]));
  }
}

std::string thrown_by(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::exception& failure) {
    return failure.what();
  }
  return "";
}

}  // namespace unisono::test
