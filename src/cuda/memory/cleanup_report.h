// Failures while things are put away: the first is logged, with how many there were, when it ends.
// Thread rule: one thread.
#pragma once

#include <string>

#include "base/log.h"
#include "cuda/driver/cuda_api.h"

namespace unisono::cuda {

class CleanupReport {
 public:
  /// `what` is put away: "forgetting rank 3".
  CleanupReport(const CudaApi& api, std::string what) : api_(api), what_(std::move(what)) {}
  ~CleanupReport() {
    if (failures_ == 0) return;
    const std::string more =
        failures_ == 1 ? "" : " (and " + std::to_string(failures_ - 1) + " more failures)";
    log::warning("CUDA: " + what_ + ": " + first_.message() + more);
  }
  CleanupReport(const CleanupReport&) = delete;
  CleanupReport& operator=(const CleanupReport&) = delete;

  /// A driver that has shut down, at the end of the process, has put everything away itself.
  void note(CUresult result, const std::string& action) {
    if (result == CUDA_SUCCESS || result == CUDA_ERROR_DEINITIALIZED) return;
    note(api_.check(result, action));
  }
  void note(const Status& status) {
    if (status.ok()) return;
    if (failures_++ == 0) first_ = status;
  }

 private:
  const CudaApi& api_;
  std::string what_;
  Status first_;
  int failures_ = 0;
};

}  // namespace unisono::cuda
