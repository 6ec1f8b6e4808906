// What the ranks tell each other while they load. Collective; throws unisono::Error for
// communication and std::runtime_error for what a rank found, the same on every rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "train/data/records.h"
#include "unisono/communicator.h"
#include "unisono/train/sampler.h"

namespace unisono::train {

inline RankPlace place_in(const Communicator& communicator) {
  return {.ranks = communicator.size(), .rank = communicator.rank()};
}

/// Why `call` throws; empty where it does not.
std::string failure_of(const std::function<void()>& call);

/// Throws on every rank, naming the first rank whose `failure` is not empty.
void agree_on_success(Communicator& communicator, const std::string& failure);

/// Throws on every rank when one sees another data set than rank 0.
void agree_on_source(Communicator& communicator, const SampleSource& source);

/// Of each record. Made before the ranks agree that all could load: it may lack the memory.
std::vector<std::uint32_t> lengths_of(const Records& records);

/// The records of all ranks, by rank, through at most `staging_bytes` of staging. `lengths` are
/// those of `mine`.
Records gather_records(Communicator& communicator, const Records& mine,
                       const std::vector<std::uint32_t>& lengths, const SampleSource& source,
                       std::size_t staging_bytes);

}  // namespace unisono::train
