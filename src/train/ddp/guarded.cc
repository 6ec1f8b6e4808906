#include "train/ddp/guarded.h"

#include <string>

#include "train/failure.h"

namespace unisono::train {

void give_up(std::initializer_list<Communicator*> communicators, StatisticsExchange* statistics,
             const std::exception_ptr& failure) {
  const std::string reason = "rank " + std::to_string((*communicators.begin())->rank()) +
                             " cannot go on: " + describe(failure);
  for (Communicator* communicator : communicators) communicator->abort(reason);
  if (statistics != nullptr) statistics->abort(reason);
}

}  // namespace unisono::train
