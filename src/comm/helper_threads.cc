#include "unisono/helper_threads.h"

#include <algorithm>

#include "comm/runtime.h"
#include "engine/idle.h"

namespace unisono {

HelperThreads::HelperThreads(int threads) : threads_(std::max(threads, 0)) {
  static_cast<void>(Runtime::forks_so_far());  // a child of a fork has none of them
  ProcessThreads::add(threads_);
}

HelperThreads::~HelperThreads() { ProcessThreads::add(-threads_); }

}  // namespace unisono
