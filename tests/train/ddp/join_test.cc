// Ranks that run out of data at different steps.
#include <gmock/gmock.h>

#include <algorithm>

#include "tests/train/ddp/ddp_world.h"

namespace unisono::test {
namespace {

using testing::HasSubstr;
using train::DdpOptions;
using train::DistributedDataParallel;
using train::JoinDivisor;
using train::Pass;

constexpr std::size_t kShare = 4;
constexpr float kRate = 0.25F;

// Step `step` of rank `rank`: its rows do not depend on who else has data.
train::Batch share_of(std::uint64_t step, Rank rank) {
  return toy_batch(step, static_cast<std::size_t>(rank) * kShare, kShare);
}

// What all ranks together should have: the average of those that still have data.
std::vector<float> expected_parameters(const std::vector<int>& steps_of_rank, JoinDivisor divisor) {
  ToyModel model;
  const auto optimizer = plain_sgd(model);
  const int steps = *std::max_element(steps_of_rank.begin(), steps_of_rank.end());
  for (int step = 0; step < steps; ++step) {
    const auto active = static_cast<float>(
        std::count_if(steps_of_rank.begin(), steps_of_rank.end(), [&](int n) { return n > step; }));
    const auto all = static_cast<float>(steps_of_rank.size());
    std::ranges::fill(model.gradients().values(), 0.0F);
    for (Rank rank = 0; rank < static_cast<Rank>(steps_of_rank.size()); ++rank) {
      if (steps_of_rank[static_cast<std::size_t>(rank)] <= step) continue;
      const train::Batch batch = share_of(static_cast<std::uint64_t>(step), rank);
      Pass pass;
      train::Tensor gradient;
      squared_loss(model.forward(batch.inputs, pass), batch.targets, &gradient,
                   1.0F / (divisor == JoinDivisor::kActiveRanks ? active : all));
      model.backward(gradient, pass);
    }
    optimizer->step(model.parameters().values(), model.gradients().values(), kRate);
  }
  return values_of(model.parameters());
}

struct Case {
  std::vector<int> steps;
  DdpOptions options;
};

// Trains each rank as long as it has data, then joins; parameters must be as computed by hand.
void train_unevenly(const Case& c, bool updates) {
  DdpOptions options = c.options;
  options.uneven_inputs = true;
  const std::vector<float> expected = expected_parameters(c.steps, options.join_divisor);
  for (const char* transport : {"shm", "tcp"}) {
    run_ranks(static_cast<int>(c.steps.size()), transport, [&](Communicator& comm) {
      ToyModel model;
      DistributedDataParallel ddp(model, comm, options);
      const auto optimizer = plain_sgd(model);
      const int mine = c.steps[static_cast<std::size_t>(comm.rank())];
      const int most = *std::max_element(c.steps.begin(), c.steps.end());
      for (int step = 0; step < mine; ++step) {
        ddp.step(share_of(static_cast<std::uint64_t>(step), comm.rank()), squared_loss, *optimizer,
                 kRate);
      }
      const std::function<void()> update = [&] {
        optimizer->step(model.parameters().values(), model.gradients().values(), kRate);
      };
      const std::size_t shadowed = ddp.join(updates ? update : std::function<void()>());
      require(shadowed == static_cast<std::size_t>(most - mine), "steps taken part in");
      require_near(model.parameters().values(), expected, 1e-5F, "parameters");
      require_equal_on_all(comm, model.parameters().values(), "parameters");
      require_equal_on_all(comm, model.buffers().values(), "buffers");
      if (updates) {
        require(optimizer->steps() == static_cast<std::size_t>(most), "an optimizer fell behind");
      }
    });
  }
}

TEST(Join, DividesByTheRanksThatStillHaveData) {
  train_unevenly({{3, 1, 2, 3}, {.bucket_bytes_max = 24, .first_bucket_bytes = 4}}, true);
}

TEST(Join, DividesByAllRanksOnRequest) {
  train_unevenly({{1, 3}, {.join_divisor = JoinDivisor::kInitialRanks}}, true);
}

TEST(Join, GivesTheLastParametersToRanksThatDidNotFollow) {
  train_unevenly({{1, 3}, {.bucket_bytes_max = 0}}, false);
}

TEST(Join, ServesARankWithoutAnyDataAndTheRebuildingOfBuckets) {
  train_unevenly({{0, 3, 2}, {.bucket_bytes_max = 0}}, true);
  train_unevenly({{0, 3, 2}, {.bucket_bytes_max = 0, .static_graph = true}}, true);
  train_unevenly({{0, 0, 2}, {.find_unused_parameters = true}}, true);
}

// A rank that takes part without data must not step with the gradient of a step before.
TEST(Join, UpdatesNothingThatNoRankUses) {
  run_ranks(2, "shm", [](Communicator& comm) {
    ToyModel model;
    DistributedDataParallel ddp(model, comm,
                                {.find_unused_parameters = true, .uneven_inputs = true});
    const auto optimizer = train::make_sgd(model.parameters().values().size(), {.momentum = 0.5F});
    for (int step = 0; step <= comm.rank(); ++step) {
      if (step == 1) model.unused = {3};
      ddp.step(share_of(static_cast<std::uint64_t>(step), comm.rank()), squared_loss, *optimizer,
               kRate);
    }
    ddp.join(
        [&] { optimizer->step(model.parameters().values(), model.gradients().values(), kRate); });
    for (const train::Optimizer::State& state : optimizer->state()) {
      require_equal_on_all(comm, state.values, state.name);
    }
  });
}

TEST(Join, EndsAtOnceWhereNobodyHasData) { train_unevenly({{0, 0}, {}}, true); }

TEST(Join, SharesTheHooksReductions) {
  train_unevenly({{1, 3}, {.bucket_bytes_max = 0, .hook = train::make_average_hook()}}, true);
}

TEST(Join, MayBeFollowedByTheNextEpoch) {
  run_ranks(3, "shm", [](Communicator& comm) {
    ToyModel model;
    DistributedDataParallel ddp(model, comm, {.uneven_inputs = true});
    const auto optimizer = plain_sgd(model);
    for (int epoch = 0; epoch < 3; ++epoch) {
      const int mine = (comm.rank() + epoch) % 3;
      for (int step = 0; step < mine; ++step) {
        ddp.step(share_of(static_cast<std::uint64_t>(step), comm.rank()), squared_loss, *optimizer,
                 0.01F);
      }
      require(ddp.join() == static_cast<std::size_t>(2 - mine), "steps taken part in");
      require_equal_on_all(comm, model.parameters().values(), "parameters");
    }
  });
}

TEST(Join, ShadowsForwardAndBackwardCalledApart) {
  run_ranks(2, "shm", [](Communicator& comm) {
    ToyModel model;
    DistributedDataParallel ddp(model, comm, {.uneven_inputs = true});
    for (int step = 0; step < 2 * comm.rank(); ++step) {
      const train::Batch batch = share_of(0, comm.rank());
      Pass pass;
      train::Tensor gradient;
      squared_loss(ddp.forward(batch.inputs, pass), batch.targets, &gradient, 1.0F);
      ddp.backward(gradient, pass);
    }
    require(ddp.join() == (comm.rank() == 0 ? 2u : 0u), "steps taken part in");
  });
}

TEST(Join, ExcludesSynchronisedBatchNorms) {
  class NoExchange : public train::StatisticsExchange {
    int ranks() const override { return 1; }
    void all_gather(std::span<const float>, std::span<float>) override {}
    void all_reduce_sum(std::span<float>) override {}
    Status status() const override { return {}; }
    void abort(const std::string&, Rank) override {}
  };
  run_ranks(1, "shm", [](Communicator& comm) {
    Communicator own = comm.duplicate();
    ToyModel model;
    DistributedDataParallel ddp(model, own, {.uneven_inputs = true});
    NoExchange exchange;
    Pass pass{.statistics = &exchange};
    EXPECT_THAT(thrown_by([&] { ddp.forward(toy_batch(0, 0, 1).inputs, pass); }),
                HasSubstr("batch norms"));
  });
}

}  // namespace
}  // namespace unisono::test
