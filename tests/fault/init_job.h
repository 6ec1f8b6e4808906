// A job of processes of one host whose victim ends or stops in init(), and what the others say.
#pragma once

#include <string>
#include <vector>

#include "tests/support/child_process.h"
#include "unisono/types.h"

namespace unisono::test {

inline constexpr int kInitRanks = 3;

class InitJob {
 public:
  /// `victims`: "NAME=value" of the environment that it has besides.
  InitJob(std::string transport, Rank victim, const std::vector<std::string>& victims);

  const ChildProcess& victim() const { return ranks_[static_cast<std::size_t>(victim_)]; }
  /// That each of the others hears of the victim, in init() or in a call: before the deadline where
  /// all have met, and where they may have not, else that the rendezvous has failed. `of`: the
  /// case.
  void expect_victim_to_be_named(bool have_met, const std::string& of);

 private:
  const std::string transport_;
  const Rank victim_;
  std::vector<ChildProcess> ranks_;
};

}  // namespace unisono::test
