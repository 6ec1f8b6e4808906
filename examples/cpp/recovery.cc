// Training that outlives its ranks: those that are left go on with what they have, and ranks that
// the launcher has started again come back. Rank 1 kills itself in its first life.
//
//   g++ -std=c++20 recovery.cc $(pkg-config --cflags --libs unisono) -o recovery
//   unisono run -n 3 --max-restarts 3 ./recovery
#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <unisono/unisono.hpp>
#include <utility>
#include <vector>

namespace {

constexpr std::int64_t kSteps = 200, kFatalStep = 20;

struct State {
  std::int64_t step = 0;
  double weight = 0;
};

// Others have failed, so that those that are left can go on. All else is for people.
bool is_survivable(const unisono::Error& error) {
  switch (error.code()) {
    case unisono::ErrorCode::kRankFailed:
    case unisono::ErrorCode::kRankLeft:
    case unisono::ErrorCode::kTimeout:
    case unisono::ErrorCode::kCorrupted:
    case unisono::ErrorCode::kAborted:  // another rank has gone on before
      return true;
    default:
      return false;
  }
}

// The call that fails on some ranks may have succeeded on others, and newcomers have done nothing:
// all take the state of whoever is furthest.
void agree(unisono::Communicator& comm, State& state) {
  std::vector<std::int64_t> steps(static_cast<std::size_t>(comm.size()));
  comm.all_gather(std::span<const std::int64_t>(&state.step, 1), steps);
  const auto furthest = std::max_element(steps.begin(), steps.end());
  double weight = state.weight;
  comm.broadcast(std::span<double>(&weight, 1),
                 static_cast<unisono::Rank>(furthest - steps.begin()));
  state = {*furthest, weight};
}

void train_step(unisono::Communicator& comm, State& state) {
  double gradient = 1;
  comm.all_reduce(std::span<double>(&gradient, 1), unisono::ops::average);
  state.weight += gradient;
  ++state.step;
}

}  // namespace

int main() try {
  const char* const life = std::getenv("TORCHELASTIC_RESTART_COUNT");
  const bool is_first_life = life == nullptr || std::atoi(life) == 0;
  unisono::Communicator comm = unisono::init();  // of a rank that was started again: once let in
  const bool is_mortal = comm.rank() == 1 && is_first_life;
  State state;
  bool has_agreed = false;
  while (state.step < kSteps) {
    try {
      if (!std::exchange(has_agreed, true)) agree(comm, state);
      if (is_mortal && state.step == kFatalStep) std::raise(SIGKILL);
      train_step(comm, state);
      // Last, so that the next call of those that are let in and of the others is the same.
      unisono::Communicator grown = comm.grow();
      if (!grown.empty()) comm = std::move(grown), has_agreed = false;
    } catch (const unisono::Error& error) {
      // Of grow(): who waited has died on its way, or cannot come. `comm` works on.
      if (error.code() == unisono::ErrorCode::kRendezvous) continue;
      if (!is_survivable(error)) throw;
      std::fprintf(stderr, "rank %d of %d: %s\n", comm.rank(), comm.size(), error.what());
      comm = comm.shrink();
      has_agreed = false;
    }
  }
  std::printf("rank %d of %d: %g after %lld steps\n", comm.rank(), comm.size(), state.weight,
              static_cast<long long>(state.step));
  return state.weight == kSteps ? 0 : 1;  // each step once
} catch (const unisono::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
