#include "tests/cuda/fake_driver/streams.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <thread>

#include "tests/cuda/fake_driver/capture.h"
#include "tests/cuda/fake_driver/entry.h"

namespace fake_cuda {
namespace {

// As GPUs of today have them; lower numbers are ahead.
constexpr int kLeastPriority = 0;
constexpr int kGreatestPriority = -5;

struct Streams {
  std::map<CUstream_st*, StreamPointer> live;
  // Handles are never used again, so that a stale one is known as such.
  std::vector<StreamPointer> dead;
  std::vector<StreamPointer> legacy;
  std::uint64_t made = 0;
  // Of a context and a kind.
  struct Queues {
    std::vector<std::shared_ptr<HardwareQueue>> all;
    std::size_t given = 0;
  };
  std::map<std::pair<CUctx_st*, QueueKind>, Queues> queues;
};

Streams& streams() {
  static Streams* const value = new Streams;
  return *value;
}

// How late the next operation is. With the lock held, which is what the numbers are under.
std::chrono::microseconds choose_delay(CUstream_st& stream) {
  if (settings().delay_us == 0 || stream.random() % 4 != 0) return std::chrono::microseconds(0);
  return std::chrono::microseconds(stream.random() %
                                   static_cast<unsigned>(settings().delay_us + 1));
}

// As an H200 does: what a stream has not done yet keeps its queue, new work goes into one that is
// free, and where none is they are given in turn.
std::shared_ptr<HardwareQueue> choose_queue(CUstream_st& stream, QueueKind kind) {
  const auto count = static_cast<std::size_t>(settings().queues);
  if (count == 0) return nullptr;
  const CUstream_st::Place& place = stream.places[static_cast<std::size_t>(kind)];
  if (place.pending > 0) return place.hardware;
  auto& queues = streams().queues[{stream.context, kind}];
  while (queues.all.size() < count) queues.all.push_back(std::make_shared<HardwareQueue>());
  for (const auto& queue : queues.all) {
    if (queue->enqueued == queue->completed) return queue;
  }
  return queues.all[queues.given++ % count];
}

void await_turn(const CUstream_st& stream, const Operation& operation, Lock& lock) {
  if (operation.hardware == nullptr) return;
  machine().progress.wait(lock, [&] {
    return operation.hardware->completed + 1 == operation.turn ||
           stream.context->broken != CUDA_SUCCESS;
  });
}

// A call that enqueues does not return before there is room.
void await_room(CUstream_st& stream, QueueKind kind) {
  if (settings().queues == 0) return;
  const QueueKind chosen = kind == QueueKind::kAsBefore ? stream.kind : kind;
  Lock lock(machine().mutex, std::adopt_lock);
  machine().progress.wait(lock, [&] {
    const std::shared_ptr<HardwareQueue> queue = choose_queue(stream, chosen);
    return queue->enqueued - queue->completed < settings().queue_depth ||
           stream.context->broken != CUDA_SUCCESS;
  });
  lock.release();
}

// A stream's thread. It ends when the stream was destroyed and has nothing left to do.
void serve(const StreamPointer& stream) {
  Lock lock(machine().mutex);
  for (;;) {
    stream->arrival.wait(
        lock, [&] { return !stream->held && (!stream->queue.empty() || stream->destroyed); });
    if (stream->queue.empty()) return;
    const Operation operation = std::move(stream->queue.front());
    stream->queue.pop_front();
    await_turn(*stream, operation, lock);
    const bool runs = operation.always || stream->context->broken == CUDA_SUCCESS;
    if (runs) {
      const std::chrono::microseconds delay = choose_delay(*stream);
      stream->running = true;
      lock.unlock();
      if (delay.count() > 0) std::this_thread::sleep_for(delay);
      operation.run();
      lock.lock();
      stream->running = false;
    }
    ++stream->completed;
    if (operation.hardware != nullptr) {
      ++operation.hardware->completed;
      --stream->places[static_cast<std::size_t>(operation.kind)].pending;
    }
    machine().progress.notify_all();
  }
}

StreamPointer make_stream(CUctx_st& context, unsigned flags, int priority) {
  auto stream = std::make_shared<CUstream_st>();
  stream->context = &context;
  stream->flags = flags;
  stream->priority = std::clamp(priority, kGreatestPriority, kLeastPriority);
  stream->number = ++streams().made;
  stream->random.seed(static_cast<unsigned>(settings().seed * 7919 + stream->number));
  std::thread([stream] { serve(stream); }).detach();
  return stream;
}

void append(CUstream_st& stream, Operation operation) {
  if (operation.kind == QueueKind::kAsBefore) operation.kind = stream.kind;
  stream.kind = operation.kind;
  operation.hardware = choose_queue(stream, operation.kind);
  if (operation.hardware != nullptr) {
    operation.turn = ++operation.hardware->enqueued;
    CUstream_st::Place& place = stream.places[static_cast<std::size_t>(operation.kind)];
    place.hardware = operation.hardware;
    ++place.pending;
  }
  stream.queue.push_back(std::move(operation));
  ++stream.enqueued;
  stream.arrival.notify_all();
}

// `stream` goes on when `other` has done what it holds now.
void append_wait(CUstream_st& stream, CUstream_st& other) {
  const std::uint64_t ticket = other.enqueued;
  if (other.completed >= ticket) return;
  StreamPointer waited = other.shared_from_this();
  CUctx_st* context = stream.context;
  append(stream, {[waited, ticket, context] {
           wait_in_stream(*context, [&] { return waited->completed >= ticket; });
         }});
}

bool is_legacy(const CUstream_st& stream) { return stream.context->legacy == &stream; }

bool is_blocking(const CUstream_st& stream) {
  return !is_legacy(stream) && (stream.flags & CU_STREAM_NON_BLOCKING) == 0;
}

CUresult stream_create(CUstream* handle, unsigned flags, int priority) {
  const Lock lock(machine().mutex);
  CUctx_st* context = nullptr;
  if (const CUresult result = current_context(&context); result != CUDA_SUCCESS) return result;
  if ((flags & ~unsigned{CU_STREAM_NON_BLOCKING}) != 0) return CUDA_ERROR_INVALID_VALUE;
  StreamPointer stream = make_stream(*context, flags, priority);
  *handle = stream.get();
  streams().live[stream.get()] = stream;
  return CUDA_SUCCESS;
}

CUresult stream_create_plain(CUstream* handle, unsigned flags) {
  return stream_create(handle, flags, 0);
}

CUresult stream_destroy(CUstream handle) {
  const Lock lock(machine().mutex);
  StreamPointer stream;
  if (const CUresult result = find_stream(handle, nullptr, &stream); result != CUDA_SUCCESS) {
    return result;
  }
  if (is_legacy(*stream)) return CUDA_ERROR_INVALID_HANDLE;
  if (stream->capture) abandon_capture(*stream);
  stream->destroyed = true;
  stream->arrival.notify_all();
  streams().live.erase(stream.get());
  streams().dead.push_back(stream);
  return CUDA_SUCCESS;
}

CUresult stream_synchronize(CUstream handle) {
  Lock lock(machine().mutex);
  StreamPointer stream;
  if (const CUresult result = find_stream(handle, nullptr, &stream); result != CUDA_SUCCESS) {
    return result;
  }
  if (const CUresult result = refuse_in_capture(*stream); result != CUDA_SUCCESS) return result;
  if (is_legacy(*stream)) return drain_streams_of(*stream->context, lock);
  return drain_stream(*stream, lock);
}

CUresult stream_query(CUstream handle) {
  const Lock lock(machine().mutex);
  StreamPointer stream;
  if (const CUresult result = find_stream(handle, nullptr, &stream); result != CUDA_SUCCESS) {
    return result;
  }
  if (const CUresult result = refuse_in_capture(*stream); result != CUDA_SUCCESS) return result;
  if (const CUresult state = state_of(*stream->context); state != CUDA_SUCCESS) return state;
  return stream->completed == stream->enqueued ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult stream_context(CUstream handle, CUcontext* context) {
  const Lock lock(machine().mutex);
  StreamPointer stream;
  if (const CUresult result = find_stream(handle, nullptr, &stream); result != CUDA_SUCCESS) {
    return result;
  }
  *context = stream->context;
  return state_of(*stream->context);
}

CUresult stream_priority(CUstream handle, int* priority) {
  const Lock lock(machine().mutex);
  StreamPointer stream;
  if (const CUresult result = find_stream(handle, nullptr, &stream); result != CUDA_SUCCESS) {
    return result;
  }
  *priority = stream->priority;
  return CUDA_SUCCESS;
}

// As the real one: either may be null.
CUresult priority_range(int* least, int* greatest) {
  const Lock lock(machine().mutex);
  CUctx_st* context = nullptr;
  if (const CUresult result = current_context(&context); result != CUDA_SUCCESS) return result;
  if (least != nullptr) *least = kLeastPriority;
  if (greatest != nullptr) *greatest = kGreatestPriority;
  return CUDA_SUCCESS;
}

CUresult stream_flags(CUstream handle, unsigned* flags) {
  const Lock lock(machine().mutex);
  StreamPointer stream;
  if (const CUresult result = find_stream(handle, nullptr, &stream); result != CUDA_SUCCESS) {
    return result;
  }
  *flags = stream->flags;
  return state_of(*stream->context);
}

// The form of 12.5, with a third parameter that it writes through.
CUresult stream_context_of_12_5(CUstream, CUcontext*, void**) {
  complain("cuStreamGetCtx in its form of CUDA 12.5, which has three parameters: ask for 12.0");
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult launch_host_function(CUstream handle, CUhostFn function, void* data) {
  const Lock lock(machine().mutex);
  CUctx_st* context = nullptr;
  StreamPointer stream;
  if (const CUresult result = enter_stream(handle, &context, &stream); result != CUDA_SUCCESS) {
    return result;
  }
  return enqueue(*stream, {[function, data] { function(data); }});
}

}  // namespace

CUstream_st* make_legacy_stream(CUctx_st& context) {
  streams().legacy.push_back(make_stream(context, CU_STREAM_DEFAULT, 0));
  return streams().legacy.back().get();
}

CUresult find_stream(CUstream handle, CUctx_st* context, StreamPointer* stream) {
  if (const CUresult result = check_initialised(); result != CUDA_SUCCESS) return result;
  if (handle == nullptr || handle == CU_STREAM_LEGACY) {
    if (context == nullptr) {
      if (const CUresult result = current_context(&context); result != CUDA_SUCCESS) return result;
    }
    *stream = context->legacy->shared_from_this();
    return CUDA_SUCCESS;
  }
  if (handle == CU_STREAM_PER_THREAD) return CUDA_ERROR_NOT_SUPPORTED;
  const auto found = streams().live.find(handle);
  if (found == streams().live.end()) {
    const bool dead = std::any_of(streams().dead.begin(), streams().dead.end(),
                                  [&](const StreamPointer& s) { return s.get() == handle; });
    complain(dead ? "a stream is used after cuStreamDestroy" : "a stream that never was is used");
    return CUDA_ERROR_INVALID_HANDLE;
  }
  *stream = found->second;
  return context == nullptr || found->second->context == context ? CUDA_SUCCESS
                                                                 : CUDA_ERROR_INVALID_HANDLE;
}

CUresult enter_stream(CUstream handle, CUctx_st** context, StreamPointer* stream) {
  if (const CUresult result = current_context(context); result != CUDA_SUCCESS) return result;
  return find_stream(handle, *context, stream);
}

CUresult enqueue(CUstream_st& stream, Operation operation) {
  // First: it lets go of the lock.
  if (!stream.capture) await_room(stream, operation.kind);
  if (const CUresult state = state_of(*stream.context); state != CUDA_SUCCESS) return state;
  if (stream.destroyed) return CUDA_ERROR_INVALID_HANDLE;
  if (stream.capture) return add_node(stream, std::move(operation));
  CUstream_st& legacy = *stream.context->legacy;
  if (is_legacy(stream)) {
    for (const auto& [handle, other] : streams().live) {
      if (other->context != stream.context || !is_blocking(*other)) continue;
      if (other->capture) return break_capture(*other, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
      append_wait(stream, *other);
    }
  } else if (is_blocking(stream)) {
    append_wait(stream, legacy);
  }
  append(stream, std::move(operation));
  return CUDA_SUCCESS;
}

CUresult drain_stream(CUstream_st& stream, Lock& lock) {
  const StreamPointer keep = stream.shared_from_this();
  const std::uint64_t ticket = stream.enqueued;
  machine().progress.wait(lock, [&] {
    // Of a broken context nothing more runs, but what runs may still use the caller's memory.
    const bool stopped = stream.context->broken != CUDA_SUCCESS && !stream.running;
    return stream.completed >= ticket || stopped;
  });
  return state_of(*stream.context);
}

CUresult drain_streams_of(CUctx_st& context, Lock& lock) {
  std::vector<StreamPointer> waited{context.legacy->shared_from_this()};
  for (const auto& [handle, stream] : streams().live) {
    if (stream->context == &context) waited.push_back(stream);
  }
  for (const StreamPointer& stream : streams().dead) {
    if (stream->context == &context) waited.push_back(stream);
  }
  for (const StreamPointer& stream : waited) {
    if (const CUresult result = drain_stream(*stream, lock); result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

void wait_in_stream(CUctx_st& context, const std::function<bool()>& done) {
  Lock lock(machine().mutex);
  machine().progress.wait(lock, [&] { return context.broken != CUDA_SUCCESS || done(); });
}

void end_streams_of(CUctx_st& context, Lock& lock) {
  drain_streams_of(context, lock);
  for (auto at = streams().live.begin(); at != streams().live.end();) {
    if (at->second->context != &context) {
      ++at;
      continue;
    }
    complain("stream " + std::to_string(at->second->number) + " outlives its context");
    at->second->destroyed = true;
    at->second->arrival.notify_all();
    streams().dead.push_back(at->second);
    at = streams().live.erase(at);
  }
  context.legacy->destroyed = true;
  context.legacy->arrival.notify_all();
}

std::uint64_t count_live_streams() { return streams().live.size(); }

std::uint64_t report_stream_leaks() {
  for (const auto& [handle, stream] : streams().live) {
    complain("leak: stream " + std::to_string(stream->number) + " of device " +
             std::to_string(stream->context->ordinal));
  }
  return streams().live.size();
}

void hold_stream(CUstream handle) {
  const Lock lock(machine().mutex);
  StreamPointer stream;
  if (find_stream(handle, nullptr, &stream) == CUDA_SUCCESS) stream->held = true;
}

void release_stream(CUstream handle) {
  const Lock lock(machine().mutex);
  StreamPointer stream;
  if (find_stream(handle, nullptr, &stream) != CUDA_SUCCESS) return;
  stream->held = false;
  stream->arrival.notify_all();
}

std::vector<Entry> stream_entries() {
  return {entry<&stream_create>("cuStreamCreateWithPriority", 5050),
          entry<&stream_create_plain>("cuStreamCreate", 2000),
          entry<&stream_destroy>("cuStreamDestroy", 4000),
          entry<&stream_synchronize>("cuStreamSynchronize", 2000),
          entry<&stream_query>("cuStreamQuery", 2000),
          entry<&stream_priority>("cuStreamGetPriority", 5050),
          entry<&priority_range>("cuCtxGetStreamPriorityRange", 5050),
          entry<&stream_flags>("cuStreamGetFlags", 5050),
          entry<&stream_context>("cuStreamGetCtx", 9020, 12050),
          entry<&stream_context_of_12_5>("cuStreamGetCtx", 12050),
          entry<&launch_host_function>("cuLaunchHostFunc", 10000)};
}

}  // namespace fake_cuda
