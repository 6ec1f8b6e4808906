// DistributedDataParallel against training on one rank, on any number of ranks and transport.
#include <gmock/gmock.h>

#include <cmath>

#include "tests/train/ddp/ddp_world.h"

namespace unisono::test {
namespace {

using train::DdpOptions;
using train::DistributedDataParallel;
using train::Pass;

struct World {
  int ranks;
  const char* transport;
};

class Training : public testing::TestWithParam<World> {
 protected:
  void run(const std::function<void(Communicator&)>& body) const {
    run_ranks(GetParam().ranks, GetParam().transport, body);
  }
};

INSTANTIATE_TEST_SUITE_P(Worlds, Training,
                         testing::Values(World{1, "shm"}, World{2, "shm"}, World{4, "shm"},
                                         World{2, "tcp"}, World{4, "tcp"}),
                         [](const auto& info) {
                           return std::string(info.param.transport) + "_" +
                                  std::to_string(info.param.ranks);
                         });

TEST_P(Training, EqualsOneRankOnTheGlobalBatchBitByBit) {
  ToyModel alone;
  const Trained expected = train_alone(alone, kExactSteps, kExactRate);
  for (const std::size_t cap : {0, 24, 1000}) {
    for (const bool overlap : {true, false}) {
      run([&](Communicator& comm) {
        ToyModel model;
        DistributedDataParallel ddp(
            model, comm,
            {.bucket_bytes_max = cap, .first_bucket_bytes = cap / 2, .overlap = overlap});
        const Trained got = train_with(ddp, kExactSteps, kExactRate);
        require_near(got.parameters, expected.parameters, 0.0F, "parameters");
        for (int step = 0; step < kExactSteps; ++step) {
          const auto i = static_cast<std::size_t>(step);
          require(got.losses[i] == expected.losses[i], "loss of step " + std::to_string(step));
        }
      });
    }
  }
}

TEST_P(Training, BeginsWithTheParametersAndBuffersOfRankZero) {
  run([&](Communicator& comm) {
    ToyModel model({.seed = 1 + static_cast<std::uint64_t>(comm.rank())});
    model.buffers().values()[0] = static_cast<float>(comm.rank());
    ToyModel of_rank_zero({.seed = 1});
    const DistributedDataParallel ddp(model, comm);
    require_near(model.parameters().values(), of_rank_zero.parameters().values(), 0.0F,
                 "parameters");
    require_near(model.buffers().values(), of_rank_zero.buffers().values(), 0.0F, "buffers");
  });
}

TEST_P(Training, AccumulatesWithoutSynchronisationWhatOneBigBatchGives) {
  ToyModel alone;
  const Trained expected = train_alone(alone, 1, kExactRate);
  run([&](Communicator& comm) {
    const std::size_t share = kGlobalBatch / static_cast<std::size_t>(comm.size());
    const std::size_t first = share * static_cast<std::size_t>(comm.rank());
    for (const std::size_t parts : {std::size_t{2}, share}) {
      ToyModel model;
      DistributedDataParallel ddp(model, comm, {.first_bucket_bytes = 8});
      const std::size_t rows = share / parts;
      const auto pass_over = [&](std::size_t part) {
        const train::Batch batch = toy_batch(0, first + part * rows, rows);
        Pass pass;
        train::Tensor gradient;
        const train::Tensor outputs = ddp.forward(batch.inputs, pass);
        squared_loss(outputs, batch.targets, &gradient, 1.0F / static_cast<float>(parts));
        ddp.backward(gradient, pass);
      };
      ddp.zero_gradients();
      for (std::size_t part = 0; part + 1 < parts; ++part) {
        const auto scope = ddp.no_sync();
        pass_over(part);
      }
      pass_over(parts - 1);
      plain_sgd(model)->step(model.parameters().values(), model.gradients().values(), kExactRate);
      require_near(model.parameters().values(), expected.parameters, 0.0F,
                   "parameters after " + std::to_string(parts) + " passes");
    }
  });
}

TEST_P(Training, WithoutSynchronisationCommunicatesNothing) {
  run([&](Communicator& comm) {
    ToyModel model;
    DistributedDataParallel ddp(model, comm);
    const train::Batch batch = toy_batch(0, static_cast<std::size_t>(comm.rank()), 1);
    // Each rank as often as it likes: any call would be one too many for the others.
    for (int pass_index = 0; pass_index <= comm.rank(); ++pass_index) {
      const auto scope = ddp.no_sync();
      Pass pass;
      train::Tensor gradient;
      squared_loss(ddp.forward(batch.inputs, pass), batch.targets, &gradient, 1.0F);
      ddp.backward(gradient, pass);
    }
    comm.barrier();
    const TrafficReport report = ddp.control().traffic();
    const auto broadcasts = static_cast<std::size_t>(Collective::kBroadcast);
    const auto reductions = static_cast<std::size_t>(Collective::kAllReduce);
    require(comm.size() == 1 || report.calls[broadcasts] > 0, "the first broadcast is not counted");
    require(report.calls[reductions] == 0, "control() was used");
    require(comm.traffic().calls[reductions] == 0, "gradients were reduced");
  });
}

TEST_P(Training, EvaluationLeavesBuffersAndGradientsAlone) {
  run([&](Communicator& comm) {
    ToyModel model;
    DistributedDataParallel ddp(model, comm);
    const std::vector<float> before = values_of(model.buffers());
    for (int i = 0; i <= comm.rank(); ++i) {
      Pass pass{.training = false};
      ddp.forward(toy_batch(0, 0, 2).inputs, pass);
    }
    require(values_of(model.buffers()) == before, "evaluation has changed buffers");
    comm.barrier();
  });
}

TEST_P(Training, GivesAllRanksTheBuffersOfRankZeroAtEveryStep) {
  run([&](Communicator& comm) {
    for (const bool broadcasts : {true, false}) {
      ToyModel model;
      DistributedDataParallel ddp(model, comm, {.broadcast_buffers = broadcasts});
      train_with(ddp, 2, kExactRate);
      // One more forward: what it starts from is visible after the broadcast.
      Pass pass;
      std::vector<float> own = values_of(model.buffers());
      pass.update_buffers = false;
      ddp.forward(toy_batch(9, 0, 1).inputs, pass);
      const train::Tensor zeros({1, 1});
      ddp.backward(zeros, pass);
      if (broadcasts) {
        require_equal_on_all(comm, model.buffers().values(), "buffers");
      } else {
        require(values_of(model.buffers()) == own, "buffers were touched");
      }
    }
  });
}

TEST(TrainingOnThreeRanks, EqualsOneRankWithinRounding) {
  for (const char* transport : {"shm", "tcp"}) {
    run_ranks(3, transport, [&](Communicator& comm) {
      ToyModel model({.seed = 5}), alone({.seed = 5});
      DistributedDataParallel ddp(model, comm, {.bucket_bytes_max = 16, .first_bucket_bytes = 16});
      const auto optimizer = plain_sgd(model), optimizer_alone = plain_sgd(alone);
      for (std::uint64_t step = 0; step < 20; ++step) {
        const auto first = static_cast<std::size_t>(comm.rank()) * 4;
        const double loss = ddp.step(toy_batch(step, first, 4), squared_loss, *optimizer, 0.02F);
        const train::Batch whole = toy_batch(step, 0, 12);
        Pass pass;
        train::Tensor gradient;
        std::ranges::fill(alone.gradients().values(), 0.0F);
        const double expected =
            squared_loss(alone.forward(whole.inputs, pass), whole.targets, &gradient, 1.0F);
        alone.backward(gradient, pass);
        optimizer_alone->step(alone.parameters().values(), alone.gradients().values(), 0.02F);
        require(std::abs(loss - expected) < 1e-4, "loss of step " + std::to_string(step));
      }
      require_near(model.parameters().values(), alone.parameters().values(), 1e-4F, "parameters");
      require_equal_on_all(comm, model.parameters().values(), "parameters");
    });
  }
}

TEST(TrainingMemory, CountsBucketsWithTheTensors) {
  run_ranks(2, "shm", [&](Communicator& comm) {
    ToyModel model({.counts = {1000, 24}});
    train::DeviceMemory memory;
    const train::DeviceMemory::Scope scope(memory);
    {
      const DistributedDataParallel ddp(model, comm);
      require(memory.use().now == 1024 * sizeof(float), "the bucket");
    }
    require(memory.use().now == 0, "it is given back");
    memory.set_limit(1000);
    EXPECT_THROW(DistributedDataParallel(model, comm), train::OutOfDeviceMemory);
  });
}

TEST(TrainingCalls, OutOfPlaceAreRefusedWithWords) {
  run_ranks(1, "shm", [](Communicator& comm) {
    ToyModel model;
    const train::Tensor gradient({1, 1});
    Pass pass;
    {
      Communicator other = comm.duplicate();
      DistributedDataParallel ddp(model, other);
      EXPECT_THAT(thrown_by([&] { ddp.backward(gradient, pass); }),
                  testing::HasSubstr("without a training forward()"));
    }
    {
      Communicator other = comm.duplicate();
      DistributedDataParallel ddp(model, other);
      ddp.forward(toy_batch(0, 0, 1).inputs, pass);
      EXPECT_THAT(thrown_by([&] { ddp.forward(toy_batch(0, 0, 1).inputs, pass); }),
                  testing::HasSubstr("without a backward()"));
    }
    {
      Communicator other = comm.duplicate();
      DistributedDataParallel ddp(model, other);
      const auto scope = ddp.no_sync();
      const auto sgd = plain_sgd(model);
      EXPECT_THAT(thrown_by([&] { ddp.step(toy_batch(0, 0, 1), squared_loss, *sgd, 0.1F); }),
                  testing::HasSubstr("inside of no_sync()"));
    }
    Communicator other = comm.duplicate();
    DistributedDataParallel ddp(model, other);
    EXPECT_THAT(thrown_by([&] { ddp.join(); }), testing::HasSubstr("uneven_inputs"));
  });
}

}  // namespace
}  // namespace unisono::test
