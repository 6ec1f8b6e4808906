#include "train/ddp/guarded.h"

#include <new>
#include <string>

#include "train/failure.h"

namespace unisono::train {

namespace {

// This one, unless it only follows what one of its communicators has failed by: nobody, perhaps.
Rank failed_rank_of(std::initializer_list<Communicator*> communicators) {
  try {
    for (const Communicator* communicator : communicators) {
      const Status status = communicator->status();
      if (!status.ok()) return status.rank();
    }
  } catch (const std::bad_alloc&) {  // the others are to hear of it in any case
  }
  return (*communicators.begin())->rank();
}

}  // namespace

void give_up(std::initializer_list<Communicator*> communicators, StatisticsExchange* statistics,
             const std::exception_ptr& failure) {
  const Communicator& first = **communicators.begin();
  const std::string reason =
      "rank " + std::to_string(first.rank()) + " cannot go on: " + describe(failure);
  const Rank failed_rank = failed_rank_of(communicators);
  for (Communicator* communicator : communicators) communicator->abort(reason, failed_rank);
  if (statistics == nullptr) return;
  const bool has_same_ranks = statistics->ranks() == first.size();
  statistics->abort(reason, has_same_ranks ? failed_rank : -1);
}

}  // namespace unisono::train
