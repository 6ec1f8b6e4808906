#include "csrc/work.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>
#include <cxxabi.h>

#include <algorithm>
#include <chrono>

#include "csrc/completions.h"
#include "csrc/tensors.h"
#include "csrc/timeouts.h"

namespace unisono_torch {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

std::exception_ptr exception_of(const std::string& message) {
  try {
    C10_THROW_ERROR(DistBackendError, message);
  } catch (...) {
    return std::current_exception();
  }
}

c10::intrusive_ptr<c10::ivalue::Future> future_of_tensors(std::vector<c10::Device> devices = {}) {
  return c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()),
                                                  std::move(devices));
}

// c10d::WorkResult, which torch 2.4 lacks: SUCCESS and COMM_ERROR.
void tell_outcome(c10::ivalue::Future& future, bool has_failed) {
  future.markCompleted(c10::IValue(static_cast<int64_t>(has_failed ? 2 : 0)));
}

}  // namespace

std::string ranks_text(const std::vector<int>& ranks, const GlobalRanks& global_ranks) {
  const std::string own = c10::Join(", ", ranks);
  GlobalRanks in_world;
  for (const int rank : ranks) {
    const auto place = static_cast<size_t>(rank);
    in_world.push_back(place < global_ranks.size() ? global_ranks[place] : place);
  }
  const std::string world = c10::Join(", ", in_world);
  return own == world ? own : own + " of the group, " + world + " of the world";
}

std::string last_error_text(const std::string& operation, const GlobalRanks& global_ranks) {
  std::string message = "unisono: " + operation + ": ";
  message += unisono_code_name(unisono_last_error_code());
  const int32_t rank = unisono_last_error_rank();
  message += rank == UNISONO_NO_RANK ? " (no rank at fault)"
                                     : " (rank at fault: " + ranks_text({rank}, global_ranks) + ")";
  return message + ": " + unisono_last_error();
}

std::exception_ptr last_error(const std::string& operation, const GlobalRanks& global_ranks) {
  return exception_of(last_error_text(operation, global_ranks));
}

void check(unisono_code code, const char* operation, const GlobalRanks& global_ranks) {
  if (code != UNISONO_OK) std::rethrow_exception(last_error(operation, global_ranks));
}

Lent::~Lent() {
  if (!is_abandoned || has_failed || !is_whole) return;
  try {
    finish();
  } catch (...) {
    // Nobody is there to be told.
  }
}

// This may be any thread, and the tensors any: without a graph, and as an operator's own kernel, so
// that those of inference mode are written too.
void Lent::finish() {
  const at::NoGradGuard no_grad;
  const at::AutoDispatchBelowADInplaceOrView below;
  for (; copied < copies.size(); ++copied) unjoin(copies[copied].from, copies[copied].to);
}

UnisonoWork::UnisonoWork(int rank, c10d::OpType type, const char* operation, const char* title,
                         std::vector<at::Tensor> inputs, std::vector<at::Tensor> outputs,
                         std::shared_ptr<Lent> lent,
                         std::shared_ptr<const GlobalRanks> global_ranks)
    : Work(rank, type, title, std::move(inputs)),
      outputs_(std::move(outputs)),
      lent_(std::move(lent)),
      operation_(operation),
      global_ranks_(std::move(global_ranks)) {}

// Python may drop a work at once; its call goes on and keeps its tensors.
UnisonoWork::~UnisonoWork() {
  const bool is_over = concluding_;
  lent_->is_abandoned = !is_over;
  for (unisono_request* const request : requests_) {
    if (is_over || !abandon(request)) unisono_request_free(request);
  }
}

// False where there is no memory to note it: then the caller has to wait.
bool UnisonoWork::abandon(unisono_request* request) {
  auto* const kept = new (std::nothrow) std::shared_ptr<Lent>(lent_);
  if (kept == nullptr) return false;
  const auto note = [](void* context, unisono_code code, int32_t, const char*) {
    if (code != UNISONO_OK) (*static_cast<std::shared_ptr<Lent>*>(context))->has_failed = true;
  };
  const auto release = [](void* context) { delete static_cast<std::shared_ptr<Lent>*>(context); };
  // Callbacks run in this order, and the second one is the last to need what is kept.
  const bool is_noted = unisono_request_on_completion(request, note, kept) == UNISONO_OK;
  if (is_noted && unisono_request_detach(request, release, kept) == UNISONO_OK) return true;
  // `note` may still be to come, with what is kept: leaked.
  if (!is_noted) delete kept;
  return false;
}

// Behind what is in `stream` now: also what is copied, which is used there beyond the end of the
// requests, up to which the call keeps it.
UnisonoWork::Place UnisonoWork::place_in(const c10::Stream& stream) const {
  const c10::impl::VirtualGuardImpl guard(stream.device_type());
  const auto note = [&](const at::Tensor& tensor) {
    guard.recordDataPtrOnStream(tensor.storage().data_ptr(), stream);
  };
  for (const Lent::Copy& copy : lent_->copies) {
    note(copy.from);
    for (const at::Tensor& tensor : copy.to) note(tensor);
  }
  Place place{stream, c10::Event(stream.device_type())};
  place.end.record(stream);
  return place;
}

void UnisonoWork::put_in(const c10::Stream& stream) { place_.emplace(place_in(stream)); }

// A message's copies go into the current stream, which need not be that of those who wait.
void UnisonoWork::copy_out() {
  lent_->finish();
  if (place_ || lent_->copies.empty() || lent_->copies.front().from.is_cpu()) return;
  const c10::Device device = lent_->copies.front().from.device();
  copied_.emplace(place_in(c10::impl::VirtualGuardImpl(device.type()).getStream(device)));
}

bool UnisonoWork::has_failed() const {
  return std::any_of(requests_.begin(), requests_.end(), [](const unisono_request* request) {
    return unisono_request_status(request) != UNISONO_OK;
  });
}

// The library takes messages that are shorter than the room for them; a tensor would keep old
// elements.
std::exception_ptr UnisonoWork::short_message() const {
  if (opType_ != c10d::OpType::RECV && opType_ != c10d::OpType::RECVANYSOURCE) return nullptr;
  unisono_received received = UNISONO_RECEIVED_INIT;
  if (unisono_request_received(requests_.front(), &received) != UNISONO_OK) {
    return last_failure();
  }
  const size_t room = outputs_.front().nbytes();
  if (received.count == room) return nullptr;
  return exception_of(std::string("unisono: ") + operation_ + ": rank " +
                      ranks_text({received.source}, *global_ranks_) + " sent " +
                      std::to_string(received.count) + " bytes, and the tensor has " +
                      std::to_string(room));
}

bool UnisonoWork::test() {
  for (unisono_request* const request : requests_) {
    int32_t finished = 0;
    check(unisono_request_test(request, &finished), operation_, *global_ranks_);
    if (finished == 0) return false;
  }
  return true;
}

bool UnisonoWork::isCompleted() {
  {
    const std::lock_guard lock(mutex_);
    if (completed_) return true;
  }
  if (!test() || (place_ && !place_->end.query())) return false;
  await(kNoTimeout);
  await_conclusion();
  return true;
}

bool UnisonoWork::isSuccess() const {
  const std::lock_guard lock(mutex_);
  return (completed_ || (place_ && !has_failed())) && exception_ == nullptr;
}

// Waits for the requests and concludes with their outcome; throws only where they run on.
void UnisonoWork::await(milliseconds timeout) {
  if (timeout > kNoTimeout) {
    const auto deadline = Clock::now() + clamped(timeout);
    for (unisono_request* const request : requests_) {
      const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now());
      int32_t finished = 0;
      // A failure is an outcome, which is asked for below.
      (void)unisono_request_wait_for(request, std::max<int64_t>(left.count(), 0), &finished);
      if (finished == 0) {
        C10_THROW_ERROR(DistBackendError, std::string("unisono: ") + operation_ +
                                              ": timed out: wait() gave it " +
                                              std::to_string(timeout.count()) + " ms");
      }
    }
  }
  const unisono_code code = unisono_wait_all(requests_.data(), requests_.size());
  conclude(code == UNISONO_OK ? short_message() : last_failure());
}

void UnisonoWork::block_current_stream() const {
  const std::optional<Place>& place = place_ ? place_ : copied_;
  if (!place) return;
  const c10::impl::VirtualGuardImpl guard(place->stream.device_type());
  place->end.block(guard.getStream(place->stream.device()));
}

bool UnisonoWork::wait(milliseconds timeout) {
  if (place_ && timeout <= kNoTimeout && !has_failed()) {
    block_current_stream();
    return true;
  }
  await(timeout);
  await_conclusion();
  {
    const std::lock_guard lock(mutex_);
    if (exception_ != nullptr) std::rethrow_exception(exception_);
  }
  // What is copied out behind the call.
  block_current_stream();
  return true;
}

// Another thread may be the one that concludes.
void UnisonoWork::await_conclusion() {
  std::unique_lock lock(mutex_);
  cv_.wait(lock, [&] { return completed_; });
}

void UnisonoWork::conclude(std::exception_ptr failure) {
  if (concluding_.exchange(true)) return;
  try {
    if (failure == nullptr) copy_out();
  } catch (...) {
    failure = std::current_exception();
  }
  finish(failure);
  c10::intrusive_ptr<c10::ivalue::Future> future, outcome;
  {
    const std::lock_guard lock(mutex_);
    has_told_ = true;
    future = future_;
    outcome = outcome_;
  }
  // Callbacks of torch's may take Python's lock: no lock is held here.
  if (future && !future->completed()) complete_result(*future, failure);
  if (outcome) complete_outcome(*outcome, failure);
}

// Has the library tell when the requests are over, once.
void UnisonoWork::watch() {
  if (is_watched_.exchange(true)) return;
  unfinished_ = static_cast<int>(requests_.size()) + 1;
  for (unisono_request* const request : requests_) {
    // The callback keeps the work.
    auto* const kept = new Self(Self::unsafe_reclaim_from_nonowning(this));
    const auto callback = [](void* context, unisono_code, int32_t, const char*) {
      const std::unique_ptr<Self> work(static_cast<Self*>(context));
      end_one(std::move(*work));
    };
    if (unisono_request_on_completion(request, callback, kept) != UNISONO_OK) {
      delete kept;
      std::rethrow_exception(last_failure());
    }
  }
  end_one(Self::unsafe_reclaim_from_nonowning(this));
}

// What follows the last one's end is not for the thread that found it.
void UnisonoWork::end_one(Self work) {
  if (work->unfinished_.fetch_sub(1) != 1) return;
  run_later([work = std::move(work)] {
    try {
      work->await(kNoTimeout);
    } catch (const abi::__forced_unwind&) {
      throw;  // Python ends the thread
    } catch (...) {
      work->conclude(std::current_exception());
    }
  });
}

// `slot` is one of the futures, and `complete` ends it with the work's outcome. Whoever concludes
// ends it, or this function where that was before the future was there.
template <typename Complete>
c10::intrusive_ptr<c10::ivalue::Future> UnisonoWork::future_in(
    c10::intrusive_ptr<c10::ivalue::Future>& slot, const c10::TypePtr& type,
    const Complete& complete) {
  std::unique_lock lock(mutex_);
  if (slot) return slot;
  if (!has_told_) prepare_completions();
  // Of messages on the tensors of a GPU, whose copies may be in the stream of whoever concludes.
  std::vector<c10::Device> devices;
  if (!outputs_.empty() && !outputs_.front().is_cpu() && type->kind() == c10::TypeKind::ListType) {
    devices.push_back(outputs_.front().device());
  }
  const auto future = slot = c10::make_intrusive<c10::ivalue::Future>(type, std::move(devices));
  const bool is_over = has_told_;
  const std::exception_ptr failure = exception_;
  lock.unlock();
  if (is_over) {
    complete(*future, failure);
  } else {
    watch();
  }
  return future;
}

void UnisonoWork::complete_result(c10::ivalue::Future& future, const std::exception_ptr& failure) {
  if (failure != nullptr) {
    future.setErrorIfNeeded(failure);
  } else {
    block_current_stream();
    future.markCompleted(outputs_);
  }
}

void UnisonoWork::complete_outcome(c10::ivalue::Future& future, const std::exception_ptr& failure) {
  tell_outcome(future, failure != nullptr);
}

// Its waiters' streams wait for the work, and it is complete at once.
c10::intrusive_ptr<c10::ivalue::Future> UnisonoWork::future_in_stream() {
  const std::lock_guard lock(mutex_);
  if (future_) return future_;
  future_ = future_of_tensors({place_->stream.device()});
  const c10::StreamGuard guard(place_->stream);
  if (has_failed()) {
    future_->setError(last_failure());
    return future_;
  }
  // Waiters wait for what the call uses, outputs or not.
  std::vector<c10::ivalue::Future::WeakStorage> used;
  for (const at::Tensor& tensor : lent_->tensors) {
    used.push_back(tensor.storage().getWeakStorageImpl());
  }
  for (const at::Tensor& tensor : outputs_) {
    used.push_back(tensor.storage().getWeakStorageImpl());
  }
  future_->markCompleted(outputs_, std::move(used));
  return future_;
}

c10::intrusive_ptr<c10::ivalue::Future> UnisonoWork::getFuture() {
  if (place_) return future_in_stream();
  return future_in(future_, c10::ListType::create(c10::TensorType::get()),
                   [this](auto& future, const auto& failure) { complete_result(future, failure); });
}

c10::intrusive_ptr<c10::ivalue::Future> UnisonoWork::getFutureResult() {
  return future_in(outcome_, c10::IntType::get(),
                   [](auto& future, const auto& failure) { complete_outcome(future, failure); });
}

int UnisonoWork::sourceRank() const {
  unisono_received received = UNISONO_RECEIVED_INIT;
  if (requests_.size() != 1) return -1;
  check(unisono_request_received(requests_.front(), &received), operation_, *global_ranks_);
  return received.source;
}

void UnisonoWork::abort() {
  TORCH_CHECK(false, "unisono ends the calls of a whole group: use its abort()");
}

bool CoalescedWork::isCompleted() {
  bool all = true;
  for (const auto& work : works_) all = work->isCompleted() && all;
  return all;
}

bool CoalescedWork::isSuccess() const {
  for (const auto& work : works_) {
    if (!work->isSuccess()) return false;
  }
  return true;
}

bool CoalescedWork::wait(milliseconds timeout) {
  const auto deadline = Clock::now() + clamped(timeout);
  const auto left = [&] {
    if (timeout <= kNoTimeout) return kNoTimeout;
    const auto time = std::chrono::ceil<milliseconds>(deadline - Clock::now());
    return std::max(time, milliseconds(1));  // 0 would be no time-out
  };
  // All end before the first failure is told, since their tensors are lent until then.
  std::exception_ptr failure;
  for (const auto& work : works_) {
    try {
      work->wait(left());
    } catch (...) {
      if (failure == nullptr) failure = std::current_exception();
    }
  }
  if (failure != nullptr) std::rethrow_exception(failure);
  return true;
}

std::exception_ptr CoalescedWork::exception() const {
  for (const auto& work : works_) {
    if (const std::exception_ptr failure = work->exception()) return failure;
  }
  return nullptr;
}

std::vector<at::Tensor> CoalescedWork::result() {
  std::vector<at::Tensor> all;
  for (const auto& work : works_) {
    for (at::Tensor& tensor : work->result()) all.push_back(std::move(tensor));
  }
  return all;
}

// Of calls on the tensors of a GPU: a stream waits for all of them.
c10::intrusive_ptr<c10::ivalue::Future> CoalescedWork::future_on(const c10::Device& device) {
  const c10::impl::VirtualGuardImpl guard(device.type());
  const c10::StreamGuard in(guard.getStreamFromGlobalPool(device));
  const auto all = future_of_tensors({device});
  try {
    wait(kNoTimeout);
    all->markCompleted(result());
  } catch (...) {
    all->setError(std::current_exception());
  }
  return all;
}

c10::intrusive_ptr<c10::ivalue::Future> CoalescedWork::getFuture() {
  const std::vector<at::Tensor> outputs = result();
  const bool are_in_streams = std::all_of(works_.begin(), works_.end(), [](const auto& work) {
    const auto* const ours = dynamic_cast<const UnisonoWork*>(work.get());
    return ours != nullptr && ours->is_in_stream();
  });
  if (are_in_streams && !outputs.empty()) return future_on(outputs.front().device());
  std::vector<c10::Device> devices;
  if (!outputs.empty() && !outputs.front().is_cpu()) devices.push_back(outputs.front().device());
  const auto all = future_of_tensors(std::move(devices));
  auto left = std::make_shared<std::atomic<size_t>>(works_.size() + 1);
  const auto end_one = [all, left, outputs](const c10::ivalue::Future* ended) {
    if (ended != nullptr && ended->hasError()) all->setErrorIfNeeded(ended->exception_ptr());
    if (left->fetch_sub(1) == 1 && !all->completed()) all->markCompleted(outputs);
  };
  for (const auto& work : works_) {
    work->getFuture()->addCallback([end_one](c10::ivalue::Future& ended) { end_one(&ended); });
  }
  end_one(nullptr);
  return all;
}

c10::intrusive_ptr<c10::ivalue::Future> CoalescedWork::getFutureResult() {
  const auto outcome = c10::make_intrusive<c10::ivalue::Future>(c10::IntType::get());
  getFuture()->addCallback(
      [outcome](c10::ivalue::Future& ended) { tell_outcome(*outcome, ended.hasError()); });
  return outcome;
}

uint64_t CoalescedWork::getSequencenumber() const {
  return works_.empty() ? 0 : works_.back()->getSequencenumber();
}

}  // namespace unisono_torch
