// Events of the fake. Each record is a thing of its own: an event names its latest one, and a
// stream that waits keeps the one that was the latest at the call.
#include <chrono>
#include <map>

#include "tests/cuda/fake_driver/capture.h"
#include "tests/cuda/fake_driver/entry.h"
#include "tests/cuda/fake_driver/streams.h"

namespace fake_cuda {
namespace {

struct Events {
  std::map<CUevent_st*, EventPointer> live;
  std::vector<EventPointer> dead;
  std::uint64_t made = 0;
};

Events& events() {
  static Events* const value = new Events;
  return *value;
}

std::uint64_t now_ns() {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                        std::chrono::steady_clock::now().time_since_epoch())
                                        .count());
}

CUresult event_create(CUevent* handle, unsigned flags) {
  const Lock lock(machine().mutex);
  CUctx_st* context = nullptr;
  if (const CUresult result = current_context(&context); result != CUDA_SUCCESS) return result;
  const unsigned known =
      CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | unsigned{CU_EVENT_INTERPROCESS};
  const bool shared_and_timed =
      (flags & CU_EVENT_INTERPROCESS) != 0 && (flags & CU_EVENT_DISABLE_TIMING) == 0;
  if ((flags & ~known) != 0 || shared_and_timed) return CUDA_ERROR_INVALID_VALUE;
  auto event = std::make_shared<CUevent_st>();
  event->context = context;
  event->flags = flags;
  event->number = ++events().made;
  events().live[event.get()] = event;
  *handle = event.get();
  return CUDA_SUCCESS;
}

CUresult event_destroy(CUevent handle) {
  const Lock lock(machine().mutex);
  EventPointer event;
  if (const CUresult result = find_event(handle, &event); result != CUDA_SUCCESS) return result;
  events().live.erase(handle);
  events().dead.push_back(event);
  return CUDA_SUCCESS;
}

CUresult event_record(CUevent handle, CUstream stream_handle) {
  const Lock lock(machine().mutex);
  EventPointer event;
  if (const CUresult result = find_event(handle, &event); result != CUDA_SUCCESS) return result;
  StreamPointer stream;
  // Like the real one: the event's context need not be current, but must be the stream's.
  if (const CUresult result = find_stream(stream_handle, event->context, &stream);
      result != CUDA_SUCCESS) {
    return result;
  }
  if (stream->capture) return record_in_capture(*event, *stream);
  const auto record = std::make_shared<Record>();
  Operation complete{[record] {
                       const Lock inner(machine().mutex);
                       record->done = true;
                       record->stamp_ns = now_ns();
                     },
                     true};
  if (const CUresult result = enqueue(*stream, std::move(complete)); result != CUDA_SUCCESS) {
    return result;
  }
  event->capture.reset();
  event->tips.clear();
  event->latest = record;
  return CUDA_SUCCESS;
}

CUresult stream_wait_event(CUstream stream_handle, CUevent handle, unsigned) {
  const Lock lock(machine().mutex);
  EventPointer event;
  if (const CUresult result = find_event(handle, &event); result != CUDA_SUCCESS) return result;
  StreamPointer stream;
  if (const CUresult result = find_stream(stream_handle, nullptr, &stream);
      result != CUDA_SUCCESS) {
    return result;
  }
  if (event->capture || stream->capture) return wait_in_capture(*stream, *event);
  if (!event->latest) return CUDA_SUCCESS;
  CUctx_st* context = stream->context;
  return enqueue(*stream, {[record = event->latest, context] {
    wait_in_stream(*context, [&] { return record->done; });
  }});
}

CUresult event_query(CUevent handle) {
  const Lock lock(machine().mutex);
  EventPointer event;
  if (const CUresult result = find_event(handle, &event); result != CUDA_SUCCESS) return result;
  if (event->capture) return CUDA_ERROR_CAPTURED_EVENT;
  if (const CUresult result = refuse_while_capturing(); result != CUDA_SUCCESS) return result;
  if (const CUresult state = state_of(*event->context); state != CUDA_SUCCESS) return state;
  return !event->latest || event->latest->done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult event_synchronize(CUevent handle) {
  Lock lock(machine().mutex);
  EventPointer event;
  if (const CUresult result = find_event(handle, &event); result != CUDA_SUCCESS) return result;
  if (event->capture) return CUDA_ERROR_CAPTURED_EVENT;
  if (const CUresult result = refuse_while_capturing(); result != CUDA_SUCCESS) return result;
  const std::shared_ptr<Record> record = event->latest;
  machine().progress.wait(
      lock, [&] { return !record || record->done || event->context->broken != CUDA_SUCCESS; });
  return state_of(*event->context);
}

CUresult event_elapsed(float* milliseconds, CUevent first, CUevent last) {
  const Lock lock(machine().mutex);
  EventPointer start;
  EventPointer end;
  if (const CUresult result = find_event(first, &start); result != CUDA_SUCCESS) return result;
  if (const CUresult result = find_event(last, &end); result != CUDA_SUCCESS) return result;
  if (((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING) != 0 || !start->latest ||
      !end->latest) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  if (!start->latest->done || !end->latest->done) return CUDA_ERROR_NOT_READY;
  const auto nanoseconds =
      static_cast<std::int64_t>(end->latest->stamp_ns - start->latest->stamp_ns);
  *milliseconds = static_cast<float>(static_cast<double>(nanoseconds) / 1e6);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult find_event(CUevent handle, EventPointer* event) {
  if (const CUresult result = check_initialised(); result != CUDA_SUCCESS) return result;
  const auto found = events().live.find(handle);
  if (found == events().live.end()) {
    complain("an event is used after cuEventDestroy, or never was");
    return CUDA_ERROR_INVALID_HANDLE;
  }
  *event = found->second;
  return CUDA_SUCCESS;
}

std::uint64_t count_live_events() { return events().live.size(); }

std::uint64_t report_event_leaks() {
  for (const auto& [handle, event] : events().live) {
    complain("leak: event " + std::to_string(event->number) + " of device " +
             std::to_string(event->context->ordinal));
  }
  return events().live.size();
}

std::vector<Entry> event_entries() {
  return {entry<&event_create>("cuEventCreate", 2000),
          entry<&event_destroy>("cuEventDestroy", 4000),
          entry<&event_record>("cuEventRecord", 2000),
          entry<&event_query>("cuEventQuery", 2000),
          entry<&event_synchronize>("cuEventSynchronize", 2000),
          entry<&event_elapsed>("cuEventElapsedTime", 2000),
          entry<&stream_wait_event>("cuStreamWaitEvent", 3020)};
}

}  // namespace fake_cuda
