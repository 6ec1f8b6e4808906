#include "tests/fault/init_job.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>

#include "base/clock.h"
#include "tests/support/watchdog.h"
#include "unisono/unisono.hpp"

namespace unisono::test {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

// A standby that misses ranks goes by as much as 3 s, and may have waited 2 s for another one.
constexpr std::chrono::seconds kDeadline{is_sanitized() ? 14 : 8};

// Ports are found free by several jobs at once.
std::string new_run() {
  static int runs = 0;
  return std::to_string(getpid()) + "-" + std::to_string(++runs);
}

// Calls until it hears of a failure, in init() or later.
int stay_until_told() {
  const TimePoint begin = Clock::now();
  try {
    Communicator comm = init();
    for (;;) comm.barrier();
  } catch (const Error& error) {
    std::printf("told%s %s of rank %d: %s\n",
                Clock::now() < begin + kDeadline ? "" : " at the deadline",
                std::string(name_of(error.code())).c_str(), error.rank(), error.what());
    return 0;
  }
}

const RoleEntry stay_until_told_entry("stay_until_told", &stay_until_told);

}  // namespace

InitJob::InitJob(const std::string& transport, Rank victim, const std::string& role,
                 const std::vector<std::string>& victims_environment)
    : victim_(victim), what_(transport + ", victim " + std::to_string(victim)) {
  const std::string size = std::to_string(kInitRanks);
  const std::vector<std::string> common{
      "WORLD_SIZE=" + size,
      "LOCAL_WORLD_SIZE=" + size,
      "MASTER_ADDR=127.0.0.1",
      "MASTER_PORT=" + std::to_string(free_port()),
      "TORCHELASTIC_RUN_ID=" + new_run(),
      "UNISONO_TRANSPORT=" + transport,
      is_sanitized() ? "UNISONO_SILENCE=3s" : "UNISONO_SILENCE=1s",
      "UNISONO_TIMEOUT=" + std::to_string(kDeadline.count()) + "s"};
  for (Rank rank = 0; rank < kInitRanks; ++rank) {
    std::vector<std::string> environment = common;
    for (const char* name : {"RANK=", "LOCAL_RANK="}) {
      environment.push_back(name + std::to_string(rank));
    }
    if (rank == victim) {
      environment.insert(environment.end(), victims_environment.begin(), victims_environment.end());
    }
    ranks_.emplace_back(rank == victim ? role : "stay_until_told", environment);
  }
}

void InitJob::expect_victim_to_be_named(bool have_met) {
  const std::string of_victim = " of rank " + std::to_string(victim_) + ":";
  const std::string early = "told rank failed" + of_victim;
  const std::string unmet = have_met ? early : "rendezvous failed" + of_victim;
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (static_cast<Rank>(rank) == victim_) continue;
    EXPECT_EQ(ranks_[rank].wait(2 * kDeadline + kChildPatience), 0) << what_;
    EXPECT_THAT(ranks_[rank].output(), AnyOf(HasSubstr(early), HasSubstr(unmet)))
        << what_ << ", by rank " << rank;
  }
}

}  // namespace unisono::test
