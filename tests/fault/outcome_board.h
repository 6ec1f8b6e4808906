// Memory that a test shares with ranks it forks: what each of them got, and when. Made before
// spawn(); members are atomics or written by one rank before it ends.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "tests/support/eventually.h"
#include "tests/support/shared.h"
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

using SharedBoard = Shared<OutcomeBoard>;

/// What `call` throws; written is false when it does not.
Outcome outcome_of(const std::function<void()>& call);

}  // namespace unisono::test
