#include "tests/train/cuda/training_fixture.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "train/model/random.h"
#include "unisono/train/loss.h"
#include "unisono/train/models.h"

namespace unisono::test {

const std::vector<TrainingProblem>& training_problems() {
  static const std::vector<TrainingProblem> problems{
      {"mlp",
       [] {
         return train::make_mlp({.widths = {12, 9, 5}, .dropout = 0.1F});
       },
       {12},
       5,
       1,
       false},
      {"cnn",
       [] {
         return train::make_cnn({.size = 8, .filters = {4, 3}, .classes = 5});
       },
       {1, 8, 8},
       5,
       1,
       false},
      {"gpt",
       [] {
         return train::make_gpt(
             {.vocabulary = 11, .context = 6, .layers = 1, .width = 8, .heads = 2});
       },
       {6},
       11,
       6,
       true}};
  return problems;
}

train::Batch rows_of(const TrainingProblem& problem, std::size_t step, std::size_t first,
                     std::size_t count) {
  const std::size_t values = train::element_count(problem.sample);
  train::Shape shape{count};
  shape.insert(shape.end(), problem.sample.begin(), problem.sample.end());
  train::Batch batch;
  batch.inputs = train::Tensor::uninitialised(shape, nullptr);
  for (std::size_t row = first; row < first + count; ++row) {
    train::Random random(1 + step * 1000 + row);
    float* const to = batch.inputs.data() + (row - first) * values;
    for (std::size_t i = 0; i < values; ++i) {
      to[i] = problem.is_text ? static_cast<float>(random.next() % problem.classes)
                              : random.symmetric(1);
    }
    for (std::size_t i = 0; i < problem.targets_per_sample; ++i) {
      batch.targets.push_back(static_cast<std::int32_t>(random.next() % problem.classes));
    }
    batch.indices.push_back(row);
  }
  return batch;
}

train::Batch whole_batch(const TrainingProblem& problem, std::size_t step) {
  return rows_of(problem, step, 0, kRows);
}

train::Batch share_of(const TrainingProblem& problem, std::size_t step, Communicator& comm) {
  const std::size_t share = kRows / static_cast<std::size_t>(comm.size());
  return rows_of(problem, step, share * static_cast<std::size_t>(comm.rank()), share);
}

std::unique_ptr<train::Optimizer> make_optimizer(const train::Model& model) {
  return train::make_sgd(model.parameters().values().size());
}

TrainingResult train_alone(const TrainingProblem& problem, std::unique_ptr<train::Model> model) {
  const auto optimizer = make_optimizer(*model);
  TrainingResult result;
  for (std::size_t step = 0; step < kSteps; ++step) {
    const train::Batch batch = whole_batch(problem, step);
    model->gradients().zero();
    train::Pass pass{.step = step};
    const train::Tensor outputs = model->forward(batch.inputs, pass);
    train::Tensor gradient;
    result.losses.push_back(train::cross_entropy(outputs, batch.targets, &gradient));
    model->backward(gradient, pass);
    optimizer->step(model->parameters().values(), model->gradients().values(), kRate);
  }
  result.parameters = model->parameters().read();
  return result;
}

TrainingResult train_on_host(const TrainingProblem& problem) {
  return train_alone(problem, problem.make_model());
}

namespace {

void require_close(double got, double expected, double tolerance, const std::string& what) {
  // Written so that a NaN fails.
  if (std::abs(got - expected) <= tolerance * std::max(1.0, std::abs(expected))) return;
  throw std::runtime_error(what + " is " + std::to_string(got) + ", not " +
                           std::to_string(expected));
}

}  // namespace

void require_alike(const TrainingResult& got, const TrainingResult& expected, double tolerance) {
  if (got.losses.size() != expected.losses.size() ||
      got.parameters.size() != expected.parameters.size()) {
    throw std::runtime_error("other numbers of losses or parameters");
  }
  for (std::size_t i = 0; i < got.losses.size(); ++i) {
    require_close(got.losses[i], expected.losses[i], tolerance, "loss " + std::to_string(i));
  }
  for (std::size_t i = 0; i < got.parameters.size(); ++i) {
    require_close(got.parameters[i], expected.parameters[i], tolerance,
                  "parameter " + std::to_string(i));
  }
}

}  // namespace unisono::test
