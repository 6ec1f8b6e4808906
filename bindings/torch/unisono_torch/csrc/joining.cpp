// How a group's communicator is made, with torch's store for the ranks to meet in.
#include <unistd.h>

#include <thread>

#include "csrc/backend.h"

namespace unisono_torch {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr const char* kName = "unisono";
constexpr milliseconds kFirstPause{1}, kLongestPause{20};
// Functions of a store end with one of these.
constexpr int kDone = 0, kFailed = 1;

c10d::Store& store_of(void* context) { return *static_cast<c10d::Store*>(context); }

int set_in_store(void* context, const char* key, const void* value, size_t bytes) {
  try {
    const auto* const first = static_cast<const uint8_t*>(value);
    store_of(context).set(key, std::vector<uint8_t>(first, first + bytes));
    return kDone;
  } catch (...) {
    return kFailed;
  }
}

// Asks again and again: while a store waits, it keeps other threads of the process waiting too.
int get_from_store(void* context, const char* key, int64_t timeout_ms, unisono_store_value* value) {
  try {
    const auto deadline = Clock::now() + milliseconds(timeout_ms);
    milliseconds pause = kFirstPause;
    while (!store_of(context).check({key})) {
      if (Clock::now() >= deadline) return kDone;
      std::this_thread::sleep_for(pause);
      pause = std::min(2 * pause, kLongestPause);
    }
    const std::vector<uint8_t> found = store_of(context).get(key);
    unisono_store_return(value, found.data(), found.size());
    return kDone;
  } catch (...) {
    return kFailed;
  }
}

// The first group's thread counts for all: they are used by the same one.
bool is_first_group() {
  static std::atomic<bool> is_first{true};
  return is_first.exchange(false);
}

}  // namespace

Joining::Joining(c10::intrusive_ptr<c10d::Store> store, int rank, int size, milliseconds timeout)
    : store_(std::move(store)),
      rank_(rank),
      size_(size),
      process_(::getpid()),
      thread_([this, timeout] { run(timeout); }) {}

Joining::~Joining() {
  if (process_ != ::getpid()) {
    // The thread is the parent's, and so is the communicator.
    thread_.detach();
    return;
  }
  thread_.join();
  unisono_comm_destroy(comm_);
}

void Joining::run(milliseconds timeout) {
  unisono_store store = UNISONO_STORE_INIT;
  store.context = store_.get();
  store.set = set_in_store;
  store.get = get_from_store;
  unisono_init_options options = UNISONO_INIT_OPTIONS_INIT;
  options.timeout_ms = timeout.count();
  options.counts_thread = is_first_group();
  unisono_comm* comm = nullptr;
  const unisono_code code = unisono_join(&store, kName, rank_, size_, &options, &comm);
  const std::lock_guard lock(mutex_);
  comm_ = comm;
  if (code != UNISONO_OK) failure_ = last_error("init_process_group");
  is_over_ = true;
  ended_.notify_all();
}

unisono_comm* Joining::communicator() {
  std::unique_lock lock(mutex_);
  ended_.wait(lock, [&] { return is_over_; });
  if (failure_ != nullptr) std::rethrow_exception(failure_);
  return comm_;
}

unisono_comm* Joining::communicator_if_made() {
  const std::lock_guard lock(mutex_);
  return comm_;
}

}  // namespace unisono_torch
