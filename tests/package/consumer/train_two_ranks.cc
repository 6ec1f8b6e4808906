// Uses the installed trainer with nothing but its public headers: two ranks, one model.
#include <unisono/train/distributed_data_parallel.h>
#include <unisono/train/models.h>

#include <cstdio>
#include <stdexcept>
#include <unisono/unisono.hpp>

namespace {

namespace train = unisono::train;

train::Batch batch_of(int rank) {
  train::Batch batch;
  batch.inputs = train::Tensor({4, 6});
  for (std::size_t i = 0; i < batch.inputs.size(); ++i) {
    batch.inputs.data()[i] = static_cast<float>((i * 7 + static_cast<std::size_t>(rank)) % 5);
  }
  batch.targets = {0, 1, 2, 0};
  batch.indices = {0, 1, 2, 3};
  return batch;
}

void run_rank(unisono::Communicator& comm) {
  const auto model = train::make_mlp({.widths = {6, 8, 3}});
  const auto optimizer = train::make_sgd(model->parameters().values().size());
  train::DistributedDataParallel ddp(*model, comm);
  const train::Batch batch = batch_of(comm.rank());
  const train::LossFunction loss = train::cross_entropy;
  const double first = ddp.step(batch, loss, *optimizer, 0.1F);
  double last = first;
  for (int step = 0; step < 20; ++step) last = ddp.step(batch, loss, *optimizer, 0.1F);
  if (!(last < first)) throw std::runtime_error("the loss did not fall");
}

}  // namespace

int main() try {
  unisono::spawn(2, run_rank);
  std::printf("two ranks trained one model\n");
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "train_two_ranks: %s\n", error.what());
  return 1;
}
