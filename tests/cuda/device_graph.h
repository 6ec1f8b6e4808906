// A CUDA graph of what a rank enqueues, captured from one of its streams. What the driver refuses
// is thrown. Thread rule: each rank has its own.
#pragma once

#include <functional>

#include "tests/cuda/driver_under_test.h"

namespace unisono::test {

class DeviceGraph {
 public:
  /// Captures what `body` enqueues on `stream`. What it throws ends the capture and is thrown on.
  DeviceGraph(CUstream stream, const std::function<void()>& body);
  ~DeviceGraph();
  DeviceGraph(const DeviceGraph&) = delete;

  void launch(CUstream stream) const;

 private:
  CUgraph graph_ = nullptr;
  CUgraphExec executable_ = nullptr;
};

}  // namespace unisono::test
