#include "tests/sim/sight_judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "rendezvous/failure/witnesses.h"
#include "tests/sim/control_plane.h"

namespace unisono::sim {
namespace {

using rendezvous::ProcessSight;
using rendezvous::sight_text;

// Between what happens and what is heard of it.
constexpr Duration kTold = 10 * kControlDelay;

bool says(const std::string& message, std::string_view what) {
  return message.find(what) != std::string::npos;
}

}  // namespace

SightJudge::SightJudge(const JobFacts& facts)
    : facts_(facts), partitions_(lasting_partitions(facts.c)) {
  for (const Seat& each : facts.seats) {
    for (const SimulatedRank::Seen& seen : each.rank->failures()) {
      const auto [told, is_new] = told_at_.try_emplace(seen.failure.message(), seen.when);
      if (!is_new) told->second = std::min(told->second, seen.when);
    }
  }
}

SightJudge::Said SightJudge::said_in(const std::string& message) {
  if (!says(message, "is silent: nothing was heard of it for")) return Said::kNothing;
  if (says(message, sight_text(ProcessSight::kStopped))) return Said::kStopped;
  if (says(message, sight_text(ProcessSight::kRuns))) return Said::kRuns;
  if (says(message, "nor is any other rank of its host")) return Said::kWholeHost;
  return Said::kUnseen;
}

std::string SightJudge::judge(const Seat& its, const SimulatedRank::Seen& seen) const {
  const std::string& message = seen.failure.message();
  // Of a part of those that were split, whose whole had failed: it names nobody.
  if (seen.failure.rank() < 0) return {};
  const bool is_own = says(message, "which held the arbiter");
  const Word word{said_in(message), seen.failure.rank(), its.rank->rank(),
                  is_own ? seen.when : told_at_.at(message)};
  if (word.said == Said::kNothing || (is_own ? is_own_true(word) : is_arbiters_true(word))) {
    return {};
  }
  return fmt::format("what is said of rank {} was not to be seen there: {} ({})", word.silent,
                     its.rank->whereabouts(), message);
}

// One of its host is asked once half of the silence has passed.
bool SightJudge::is_arbiters_true(const Word& word) const {
  if (!could_ask(word)) return may_be_true(word);
  const Rank first = word.silent / kRanksOfHost * kRanksOfHost;
  bool has_witness = false, are_others_silent = false;
  for (Rank other = first; other < std::min(first + kRanksOfHost, facts_.c.ranks); ++other) {
    if (other == word.silent) continue;
    const bool is_witness = could_see(other, word);
    has_witness = has_witness || is_witness;
    // Who is apart may have left there.
    const bool has_left = seat(other).has_left_by(word.told_at) && !is_apart(other, word);
    are_others_silent = are_others_silent || (!is_witness && !has_left);
  }
  if (word.said == Said::kWholeHost) return !has_witness && are_others_silent;
  if (!has_witness) return may_be_true(word);
  const Seat& its = seat(word.silent);
  const Duration silence = facts_.c.silence;
  if (its.was_stopped_throughout(word.told_at - silence / 2 - kTold, word.told_at)) {
    return word.said == Said::kStopped;
  }
  if (!its.was_stopped(word.told_at - silence - kTold, word.told_at)) {
    return word.said == Said::kRuns;
  }
  return word.said != Said::kUnseen;
}

// Each rank looks itself when it goes to another arbiter, or hears there what others have seen.
bool SightJudge::is_own_true(const Word& word) const {
  const Seat& its = seat(word.silent);
  const bool is_beside = word.listener / kRanksOfHost == word.silent / kRanksOfHost;
  if (!is_beside || its.is_dead) return may_be_true(word);
  const TimePoint from = word.told_at - kTold;
  if (its.was_stopped_throughout(from, word.told_at)) return word.said == Said::kStopped;
  if (!its.was_stopped(from, word.told_at)) return word.said == Said::kRuns;
  return word.said != Said::kUnseen;
}

bool SightJudge::may_be_true(const Word& word) const {
  const Seat& its = seat(word.silent);
  const TimePoint from = word.told_at - facts_.c.silence - kTold;
  if (word.said == Said::kStopped) return its.was_stopped(from, word.told_at);
  return word.said != Said::kRuns || !its.was_stopped_throughout(from, word.told_at);
}

bool SightJudge::is_apart(Rank rank, const Word& word) const {
  return std::any_of(partitions_.begin(), partitions_.end(), [&](const Fault* each) {
    return is_inside(*each, rank) != is_inside(*each, word.listener);
  });
}

// It was there all the time, where the arbiter hears it.
bool SightJudge::could_see(Rank witness, const Word& word) const {
  const Seat& its = seat(witness);
  const Duration silence = facts_.c.silence;
  return !is_apart(witness, word) && !its.is_gone_by(word.told_at) &&
         !its.was_stopped(word.told_at - silence + kTold, word.told_at) &&
         !its.rank->has_sought(word.told_at - 2 * silence, word.told_at);
}

// Whoever may hold the arbiter ran from when the rank was silent, so that an answer came in time;
// and it is of the listener's part, or of none. Where losses go one way, ranks of either part may
// hold one; and where the network goes down again those that were asked may be lost.
bool SightJudge::could_ask(const Word& word) const {
  const bool is_clear = std::all_of(partitions_.begin(), partitions_.end(), [](const Fault* each) {
    return each->is_for_ever() && !each->is_one_way;
  });
  if (!is_clear || partitions_.size() > 1) return false;
  const TimePoint from = word.told_at - facts_.c.silence + kTold;
  const auto ran = [&](Rank holder) { return !seat(holder).was_stopped(from, word.told_at); };
  return ran(0) && std::all_of(facts_.standbys.begin(), facts_.standbys.end(), ran);
}

}  // namespace unisono::sim
