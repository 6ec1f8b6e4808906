// Communication hooks: the ready compressions and one's own.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "tests/train/ddp/ddp_world.h"

namespace unisono::test {
namespace {

using train::DistributedDataParallel;

std::vector<float> gradients_with(Communicator& comm,
                                  std::shared_ptr<train::CommunicationHook> hook) {
  ToyModel model({.counts = {300, 50, 7}, .seed = 3});
  DistributedDataParallel ddp(model, comm, {.bucket_bytes_max = 100, .hook = std::move(hook)});
  train_with(ddp, 1, 0.0F);
  return values_of(model.gradients());
}

class Hooks : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Transports, Hooks, testing::Values("shm", "tcp"));

TEST_P(Hooks, CompressedAveragesStayWithinTheFormatsPrecision) {
  for (const int ranks : {1, 2, 4}) {
    run_ranks(ranks, GetParam(), [](Communicator& comm) {
      const std::vector<float> exact = gradients_with(comm, nullptr);
      float largest = 0.0F;
      for (const float value : exact) largest = std::max(largest, std::abs(value));
      require(largest > 0.1F, "the gradients are too small to say anything");
      // One rounding per leaf and per sum: at most 1 + log2(4) of half a unit in the last place of
      // values up to a few times the largest.
      require_near(gradients_with(comm, train::make_fp16_hook()), exact, largest * 4 / 1024,
                   "fp16 gradients");
      require_near(gradients_with(comm, train::make_bf16_hook()), exact, largest * 4 / 128,
                   "bf16 gradients");
      const std::vector<float> compressed = gradients_with(comm, train::make_bf16_hook());
      require(compressed != exact, "nothing was rounded: bf16 was not used");
      require_equal_on_all(comm, compressed, "compressed gradients");
    });
  }
}

TEST_P(Hooks, TheAverageAsAHookIsTheAverageBitByBit) {
  run_ranks(3, GetParam(), [](Communicator& comm) {
    require(gradients_with(comm, train::make_average_hook()) == gradients_with(comm, nullptr),
            "the average as a hook differs");
  });
}

TEST(OwnHook, SeesTheGradientsAsTheyAreAndTheFactor) {
  // Writes what it saw instead of reducing anything.
  class Witness : public train::CommunicationHook {
   public:
    std::unique_ptr<Reduction> start(std::span<float> bucket, float factor, Communicator&,
                                     const CallOptions&) override {
      class Done : public Reduction {
        bool test() override { return true; }
        void finish() override {}
      };
      seen.insert(seen.end(), bucket.begin(), bucket.end());
      std::ranges::fill(bucket, factor);
      return std::make_unique<Done>();
    }
    std::vector<float> seen;
  };
  run_ranks(4, "shm", [](Communicator& comm) {
    ToyModel model({.counts = {3}});
    const auto witness = std::make_shared<Witness>();
    DistributedDataParallel ddp(model, comm, {.hook = witness});
    std::vector<float> unreduced;
    train::Pass pass;
    pass.gradient_ready = [&](int) { unreduced = values_of(model.gradients()); };
    ddp.zero_gradients();
    train::Tensor ones({1, 1});
    ones.data()[0] = static_cast<float>(comm.rank()) + 1;
    ddp.forward(toy_batch(0, 0, 1).inputs, pass);
    ddp.backward(ones, pass);
    EXPECT_EQ(witness->seen, unreduced);
    EXPECT_EQ(values_of(model.gradients()), std::vector<float>(3, 0.25F));
  });
}

}  // namespace
}  // namespace unisono::test
