// In which order buckets start, that they do so during the backward pass, and their rebuilding.
#include <gmock/gmock.h>

#include <chrono>
#include <thread>

#include "tests/train/ddp/ddp_world.h"

namespace unisono::test {
namespace {

using train::DdpOptions;
using train::DistributedDataParallel;
using train::Pass;

// Each parameter has a bucket of its own.
DdpOptions tiny_buckets() { return {.bucket_bytes_max = 0, .first_bucket_bytes = 0}; }

// The average, noting the size of each bucket as it starts.
class NotingHook : public train::CommunicationHook {
 public:
  std::unique_ptr<Reduction> start(std::span<float> bucket, float factor, Communicator& comm,
                                   const CallOptions& options) override {
    sizes.push_back(bucket.size());
    return average_->start(bucket, factor, comm, options);
  }
  std::vector<std::size_t> sizes;

 private:
  std::shared_ptr<train::CommunicationHook> average_ = train::make_average_hook();
};

TEST(BucketOrder, BeginsWithOneBucketWhereItIsToBeRebuilt) {
  for (const bool is_static : {false, true}) {
    run_ranks(2, "shm", [&](Communicator& comm) {
      ToyModel model;
      const auto hook = std::make_shared<NotingHook>();
      DdpOptions options = tiny_buckets();
      options.find_unused_parameters = is_static;
      options.static_graph = is_static;
      options.hook = hook;
      DistributedDataParallel ddp(model, comm, options);
      EXPECT_FALSE(ddp.buckets_are_final());
      train_with(ddp, 1, kExactRate);
      EXPECT_THAT(hook->sizes, testing::ElementsAre(3 + 5 + 2 + 7));
    });
  }
}

TEST(BucketOrder, BeginsInReverseRegistrationOrderWhateverArrivesFirst) {
  run_ranks(3, "shm", [](Communicator& comm) {
    ToyModel model;
    // Every rank finishes its gradients in another order.
    model.arrival = comm.rank() == 0   ? std::vector{0, 1, 2, 3}
                    : comm.rank() == 1 ? std::vector{2, 0, 3, 1}
                                       : std::vector{3, 2, 1, 0};
    const auto hook = std::make_shared<NotingHook>();
    DdpOptions options = tiny_buckets();
    options.find_unused_parameters = true;
    options.hook = hook;
    DistributedDataParallel ddp(model, comm, options);
    EXPECT_THAT(ddp.buckets(), testing::ElementsAre(std::vector{3}, std::vector{2}, std::vector{1},
                                                    std::vector{0}));
    train_with(ddp, 1, kExactRate);
    EXPECT_THAT(hook->sizes, testing::ElementsAre(7, 2, 5, 3));
  });
}

TEST(BucketOrder, IsRebuiltOnceInTheOrderInWhichGradientsArriveOnRankZero) {
  run_ranks(3, "shm", [](Communicator& comm) {
    ToyModel model;
    if (comm.rank() == 0) model.arrival = {1, 3, 0, 2};
    const auto hook = std::make_shared<NotingHook>();
    DdpOptions options = tiny_buckets();
    options.hook = hook;
    DistributedDataParallel ddp(model, comm, options);
    train_with(ddp, 1, kExactRate);
    hook->sizes.clear();
    model.arrival = {2, 0, 1, 3};
    train_with(ddp, 2, kExactRate);
    EXPECT_TRUE(ddp.buckets_are_final());
    EXPECT_THAT(ddp.buckets(), testing::ElementsAre(std::vector{1}, std::vector{3}, std::vector{0},
                                                    std::vector{2}));
    EXPECT_THAT(hook->sizes, testing::ElementsAre(5, 7, 3, 2, 5, 7, 3, 2));
    require_equal_on_all(comm, model.parameters().values(), "parameters");
  });
}

TEST(BucketOrder, IsRebuiltWithinTheSameLimits) {
  run_ranks(2, "shm", [](Communicator& comm) {
    ToyModel model;
    model.arrival = {0, 1, 2, 3};
    DistributedDataParallel ddp(model, comm, {.bucket_bytes_max = 24, .first_bucket_bytes = 4});
    train_with(ddp, 2, kExactRate);
    EXPECT_THAT(ddp.buckets(),
                testing::ElementsAre(std::vector{0}, std::vector{1, 2}, std::vector{3}));
  });
}

TEST(BucketOrder, StaysWhereUnusedParametersAreSoughtEachStep) {
  run_ranks(2, "shm", [](Communicator& comm) {
    ToyModel model;
    model.arrival = {0, 1, 2, 3};
    DdpOptions options = tiny_buckets();
    options.find_unused_parameters = true;
    DistributedDataParallel ddp(model, comm, options);
    EXPECT_TRUE(ddp.buckets_are_final());
    train_with(ddp, 3, kExactRate);
    EXPECT_EQ(ddp.buckets().front(), std::vector{3});
  });
}

class Overlap : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Transports, Overlap, testing::Values("shm", "tcp"));

TEST_P(Overlap, EarlyBucketsAreReducedBeforeTheBackwardPassEnds) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    ToyModel model({.counts = {3, 100'000}});
    DistributedDataParallel ddp(model, comm, tiny_buckets());
    train_with(ddp, 1, 1e-6F);  // its only bucket is full at the end
    std::size_t finished = 0;
    model.before_gradient = [&](int parameter) {
      if (parameter != 0) return;
      const auto limit = std::chrono::steady_clock::now() + kCallTimeout;
      while (finished == 0 && std::chrono::steady_clock::now() < limit) {
        finished = ddp.progress().finished;
        std::this_thread::yield();
      }
    };
    train_with(ddp, 1, 1e-6F);
    EXPECT_EQ(finished, 1u);
  });
}

TEST_P(Overlap, CanBeSwitchedOff) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    ToyModel model;
    DdpOptions options = tiny_buckets();
    options.overlap = false;
    DistributedDataParallel ddp(model, comm, options);
    train_with(ddp, 1, kExactRate);
    std::size_t started = 1000;
    model.before_gradient = [&](int) { started = ddp.progress().started; };
    train_with(ddp, 1, kExactRate);
    EXPECT_EQ(started, 0u);
  });
}

TEST(BucketOrder, TheCallersListenerHearsEveryGradientToo) {
  run_ranks(2, "shm", [](Communicator& comm) {
    ToyModel model;
    DistributedDataParallel ddp(model, comm);
    std::vector<int> heard;
    Pass pass;
    pass.gradient_ready = [&](int parameter) { heard.push_back(parameter); };
    ddp.forward(toy_batch(0, 0, 1).inputs, pass);
    ddp.backward(train::Tensor({1, 1}), pass);
    EXPECT_THAT(heard, testing::ElementsAre(3, 2, 1, 0));
    pass.gradient_ready(7);
    EXPECT_EQ(heard.back(), 7) << "the caller's own is not given back";
  });
}

}  // namespace
}  // namespace unisono::test
