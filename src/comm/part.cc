#include "comm/part.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "base/fnv.h"

namespace unisono::detail {

Vote make_vote(int color, int key, std::span<const Rank> expected) {
  const std::string_view bytes(reinterpret_cast<const char*>(expected.data()),
                               expected.size_bytes());
  return {color, key, static_cast<std::uint32_t>(expected.size()), fnv1a(bytes)};
}

Part::Part(const std::vector<Vote>& votes, Rank self) : self_(self) {
  const auto vote_of = [&](Rank rank) { return votes[static_cast<std::size_t>(rank)]; };
  const std::int32_t color = vote_of(self).color;
  for (Rank rank = 0; rank < static_cast<Rank>(votes.size()); ++rank) {
    if (color >= 0 && vote_of(rank).color == color) ranks_.push_back(rank);
  }
  std::stable_sort(ranks_.begin(), ranks_.end(),
                   [&](Rank a, Rank b) { return vote_of(a).key < vote_of(b).key; });
  agreed_on_ = check_expected(votes);
  if (!agreed_on_) ranks_.clear();
}

Rank Part::place() const {
  return static_cast<Rank>(std::find(ranks_.begin(), ranks_.end(), self_) - ranks_.begin());
}

Offer Part::agreed(const std::vector<Offer>& offers) const {
  return ranks_.empty() ? Offer{} : offers[static_cast<std::size_t>(ranks_.front())];
}

// An error where they expect different ranks in it, or one of those whom they expect voted
// otherwise.
Status Part::check_expected(const std::vector<Vote>& votes) const {
  const Vote& own = votes[static_cast<std::size_t>(self_)];
  const auto other = std::find_if(ranks_.begin(), ranks_.end(), [&](Rank rank) {
    const Vote& vote = votes[static_cast<std::size_t>(rank)];
    return vote.expected_count != own.expected_count || vote.expected_digest != own.expected_digest;
  });
  if (other != ranks_.end()) {
    return Status(ErrorCode::kMismatch, "rank " + std::to_string(*other) +
                                            " named other ranks than rank " +
                                            std::to_string(self_) + " did");
  }
  if (own.expected_count == 0 || own.expected_count == ranks_.size()) return Status();
  return Status(ErrorCode::kMismatch, "of the " + std::to_string(own.expected_count) +
                                          " ranks that rank " + std::to_string(self_) +
                                          " named, only " + std::to_string(ranks_.size()) +
                                          " named themselves");
}

}  // namespace unisono::detail
