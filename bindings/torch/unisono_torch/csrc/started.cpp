// How a call begins: behind what is in torch's stream, with its number and its place among those
// that are coalesced.
#include "csrc/started.h"

#include <ATen/record_function.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <set>

namespace unisono_torch {
namespace {

using c10d::OpType;
using std::chrono::milliseconds;

// Torch's stream as the handle that CUDA knows it by.
template <typename Stream>
void* handle_of(const Stream& stream) {
  if constexpr (requires { stream.native_handle(); }) {
    return stream.native_handle();
  } else {
    TORCH_CHECK(false, "unisono: CUDA tensors need torch 2.6 or newer");
  }
}

// `stream` waits for what is in the current one.
void follow_current(const c10::Stream& stream) {
  const c10::impl::VirtualGuardImpl guard(stream.device_type());
  c10::Event before(stream.device_type());
  before.record(guard.getStream(stream.device()));
  before.block(stream);
}

// The call in profiles, null where nobody profiles. It stays for ever, since records of calls refer
// to it.
const char* title_of(const std::string& backend, const char* operation) {
  if (!at::hasCallbacks()) return nullptr;
  static std::mutex mutex;
  static auto& titles = *new std::set<std::string>;
  const std::lock_guard lock(mutex);
  return titles.insert(backend + ':' + operation).first->c_str();
}

}  // namespace

void UnisonoBackend::Refusal::operator()(UnisonoBackend* backend) const {
  std::vector<WorkPointer> dropped;  // ends when the mutex is free again
  const std::lock_guard lock(backend->mutex_);
  backend->is_coalescing_ = false;
  dropped.swap(backend->coalesced_);
}

void UnisonoBackend::begin(Started& started, OpType type, Tensors inputs, Tensors outputs,
                           milliseconds timeout) {
  const milliseconds limit = timeout > milliseconds(0) ? timeout : timeout_.load();
  started.options.timeout_ms = clamped(limit).count();
  const Tensors& tensors = inputs.empty() ? outputs : inputs;
  const bool is_message = c10d::isP2POp(type);
  if (!tensors.empty() && tensors.front().is_cuda()) {
    started.stream = stream_on(tensors.front().device(), is_message);
    started.options.has_stream = is_message ? 0 : 1;
    started.options.stream = handle_of(*started.stream);
  }
  started.work = c10::make_intrusive<UnisonoWork>(getRank(), type, started.name,
                                                  title_of(name_, started.name), std::move(inputs),
                                                  std::move(outputs), started.lent, global_ranks());
}

// A stream of the group's own, beside which the application's stream computes on.
c10::Stream UnisonoBackend::stream_on(const c10::Device& device, bool is_default) {
  const c10::impl::VirtualGuardImpl guard(device.type());
  if (is_default) return guard.getDefaultStream(device);
  const std::lock_guard lock(mutex_);
  const auto found = streams_.find(device.index());
  if (found != streams_.end()) return found->second;
  return streams_.emplace(device.index(), guard.getStreamFromGlobalPool(device)).first->second;
}

void UnisonoBackend::start(Started& started, const unisono_call& call) {
  if (started.stream) follow_current(*started.stream);
  unisono_call made = call;
  made.options = &started.options;
  unisono_request* request = nullptr;
  const std::lock_guard lock(mutex_);
  unisono_comm* const comm = comm_under_lock();
  TORCH_CHECK(unisono_comm_size(comm) == started.size, "unisono: ", started.name,
              ": a reconfigure() in another thread has changed the group from ", started.size,
              " to ", unisono_comm_size(comm), " ranks since the call began; make it again");
  check(unisono_start(comm, &made, &request), started.name, *global_ranks_);
  started.work->add(request);
  number(started);
}

// Which of the group's calls it is, in the order of their starts. Messages are not counted.
void UnisonoBackend::number(Started& started) {
  if (std::exchange(started.is_numbered, true)) return;
  started.work->number(started.work->is_message() ? sequence_.load() : ++sequence_);
}

WorkPointer UnisonoBackend::give(Started&& started) {
  started.lent->is_whole = true;
  if (started.options.has_stream != 0) {
    const c10::StreamGuard in(*started.stream);
    try {
      started.lent->finish();
    } catch (...) {
      started.lent->has_failed = true;
      throw;
    }
    started.work->put_in(*started.stream);
  }
  const std::lock_guard lock(mutex_);
  number(started);
  started.unfinished.release();
  if (is_coalescing_) coalesced_.push_back(started.work);
  return std::move(started.work);
}

// None of several begins before types, sizes, operators, devices and overlaps of all were checked.
WorkPointer UnisonoBackend::start_and_give(Started& started, at::ArrayRef<unisono_call> calls) {
  for (const unisono_call& call : calls) start(started, call);
  return give(std::move(started));
}

// Of what has been done already.
WorkPointer UnisonoBackend::give_ended(const char* name, OpType type, const Tensors& tensors) {
  Started started(this, name);
  begin(started, type, tensors, tensors, milliseconds(0));
  if (started.stream) follow_current(*started.stream);
  return give(std::move(started));
}

void UnisonoBackend::startCoalescing() {
  const std::lock_guard lock(mutex_);
  is_coalescing_ = true;
  coalesced_.clear();
}

WorkPointer UnisonoBackend::endCoalescing() {
  const std::lock_guard lock(mutex_);
  is_coalescing_ = false;
  return c10::make_intrusive<CoalescedWork>(getRank(), std::move(coalesced_));
}

}  // namespace unisono_torch
