#include "rendezvous/failure/prober.h"

#include <algorithm>

namespace unisono::rendezvous {
namespace {

// A host may hold so many ranks; an arbiter that misses more spreads what it asks.
constexpr std::size_t kAskedMax = 256;
// Datagrams get lost: of each rank it is asked so often, ...
constexpr int kSendings = 4;
// ... within this part of the silence. A rank is overdue after half of it, which the arbiter looks
// for every sixth, and its answer has a twelfth to come.
constexpr int kPartOfSilence = 4;

}  // namespace

void Prober::begin(Rank rank, const ProbeNonce& nonce, TimePoint now) {
  if (asked_.size() >= kAskedMax) return;
  asked_.try_emplace(rank, Asked{nonce, now, now + silence_ / kPartOfSilence});
}

void Prober::on_answer(Rank rank, const ProbeNonce& nonce) {
  const auto asked = asked_.find(rank);
  if (asked != asked_.end() && asked->second.nonce == nonce) asked->second.is_reached = true;
}

std::vector<Prober::Question> Prober::take_questions(TimePoint now) {
  std::vector<Question> questions;
  for (auto& [rank, asked] : asked_) {
    if (asked.is_reached || now < asked.sends_at || now >= asked.ends_at) continue;
    asked.sends_at = now + silence_ / (kPartOfSilence * kSendings);
    questions.push_back({rank, asked.nonce});
  }
  return questions;
}

std::vector<Prober::Outcome> Prober::take_outcomes(TimePoint now) {
  std::vector<Outcome> outcomes;
  std::erase_if(asked_, [&](const auto& each) {
    const auto& [rank, asked] = each;
    const bool is_over = asked.is_reached || now >= asked.ends_at;
    if (is_over) outcomes.push_back({rank, asked.is_reached});
    return is_over;
  });
  return outcomes;
}

TimePoint Prober::next_due() const {
  TimePoint due = kNever;
  for (const auto& [rank, asked] : asked_) {
    due = std::min(due,
                   asked.is_reached ? TimePoint::min() : std::min(asked.sends_at, asked.ends_at));
  }
  return due;
}

}  // namespace unisono::rendezvous
