// One CUDA graph of what ranks enqueue that are threads of one process.
// Thread rule: any thread.
#pragma once

#include <gtest/gtest.h>

#include <barrier>
#include <exception>
#include <vector>

#include "tests/cuda/driver_under_test.h"
#include "unisono/unisono.hpp"

namespace unisono::test {

template <typename Function>
Function function(const char* name) {
  return reinterpret_cast<Function>(driver_function(name));
}

inline void expect_ok(CUresult result, const char* what) {
  const Status status = driver()->check(result, what);
  EXPECT_TRUE(status.ok()) << status.message();
}

// One capture over the streams of all ranks: rank 0's begins it, the others join by an event and
// come back before it ends.
class SharedCapture {
 public:
  explicit SharedCapture(int ranks) : step_(ranks), forks_(1), joins_(ranks) {}

  template <typename Body>
  CUgraph run(Rank rank, CUstream stream, const Body& body) {
    const auto api = driver();
    CUevent event = nullptr;
    expect_ok(api->EventCreate(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
    // What the ranks do before is over: much of it may not be done while another thread captures.
    step_.arrive_and_wait();
    if (rank == 0) {
      expect_ok(function<decltype(&::cuStreamBeginCapture)>("cuStreamBeginCapture")(
                    stream, CU_STREAM_CAPTURE_MODE_GLOBAL),
                "cuStreamBeginCapture");
      forks_[0] = event;
      expect_ok(api->EventRecord(event, stream), "cuEventRecord");
    }
    step_.arrive_and_wait();
    if (rank != 0) expect_ok(api->StreamWaitEvent(stream, forks_[0], 0), "joining the capture");
    step_.arrive_and_wait();
    std::exception_ptr thrown;
    try {
      body();
    } catch (...) {
      thrown = std::current_exception();  // once the others can go on
    }
    if (rank != 0) {
      expect_ok(api->EventRecord(event, stream), "cuEventRecord");
      joins_[static_cast<std::size_t>(rank)] = event;
    }
    step_.arrive_and_wait();
    CUgraph graph = nullptr;
    if (rank == 0) {
      for (std::size_t r = 1; r < joins_.size(); ++r) {
        expect_ok(api->StreamWaitEvent(stream, joins_[r], 0), "leaving the capture");
      }
      expect_ok(function<decltype(&::cuStreamEndCapture)>("cuStreamEndCapture")(stream, &graph),
                "cuStreamEndCapture");
    }
    step_.arrive_and_wait();
    expect_ok(api->EventDestroy(event), "cuEventDestroy");
    if (thrown) std::rethrow_exception(thrown);
    return graph;
  }

 private:
  std::barrier<> step_;
  std::vector<CUevent> forks_, joins_;
};

}  // namespace unisono::test
