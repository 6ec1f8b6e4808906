// Ranks that disagree, give up or throw: everyone learns who and why, and nobody hangs.
#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/eventually.h"
#include "tests/support/try_limits.h"
#include "tests/train/ddp/ddp_world.h"
#include "unisono/train/micro_batches.h"
#include "unisono/train/models.h"
#include "unisono/train/sync_batch_norm.h"
#include "unisono/train/zero.h"

namespace unisono::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using train::DistributedDataParallel;

class Failure : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Transports, Failure, testing::Values("shm", "tcp"));

TEST_P(Failure, DifferentModelsAreRefusedNamingTwoRanksAndTheParameter) {
  run_ranks(4, GetParam(), [](Communicator& comm) {
    ToyModel model(comm.rank() == 2 ? ToyOptions{.counts = {3, 6}} : ToyOptions{.counts = {3, 5}});
    const auto expected =
        AllOf(HasSubstr("rank 0 has parameter p1 [5]"), HasSubstr("rank 2 has parameter p1 [6]"));
    EXPECT_THAT(thrown_by([&] { DistributedDataParallel ddp(model, comm); }), expected);
    EXPECT_THAT(thrown_by([&] {
                  train::ZeroOptimizer zero(model, comm,
                                            [](std::size_t n) { return train::make_sgd(n); });
                }),
                expected);
    EXPECT_THAT(thrown_by([&] { train::MicroBatchTrainer trainer(model, comm); }), expected);
    comm.barrier();  // it still works
  });
}

TEST_P(Failure, AMissingParameterIsADifferenceToo) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    ToyModel model(comm.rank() == 0 ? ToyOptions{.counts = {3, 5}} : ToyOptions{.counts = {3}});
    EXPECT_THAT(thrown_by([&] { DistributedDataParallel ddp(model, comm); }),
                AllOf(HasSubstr("rank 0 has parameter p1 [5]"),
                      HasSubstr("rank 1 has buffer running_mean")));
  });
  run_ranks(2, GetParam(), [](Communicator& comm) {
    ToyModel model(comm.rank() == 0 ? ToyOptions{.features = 4} : ToyOptions{.features = 5});
    EXPECT_THAT(thrown_by([&] { DistributedDataParallel ddp(model, comm); }),
                AllOf(HasSubstr("buffer running_mean [4]"), HasSubstr("buffer running_mean [5]")));
  });
}

// Every rank but `failed_rank` must fail with an Error that names it and its words.
void expect_blamed(Communicator& comm, Rank failed_rank, const std::function<void()>& train) {
  try {
    train();
    ADD_FAILURE() << "rank " << comm.rank() << " did not notice";
  } catch (const Error& error) {
    EXPECT_NE(comm.rank(), failed_rank);
    EXPECT_EQ(error.rank(), failed_rank) << error.what();
    EXPECT_THAT(error.what(), HasSubstr("out of paper")) << "rank " << comm.rank();
  } catch (const std::runtime_error& error) {
    EXPECT_EQ(comm.rank(), failed_rank) << error.what();
  }
}

TEST_P(Failure, ARankThatThrowsInTheMiddleOfBackwardEndsTheOthers) {
  for (const Rank failed_rank : {0, 2}) {
    run_ranks(3, GetParam(), [&](Communicator& comm) {
      Communicator own = comm.duplicate();
      ToyModel model({.counts = {3, 5000, 2, 70'000}});
      DistributedDataParallel ddp(model, own, {.bucket_bytes_max = 0, .first_bucket_bytes = 0});
      comm.barrier();
      train_with(ddp, 2, 1e-6F);
      model.before_gradient = [&](int parameter) {
        if (comm.rank() == failed_rank && parameter == 1) throw std::runtime_error("out of paper");
      };
      expect_blamed(comm, failed_rank, [&] { train_with(ddp, 2, 1e-6F); });
      comm.barrier();
    });
  }
}

TEST_P(Failure, ARankWhoseLossThrowsEndsTheOthers) {
  const auto loss = [](const Communicator& comm) -> train::LossFunction {
    return [&comm](const train::Tensor& outputs, std::span<const std::int32_t> targets,
                   train::Tensor* gradient, float scale) {
      if (comm.rank() == 1) throw std::runtime_error("out of paper");
      return squared_loss(outputs, targets, gradient, scale);
    };
  };
  run_ranks(3, GetParam(), [&](Communicator& comm) {
    const train::Batch batch = toy_batch(0, 0, 4);
    ToyModel model;
    const auto sgd = plain_sgd(model);
    {
      Communicator own = comm.duplicate();
      DistributedDataParallel ddp(model, own);
      comm.barrier();
      expect_blamed(comm, 1, [&] { ddp.step(batch, loss(comm), *sgd, 0.1F); });
    }
    {
      Communicator own = comm.duplicate();
      train::ZeroOptimizer zero(model, own, [](std::size_t n) { return train::make_sgd(n); });
      comm.barrier();
      expect_blamed(comm, 1, [&] { zero.step(batch, loss(comm), 0.1F); });
    }
    Communicator own = comm.duplicate();
    train::MicroBatchTrainer trainer(model, own, 3);
    comm.barrier();
    expect_blamed(comm, 1, [&] { trainer.step(std::span(&batch, 1), loss(comm), *sgd, 0.1F); });
    comm.barrier();
  });
}

// Rank 2 hears of it from rank 0 alone, which has seen it on another communicator.
TEST_P(Failure, WhoFailsByAnotherRankNamesThatOne) {
  run_ranks(3, GetParam(), [](Communicator& comm) {
    Communicator own = comm.duplicate();
    ToyModel model;
    train::ZeroOptimizer zero(model, own, [](std::size_t n) { return train::make_sgd(n); });
    comm.barrier();
    const std::vector<std::function<void()>> parts = {
        [&] { zero.update(0.1F); },
        [&] {
          own.abort("out of paper");
          throw std::runtime_error("out of paper");
        },
        [&] { zero.control().barrier(); },
    };
    expect_blamed(comm, 1, parts[static_cast<std::size_t>(comm.rank())]);
    comm.barrier();
  });
}

// Ranks 0 and 1 have waited for rank 2 on the communicator of the exchange alone, or on one that
// nobody else knows. Both come to it at the same time: who is late would be named as well.
void fail_by_statistics(const std::string& transport, bool is_known,
                        std::chrono::milliseconds limit) {
  std::atomic<int> here{0};
  run_ranks(3, transport, [&](Communicator& comm) {
    Communicator own = comm.duplicate();
    ToyModel model;
    train::SyncBatchNormExchange exchange(own, {.timeout = limit});
    train::ZeroOptimizer zero(model, own, [](std::size_t n) { return train::make_sgd(n); },
                              {.broadcast_buffers = false});
    const train::Pass pass{.statistics = is_known ? &exchange : nullptr};
    const train::LossFunction waits = [&](const auto&...) {
      ++here;
      EXPECT_TRUE(eventually([&] { return here >= 2; }));
      float value = 1;
      exchange.all_reduce_sum({&value, 1});
      return 0.0;
    };
    comm.barrier();
    if (comm.rank() != 2) {
      EXPECT_THROW(zero.step(toy_batch(0, 0, 1), waits, 0.1F, pass), Error);
    }
    EXPECT_TRUE(eventually([&] { return !own.status().ok(); }));
    EXPECT_TRUE(eventually([&] { return !zero.control().status().ok(); }));
    EXPECT_EQ(own.status().rank(), is_known ? 2 : -1);
    EXPECT_EQ(zero.control().status().rank(), is_known ? 2 : -1);
    comm.barrier();
  });
}

TEST_P(Failure, WhoFailsByItsStatisticsNamesTheRankThatTheseWaitedFor) {
  using std::chrono::milliseconds;
  for (const bool is_known : {true, false}) {
    try_limits({milliseconds(1500), milliseconds(4000), milliseconds(8000)},
               [&](milliseconds limit) { fail_by_statistics(GetParam(), is_known, limit); });
  }
}

// The others are waiting for its statistics, on a communicator of the exchange's own.
TEST_P(Failure, ARankThatCannotBeginEndsWhoeverWaitsForItsBatchNorms) {
  run_ranks(3, GetParam(), [](Communicator& comm) {
    Communicator own = comm.duplicate();
    const auto model = train::make_cnn({.channels = 1, .size = 8, .filters = {2}, .classes = 2});
    train::convert_sync_batch_norm(*model);
    train::SyncBatchNormExchange exchange(own);
    DistributedDataParallel ddp(*model, own, {.broadcast_buffers = false});
    comm.barrier();
    const std::string words = thrown_by([&] {
      train::Pass pass{.statistics = &exchange};
      ddp.forward(train::Tensor({2, comm.rank() == 1 ? 63U : 64U}), pass);
    });
    EXPECT_THAT(words, HasSubstr("takes [batch, 64]")) << "rank " << comm.rank();
    comm.barrier();
  });
}

TEST_P(Failure, AShareOfZeroThatCannotBeUpdatedEndsTheOthers) {
  class OutOfPaper : public train::Optimizer {
    void step(std::span<float>, std::span<const float>, float) override {
      throw std::runtime_error("out of paper");
    }
    std::vector<State> state() override { return {}; }
    std::size_t steps() const override { return 0; }
    void set_steps(std::size_t) override {}
    std::string describe() const override { return "out of paper"; }
  };
  run_ranks(3, GetParam(), [](Communicator& comm) {
    Communicator own = comm.duplicate();
    ToyModel model;
    train::ZeroOptimizer zero(model, own,
                              [&](std::size_t count) -> std::unique_ptr<train::Optimizer> {
                                if (comm.rank() == 2) return std::make_unique<OutOfPaper>();
                                return train::make_sgd(count);
                              });
    comm.barrier();
    expect_blamed(comm, 2, [&] { zero.update(0.1F); });
    comm.barrier();
  });
}

TEST_P(Failure, ARankThatOthersWaitForInJoinEndsThem) {
  run_ranks(3, GetParam(), [](Communicator& comm) {
    Communicator own = comm.duplicate();
    ToyModel model;
    DistributedDataParallel ddp(model, own, {.uneven_inputs = true});
    comm.barrier();
    model.before_gradient = [](int) { throw std::runtime_error("out of paper"); };
    expect_blamed(comm, 1, [&] {
      if (comm.rank() == 1) train_with(ddp, 1, 0.1F);
      ddp.join();
    });
    comm.barrier();
  });
}

TEST_P(Failure, AnAbortFromOutsideEndsABackwardPassEverywhere) {
  run_ranks(3, GetParam(), [](Communicator& comm) {
    Communicator own = comm.duplicate();
    ToyModel model({.counts = {3, 70'000}});
    DistributedDataParallel ddp(model, own, {.bucket_bytes_max = 0, .first_bucket_bytes = 0});
    comm.barrier();
    model.before_gradient = [&](int parameter) {
      if (comm.rank() == 1 && parameter == 0) own.abort("out of paper");
    };
    try {
      for (int i = 0; i < 1000; ++i) train_with(ddp, 1, 1e-6F);
      ADD_FAILURE() << "rank " << comm.rank() << " did not notice";
    } catch (const Error& error) {
      EXPECT_EQ(error.rank(), 1) << error.what();
      EXPECT_THAT(error.what(), HasSubstr("out of paper"));
    }
    comm.barrier();
  });
}

TEST(MicroBatchFailure, ImpossibleDivisionsAreRefused) {
  run_ranks(3, "shm", [](Communicator& comm) {
    ToyModel model;
    EXPECT_THAT(thrown_by([&] { train::MicroBatchTrainer(model, comm, 8); }),
                HasSubstr("8 micro-batches on 3 ranks"));
    EXPECT_THAT(thrown_by([&] { train::MicroBatchTrainer(model, comm, 9); }),
                HasSubstr("a power of two"));
    EXPECT_THAT(thrown_by([&] { train::MicroBatchTrainer(model, comm, 0); }),
                HasSubstr("0 micro-batches"));
    train::MicroBatchTrainer trainer(model, comm, 12);
    EXPECT_EQ(trainer.count(), 4u);
    EXPECT_EQ(trainer.first(), static_cast<std::size_t>(comm.rank()) * 4);
  });
}

}  // namespace
}  // namespace unisono::test
