// Whether what is said of a silent rank is what was to be seen on its host: that its process was
// stopped, or ran, or that the whole host was silent.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/sim/job_judge.h"

namespace unisono::sim {

class SightJudge {
 public:
  explicit SightJudge(const JobFacts& facts);
  /// Of what a rank was told; empty: nothing is wrong with it.
  std::string judge(const Seat& its, const SimulatedRank::Seen& seen) const;

 private:
  enum class Said : std::uint8_t { kNothing, kUnseen, kStopped, kRuns, kWholeHost };

  /// What was said of whom, to whom and when first.
  struct Word {
    Said said;
    Rank silent, listener;
    TimePoint told_at;
  };

  static Said said_in(const std::string& message);
  bool is_arbiters_true(const Word& word) const;
  bool is_own_true(const Word& word) const;
  bool may_be_true(const Word& word) const;
  bool is_apart(Rank rank, const Word& word) const;
  bool could_see(Rank witness, const Word& word) const;
  bool could_ask(const Word& word) const;
  const Seat& seat(Rank rank) const { return facts_.seats[static_cast<std::size_t>(rank)]; }

  const JobFacts& facts_;
  const std::vector<const Fault*> partitions_;
  std::map<std::string, TimePoint> told_at_;  // each text, when somebody heard it first
};

}  // namespace unisono::sim
