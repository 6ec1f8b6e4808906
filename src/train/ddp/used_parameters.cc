#include "train/ddp/used_parameters.h"

#include <algorithm>
#include <stdexcept>

#include "train/ddp/model_agreement.h"

namespace unisono::train {

UsedParameters::UsedParameters(const Model& model, Communicator& control, Policy policy)
    : model_(model),
      control_(control),
      policy_(policy),
      mine_(model.parameters().entries().size(), 0),
      any_(mine_.size(), 1),
      bitmap_(mine_.size(), 0) {}

void UsedParameters::add_pass(std::span<const std::uint8_t> used) {
  for (std::size_t i = 0; i < mine_.size(); ++i) mine_[i] |= used[i];
}

void UsedParameters::settle(std::span<const std::uint8_t> pass) {
  switch (policy_) {
    case Policy::kAll:
      require_all(pass);
      break;
    case Policy::kAskEachStep:
      break;
    case Policy::kLearnOnce:
      if (learnt_.empty()) learnt_ = mine_;
      require_learnt();
      break;
  }
  ask();
}

void UsedParameters::require_all(std::span<const std::uint8_t> pass) const {
  std::vector<int> unused;
  for (std::size_t i = 0; i < pass.size(); ++i) {
    if (pass[i] == 0) unused.push_back(static_cast<int>(i));
  }
  if (unused.empty()) return;
  throw std::invalid_argument(
      "parameters that this pass does not use: " + list_names(model_.parameters(), unused) +
      "; the other ranks would wait for their gradients. Set "
      "find_unused_parameters, or static_graph where every step leaves "
      "out the same ones");
}

void UsedParameters::require_learnt() const {
  std::vector<int> changed;
  for (std::size_t i = 0; i < mine_.size(); ++i) {
    if (mine_[i] != learnt_[i]) changed.push_back(static_cast<int>(i));
  }
  if (changed.empty()) return;
  throw std::invalid_argument("with static_graph every step uses the same parameters, but " +
                              list_names(model_.parameters(), changed) +
                              " differ from the first step; set find_unused_parameters instead");
}

void UsedParameters::settle_without_data() { ask(); }

void UsedParameters::ask() {
  if (policy_ == Policy::kAll || (policy_ == Policy::kLearnOnce && has_asked_)) return;
  has_asked_ = true;
  std::ranges::copy(mine_, bitmap_.begin());
  request_ = control_.all_reduce_async(bitmap_, ops::max);
}

std::span<const std::uint8_t> UsedParameters::used_by_any() {
  if (policy_ == Policy::kAll || bitmap_.empty()) return any_;
  request_.wait();
  std::ranges::transform(bitmap_, any_.begin(),
                         [](std::int32_t used) { return static_cast<std::uint8_t>(used != 0); });
  return any_;
}

void UsedParameters::clear() { std::ranges::fill(mine_, std::uint8_t{0}); }

}  // namespace unisono::train
