// Which parameters this rank's passes and any rank's passes have used since the last reduction.
//
// Owned by DistributedDataParallel; one thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "unisono/communicator.h"
#include "unisono/train/model.h"

namespace unisono::train {

class UsedParameters {
 public:
  enum class Policy {
    kAll,          ///< every synchronised pass uses every parameter; anything else is an error
    kAskEachStep,  ///< an all-reduced bitmap per step
    kLearnOnce,    ///< one bitmap in the first step; later passes are held to it
  };

  UsedParameters(const Model& model, Communicator& control, Policy policy);

  Policy policy() const { return policy_; }
  /// A pass' forward has used these.
  void add_pass(std::span<const std::uint8_t> used);

  /// At the end of a synchronised forward(): std::invalid_argument where the policy forbids what
  /// the pass has left out; else begins to ask the other ranks where the policy says so.
  void settle(std::span<const std::uint8_t> pass);
  /// The same on a rank without data: it has used nothing.
  void settle_without_data();
  /// Waits for the other ranks; not 0 for what any rank has used.
  std::span<const std::uint8_t> used_by_any();
  /// What has been accumulated is reduced.
  void clear();

 private:
  void require_all(std::span<const std::uint8_t> pass) const;
  void require_learnt() const;
  void ask();

  const Model& model_;
  Communicator& control_;
  Policy policy_;
  std::vector<std::uint8_t> mine_, any_;
  std::vector<std::uint8_t> learnt_;  // kLearnOnce: this rank's own, empty before
  bool has_asked_ = false;
  std::vector<std::int32_t> bitmap_;
  Request request_;  // after the bitmap, which is lent
};

}  // namespace unisono::train
