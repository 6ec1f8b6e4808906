// How a group's communicator is made, with torch's store for the ranks to meet in.
#include <thread>

#include "csrc/backend.h"

namespace unisono_torch {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr const char* kMeetingName = "unisono";
constexpr milliseconds kFirstPause{1}, kLongestPause{20};
// Functions of a store end with one of these.
constexpr int kDone = 0, kFailed = 1;

// A store, and what its last failure said.
struct Meeting {
  c10d::Store& store;
  std::exception_ptr failure;
};

Meeting& meeting_of(void* context) { return *static_cast<Meeting*>(context); }

int note_failure(void* context) {
  meeting_of(context).failure = std::current_exception();
  return kFailed;
}

int set_in_store(void* context, const char* key, const void* value, size_t bytes) {
  try {
    const auto* const first = static_cast<const uint8_t*>(value);
    meeting_of(context).store.set(key, std::vector<uint8_t>(first, first + bytes));
    return kDone;
  } catch (...) {
    return note_failure(context);
  }
}

// Asks again and again: while a store waits, it keeps other threads of the process waiting too.
int get_from_store(void* context, const char* key, int64_t timeout_ms, unisono_store_value* value) {
  try {
    const auto deadline = Clock::now() + milliseconds(timeout_ms);
    milliseconds pause = kFirstPause;
    while (!meeting_of(context).store.check({key})) {
      if (Clock::now() >= deadline) return kDone;
      std::this_thread::sleep_for(pause);
      pause = std::min(2 * pause, kLongestPause);
    }
    const std::vector<uint8_t> found = meeting_of(context).store.get(key);
    unisono_store_return(value, found.data(), found.size());
    return kDone;
  } catch (...) {
    return note_failure(context);
  }
}

}  // namespace

CommPointer join(c10d::Store& store, int rank, int size, milliseconds timeout,
                 const GlobalRanks& global_ranks) {
  unisono_store callbacks = UNISONO_STORE_INIT;
  Meeting meeting{store, nullptr};
  callbacks.context = &meeting;
  callbacks.set = set_in_store;
  callbacks.get = get_from_store;
  unisono_init_options options = UNISONO_INIT_OPTIONS_INIT;
  options.timeout_ms = clamped(timeout).count();
  unisono_comm* comm = nullptr;
  const unisono_code code = unisono_join(&callbacks, kMeetingName, rank, size, &options, &comm);
  if (code != UNISONO_OK && meeting.failure != nullptr) std::rethrow_exception(meeting.failure);
  check(code, "init_process_group", global_ranks);
  return {comm, unisono_comm_destroy};
}

CommPointer join_by_id(const unisono_unique_id& id, int rank, int size, milliseconds timeout,
                       const char* operation) {
  unisono_init_options options = UNISONO_INIT_OPTIONS_INIT;
  options.timeout_ms = timeout.count();
  unisono_comm* comm = nullptr;
  check(unisono_join_by_id(&id, rank, size, &options, &comm), operation);
  return {comm, unisono_comm_destroy};
}

}  // namespace unisono_torch
