#include "unisono/helper_threads.h"

#include <algorithm>

#include "base/per_process.h"
#include "engine/idle.h"

namespace unisono {

HelperThreads::HelperThreads(int threads) : threads_(std::max(threads, 0)), forks_(forks_so_far()) {
  ProcessThreads::add(threads_);
}

HelperThreads::~HelperThreads() {
  // A child of a fork has none of the threads, and counts from 0.
  if (forks_ == forks_so_far()) ProcessThreads::add(-threads_);
}

}  // namespace unisono
