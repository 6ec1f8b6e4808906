#include "unisono/helper_threads.h"

#include <algorithm>

#include "engine/idle.h"

namespace unisono {

HelperThreads::HelperThreads(int threads) : threads_(std::max(threads, 0)) {
  ProcessThreads::add(threads_);
}

HelperThreads::~HelperThreads() { ProcessThreads::add(-threads_); }

}  // namespace unisono
