// Small problems to train on the host and on GPUs: the same model, batches and steps.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "unisono/communicator.h"
#include "unisono/train/data.h"
#include "unisono/train/model.h"
#include "unisono/train/optimizer.h"

namespace unisono::test {

inline constexpr std::size_t kSteps = 4, kRows = 16;
inline constexpr float kRate = 0.05F;

struct TrainingProblem {
  std::string name;
  std::function<std::unique_ptr<train::Model>()> make_model;
  train::Shape sample;
  std::size_t classes, targets_per_sample;
  bool is_text;
};
/// A perceptron, a convolutional network and a transformer of a few hundred parameters each.
const std::vector<TrainingProblem>& training_problems();

/// Rows [first, first + count) of a step's batch, on the host.
train::Batch rows_of(const TrainingProblem& problem, std::size_t step, std::size_t first,
                     std::size_t count);
train::Batch whole_batch(const TrainingProblem& problem, std::size_t step);
/// This rank's even share.
train::Batch share_of(const TrainingProblem& problem, std::size_t step, Communicator& comm);

struct TrainingResult {
  std::vector<double> losses;
  std::vector<float> parameters;
};
/// On one rank where the calling thread's tensors lie, by SGD with momentum.
TrainingResult train_alone(const TrainingProblem& problem, std::unique_ptr<train::Model> model);
TrainingResult train_on_host(const TrainingProblem& problem);
std::unique_ptr<train::Optimizer> make_optimizer(const train::Model& model);

/// Throws std::runtime_error where the values are farther apart.
void require_alike(const TrainingResult& got, const TrainingResult& expected, double tolerance);

}  // namespace unisono::test
