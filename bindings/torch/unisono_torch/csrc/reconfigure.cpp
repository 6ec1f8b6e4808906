#include "csrc/reconfigure.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "csrc/backend.h"
#include "csrc/timeouts.h"

namespace unisono_torch {
namespace {

constexpr std::string_view kTitle = "unisono:";
constexpr size_t kRankDigits = 8;
constexpr size_t kHeadChars = kTitle.size() + kRankDigits + 1;
constexpr size_t kIdBytes = sizeof(unisono_unique_id::bytes);

// "unisono:00000003:", as wide for every rank so that texts are in the order of ranks.
std::string head_of(int rank) {
  char digits[kRankDigits + 4];
  std::snprintf(digits, sizeof digits, "%0*d:", static_cast<int>(kRankDigits), rank);
  return std::string(kTitle) + digits;
}

std::string hex_of(const unisono_unique_id& id) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const char byte : id.bytes) {
    text += kDigits[static_cast<unsigned char>(byte) >> 4];
    text += kDigits[static_cast<unsigned char>(byte) & 15];
  }
  return text;
}

}  // namespace

std::string MeetingPlace::handle(int rank) {
  const std::lock_guard lock(mutex_);
  if (!id_) {
    unisono_unique_id id;
    check(unisono_unique_id_make(&id), "get_reconfigure_handle");
    id_ = id;
    handle_ = head_of(rank) + hex_of(id);
  }
  return handle_;
}

void MeetingPlace::renew(bool is_used) {
  const std::lock_guard lock(mutex_);
  if (id_ && !is_used) {
    // An id listens until its rank 0 has joined: a world of one.
    unisono_comm* alone = nullptr;
    if (unisono_join_by_id(&*id_, 0, 1, nullptr, &alone) == UNISONO_OK) unisono_comm_destroy(alone);
  }
  id_.reset();
}

unisono_unique_id id_of_handle(const std::string& handle, int rank) {
  constexpr size_t kChars = kHeadChars + 2 * kIdBytes;
  TORCH_CHECK(handle.starts_with(kTitle) && handle.size() == kChars,
              "unisono: reconfigure: what was given for rank ", rank,
              " is no handle of get_reconfigure_handle(): it has ", handle.size(),
              " characters, and a handle has ", kChars, " and begins with ", kTitle);
  unisono_unique_id id;
  for (size_t i = 0; i < kIdBytes; ++i) {
    const char* const first = handle.data() + kHeadChars + 2 * i;
    unsigned char byte = 0;
    const auto [end, error] = std::from_chars(first, first + 2, byte, 16);
    TORCH_CHECK(error == std::errc() && end == first + 2,
                "unisono: reconfigure: the handle of rank ", rank, " was changed on its way");
    id.bytes[i] = static_cast<char>(byte);
  }
  return id;
}

#ifdef C10D_BACKEND_HAS_RECONFIGURE

namespace {

using std::chrono::milliseconds;
using Handles = std::vector<std::string>;

// By rank. A set leaves the order to us: those who had a rank keep their order.
Handles ordered(const c10d::ReconfigureOptions& options) {
  Handles handles;
  std::visit([&](const auto& given) { handles.assign(given.begin(), given.end()); },
             options.handles);
  if (!std::holds_alternative<Handles>(options.handles)) std::sort(handles.begin(), handles.end());
  TORCH_CHECK(!handles.empty(), "unisono: reconfigure: no handles were given");
  const std::set<std::string> distinct(handles.begin(), handles.end());
  TORCH_CHECK(distinct.size() == handles.size(),
              "unisono: reconfigure: the same handle was given for two ranks");
  int rank = 0;
  for (const std::string& handle : handles) id_of_handle(handle, rank++);
  return handles;
}

int place_of(const std::string& own, const Handles& handles) {
  const auto place = std::find(handles.begin(), handles.end(), own);
  TORCH_CHECK(place != handles.end(), "unisono: reconfigure: this rank's handle is not among the ",
              handles.size(), " given; after each reconfigure() a rank has a new one");
  return static_cast<int>(place - handles.begin());
}

// Ranks that mean different communicators must not take each other for peers.
void check_uuid(unisono_comm* comm, int64_t uuid) {
  std::vector<int64_t> uuids(static_cast<size_t>(unisono_comm_size(comm)));
  check(unisono_all_gather(comm, &uuid, uuids.data(), 1, UNISONO_INT64, nullptr), "reconfigure");
  for (size_t rank = 0; rank < uuids.size(); ++rank) {
    if (uuids[rank] == uuids[0]) continue;
    C10_THROW_ERROR(DistBackendError, c10::str("unisono: reconfigure: the ranks were given "
                                               "different uuids: rank 0 has ",
                                               uuids[0], ", rank ", rank, " has ", uuids[rank]));
  }
}

// The text of the exception that is being handled.
std::string text_of_exception() {
  try {
    throw;
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "an exception of an unknown kind";
  }
}

}  // namespace

// Ends what the group has been. Those who need this rank there are told that it has left.
void UnisonoBackend::replace_comm(CommPointer comm, std::string why_none) {
  CommPointer old;
  {
    const std::scoped_lock lock(mutex_, comm_mutex_);
    old = std::exchange(comm_, std::move(comm));
    if (comm_ != nullptr) {
      rank_ = unisono_comm_rank(comm_.get());
      size_ = unisono_comm_size(comm_.get());
    }
    global_ranks_ = std::make_shared<const GlobalRanks>();
    why_no_comm_ = std::move(why_none);
    is_coalescing_ = false;
  }
  // What is let go of with its calls may need other locks, Python's for example.
  if (old != nullptr) unisono_comm_close(old.get());
}

WorkPointer UnisonoBackend::reconfigure(const c10d::ReconfigureOptions& options) {
  const Handles handles = ordered(options);
  const int size = static_cast<int>(handles.size());
  const int rank = place_of(get_reconfigure_handle(), handles);
  const milliseconds timeout = clamped(options.timeout.value_or(timeout_.load()));
  TORCH_CHECK(timeout > milliseconds(0), "unisono: reconfigure: the timeout is ", timeout.count(),
              " ms, accepted are those above 0");
  TORCH_CHECK(used_uuids_.insert(options.uuid).second, "unisono: reconfigure: the uuid ",
              options.uuid, " was already used in this group; give all ranks a fresh one");
  // Up to here an error leaves the group as it was; from here on no rank has the old members.
  replace_comm(nullptr, "a reconfigure() of it goes on");
  try {
    CommPointer comm =
        join_by_id(id_of_handle(handles.front(), 0), rank, size, timeout, "reconfigure");
    check_uuid(comm.get(), options.uuid);
    replace_comm(std::move(comm), "");
  } catch (...) {
    replace_comm(nullptr,
                 "its last reconfigure() failed, and may be tried again with new handles "
                 "and a fresh uuid: " +
                     text_of_exception());
    meeting_place_.renew(rank == 0);
    throw;
  }
  meeting_place_.renew(rank == 0);
  sequence_ = 0;
  monitored_barriers_ = 0;
  return c10::make_intrusive<CoalescedWork>(rank_, std::vector<WorkPointer>());
}

#endif  // C10D_BACKEND_HAS_RECONFIGURE

}  // namespace unisono_torch
