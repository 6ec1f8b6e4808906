// Passes that leave parameters out: an error that names them, or found out together.
#include <gmock/gmock.h>

#include "tests/train/ddp/ddp_world.h"

namespace unisono::test {
namespace {

using testing::AnyOf;
using testing::HasSubstr;
using train::DdpOptions;
using train::DistributedDataParallel;
using train::Pass;

constexpr float kUntouched = 77.0F;

// One synchronised pass over this rank's share; gradients stay for the test to look at.
void one_pass(DistributedDataParallel& ddp, std::uint64_t step = 0) {
  const std::size_t share = kGlobalBatch / static_cast<std::size_t>(ddp.communicator().size());
  const train::Batch batch =
      toy_batch(step, share * static_cast<std::size_t>(ddp.communicator().rank()), share);
  Pass pass;
  train::Tensor gradient;
  squared_loss(ddp.forward(batch.inputs, pass), batch.targets, &gradient, 1.0F);
  ddp.backward(gradient, pass);
}

std::vector<float> gradient_of(train::Model& model, int parameter) {
  const std::span<float> gradient = model.gradients()[parameter];
  return {gradient.begin(), gradient.end()};
}

TEST(UnusedParameters, WithoutTheOptionAreAnErrorThatNamesThemOnEveryRank) {
  for (const Rank careless : {0, 2}) {
    run_ranks(3, "shm", [&](Communicator& comm) {
      Communicator own = comm.duplicate();
      ToyModel model;
      if (comm.rank() == careless) model.unused = {1, 3};
      DistributedDataParallel ddp(model, own);
      comm.barrier();  // nobody is still in the constructor when a rank gives up
      const std::string words = thrown_by([&] { one_pass(ddp); });
      EXPECT_THAT(words, HasSubstr("p1, p3")) << "rank " << comm.rank();
      EXPECT_THAT(words, HasSubstr("find_unused_parameters")) << "rank " << comm.rank();
      EXPECT_NE(thrown_by([&] { one_pass(ddp); }), "") << "the failure is not final";
      comm.barrier();
    });
  }
}

TEST(UnusedParameters, WithoutTheOptionAreAnErrorEvenIfNoRankUsesThem) {
  run_ranks(2, "shm", [](Communicator& comm) {
    Communicator own = comm.duplicate();
    ToyModel model;
    model.unused = {2};
    DistributedDataParallel ddp(model, own);
    comm.barrier();  // nobody is still in the constructor when a rank gives up
    EXPECT_THAT(thrown_by([&] { one_pass(ddp); }), HasSubstr("p2"));
    comm.barrier();
  });
}

TEST(UnusedParameters, FoundEachStepGetTheAverageOfTheRanksThatUsedThem) {
  run_ranks(4, "shm", [](Communicator& comm) {
    for (const bool overlap : {true, false}) {
      ToyModel everything, model;
      // p1 is used on rank 2 alone, p3 on none.
      model.unused = comm.rank() == 2 ? std::vector{3} : std::vector{1, 3};
      DistributedDataParallel ddp(
          model, comm, {.bucket_bytes_max = 0, .overlap = overlap, .find_unused_parameters = true});
      ddp.zero_gradients();
      std::ranges::fill(model.gradients()[3], kUntouched);
      one_pass(ddp);
      require(gradient_of(model, 3) == std::vector<float>(7, kUntouched),
              "what no rank used did not keep its gradient");
      // A copy that uses the same says what rank 2 contributed.
      std::vector<float> expected(5, 0.0F);
      if (comm.rank() == 2) {
        ToyModel copy;
        copy.unused = {3};
        const train::Batch batch = toy_batch(0, 8, 4);
        Pass pass;
        train::Tensor gradient;
        squared_loss(copy.forward(batch.inputs, pass), batch.targets, &gradient, 1.0F);
        copy.backward(gradient, pass);
        expected = gradient_of(copy, 1);
        for (float& value : expected) value *= 0.25F;
      }
      comm.broadcast(expected, 2);
      require_near(gradient_of(model, 1), expected, 0.0F, "gradient used on one rank");
      require_equal_on_all(comm, gradient_of(model, 0), "gradients used on all ranks");
    }
  });
}

TEST(UnusedParameters, MayDifferFromStepToStep) {
  run_ranks(3, "tcp", [](Communicator& comm) {
    ToyModel model;
    DistributedDataParallel ddp(model, comm, {.find_unused_parameters = true});
    for (int step = 0; step < 6; ++step) {
      model.unused = {(step + comm.rank()) % 4};
      ddp.zero_gradients();
      one_pass(ddp, static_cast<std::uint64_t>(step));
      require_equal_on_all(comm, model.gradients().values(), "gradients");
    }
  });
}

TEST(UnusedParameters, UsedInAnEarlierPassWithoutSynchronisationCount) {
  run_ranks(2, "shm", [](Communicator& comm) {
    ToyModel model;
    DistributedDataParallel ddp(model, comm, {.find_unused_parameters = true});
    ddp.zero_gradients();
    model.unused = {3};
    {
      const auto scope = ddp.no_sync();
      one_pass(ddp, 0);
    }
    std::vector<float> expected = gradient_of(model, 2);
    model.unused = {2, 3};
    one_pass(ddp, 1);
    comm.all_reduce(expected, ops::sum);
    for (float& value : expected) value *= 0.5F;
    require_near(gradient_of(model, 2), expected, 0.0F, "gradient of the first pass");
  });
}

TEST(UnusedParameters, KeepWhatEarlierStepsHaveAccumulated) {
  run_ranks(2, "shm", [](Communicator& comm) {
    ToyModel model;
    DistributedDataParallel ddp(model, comm, {.find_unused_parameters = true});
    ddp.zero_gradients();
    one_pass(ddp, 0);
    const std::vector<float> first = gradient_of(model, 2);
    if (comm.rank() == 1) model.unused = {2};
    // What rank 0's second pass adds, alone.
    ToyModel copy;
    const train::Batch batch = toy_batch(1, 0, kGlobalBatch / 2);
    Pass pass;
    train::Tensor gradient;
    squared_loss(copy.forward(batch.inputs, pass), batch.targets, &gradient, 1.0F);
    copy.backward(gradient, pass);
    std::vector<float> expected = gradient_of(copy, 2);
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = first[i] + expected[i] / 2;
    one_pass(ddp, 1);
    require_near(gradient_of(model, 2), expected, 1e-5F, "accumulated gradient");
  });
}

TEST(StaticGraph, LearnsUnusedParametersOnceAndLeavesOutWhatNobodyUses) {
  run_ranks(3, "shm", [](Communicator& comm) {
    ToyModel model;
    model.unused = comm.rank() == 1 ? std::vector{3} : std::vector{0, 3};
    DistributedDataParallel ddp(model, comm, {.bucket_bytes_max = 0, .static_graph = true});
    std::ranges::fill(model.gradients()[3], kUntouched);
    for (std::uint64_t step = 0; step < 3; ++step) one_pass(ddp, step);
    EXPECT_TRUE(ddp.buckets_are_final());
    EXPECT_THAT(ddp.buckets(),
                testing::ElementsAre(std::vector{2}, std::vector{1}, std::vector{0}));
    EXPECT_EQ(gradient_of(model, 3), std::vector<float>(7, kUntouched));
    require_equal_on_all(comm, gradient_of(model, 0), "gradients used on rank 1 alone");
    const auto reductions = static_cast<std::size_t>(Collective::kAllReduce);
    EXPECT_EQ(ddp.control().traffic().calls[reductions], 1u) << "the bitmap is for the first step";
  });
}

TEST(StaticGraph, RefusesAPassThatUsesOtherParameters) {
  run_ranks(2, "shm", [](Communicator& comm) {
    Communicator own = comm.duplicate();
    ToyModel model;
    model.unused = {3};
    DistributedDataParallel ddp(model, own, {.static_graph = true});
    comm.barrier();  // nobody is still in the constructor when a rank gives up
    one_pass(ddp, 0);
    one_pass(ddp, 1);
    if (comm.rank() == 1) model.unused = {2, 3};
    const std::string words = thrown_by([&] { one_pass(ddp, 2); });
    EXPECT_THAT(words, HasSubstr("p2")) << "rank " << comm.rank();
    EXPECT_THAT(words, HasSubstr("static_graph")) << "rank " << comm.rank();
    comm.barrier();
  });
}

// Says it uses everything, but forgets to report one gradient, or reports one twice.
class ForgetfulModel : public ToyModel {
 public:
  explicit ForgetfulModel(bool reports_twice) : reports_twice_(reports_twice) {}
  void backward(const train::Tensor& gradient, train::Pass& pass) override {
    const auto listener = pass.gradient_ready;
    pass.gradient_ready = [&](int parameter) {
      if (parameter != 1 || reports_twice_) listener(parameter);
      if (parameter == 1 && reports_twice_) listener(parameter);
    };
    ToyModel::backward(gradient, pass);
    pass.gradient_ready = listener;
  }

 private:
  bool reports_twice_;
};

TEST(UnusedParameters, AModelThatReportsGradientsWronglyIsToldWhichOne) {
  for (const bool reports_twice : {true, false}) {
    run_ranks(2, "shm", [&](Communicator& comm) {
      Communicator own = comm.duplicate();
      ForgetfulModel model(reports_twice);
      DistributedDataParallel ddp(model, own);
      comm.barrier();  // nobody is still in the constructor when a rank gives up
      const std::string words = thrown_by([&] { one_pass(ddp); });
      EXPECT_THAT(words, HasSubstr("p1"));
      EXPECT_THAT(words, AnyOf(HasSubstr("twice"), HasSubstr("no gradient")));
      comm.barrier();
    });
  }
}

}  // namespace
}  // namespace unisono::test
