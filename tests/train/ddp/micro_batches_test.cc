// Training whose bits do not depend on the number of ranks; and that ordinary training is equal
// only within a tolerance.
#include "unisono/train/micro_batches.h"

#include <gmock/gmock.h>

#include <cmath>
#include <map>
#include <numeric>
#include <span>

#include "tests/support/same_bytes.h"
#include "tests/support/setting.h"
#include "tests/support/watchdog.h"
#include "tests/train/ddp/ddp_world.h"
#include "unisono/train/models.h"

namespace unisono::test {
namespace {

using train::Batch;
using train::MicroBatchTrainer;
using train::Model;

constexpr std::size_t kMicroBatches = 8;
const int kSteps = is_sanitized() ? 20 : 50;

// What is trained: a model and the micro-batches of its steps.
struct Task {
  std::string name;
  std::function<std::unique_ptr<Model>()> make_model;
  std::function<Batch(std::uint64_t step, std::size_t micro_batch)> batch;
  train::LossFunction loss;
  float rate;
  float tolerance;  // without the mode, of the parameters after all steps
};
void PrintTo(const Task& task, std::ostream* out) { *out << task.name; }

Task toy_task() {
  return {.name = "toy",
          .make_model =
              [] {
                return std::make_unique<ToyModel>(
                    ToyOptions{.counts = {300, 41, 7}, .has_noise = true, .seed = 4});
              },
          .batch = [](std::uint64_t step, std::size_t m) { return toy_batch(step, m * 5, 5); },
          .loss = squared_loss,
          .rate = 1e-4F,
          .tolerance = 1e-4F};
}

// Pictures of two classes, told apart by their brightness; not by much.
Batch picture_batch(std::uint64_t step, std::size_t micro_batch) {
  constexpr std::size_t kPictures = 4, kPixels = 64;
  const Batch noise = toy_batch(step, micro_batch * kPictures, kPictures, kPixels);
  Batch batch;
  batch.inputs = noise.inputs;
  batch.indices = noise.indices;
  for (std::size_t i = 0; i < kPictures; ++i) {
    const std::int32_t target = noise.targets[i] > 0 ? 1 : 0;
    batch.targets.push_back(target);
    for (std::size_t p = 0; p < kPixels; ++p) {
      batch.inputs.data()[i * kPixels + p] += 0.5F * static_cast<float>(target);
    }
  }
  return batch;
}

Task cnn_task() {
  return {
      .name = "cnn",
      .make_model =
          [] {
            return train::make_cnn({.channels = 1, .size = 8, .filters = {4, 8}, .classes = 2});
          },
      .batch = picture_batch,
      .loss = [](const train::Tensor& outputs, std::span<const std::int32_t> targets,
                 train::Tensor* gradient,
                 float scale) { return train::cross_entropy(outputs, targets, gradient, scale); },
      .rate = 0.01F,
      .tolerance = 0.05F};
}

// Counting in steps of 1, 2 or 3: which comes next can be learnt from the first two places.
Batch counting_batch(std::uint64_t step, std::size_t micro_batch) {
  constexpr std::size_t kTexts = 3, kPlaces = 6, kSymbols = 7;
  Batch batch;
  batch.inputs = train::Tensor({kTexts, kPlaces});
  for (std::size_t i = 0; i < kTexts; ++i) {
    const std::size_t number =
        (static_cast<std::size_t>(step) * kMicroBatches + micro_batch) * 3 + i;
    for (std::size_t place = 0; place < kPlaces; ++place) {
      const std::size_t stride = number % 3 + 1;
      const std::size_t symbol = number * 5 + place * stride;
      batch.inputs.data()[i * kPlaces + place] = static_cast<float>(symbol % kSymbols);
      batch.targets.push_back(static_cast<std::int32_t>((symbol + stride) % kSymbols));
    }
    batch.indices.push_back(number);
  }
  return batch;
}

Task gpt_task() {
  return {.name = "gpt",
          .make_model =
              [] {
                return train::make_gpt(
                    {.vocabulary = 7, .context = 6, .layers = 1, .width = 8, .heads = 2});
              },
          .batch = counting_batch,
          .loss = cnn_task().loss,
          .rate = 0.1F,
          .tolerance = 0.05F};
}

struct Result {
  std::vector<double> losses;
  std::vector<float> parameters, buffers;
};

template <typename T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return same_bytes(std::as_bytes(std::span(a)), std::as_bytes(std::span(b)));
}

double mean_of_last(const std::vector<double>& losses, int count) {
  return std::accumulate(losses.end() - count, losses.end(), 0.0) / count;
}

// Rank 0's result; that the others have the same parameters is required inside.
Result train_on(int ranks, const char* transport, const Task& task) {
  Result result;
  run_ranks(ranks, transport, [&](Communicator& comm) {
    const std::unique_ptr<Model> model = task.make_model();
    MicroBatchTrainer trainer(*model, comm, kMicroBatches);
    const auto optimizer = train::make_sgd(model->parameters().values().size());
    std::vector<double> losses;
    for (int step = 0; step < kSteps; ++step) {
      const auto number = static_cast<std::uint64_t>(step);
      std::vector<Batch> mine;
      for (std::size_t m = 0; m < trainer.count(); ++m) {
        mine.push_back(task.batch(number, trainer.first() + m));
      }
      losses.push_back(
          trainer.step(mine, task.loss, *optimizer, task.rate, {.seed = 11, .step = number}));
    }
    require_equal_on_all(comm, model->parameters().values(), "parameters");
    require_equal_on_all(comm, model->buffers().values(), "buffers");
    if (comm.rank() != 0) return;
    result = {losses, values_of(model->parameters()), values_of(model->buffers())};
  });
  return result;
}

class RankIndependence : public testing::TestWithParam<Task> {};
INSTANTIATE_TEST_SUITE_P(Models, RankIndependence,
                         testing::Values(toy_task(), cnn_task(), gpt_task()),
                         [](const auto& info) { return info.param.name; });

TEST_P(RankIndependence, OneTwoFourAndEightRanksTrainTheSameBitsOverShmAndTcp) {
  const Result alone = train_on(1, "shm", GetParam());
  ASSERT_EQ(alone.losses.size(), static_cast<std::size_t>(kSteps));
  EXPECT_TRUE(std::isfinite(alone.losses.back()));
  EXPECT_LT(mean_of_last(alone.losses, kSteps / 2), mean_of_last(alone.losses, kSteps))
      << "nothing is learnt";
  for (const char* transport : {"shm", "tcp"}) {
    for (const int ranks : {2, 4, 8}) {
      const Result together = train_on(ranks, transport, GetParam());
      EXPECT_TRUE(same_bits(together.losses, alone.losses)) << ranks << " over " << transport;
      EXPECT_TRUE(same_bits(together.parameters, alone.parameters))
          << ranks << " over " << transport;
      EXPECT_TRUE(same_bits(together.buffers, alone.buffers)) << ranks << " over " << transport;
    }
  }
}

// DistributedDataParallel on the same samples, each rank's micro-batches in one batch.
Batch joined(const Task& task, std::uint64_t step, std::size_t first, std::size_t count) {
  Batch all = task.batch(step, first);
  std::vector<float> values(all.inputs.values().begin(), all.inputs.values().end());
  for (std::size_t m = first + 1; m < first + count; ++m) {
    const Batch next = task.batch(step, m);
    values.insert(values.end(), next.inputs.values().begin(), next.inputs.values().end());
    all.targets.insert(all.targets.end(), next.targets.begin(), next.targets.end());
    all.indices.insert(all.indices.end(), next.indices.begin(), next.indices.end());
  }
  all.inputs = train::Tensor({all.indices.size(), values.size() / all.indices.size()});
  std::ranges::copy(values, all.inputs.data());
  return all;
}

std::vector<float> train_ordinarily(int ranks, const Task& task) {
  std::vector<float> parameters;
  run_ranks(ranks, "shm", [&](Communicator& comm) {
    const std::unique_ptr<Model> model = task.make_model();
    train::DistributedDataParallel ddp(*model, comm);
    const auto optimizer = train::make_sgd(model->parameters().values().size());
    const std::size_t count = kMicroBatches / static_cast<std::size_t>(ranks);
    const std::size_t first = count * static_cast<std::size_t>(comm.rank());
    for (int step = 0; step < kSteps; ++step) {
      const auto number = static_cast<std::uint64_t>(step);
      ddp.step(joined(task, number, first, count), task.loss, *optimizer, task.rate);
    }
    require_equal_on_all(comm, model->parameters().values(), "parameters");
    if (comm.rank() == 0) parameters = values_of(model->parameters());
  });
  return parameters;
}

TEST(WithoutTheMode, OtherNumbersOfRanksAreEqualWithinRoundingOnly) {
  // No noise: it depends on the micro-batch, which ordinary training does not know.
  Task task = toy_task();
  task.make_model = [] {
    return std::make_unique<ToyModel>(ToyOptions{.counts = {300, 41, 7}, .seed = 4});
  };
  const std::vector<float> alone = train_ordinarily(1, task);
  bool all_same = true;
  for (const int ranks : {2, 4, 8}) {
    const std::vector<float> together = train_ordinarily(ranks, task);
    EXPECT_NO_THROW(require_near(together, alone, task.tolerance, "parameters")) << ranks;
    all_same = all_same && same_bits(together, alone);
  }
  EXPECT_FALSE(all_same) << "the data do not tell one order of summation from another";
}

TEST(TheMode, EqualsOrdinaryTrainingWithinRounding) {
  Task task = toy_task();
  task.make_model = [] {
    return std::make_unique<ToyModel>(ToyOptions{.counts = {300, 41, 7}, .seed = 4});
  };
  const Result in_mode = train_on(2, "shm", task);
  EXPECT_NO_THROW(
      require_near(in_mode.parameters, train_ordinarily(1, task), task.tolerance, "parameters"));
}

TEST(TheMode, NestsForThreeRanksToo) {
  const Task task = toy_task();
  std::map<int, std::vector<float>> parameters;
  for (const int ranks : {1, 3, 6}) {
    run_ranks(ranks, "shm", [&](Communicator& comm) {
      const std::unique_ptr<Model> model = task.make_model();
      MicroBatchTrainer trainer(*model, comm, 12);
      const auto optimizer = plain_sgd(*model);
      for (std::uint64_t step = 0; step < 5; ++step) {
        std::vector<Batch> mine;
        for (std::size_t m = 0; m < trainer.count(); ++m) {
          mine.push_back(task.batch(step, trainer.first() + m));
        }
        trainer.step(mine, task.loss, *optimizer, task.rate, {.step = step});
      }
      if (comm.rank() == 0) parameters[ranks] = values_of(model->parameters());
    });
  }
  EXPECT_TRUE(same_bits(parameters[1], parameters[3]));
  EXPECT_TRUE(same_bits(parameters[1], parameters[6]));
}

TEST(TheMode, RefusesAnExactJobOfMoreThanTwoRanks) {
  const Setting order("UNISONO_ORDER", "exact");
  const Task task = toy_task();
  EXPECT_TRUE(same_bits(train_on(2, "shm", task).parameters, train_on(1, "shm", task).parameters));
  for (const int ranks : {4, 8}) {
    run_ranks(ranks, "shm", [&](Communicator& comm) {
      const std::unique_ptr<Model> model = task.make_model();
      try {
        MicroBatchTrainer trainer(*model, comm, kMicroBatches);
        require(false, "it was made");
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
        EXPECT_THAT(error.what(), testing::HasSubstr("UNISONO_ORDER"));
      }
      comm.barrier();
    });
  }
}

TEST(TheMode, MovesRunningStatisticsToTheMeanOfTheMicroBatches) {
  for (const int ranks : {1, 2, 8}) {
    run_ranks(ranks, "shm", [](Communicator& comm) {
      ToyModel model;
      model.buffers().values()[0] = 4.0F;
      MicroBatchTrainer trainer(model, comm, 8);
      std::vector<Batch> mine;
      for (std::size_t m = 0; m < trainer.count(); ++m) {
        Batch batch = toy_batch(0, 0, 1);
        std::ranges::fill(batch.inputs.values(), static_cast<float>(trainer.first() + m));
        mine.push_back(std::move(batch));
      }
      const auto optimizer = plain_sgd(model);
      trainer.step(mine, squared_loss, *optimizer, 0.0F);
      // Halfway from what was to the mean of 0 .. 7.
      EXPECT_THAT(values_of(model.buffers()), testing::ElementsAre(3.75F, 1.75F, 1.75F, 1.75F));
    });
  }
}

}  // namespace
}  // namespace unisono::test
