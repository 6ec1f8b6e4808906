// A rank of a job whose ranks are killed one after the other and started again by the launcher.
// Each says when something has happened; bench/reliability/rejoin.py starts the job and makes the
// table.
//   rejoin_bench TRIALS
#include <time.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <vector>

#include "unisono/unisono.hpp"

namespace {

using namespace unisono;

constexpr std::size_t kCount = 50'000;

void tell(int trial, const char* what) {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  std::printf("%d %s %lld\n", trial, what, 1'000'000'000LL * now.tv_sec + now.tv_nsec);
  std::fflush(stdout);
}

void sum(Communicator& comm) {
  std::vector<float> data(kCount, 1.0F);
  comm.all_reduce(data, ops::sum);
  if (data[kCount - 1] != static_cast<float>(comm.size())) throw std::runtime_error("a wrong sum");
}

void call_until_failure(Communicator& comm) {
  try {
    for (;;) sum(comm);
  } catch (const Error&) {
  }
}

void run(int trials) {
  const int self = std::atoi(std::getenv("RANK"));
  int trial = std::atoi(std::getenv("TORCHELASTIC_RESTART_COUNT"));
  if (trial > 0) tell(trial - 1, "started");
  Communicator comm = init();
  if (trial > 0) {
    sum(comm);
    tell(trial - 1, "whole");
  }
  for (; trial < trials; ++trial) {
    comm.barrier();
    if (self == trial % comm.size()) {
      // The others are in calls by then.
      for (int i = 0; i < 20; ++i) sum(comm);
      tell(trial, "killed");
      kill(getpid(), SIGKILL);
    }
    call_until_failure(comm);
    comm = comm.shrink();
    sum(comm);
    tell(trial, "went_on");
    comm = comm.grow({.wait = std::chrono::seconds(20)});
    sum(comm);
    tell(trial, "whole");
  }
  comm.barrier();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(argc > 1 ? std::atoi(argv[1]) : 1);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
