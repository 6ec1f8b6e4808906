// A job of processes of one host whose victim ends or stops in init(), and what the others say.
#pragma once

#include <string>
#include <vector>

#include "tests/support/child_process.h"
#include "unisono/types.h"

namespace unisono::test {

inline constexpr int kInitRanks = 3;
/// The lowest and the highest.
inline constexpr Rank kInitVictims[]{0, kInitRanks - 1};

/// Jobs wait at the same time: make them all before the first is asked.
class InitJob {
 public:
  /// The victim has this role and, besides, "NAME=value" in its environment.
  InitJob(const std::string& transport, Rank victim, const std::string& role,
          const std::vector<std::string>& victims_environment = {});

  pid_t victim() const { return ranks_[static_cast<std::size_t>(victim_)].pid(); }
  /// For messages.
  void note(const std::string& what) { what_ += ", " + what; }
  /// That each of the others hears of the victim, in init() or in a call, before the deadline;
  /// where they may not have met, else that the rendezvous has failed.
  void expect_victim_to_be_named(bool have_met);

 private:
  const Rank victim_;
  std::string what_;
  std::vector<ChildProcess> ranks_;
};

}  // namespace unisono::test
