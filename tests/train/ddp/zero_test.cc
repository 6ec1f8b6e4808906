// ZeroOptimizer: the same training as DistributedDataParallel with a share of the state.
#include "unisono/train/zero.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "tests/train/ddp/ddp_world.h"

namespace unisono::test {
namespace {

using train::DistributedDataParallel;
using train::OptimizerFactory;
using train::ZeroOptimizer;

const OptimizerFactory kMakeAdamW = [](std::size_t count) { return train::make_adamw(count); };
const OptimizerFactory kMakeMomentum = [](std::size_t count) { return train::make_sgd(count); };

struct World {
  int ranks;
  const char* transport;
};
class Zero : public testing::TestWithParam<World> {};
INSTANTIATE_TEST_SUITE_P(Worlds, Zero,
                         testing::Values(World{1, "shm"}, World{2, "shm"}, World{3, "shm"},
                                         World{4, "shm"}, World{2, "tcp"}, World{3, "tcp"}),
                         [](const auto& info) {
                           return std::string(info.param.transport) + "_" +
                                  std::to_string(info.param.ranks);
                         });

train::Batch share_of(std::uint64_t step, const Communicator& comm) {
  return toy_batch(step, static_cast<std::size_t>(comm.rank()) * 4, 4);
}

// Parameter counts that the ranks do not divide, and fewer parameters than ranks.
const std::vector<std::vector<std::size_t>> kCounts{{1000, 37, 5}, {1, 1}, {64}};

TEST_P(Zero, EqualsDistributedDataParallelBitByBitInCanonicalOrder) {
  run_ranks(GetParam().ranks, GetParam().transport, [](Communicator& comm) {
    for (const auto& counts : kCounts) {
      for (const OptimizerFactory& make : {kMakeAdamW, kMakeMomentum}) {
        ToyModel plain({.counts = counts, .seed = 9}), sharded({.counts = counts, .seed = 9});
        DistributedDataParallel ddp(
            plain, comm, {.bucket_bytes_max = 0, .reduction = {.order = Order::kCanonical}});
        ZeroOptimizer zero(sharded, comm, make, {.reduction = {.order = Order::kCanonical}});
        const auto optimizer = make(plain.parameters().values().size());
        for (std::uint64_t step = 0; step < 10; ++step) {
          const double of_ddp = ddp.step(share_of(step, comm), squared_loss, *optimizer, 1e-3F);
          const double of_zero = zero.step(share_of(step, comm), squared_loss, 1e-3F);
          require(of_ddp == of_zero, "loss of step " + std::to_string(step));
          require_near(sharded.parameters().values(), plain.parameters().values(), 0.0F,
                       "parameters of step " + std::to_string(step));
          require_near(sharded.buffers().values(), plain.buffers().values(), 0.0F, "buffers");
        }
      }
    }
  });
}

TEST_P(Zero, CutsTheArenaIntoEqualSlices) {
  run_ranks(GetParam().ranks, GetParam().transport, [](Communicator& comm) {
    for (const std::size_t count : {1, 2, 3, 10, 1000}) {
      ToyModel model({.counts = {count}});
      std::size_t made_for = 1'000'000;
      const ZeroOptimizer zero(model, comm, [&](std::size_t n) {
        made_for = n;
        return train::make_sgd(n);
      });
      const auto ranks = static_cast<std::size_t>(comm.size());
      const std::size_t slice = (count + ranks - 1) / ranks;
      require(made_for == zero.count() && zero.count() <= slice, "count of the slice");
      require(zero.first() == std::min(count, slice * static_cast<std::size_t>(comm.rank())),
              "begin of the slice");
      std::uint64_t total = zero.count();
      comm.all_reduce(std::span(&total, 1), ops::sum);
      require(total == count, "the slices do not make up the whole");
    }
  });
}

TEST_P(Zero, GathersItsStateForACheckpointThatAnotherNumberOfRanksReads) {
  run_ranks(GetParam().ranks, GetParam().transport, [](Communicator& comm) {
    ToyModel plain({.seed = 9}), sharded({.seed = 9});
    DistributedDataParallel ddp(plain, comm, {.reduction = {.order = Order::kCanonical}});
    ZeroOptimizer zero(sharded, comm, kMakeAdamW, {.reduction = {.order = Order::kCanonical}});
    const auto optimizer = kMakeAdamW(plain.parameters().values().size());
    for (std::uint64_t step = 0; step < 3; ++step) {
      ddp.step(share_of(step, comm), squared_loss, *optimizer, 1e-3F);
      zero.step(share_of(step, comm), squared_loss, 1e-3F);
    }
    train::Checkpoint gathered, expected;
    zero.gather_optimizer(comm.rank() == 0 ? &gathered : nullptr);
    if (comm.rank() != 0) return;
    train::take_optimizer(*optimizer, &expected);
    require(gathered.optimizer == expected.optimizer, "the optimizer's name");
    require(gathered.optimizer_steps == 3, "the optimizer's steps");
    require(gathered.optimizer_state.size() == expected.optimizer_state.size(), "arrays");
    for (std::size_t i = 0; i < expected.optimizer_state.size(); ++i) {
      require(gathered.optimizer_state[i].name == expected.optimizer_state[i].name, "names");
      require(gathered.optimizer_state[i].values == expected.optimizer_state[i].values, "values");
    }
  });
}

TEST(ZeroSlices, AreReadBackFromACheckpointOfTheWhole) {
  run_ranks(3, "shm", [](Communicator& comm) {
    ToyModel model({.seed = 9}), resumed({.seed = 9});
    train::Checkpoint checkpoint;
    ToyModel alone({.seed = 9});
    const auto whole = kMakeAdamW(alone.parameters().values().size());
    const std::vector<float> ones(alone.parameters().values().size(), 1.0F);
    whole->step(alone.parameters().values(), ones, 1e-3F);
    train::take_optimizer(*whole, &checkpoint);
    ZeroOptimizer zero(model, comm, kMakeAdamW);
    train::restore_optimizer(checkpoint, &zero.optimizer(), zero.first(), zero.count());
    train::Checkpoint again;
    zero.gather_optimizer(&again);
    if (comm.rank() != 0) return;
    require(again.optimizer_steps == 1, "steps");
    for (std::size_t i = 0; i < again.optimizer_state.size(); ++i) {
      require(again.optimizer_state[i].values == checkpoint.optimizer_state[i].values, "values");
    }
  });
}

}  // namespace
}  // namespace unisono::test
