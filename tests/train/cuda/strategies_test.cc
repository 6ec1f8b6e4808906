// Every strategy on GPUs that ranks share and on one for each, against training on the host.
#include <gmock/gmock.h>

#include <algorithm>
#include <mutex>
#include <span>

#include "tests/cuda/device_user.h"
#include "tests/train/cuda/cublas_under_test.h"
#include "tests/train/cuda/training_fixture.h"
#include "tests/train/ddp/toy_model.h"
#include "train/model/backend.h"
#include "unisono/objects.h"
#include "unisono/train/data_parallel.h"
#include "unisono/train/distributed_data_parallel.h"
#include "unisono/train/loss.h"
#include "unisono/train/micro_batches.h"
#include "unisono/train/models.h"
#include "unisono/train/sync_batch_norm.h"
#include "unisono/train/zero.h"

namespace unisono::test {
namespace {

using train::DataParallel;
using train::DataParallelOptions;
using train::DdpOptions;
using train::DeviceMemory;
using train::DistributedDataParallel;
using train::Pass;
using train::Residence;

// Sums in another order, and products that cuBLAS adds in another one.
constexpr double kTolerance = 3e-4;

class Strategies : public testing::Test {
 protected:
  Strategies() { use_cublas_under_test(); }
};

/// Ranks as threads; each computes on its GPU. Of two where `gpus` is 2.
void run_on_gpus(int ranks, int gpus, const std::function<void(Communicator&)>& body) {
  std::vector<int> devices;
  for (int device = 0; device < gpus; ++device) devices.push_back(device);
  run_device_ranks({.ranks = ranks, .devices = devices}, [&](Communicator& comm) {
    DeviceMemory memory(Residence::kCuda, comm.rank() % gpus);
    const DeviceMemory::Scope scope(memory);
    body(comm);
  });
}

const TrainingProblem& problem_named(const std::string& name) {
  for (const TrainingProblem& problem : training_problems()) {
    if (problem.name == name) return problem;
  }
  throw std::invalid_argument(name);
}

/// Without dropout, whose numbers depend on the rank.
TrainingProblem without_dropout() {
  TrainingProblem problem = problem_named("mlp");
  problem.make_model = [] { return train::make_mlp({.widths = {12, 9, 5}}); };
  return problem;
}

TrainingResult train_ddp(const TrainingProblem& problem, Communicator& comm,
                         const DdpOptions& options, train::StatisticsExchange* statistics) {
  auto model = problem.make_model();
  if (statistics != nullptr) train::convert_sync_batch_norm(*model);
  const auto optimizer = make_optimizer(*model);
  DistributedDataParallel ddp(*model, comm, options);
  TrainingResult result;
  for (std::size_t step = 0; step < kSteps; ++step) {
    Pass pass{.step = step, .statistics = statistics};
    result.losses.push_back(
        ddp.step(share_of(problem, step, comm), train::cross_entropy, *optimizer, kRate, pass));
  }
  result.parameters = model->parameters().read();
  return result;
}

struct World {
  int ranks, gpus;
};

class Ddp : public Strategies, public testing::WithParamInterface<World> {
 protected:
  void SetUp() override {
    if (device_count() < GetParam().gpus) GTEST_SKIP() << "needs two devices";
  }
  void run(const std::function<void(Communicator&)>& body) {
    run_on_gpus(GetParam().ranks, GetParam().gpus, body);
  }
};

INSTANTIATE_TEST_SUITE_P(Worlds, Ddp,
                         testing::Values(World{1, 1}, World{2, 1}, World{4, 1}, World{2, 2}),
                         [](const auto& info) {
                           return std::to_string(info.param.ranks) + "_ranks_on_" +
                                  std::to_string(info.param.gpus);
                         });

TEST_P(Ddp, EqualsTheHostOnTheGlobalBatch) {
  for (const TrainingProblem& problem : {without_dropout(), problem_named("gpt")}) {
    const TrainingResult expected = train_on_host(problem);
    for (const bool overlap : {true, false}) {
      run([&](Communicator& comm) {
        // Many buckets.
        const DdpOptions options{
            .bucket_bytes_max = 128, .first_bucket_bytes = 64, .overlap = overlap};
        require_alike(train_ddp(problem, comm, options, nullptr), expected, kTolerance);
      });
    }
  }
}

TEST_P(Ddp, EqualsTheHostWithUnusedParametersLookedFor) {
  const TrainingProblem problem = without_dropout();
  const TrainingResult expected = train_on_host(problem);
  run([&](Communicator& comm) {
    const DdpOptions options{.bucket_bytes_max = 256, .find_unused_parameters = true};
    require_alike(train_ddp(problem, comm, options, nullptr), expected, kTolerance);
  });
}

TEST_P(Ddp, TakesStatisticsOfAllRanks) {
  const TrainingProblem& problem = problem_named("cnn");
  const TrainingResult expected = train_on_host(problem);
  run([&](Communicator& comm) {
    train::SyncBatchNormExchange exchange(comm);
    require_alike(train_ddp(problem, comm, {}, &exchange), expected, 2e-3);
  });
}

TEST_P(Ddp, AveragesInSixteenBits) {
  const TrainingProblem problem = without_dropout();
  const TrainingResult expected = train_on_host(problem);
  run([&](Communicator& comm) {
    require_alike(train_ddp(problem, comm, {.hook = train::make_fp16_hook()}, nullptr), expected,
                  2e-2);
    require_alike(train_ddp(problem, comm, {.hook = train::make_bf16_hook()}, nullptr), expected,
                  5e-2);
    require_alike(train_ddp(problem, comm, {.hook = train::make_average_hook()}, nullptr), expected,
                  kTolerance);
  });
}

TEST_P(Ddp, ShardsTheOptimizer) {
  const TrainingProblem problem = without_dropout();
  const TrainingResult expected = train_on_host(problem);
  run([&](Communicator& comm) {
    auto model = problem.make_model();
    train::ZeroOptimizer zero(*model, comm,
                              [](std::size_t count) { return train::make_sgd(count); });
    TrainingResult result;
    for (std::size_t step = 0; step < kSteps; ++step) {
      result.losses.push_back(
          zero.step(share_of(problem, step, comm), train::cross_entropy, kRate, {.step = step}));
    }
    result.parameters = model->parameters().read();
    require_alike(result, expected, kTolerance);
    train::Checkpoint checkpoint;
    zero.gather_optimizer(&checkpoint);
    if (comm.rank() != 0) return;
    EXPECT_EQ(checkpoint.optimizer_state.at(0).values.size(), result.parameters.size());
    EXPECT_THAT(checkpoint.optimizer_state[0].values, testing::Contains(testing::Ne(0.0F)));
  });
}

TEST_F(Strategies, ByMicroBatchesGiveTheSameBitsOnAnyNumberOfRanks) {
  for (const char* name : {"cnn", "gpt"}) {
    const TrainingProblem& problem = problem_named(name);
    std::vector<float> first;
    for (const int ranks : {1, 2, 4}) {
      run_on_gpus(ranks, 1, [&](Communicator& comm) {
        auto model = problem.make_model();
        const auto optimizer = make_optimizer(*model);
        train::MicroBatchTrainer trainer(*model, comm, 4);
        for (std::size_t step = 0; step < kSteps; ++step) {
          std::vector<train::Batch> mine;
          for (std::size_t i = 0; i < trainer.count(); ++i) {
            mine.push_back(rows_of(problem, step, (trainer.first() + i) * 4, 4));
          }
          trainer.step(mine, train::cross_entropy, *optimizer, kRate, {.step = step});
        }
        if (comm.rank() != 0) return;
        std::vector<float> all = model->parameters().read();
        const std::vector<float> buffers = model->buffers().read();
        all.insert(all.end(), buffers.begin(), buffers.end());
        if (first.empty()) first = all;
        EXPECT_EQ(all, first) << name << " on " << ranks << " ranks";
      });
    }
  }
}

TEST_F(Strategies, StartBucketsWhileTheBackwardPassIsStillComputing) {
  const TrainingProblem problem = without_dropout();
  run_on_gpus(2, 1, [&](Communicator& comm) {
    auto model = problem.make_model();
    DistributedDataParallel ddp(*model, comm, {.bucket_bytes_max = 32, .first_bucket_bytes = 16});
    const auto optimizer = make_optimizer(*model);
    // The first step has one bucket.
    ddp.step(share_of(problem, 0, comm), train::cross_entropy, *optimizer, kRate);
    std::size_t started_before_the_last = 0;
    const std::size_t parameters = model->parameters().entries().size();
    std::size_t seen = 0;
    Pass pass;
    pass.gradient_ready = [&](int) {
      if (++seen < parameters) started_before_the_last = ddp.progress().started;
    };
    ddp.step(share_of(problem, 1, comm), train::cross_entropy, *optimizer, kRate, pass);
    if (started_before_the_last == 0) throw std::runtime_error("no bucket was early");
  });
}

TEST_F(Strategies, EndOnAllRanksWhereOneCannotGoOn) {
  const TrainingProblem problem = without_dropout();
  std::mutex mutex;
  std::vector<std::string> failures;
  const auto run = [&] {
    run_device_ranks({.ranks = 2}, [&](Communicator& comm) {
      DeviceMemory memory(Residence::kCuda);
      const DeviceMemory::Scope scope(memory);
      auto model = problem.make_model();
      const auto optimizer = make_optimizer(*model);
      DistributedDataParallel ddp(*model, comm);
      try {
        for (std::size_t step = 0; step < kSteps; ++step) {
          if (comm.rank() == 1 && step == 2) memory.set_limit(1);
          ddp.step(share_of(problem, step, comm), train::cross_entropy, *optimizer, kRate);
        }
      } catch (const std::exception& failure) {
        const std::lock_guard lock(mutex);
        failures.emplace_back(failure.what());
      }
    });
  };
  run();
  EXPECT_EQ(failures.size(), 2U);
  EXPECT_THAT(failures, testing::Each(testing::HasSubstr("device 0: out of device memory")));
  EXPECT_THAT(failures, testing::Contains(testing::HasSubstr("rank 1")));
}

// What leaves the device is one copy of the tensor, by whoever puts it into the object.
TEST_F(Strategies, GatherObjectsWithoutTouchingTheDevice) {
  if (fake() == nullptr) GTEST_SKIP() << "needs the fake driver, which counts";
  run_on_gpus(2, 1, [&](Communicator& comm) {
    constexpr std::size_t kValues = 1000;
    const train::Tensor there({kValues});
    train::current_backend().wait();
    comm.barrier();
    const fake_cuda::Counts before = fake()->counts();
    comm.barrier();
    const train::Tensor here = there.to_host();
    const auto all = all_gather_objects(comm, std::as_bytes(here.values()));
    comm.barrier();
    const fake_cuda::Counts after = fake()->counts();
    comm.barrier();
    EXPECT_EQ(all.size(), 2U);
    EXPECT_EQ(after.allocations, before.allocations);
    EXPECT_EQ(after.copied_bytes, before.copied_bytes + 2 * kValues * sizeof(float));
    EXPECT_EQ(after.launches, before.launches);
  });
}

/// Its reductions are over when their stream is: finish() does not wait.
class HookThatDoesNotWait : public train::CommunicationHook {
 public:
  std::unique_ptr<Reduction> start(std::span<float> bucket, float factor,
                                   Communicator& communicator,
                                   const CallOptions& options) override {
    struct Started : Reduction {
      explicit Started(Request begun) : request(std::move(begun)) {}
      bool test() override { return request.test(); }
      void finish() override {}
      Request request;
    };
    EXPECT_TRUE(options.stream.has_value());
    return std::make_unique<Started>(
        communicator.all_reduce_async(bucket.data(), bucket.data(), bucket.size(),
                                      DataType::kFloat32, ops::premultiplied_sum(factor), options));
  }
};

TEST_F(Strategies, GoOnBehindBucketsInStreamOrder) {
  const TrainingProblem problem = without_dropout();
  const TrainingResult expected = train_on_host(problem);
  run_on_gpus(2, 1, [&](Communicator& comm) {
    require_alike(
        train_ddp(problem, comm, {.hook = std::make_shared<HookThatDoesNotWait>()}, nullptr),
        expected, kTolerance);
  });
}

TEST_F(Strategies, RefuseAModelThatTouchesItsValues) {
  const ToyModel on_host;
  run_on_gpus(1, 1, [&](Communicator& comm) {
    const auto there = on_host.clone();
    EXPECT_THROW(DistributedDataParallel(*there, comm), std::invalid_argument);
  });
}

struct DeviceCase {
  std::string name;
  DataParallelOptions options;
};

std::vector<DeviceCase> device_cases_of_training() {
  std::vector<DeviceCase> cases;
  const std::vector<int> two{0, 1}, three{5, 6, 7};
  cases.push_back({"single", {.devices = {3}, .gpus = {0}}});
  cases.push_back({"dp", {.devices = two, .gpus = {0}}});
  cases.push_back({"dp_on_two_gpus", {.devices = two, .gpus = {0, 1}}});
  cases.push_back({"dp_output_1", {.devices = two, .gpus = {0}, .output_device = 1}});
  cases.push_back(
      {"dp_by_first_device", {.devices = three, .gpus = {0}, .inputs_on_first_device = true}});
  cases.push_back({"dp_balanced", {.devices = three, .gpus = {0}, .first_batch = 2}});
  cases.push_back({"dp_criterion", {.devices = three, .gpus = {0}, .parallel_loss = true}});
  return cases;
}

class Dp : public Strategies, public testing::WithParamInterface<DeviceCase> {
 protected:
  void SetUp() override {
    const std::vector<int>& gpus = GetParam().options.gpus;
    if (device_count() <= *std::max_element(gpus.begin(), gpus.end())) {
      GTEST_SKIP() << "needs two devices";
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Cases, Dp, testing::ValuesIn(device_cases_of_training()),
                         [](const auto& info) { return info.param.name; });

TEST_P(Dp, EqualsTheHostOnTheWholeBatch) {
  for (const TrainingProblem& problem : {without_dropout(), problem_named("gpt")}) {
    const TrainingResult expected = train_on_host(problem);
    DataParallel parallel(
        problem.make_model(), [](std::size_t count) { return train::make_sgd(count); },
        GetParam().options);
    TrainingResult result;
    for (std::size_t step = 0; step < kSteps; ++step) {
      result.losses.push_back(parallel.step(whole_batch(problem, step), kRate));
    }
    result.parameters = parallel.model().parameters().read();
    EXPECT_NO_THROW(require_alike(result, expected, kTolerance)) << problem.name;
    EXPECT_FALSE(parallel.model().parameters().storage().on_host());
  }
}

TEST_F(Strategies, ShowWhereGatheredOutputsLie) {
  const TrainingProblem problem = without_dropout();
  const std::size_t outputs = kRows * problem.classes * sizeof(float);
  for (const int output : {0, 1}) {
    DataParallel parallel(problem.make_model(),
                          [](std::size_t count) { return train::make_sgd(count); },
                          {.devices = {0, 1}, .gpus = {0}, .output_device = output});
    parallel.step(whole_batch(problem, 0), kRate);
    const train::Batch batch = whole_batch(problem, 1);
    const train::Predictions predictions = parallel.predict({{"inputs", batch.inputs}}, true);
    const auto memory = [&](int device) {
      return parallel.report().devices[static_cast<std::size_t>(device)].memory;
    };
    const std::size_t before = memory(output), other = memory(1 - output);
    const auto gathered = parallel.gather(predictions, output);
    EXPECT_EQ(memory(output) - before, outputs);
    EXPECT_EQ(memory(1 - output), other);
    EXPECT_FALSE(gathered.at(0).on_host());
    const auto taken_home = parallel.gather(predictions, {});
    EXPECT_TRUE(taken_home.at(0).on_host());
    EXPECT_EQ(taken_home[0].size() * sizeof(float), outputs);
  }
}

TEST_F(Strategies, AreOverWithoutALeak) {
  if (fake() == nullptr) GTEST_SKIP() << "needs the fake driver, which counts";
  const auto alive = [] {
    const fake_cuda::Counts counts = fake()->counts();
    return std::vector<std::uint64_t>{counts.allocations, counts.host_ranges, counts.virtual_parts,
                                      counts.streams,     counts.events,      counts.contexts,
                                      counts.errors};
  };
  const auto once = [] {
    const TrainingProblem problem = without_dropout();
    run_on_gpus(2, 1, [&](Communicator& comm) { train_ddp(problem, comm, {}, nullptr); });
    DataParallel parallel(problem.make_model(),
                          [](std::size_t count) { return train::make_sgd(count); },
                          {.devices = {0, 1}, .gpus = {0}});
    parallel.step(whole_batch(problem, 0), kRate);
  };
  once();
  const auto before = alive();
  once();
  EXPECT_EQ(alive(), before);
}

}  // namespace
}  // namespace unisono::test
