// Checkpoints of models and optimizers: what is copied where, and what does not fit.
#include "unisono/train/checkpoint.h"

#include <algorithm>
#include <stdexcept>

#include "train/data/checkpoint_file.h"
#include "unisono/train/model.h"
#include "unisono/train/optimizer.h"

namespace unisono::train {

namespace {

std::vector<Checkpoint::NamedTensor> copy_of(const Arena& arena) {
  std::vector<Checkpoint::NamedTensor> tensors;
  const std::vector<float> all = arena.read();
  for (const Arena::Entry& entry : arena.entries()) {
    const auto values = std::span<const float>(all).subspan(entry.offset, entry.count);
    tensors.push_back(
        {.name = entry.name, .shape = entry.shape, .values = {values.begin(), values.end()}});
  }
  return tensors;
}

// Empty when `tensors` are those of `arena`, else what differs first.
std::string difference(const std::vector<Checkpoint::NamedTensor>& tensors, const Arena& arena) {
  const std::vector<Arena::Entry>& entries = arena.entries();
  for (std::size_t i = 0; i < std::min(tensors.size(), entries.size()); ++i) {
    if (tensors[i].name != entries[i].name || tensors[i].shape != entries[i].shape ||
        tensors[i].values.size() != entries[i].count) {
      return tensors[i].name + " " + to_string(tensors[i].shape) + " instead of " +
             entries[i].name + " " + to_string(entries[i].shape);
    }
  }
  if (tensors.size() == entries.size()) return "";
  return std::to_string(tensors.size()) + " tensors instead of " + std::to_string(entries.size());
}

void copy_to(const std::vector<Checkpoint::NamedTensor>& tensors, Arena* arena) {
  std::vector<float> all;
  for (const Checkpoint::NamedTensor& tensor : tensors) {
    all.insert(all.end(), tensor.values.begin(), tensor.values.end());
  }
  arena->write(all);
}

}  // namespace

void save_checkpoint(const std::string& path, const Checkpoint& checkpoint) {
  write_checkpoint_file(path, checkpoint, {});
}

Checkpoint load_checkpoint(const std::string& path) { return read_checkpoint_file(path); }

void take_model(const Model& model, Checkpoint* checkpoint) {
  checkpoint->model = model.describe();
  checkpoint->parameters = copy_of(model.parameters());
  checkpoint->buffers = copy_of(model.buffers());
}

void restore_model(const Checkpoint& checkpoint, Model* model) {
  std::string what;
  if (checkpoint.model == model->describe()) {
    what = difference(checkpoint.parameters, model->parameters());
    if (what.empty()) what = difference(checkpoint.buffers, model->buffers());
    if (what.empty()) {
      copy_to(checkpoint.parameters, &model->parameters());
      copy_to(checkpoint.buffers, &model->buffers());
      return;
    }
  }
  throw std::invalid_argument("the checkpoint is of the model \"" + checkpoint.model +
                              "\" and cannot go on as \"" + model->describe() + "\"" +
                              (what.empty() ? "" : ": it has " + what) +
                              "; choose the same model or another checkpoint");
}

void take_optimizer(Optimizer& optimizer, Checkpoint* checkpoint) {
  checkpoint->optimizer = optimizer.describe();
  checkpoint->optimizer_steps = optimizer.steps();
  checkpoint->optimizer_state.clear();
  for (const Optimizer::State& state : optimizer.state()) {
    checkpoint->optimizer_state.push_back({.name = state.name, .values = optimizer.read(state)});
  }
}

void restore_optimizer(const Checkpoint& checkpoint, Optimizer* optimizer, std::size_t offset,
                       std::size_t count) {
  const std::vector<Optimizer::State> states = optimizer->state();
  const auto fits = [&](const Optimizer::State& to, const Checkpoint::NamedArray& from) {
    return to.name == from.name && to.values.size() == count && offset <= from.values.size() &&
           count <= from.values.size() - offset;
  };
  if (!std::equal(states.begin(), states.end(), checkpoint.optimizer_state.begin(),
                  checkpoint.optimizer_state.end(), fits)) {
    throw std::invalid_argument(
        "the checkpoint has the state of the optimizer \"" + checkpoint.optimizer + "\", which \"" +
        optimizer->describe() + "\" of parameters " + std::to_string(offset) + " to " +
        std::to_string(offset + count) + " cannot go on with; choose the same optimizer");
  }
  for (std::size_t i = 0; i < states.size(); ++i) {
    const std::span<const float> from(checkpoint.optimizer_state[i].values);
    optimizer->write(from.subspan(offset, count), states[i]);
  }
  optimizer->set_steps(static_cast<std::size_t>(checkpoint.optimizer_steps));
}

}  // namespace unisono::train
