// Threads that a program runs beside its ranks: loaders, or a thread that hands out work.
#pragma once

#include "unisono/export.h"

namespace unisono {

/// While it lives, ranks of this process count `threads` more that want a processor. A waiting
/// rank looks without a pause only where ranks and helpers together do not outnumber the
/// processors, and until it finds that others want its own; elsewhere it gives its processor away
/// between looks (UNISONO_WAIT=auto). The other processes of the job are taken to have as many
/// helpers. Any thread.
class UNISONO_API HelperThreads {
 public:
  /// Negative counts as 0.
  explicit HelperThreads(int threads);
  ~HelperThreads();
  HelperThreads(const HelperThreads&) = delete;
  HelperThreads& operator=(const HelperThreads&) = delete;

 private:
  int threads_;
  int forks_;  // of the process, when it was made
};

}  // namespace unisono
