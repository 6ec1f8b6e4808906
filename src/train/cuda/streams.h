// The two streams of a backend: main, for its work, and side, for communication beside it.
// One thread at a time.
#pragma once

#include <memory>

#include "train/cuda/gpu.h"

namespace unisono::train {

class Streams {
 public:
  explicit Streams(std::shared_ptr<const Gpu> gpu);
  /// Waits for both.
  ~Streams();
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;

  CUstream main() const { return main_; }
  CUstream side() const { return side_; }
  void side_follows_main() { follow(side_, main_); }
  void main_follows_side() { follow(main_, side_); }
  /// Until all of the main stream is done. Errors of what was enqueued show here.
  void wait_for_main() const { wait_for(main_); }
  /// Until all of both is done.
  void wait_for_all() const {
    wait_for(side_);
    wait_for(main_);
  }

 private:
  void wait_for(CUstream stream) const;
  void follow(CUstream later, CUstream earlier);
  void close() noexcept;

  std::shared_ptr<const Gpu> gpu_;
  CUstream main_ = nullptr, side_ = nullptr;
  CUevent event_ = nullptr;
};

}  // namespace unisono::train
