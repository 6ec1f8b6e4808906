#include "tests/fault/init_job.h"

#include <gmock/gmock.h>

#include <chrono>
#include <cstdio>
#include <utility>

#include "base/clock.h"
#include "tests/support/watchdog.h"
#include "unisono/unisono.hpp"

namespace unisono::test {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

constexpr std::chrono::seconds kDeadline{is_thread_sanitized() ? 20 : 5};

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

InitJob::InitJob(std::string transport, Rank victim, const std::vector<std::string>& victims)
    : transport_(std::move(transport)), victim_(victim) {
  const std::string port = "MASTER_PORT=" + std::to_string(free_port());
  const std::string all = std::to_string(kInitRanks);
  for (int rank = 0; rank < kInitRanks; ++rank) {
    const std::string number = std::to_string(rank);
    std::vector<std::string> environment{
        "RANK=" + number,
        "WORLD_SIZE=" + all,
        "LOCAL_RANK=" + number,
        "LOCAL_WORLD_SIZE=" + all,
        "MASTER_ADDR=127.0.0.1",
        port,
        "UNISONO_TRANSPORT=" + transport_,
        is_thread_sanitized() ? "UNISONO_SILENCE=3s" : "UNISONO_SILENCE=500ms",
        "UNISONO_TIMEOUT=" + std::to_string(kDeadline.count()) + "s"};
    if (rank == victim) environment.insert(environment.end(), victims.begin(), victims.end());
    ranks_.emplace_back("stay_until_told", environment);
  }
}

void InitJob::expect_victim_to_be_named(bool have_met, const std::string& of) {
  const std::string rank = " of rank " + std::to_string(victim_) + ":";
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    if (static_cast<Rank>(i) == victim_) continue;
    const int status = ranks_[i].wait();
    const std::string where = of + ", rank " + std::to_string(i) + ": " + ranks_[i].output();
    EXPECT_EQ(status, 0) << where;
    if (have_met) {
      EXPECT_THAT(ranks_[i].output(), HasSubstr("told rank failed" + rank)) << where;
    } else {
      EXPECT_THAT(ranks_[i].output(), AnyOf(HasSubstr("told rank failed" + rank),
                                            HasSubstr("rendezvous failed" + rank)))
          << where;
    }
  }
}

}  // namespace unisono::test
