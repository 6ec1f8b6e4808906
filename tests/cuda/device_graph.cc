#include "tests/cuda/device_graph.h"

#include <stdexcept>

namespace unisono::test {
namespace {

template <typename Function>
Function function(const char* name) {
  return reinterpret_cast<Function>(driver_function(name));
}

void check(CUresult result, const char* what) {
  if (const Status status = driver()->check(result, what); !status) {
    throw std::runtime_error(status.message());
  }
}

}  // namespace

DeviceGraph::DeviceGraph(CUstream stream, const std::function<void()>& body) {
  check(function<decltype(&::cuStreamBeginCapture)>("cuStreamBeginCapture")(
            stream, CU_STREAM_CAPTURE_MODE_GLOBAL),
        "cuStreamBeginCapture");
  const auto end = function<decltype(&::cuStreamEndCapture)>("cuStreamEndCapture");
  const auto destroy = function<decltype(&::cuGraphDestroy)>("cuGraphDestroy");
  try {
    body();
  } catch (...) {
    if (end(stream, &graph_) == CUDA_SUCCESS) destroy(graph_);
    throw;
  }
  check(end(stream, &graph_), "cuStreamEndCapture");
  check(function<decltype(&::cuGraphInstantiate)>("cuGraphInstantiateWithFlags")(&executable_,
                                                                                 graph_, 0),
        "cuGraphInstantiateWithFlags");
}

DeviceGraph::~DeviceGraph() {
  if (executable_ != nullptr) {
    function<decltype(&::cuGraphExecDestroy)>("cuGraphExecDestroy")(executable_);
  }
  function<decltype(&::cuGraphDestroy)>("cuGraphDestroy")(graph_);
}

void DeviceGraph::launch(CUstream stream) const {
  check(function<decltype(&::cuGraphLaunch)>("cuGraphLaunch")(executable_, stream),
        "cuGraphLaunch");
}

}  // namespace unisono::test
