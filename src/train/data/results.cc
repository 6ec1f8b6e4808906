// What an evaluation found on the ranks, in the order of the samples.
#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

#include "unisono/train/loader.h"

namespace unisono::train {

namespace {

// Samples rank, rank + ranks, ... below `total`.
std::size_t share_of(std::size_t rank, std::size_t ranks, std::size_t total) {
  return total / ranks + (rank < total % ranks ? 1 : 0);
}

// How many each rank gives, checked on every rank: all throw or none does.
std::vector<std::size_t> agree_on_shares(Communicator& communicator, std::size_t count,
                                         std::size_t total) {
  const auto ranks = static_cast<std::size_t>(communicator.size());
  const std::uint64_t mine[2] = {count, total};
  std::vector<std::uint64_t> all(2 * ranks);
  communicator.all_gather(mine, all);
  std::vector<std::size_t> shares(ranks);
  for (std::size_t r = 0; r < ranks; ++r) {
    if (all[2 * r + 1] != all[1]) {
      throw std::invalid_argument("rank " + std::to_string(r) + " gathers the results of " +
                                  std::to_string(all[2 * r + 1]) + " samples, rank 0 of " +
                                  std::to_string(all[1]));
    }
    shares[r] = share_of(r, ranks, total);
    if (all[2 * r] < shares[r]) {
      throw std::invalid_argument("rank " + std::to_string(r) + " has " +
                                  std::to_string(all[2 * r]) + " results where its share of " +
                                  std::to_string(total) + " samples is " +
                                  std::to_string(shares[r]));
    }
  }
  return shares;
}

}  // namespace

void gather_in_order(Communicator& communicator, const void* mine, std::size_t count, DataType type,
                     std::size_t total, void* out) {
  const std::vector<std::size_t> shares = agree_on_shares(communicator, count, total);
  const std::size_t bytes = size_of(type);
  std::vector<std::uint8_t> by_rank(total * bytes);
  communicator.all_gather_v(mine, by_rank.data(), shares, {}, type);
  const std::uint8_t* result = by_rank.data();
  for (std::size_t r = 0; r < shares.size(); ++r) {
    for (std::size_t i = 0; i < shares[r]; ++i, result += bytes) {
      std::memcpy(static_cast<std::uint8_t*>(out) + (r + i * shares.size()) * bytes, result, bytes);
    }
  }
}

std::vector<bool> gather_in_order(Communicator& communicator, const std::vector<bool>& mine,
                                  std::size_t total) {
  // A vector of bool has no bytes to send.
  const std::vector<std::uint8_t> bytes(mine.begin(), mine.end());
  std::vector<std::uint8_t> all(total);
  gather_in_order(communicator, bytes.data(), bytes.size(), DataType::kBool, total, all.data());
  return {all.begin(), all.end()};
}

}  // namespace unisono::train
