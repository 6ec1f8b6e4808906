// Memory that a test shares with ranks it forks: what each of them got, and when. Made before
// spawn(); members are atomics or written by one rank before it ends.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <new>
#include <string>

#include "unisono/unisono.hpp"

namespace unisono::test {

inline constexpr int kBoardRanks = 8;

std::int64_t now_ns();

struct Outcome {
  bool written = false;
  ErrorCode code = ErrorCode::kOk;
  Rank rank = -1;
  std::int64_t at_ns = 0;
  char message[400] = {};

  void set(const Error& error);
};

struct OutcomeBoard {
  std::atomic<std::int64_t> killed_at_ns{0};
  std::atomic<int> entered{0};
  std::atomic<int> finished{0};
  std::atomic<int> pids[kBoardRanks] = {};  ///< where a test needs them
  Outcome blocking[kBoardRanks];
  Outcome pending[kBoardRanks];
  Outcome later[kBoardRanks];
};

/// Zeroed memory that forked processes share; aborts where there is none.
void* map_shared(std::size_t bytes);
void unmap_shared(void* at, std::size_t bytes);

/// A board in shared memory, freed with the handle.
template <typename Board>
class Shared {
 public:
  Shared() : board_(new (map_shared(sizeof(Board))) Board()) {}
  ~Shared() { unmap_shared(board_, sizeof(Board)); }
  Shared(const Shared&) = delete;
  Board* operator->() { return board_; }
  Board& operator*() { return *board_; }

 private:
  Board* board_;
};
using SharedBoard = Shared<OutcomeBoard>;

/// Spins, yielding, until `condition`; false after 10 s.
[[nodiscard]] bool eventually(const std::function<bool()>& condition);

/// What `call` throws; written is false when it does not.
Outcome outcome_of(const std::function<void()>& call);

}  // namespace unisono::test
