// Capture of streams into graphs. Everything with the machine's lock held.
#pragma once

#include <cuda.h>

#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "tests/cuda/fake_driver/streams.h"

namespace fake_cuda {

struct Node {
  Operation operation;
  std::vector<std::shared_ptr<Node>> after;
};

struct Capture {
  std::uint64_t id = 0;
  CUstream_st* origin = nullptr;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  std::thread::id thread;
  std::vector<std::shared_ptr<Node>> nodes;
  std::set<StreamPointer> streams;
  bool invalid = false;
  bool ended = false;
};

/// What enqueue() does for a capturing stream.
CUresult add_node(CUstream_st& stream, Operation operation);
/// Makes the stream's capture useless and gives `error`.
CUresult break_capture(CUstream_st& stream, CUresult error);
/// The stream is destroyed.
void abandon_capture(CUstream_st& stream);
/// For calls that look at or wait for a stream.
CUresult refuse_in_capture(CUstream_st& stream);
/// For calls that are unsafe while this or another thread captures (cuMemAlloc, cuEventQuery).
CUresult refuse_while_capturing();
CUresult record_in_capture(CUevent_st& event, CUstream_st& stream);
/// Either of the two captures.
CUresult wait_in_capture(CUstream_st& stream, CUevent_st& event);

std::uint64_t count_graphs();
std::uint64_t report_graph_leaks();

}  // namespace fake_cuda
