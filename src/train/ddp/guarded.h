// What a strategy does on a rank that cannot go on: the others wait in calls that this rank will
// never make, and an abort with the reason is the only word that reaches them there.
//
// Stateless. Threads: as Communicator.
#pragma once

#include <exception>
#include <initializer_list>

#include "unisono/communicator.h"
#include "unisono/train/model.h"

namespace unisono::train {

/// Aborts the communicators, which number the same ranks alike, and the exchange where there is
/// one, with the words of `failure`. Names the rank that one of them failed by, if any did, and
/// nobody where another communicator has failed.
void give_up(std::initializer_list<Communicator*> communicators, StatisticsExchange* statistics,
             const std::exception_ptr& failure);

/// Runs `work`. Whatever ends it ends the other ranks' wait for this one too.
template <typename Work>
auto guarded(std::initializer_list<Communicator*> communicators, StatisticsExchange* statistics,
             const Work& work) -> decltype(work()) {
  try {
    return work();
  } catch (...) {
    give_up(communicators, statistics, std::current_exception());
    throw;
  }
}

}  // namespace unisono::train
