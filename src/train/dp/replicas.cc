// The phases of a step over a DeviceGroup.
#include "train/dp/replicas.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "train/dp/device_exchange.h"
#include "train/model/backend.h"

namespace unisono::train {
namespace {

std::vector<Tensor> forward_of(Model& model, NamedTensors inputs, Pass& pass) {
  if (auto* named = dynamic_cast<NamedModel*>(&model)) return named->forward_named(inputs, pass);
  std::vector<Tensor> outputs;
  outputs.push_back(model.forward(inputs.begin()->second, pass));
  return outputs;
}

void backward_of(Model& model, std::span<const Tensor> gradients, Pass& pass) {
  if (auto* named = dynamic_cast<NamedModel*>(&model)) {
    named->backward_named(gradients, pass);
  } else {
    model.backward(gradients.front(), pass);
  }
}

std::vector<Tensor> allocate_wholes(const std::vector<Pieces>& outputs) {
  std::vector<Tensor> wholes;
  for (const Pieces& pieces : outputs) wholes.push_back(Tensor::uninitialised(pieces.whole()));
  return wholes;
}

bool all_end_to_end(const std::vector<Pieces>& tensors) {
  return std::all_of(tensors.begin(), tensors.end(),
                     [](const Pieces& pieces) { return pieces.are_end_to_end(); });
}

}  // namespace

std::vector<Pieces> join_outputs(const DeviceTensors& outputs, std::size_t dim) {
  std::size_t count = 0;
  for (const std::vector<Tensor>& device : outputs) {
    if (device.empty()) continue;
    if (count != 0 && device.size() != count) {
      throw std::invalid_argument("replicas have " + std::to_string(count) + " and " +
                                  std::to_string(device.size()) + " outputs");
    }
    count = device.size();
  }
  std::vector<Pieces> joined;
  for (std::size_t output = 0; output < count; ++output) {
    std::vector<const Shape*> shapes;
    for (const std::vector<Tensor>& device : outputs) {
      shapes.push_back(device.empty() ? nullptr : &device[output].shape());
    }
    joined.push_back(Pieces::joining(shapes, dim));
  }
  return joined;
}

Replicas::Replicas(std::unique_ptr<Model> model, const std::vector<int>& devices,
                   bool threads_per_apply, const std::vector<int>& gpus)
    : group_(devices, threads_per_apply, gpus), models_(devices.size()), passes_(devices.size()) {
  group_.run_all([&](Device& device) { models_[device.index] = clone_to(*model, device.memory); });
}

void Replicas::replicate(std::size_t devices, bool with_buffers) {
  group_.exchange(devices, [&](Device& device) {
    Model& model = *models_[device.index];
    broadcast_values(device.among(devices), model.parameters(), 0);
    if (with_buffers) broadcast_values(device.among(devices), model.buffers(), 0);
  });
}

std::vector<Pieces> Replicas::cut(const InputView& inputs, std::size_t dim,
                                  std::span<const std::size_t> chunks) const {
  std::vector<Pieces> cuts;
  for (const auto& entry : inputs) {
    cuts.emplace_back(entry.second->shape(), dim,
                      std::vector<std::size_t>(chunks.begin(), chunks.end()));
  }
  return cuts;
}

std::vector<NamedTensors> Replicas::scatter(const InputView& inputs, std::size_t dim,
                                            std::span<const std::size_t> chunks,
                                            bool by_first_device) {
  const std::size_t devices = chunks.size();
  const std::vector<Pieces> cuts = cut(inputs, dim, chunks);
  std::vector<NamedTensors> mine(devices);
  std::vector<Tensor>
      staged;  // at the first device: inputs that cannot be sent from where they lie
  group_.run([&](const Device& device) { return device.index < devices; },
             [&](Device& device) {
               std::size_t i = 0;
               for (const auto& [name, tensor] : inputs) {
                 const Pieces& pieces = cuts[i++];
                 mine[device.index].emplace(name,
                                            Tensor::uninitialised(pieces.piece(device.index)));
                 if (device.index != 0) continue;
                 if (!pieces.are_end_to_end()) {
                   staged.push_back(pieces.pack(*tensor));
                 } else {
                   staged.push_back(by_first_device ? Tensor(*tensor) : Tensor());
                 }
               }
             });
  group_.exchange(devices, [&](Device& device) {
    std::size_t i = 0;
    for (const auto& [name, tensor] : inputs) {
      const bool is_staged = device.index == 0 && !staged[i].empty();
      const Tensor& whole = is_staged ? staged[i] : *tensor;
      scatter_values(device.among(devices), whole, cuts[i].counts(devices),
                     mine[device.index].at(name), 0);
      ++i;
    }
  });
  return mine;
}

DeviceTensors Replicas::apply(std::vector<NamedTensors> inputs, std::span<const std::size_t> chunks,
                              const Pass& pass) {
  DeviceTensors outputs(chunks.size());
  group_.apply(
      [&](const Device& device) {
        return device.index < chunks.size() && chunks[device.index] > 0;
      },
      [&](Device& device) {
        Pass& mine = passes_[device.index];
        mine = pass;
        mine.micro_batch += device.index;
        outputs[device.index] =
            forward_of(*models_[device.index], std::move(inputs[device.index]), mine);
      });
  return outputs;
}

std::vector<Tensor> Replicas::gather(const DeviceTensors& outputs, std::size_t dim,
                                     std::size_t root) {
  const std::vector<Pieces> joined = join_outputs(outputs, dim);
  const std::size_t devices = std::max(outputs.size(), root + 1);
  std::vector<Tensor> wholes;
  const Tensor nothing;
  group_.run_on(root, [&](Device&) { wholes = allocate_wholes(joined); });
  group_.exchange(devices, [&](Device& device) {
    const bool has_outputs = device.index < outputs.size() && !outputs[device.index].empty();
    for (std::size_t i = 0; i < joined.size(); ++i) {
      const Tensor& mine = has_outputs ? outputs[device.index][i] : nothing;
      gather_values(device.among(devices), mine, joined[i].counts(devices), wholes[i], root);
    }
  });
  if (all_end_to_end(joined)) return wholes;
  group_.run_on(root, [&](Device&) {
    for (std::size_t i = 0; i < joined.size(); ++i) wholes[i] = joined[i].unpack(wholes[i]);
  });
  return wholes;
}

std::vector<Tensor> Replicas::copy_out(const DeviceTensors& outputs, std::size_t dim) {
  const std::vector<Pieces> joined = join_outputs(outputs, dim);
  std::vector<Tensor> wholes;
  for (std::size_t i = 0; i < joined.size(); ++i) {
    wholes.push_back(Tensor::for_host(joined[i].whole()));
    float* next = wholes[i].data();
    for (const std::vector<Tensor>& device : outputs) {
      if (device.empty()) continue;
      backend_of(device[i]).read(device[i].data(), device[i].size(), next);
      next += device[i].size();
    }
    if (!joined[i].are_end_to_end()) wholes[i] = joined[i].unpack(wholes[i]);
  }
  return wholes;
}

DeviceTensors Replicas::send_back(const std::vector<Tensor>& gradients,
                                  const std::vector<Pieces>& outputs, std::size_t devices,
                                  std::size_t root) {
  const std::size_t among = std::max(devices, root + 1);
  DeviceTensors mine(among);
  std::vector<Tensor> packed(gradients.size());
  group_.run([&](const Device& device) { return device.index < among; },
             [&](Device& device) {
               for (std::size_t i = 0; i < outputs.size(); ++i) {
                 const std::size_t count = outputs[i].counts(among)[device.index];
                 mine[device.index].push_back(
                     Tensor::uninitialised(count == 0 ? Shape{0} : outputs[i].piece(device.index)));
                 if (device.index == root && !outputs[i].are_end_to_end()) {
                   packed[i] = outputs[i].pack(gradients[i]);
                 }
               }
             });
  group_.exchange(among, [&](Device& device) {
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const Tensor& whole = packed[i].empty() ? gradients[i] : packed[i];
      scatter_values(device.among(among), whole, outputs[i].counts(among), mine[device.index][i],
                     root);
    }
  });
  return mine;
}

void Replicas::backward(const DeviceTensors& gradients, std::span<const std::size_t> chunks) {
  const auto chosen = [&](const Device& device) { return device.index < chunks.size(); };
  group_.run_replicas(chosen, [&](Device& device) {
    Model& model = *models_[device.index];
    if (device.index != 0) model.gradients().zero();
    if (chunks[device.index] == 0) return;
    backward_of(model, gradients[device.index], passes_[device.index]);
  });
}

void Replicas::reduce(std::size_t devices) {
  group_.exchange(devices, [&](Device& device) {
    reduce_values(device.among(devices), models_[device.index]->gradients(), 0);
  });
}

}  // namespace unisono::train
