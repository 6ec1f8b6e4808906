// Streams of the fake: a thread and a queue each. What a call enqueues runs later, after a random
// delay, without the machine's lock.
#pragma once

#include <cuda.h>

#include <array>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "tests/cuda/fake_driver/machine.h"

namespace fake_cuda {

struct Capture;
struct Node;

/// One record of an event. Whoever waits for it keeps it, whatever becomes of the event.
struct Record {
  bool done = false;
  std::uint64_t stamp_ns = 0;
};

/// A hardware queue that several streams of a context share, whatever their priorities: what was
/// enqueued first runs first, and what waits holds up all behind it, of whichever stream.
struct HardwareQueue {
  std::uint64_t enqueued = 0;
  std::uint64_t completed = 0;
};

/// Hardware queues are for one kind of work each. What stands for no work of its own, as waits and
/// events do, goes where its stream's work went last.
enum class QueueKind : std::uint8_t { kKernels, kCopiesOut, kCopiesIn, kAsBefore };
inline constexpr std::size_t kQueueKinds = 3;

/// One thing that a stream does. `run` is called without the lock and not at all once the context
/// broke, unless `always`.
struct Operation {
  std::function<void()> run;
  bool always = false;
  QueueKind kind = QueueKind::kAsBefore;
  std::shared_ptr<HardwareQueue> hardware{};  ///< null: as many as there are streams
  std::uint64_t turn = 0;                     ///< in it
};

}  // namespace fake_cuda

struct CUstream_st : std::enable_shared_from_this<CUstream_st> {
  CUctx_st* context = nullptr;
  unsigned flags = 0;
  int priority = 0;
  std::uint64_t number = 0;
  bool held = false;
  bool destroyed = false;
  bool running = false;  ///< an operation, right now
  std::deque<fake_cuda::Operation> queue;
  /// Where its latest work of each kind is, and how much of it is not over.
  struct Place {
    std::shared_ptr<fake_cuda::HardwareQueue> hardware;
    std::uint64_t pending = 0;
  };
  std::array<Place, fake_cuda::kQueueKinds> places;
  fake_cuda::QueueKind kind = fake_cuda::QueueKind::kKernels;  ///< of its latest work
  std::uint64_t enqueued = 0;
  std::uint64_t completed = 0;
  std::condition_variable arrival;
  std::minstd_rand random;
  // While capturing: the graph that grows, and what the next node follows.
  std::shared_ptr<fake_cuda::Capture> capture;
  std::vector<std::shared_ptr<fake_cuda::Node>> tips;
};

struct CUevent_st {
  CUctx_st* context = nullptr;
  unsigned flags = 0;
  std::uint64_t number = 0;
  std::shared_ptr<fake_cuda::Record> latest;  ///< null: never recorded
  // Where it was last recorded in a capturing stream.
  std::shared_ptr<fake_cuda::Capture> capture;
  std::vector<std::shared_ptr<fake_cuda::Node>> tips;
};

namespace fake_cuda {

using StreamPointer = std::shared_ptr<CUstream_st>;
using EventPointer = std::shared_ptr<CUevent_st>;

// All of these with the machine's lock held.

CUstream_st* make_legacy_stream(CUctx_st& context);

/// The live stream of a handle, whose context must be `context` where that is given (the legacy
/// stream is `context`'s or the current one's). A destroyed stream is complained about.
CUresult find_stream(CUstream handle, CUctx_st* context, StreamPointer* stream);
CUresult find_event(CUevent handle, EventPointer* event);

/// The usual beginning of a call that enqueues: the current context is usable and the stream is
/// its own.
CUresult enter_stream(CUstream handle, CUctx_st** context, StreamPointer* stream);

/// Appends to the stream, or to the graph that it captures. The legacy stream waits for all
/// blocking streams of its context, and they for it.
CUresult enqueue(CUstream_st& stream, Operation operation);

/// Blocks until everything enqueued so far is done; the context's error where it broke.
CUresult drain_stream(CUstream_st& stream, Lock& lock);
CUresult drain_streams_of(CUctx_st& context, Lock& lock);

/// For waits inside operations: until `done` or the context broke. Takes the lock itself.
void wait_in_stream(CUctx_st& context, const std::function<bool()>& done);

std::uint64_t count_live_streams();
std::uint64_t count_live_events();
/// A line for each thing that is alive; how many.
std::uint64_t report_stream_leaks();
std::uint64_t report_event_leaks();

/// For tests: see FakeCudaFunctions.
void hold_stream(CUstream handle);
void release_stream(CUstream handle);

}  // namespace fake_cuda
