// What split() decides without a call: which ranks of a communicator form this rank's part, and
// which number it has, from what all have said. tests/sim splits by it as well.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"

namespace unisono::detail {

/// What each rank says first.
struct Vote {
  std::int32_t color;
  std::int32_t key;
  // Of the list of the ranks that it expects in its part.
  std::uint32_t expected_count;
  std::uint32_t expected_digest;
};
Vote make_vote(int color, int key, std::span<const Rank> expected);

/// What the first rank of a part tells its others then.
struct Offer {
  std::uint32_t id = 0;     ///< 0: there is no number left
  std::uint32_t block = 0;  ///< of shared memory
  std::uint32_t has_block = 0;
};

/// The part of rank `self`.
class Part {
 public:
  Part(const std::vector<Vote>& votes, Rank self);

  /// Of the communicator that is split, in the order of the part; empty: this rank is in none.
  const std::vector<Rank>& ranks() const { return ranks_; }
  bool leads() const { return !ranks_.empty() && ranks_.front() == self_; }
  Rank place() const;
  /// The ranks of a part all find the same. Those that disagree take part to the end, with nothing,
  /// because the others go on.
  const Status& agreed_on() const { return agreed_on_; }
  Offer agreed(const std::vector<Offer>& offers) const;

 private:
  Status check_expected(const std::vector<Vote>& votes) const;

  const Rank self_;
  std::vector<Rank> ranks_;
  Status agreed_on_;
};

}  // namespace unisono::detail
