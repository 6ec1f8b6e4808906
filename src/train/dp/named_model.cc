// The small public types around DataParallel: named models, their errors, predictions, and the
// loss of a model that has it inside.
#include <numeric>
#include <utility>

#include "train/model/backend.h"
#include "unisono/train/data_parallel.h"

namespace unisono::train {

Tensor NamedModel::forward(const Tensor&, Pass&) {
  throw std::invalid_argument(describe() + " takes inputs by name: call forward_named()");
}

void NamedModel::backward(const Tensor&, Pass&) {
  throw std::invalid_argument(describe() + " takes inputs by name: call backward_named()");
}

ReplicaError::ReplicaError(std::size_t replica, int device, const std::string& what)
    : std::runtime_error("replica " + std::to_string(replica) + " on device " +
                         std::to_string(device) + ": " + what),
      replica_(replica),
      device_(device) {}

std::vector<std::vector<Tensor>> unzip(Predictions predictions) {
  std::vector<std::vector<Tensor>> outputs;
  for (std::vector<Tensor>& device : predictions.devices) {
    if (outputs.size() < device.size()) outputs.resize(device.size());
    for (std::size_t i = 0; i < device.size(); ++i) outputs[i].push_back(std::move(device[i]));
  }
  return outputs;
}

OutputsLoss mean_of_losses(bool weighted) {
  return [weighted](const LossCall& call) {
    if (call.outputs.size() != 1 || call.outputs[0].size() != call.chunks.size()) {
      throw std::invalid_argument(
          "a model with the loss inside has one output, a single loss on each device");
    }
    const auto samples = std::accumulate(call.chunks.begin(), call.chunks.end(), std::size_t{0});
    const Tensor losses = call.outputs[0].to_host();
    std::vector<float> slopes;
    double mean = 0;
    for (std::size_t i = 0; i < call.chunks.size(); ++i) {
      const double weight = weighted
                                ? static_cast<double>(call.chunks[i]) / static_cast<double>(samples)
                                : 1.0 / static_cast<double>(call.chunks.size());
      mean += weight * static_cast<double>(losses.data()[i]);
      slopes.push_back(static_cast<float>(weight * static_cast<double>(call.scale)));
    }
    if (!call.gradients.empty()) {
      call.gradients[0] = tensor_of(slopes).reshaped(call.outputs[0].shape());
    }
    return mean;
  };
}

}  // namespace unisono::train
