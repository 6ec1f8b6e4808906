// Groups made of groups: dist.split_group() and merge_remote_group().
#include <algorithm>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "csrc/backend.h"

namespace unisono_torch {
namespace {

constexpr int32_t kNoMember = -1;

// Newer than the oldest version of torch.
template <typename Options>
void set_global_ranks(Options& options, const GlobalRanks& ranks) {
  if constexpr (requires { options.global_ranks_in_group; }) options.global_ranks_in_group = ranks;
}

}  // namespace

c10::intrusive_ptr<c10d::Backend::Options> UnisonoBackend::getBackendOptions() {
  auto options = c10::make_intrusive<Options>(name_, timeout_.load());
  set_global_ranks(*options, *global_ranks());
  return options;
}

// torch asks once for each device of the group, with the same store and ranks: up to 2.11 always,
// later on ranks that are in no part.
template <typename Make>
c10::intrusive_ptr<c10d::Backend> UnisonoBackend::once(const c10::intrusive_ptr<c10d::Store>& store,
                                                       const std::vector<int>& ranks,
                                                       const Make& make) {
  const bool is_known = child_store_ && child_store_->lock() == store && child_ranks_ == ranks;
  if (is_known) return child_ ? child_->lock() : nullptr;
  c10::intrusive_ptr<Backend> child = make();
  child_store_.emplace(store);
  child_ranks_ = ranks;
  child_.reset();
  if (child) child_.emplace(child);
  return child;
}

c10::intrusive_ptr<c10d::Backend> UnisonoBackend::split(
    const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
    const c10::intrusive_ptr<Options>& options) {
  return once(store, ranks, [&] { return part_of(ranks, *options); });
}

c10::intrusive_ptr<c10d::Backend> UnisonoBackend::part_of(const std::vector<int>& ranks,
                                                          const Options& options) {
  const auto place = std::find(ranks.begin(), ranks.end(), getRank());
  const bool is_member = place != ranks.end();
  const auto rank = static_cast<int>(place - ranks.begin());
  const auto size = static_cast<int>(ranks.size());
  // Parts are told apart by the least of their ranks.
  const int32_t color = is_member ? *std::min_element(ranks.begin(), ranks.end()) : kNoMember;
  const std::shared_ptr<const GlobalRanks> in_world = global_ranks();
  unisono_comm* part = nullptr;
  {
    const std::lock_guard lock(mutex_);
    check(unisono_comm_split(comm_under_lock(), color, rank, &part), "split_group", *in_world);
  }
  if (!is_member) return nullptr;
  CommPointer comm(part, unisono_comm_destroy);
  TORCH_CHECK(unisono_comm_size(part) == size && unisono_comm_rank(part) == rank,
              "unisono: split_group: the ranks were given different parts: ", size,
              " ranks are named here, and ", unisono_comm_size(part), " have come");
  GlobalRanks global_ranks;
  if (!in_world->empty()) {
    for (const int member : ranks) {
      global_ranks.push_back(in_world->at(static_cast<size_t>(member)));
    }
  }
  return c10::make_intrusive<UnisonoBackend>(std::move(comm), rank, size, options.timeout, name_,
                                             std::move(global_ranks));
}

c10::intrusive_ptr<c10d::Backend> UnisonoBackend::merge(
    const c10::intrusive_ptr<c10d::Store>& store, const c10::intrusive_ptr<Options>& options,
    const int& rank, const int& size) {
  // The own place among so many: the others' ranks are not known here.
  return once(store, {rank, size}, [&] {
    c10d::PrefixStore place("merge", store);
    return c10::intrusive_ptr<Backend>(
        c10::make_intrusive<UnisonoBackend>(join(place, rank, size, options->timeout), rank, size,
                                            options->timeout, name_, GlobalRanks()));
  });
}

}  // namespace unisono_torch
