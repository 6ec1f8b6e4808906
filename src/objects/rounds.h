// Who sends how much in each round: agreed values only, so that every rank makes the same rounds.
// The rounds go on until the largest object is through; a rank with less sends nothing more.
// Thread rule: one owner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace unisono::objects {

class Rounds {
 public:
  /// `sizes` by rank; at most `bound` bytes in a round, or a byte per rank that still sends.
  Rounds(std::vector<std::uint64_t> sizes, std::uint64_t bound);

  /// Goes to the next round; false when everything is through: then no rank sends.
  bool next();

  const std::vector<std::uint64_t>& sizes() const { return sizes_; }
  /// Bytes in this round, by rank.
  std::span<const std::size_t> counts() const { return counts_; }
  /// Where they begin when they lie end to end.
  std::span<const std::size_t> places() const { return places_; }
  /// Where they begin in their objects.
  std::span<const std::uint64_t> offsets() const { return offsets_; }
  std::size_t bytes() const { return bytes_; }
  /// No round has more.
  std::size_t bytes_max() const;

 private:
  const std::vector<std::uint64_t> sizes_;
  const std::uint64_t bound_;
  std::vector<std::size_t> counts_, places_;
  std::vector<std::uint64_t> offsets_;
  std::size_t bytes_ = 0;
};

}  // namespace unisono::objects
