#include "train/ddp/guarded.h"

#include <new>
#include <string>

#include "train/failure.h"

namespace unisono::train {

namespace {

// Whether it is of a communicator that has failed, by whichever rank of that one.
bool tells_of_a_failure(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    return error.failed_in().number >= 0;
  } catch (...) {
    return false;
  }
}

// This one, unless it only follows what another call has failed by: nobody, perhaps.
Rank failed_rank_of(std::initializer_list<Communicator*> communicators,
                    const StatisticsExchange* statistics, const std::exception_ptr& failure) {
  const Communicator& first = **communicators.begin();
  try {
    for (const Communicator* communicator : communicators) {
      const Status status = communicator->status();
      if (!status.ok()) return status.rank();
    }
    const Status status = statistics == nullptr ? Status() : statistics->status();
    if (!status.ok()) return statistics->ranks() == first.size() ? status.rank() : -1;
  } catch (const std::bad_alloc&) {  // the others are to hear of it in any case
  }
  return tells_of_a_failure(failure) ? -1 : first.rank();
}

}  // namespace

void give_up(std::initializer_list<Communicator*> communicators, StatisticsExchange* statistics,
             const std::exception_ptr& failure) {
  const Communicator& first = **communicators.begin();
  const std::string reason =
      "rank " + std::to_string(first.rank()) + " cannot go on: " + describe(failure);
  const Rank failed_rank = failed_rank_of(communicators, statistics, failure);
  for (Communicator* communicator : communicators) communicator->abort(reason, failed_rank);
  if (statistics == nullptr) return;
  const bool has_same_ranks = statistics->ranks() == first.size();
  statistics->abort(reason, has_same_ranks ? failed_rank : -1);
}

}  // namespace unisono::train
