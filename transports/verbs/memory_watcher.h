// The userfaultfd of this process with its thread and its clients, the monitors.
//
// Whoever unmaps watched memory waits until the event was taken, and may hold any lock (malloc's
// above all). So the thread, and whoever holds notes_mutex_, neither allocates nor frees nor waits
// for anything but that mutex. Events carry ranges; no page is ever handed out here.
#pragma once

#include <linux/userfaultfd.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "transports/verbs/memory_monitor.h"

namespace unisono::verbs {

// Events between two looks of a client. More are rare, and cost only registrations anew.
inline constexpr std::size_t kNotesMax = 512;
// Besides the page size: what huge pages want ranges to be aligned to.
inline constexpr std::uint64_t kHugeSteps[] = {std::uint64_t{2} << 20, std::uint64_t{1} << 30};

struct Range {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

inline std::uint64_t page_bytes() {
  static const auto bytes = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

inline Range widen(Range range, std::uint64_t step) {
  return {range.begin / step * step, (range.end + step - 1) / step * step};
}

/// What one client has not yet been told. Guarded by Watcher::notes_mutex_, but `changed`.
struct Notes {
  void add(Range range) {
    if (everything) return;
    if (count > 0 && range.begin <= ranges[count - 1].end && ranges[count - 1].begin <= range.end) {
      Range& last = ranges[count - 1];
      last = {std::min(last.begin, range.begin), std::max(last.end, range.end)};
    } else if (count < ranges.size()) {
      ranges[count++] = range;
    } else {
      everything = true;
    }
  }

  std::atomic<bool> changed = false;
  bool everything = false;
  std::size_t count = 0;
  std::array<Range, kNotesMax> ranges;
  Notes* next = nullptr;  ///< of the watcher's clients
};

class Watcher {
 public:
  static Result<std::shared_ptr<Watcher>> shared(WatchMode mode);
  ~Watcher();

  void attach(Notes* client);
  void detach(Notes* client);
  Status watch(const Notes* client, Range pages);
  void forget(const Notes* client, Range pages);
  /// Some thread has unmapped watched memory, and its event has not been taken.
  bool is_changing() const;
  /// Until everything that was unmapped before this call is noted.
  void settle(Notes* client);
  std::mutex& notes_mutex() { return notes_mutex_; }
  /// Under notes_mutex(): there will be no events any more.
  bool is_lost() const { return is_lost_; }
  bool is_of_this_process() const { return process_ == getpid(); }

 private:
  struct Watch {
    const Notes* client;
    Range asked;
    Range watched;
    std::uint64_t step;
  };

  Status open(WatchMode mode);
  Status open_descriptor(bool* user_mode_only);
  Status start_thread();
  void run();
  void drain();
  void handle(const uffd_msg& message);
  void handle_fault(std::uint64_t address);
  void note(Range range);
  void note_everything();
  int register_aligned(Range pages, std::uint64_t* step);
  int try_register(Range range);
  bool try_unregister(Range range);
  void unregister(Range range, std::uint64_t step, int* tries);
  void unwatch(std::vector<Watch>::iterator watch);

  const pid_t process_ = getpid();
  UniqueFd uffd_;
  UniqueFd wake_;
  pthread_t thread_{};
  bool runs_ = false;
  std::atomic<int>* published_ = nullptr;  ///< where a forked child finds what it must close
  std::uint64_t mode_ = 0;                 ///< UFFDIO_REGISTER_MODE_*
  bool may_handle_faults_ = false;         ///< also the kernel's own

  // Guards watches_; never taken by the thread, so that its holder may allocate.
  std::mutex watches_mutex_;
  std::vector<Watch> watches_;  ///< by watched.begin

  // Held while events are taken and noted: who was let go by the kernel and takes it afterwards
  // finds them noted. May be taken with watches_mutex_ held.
  std::mutex notes_mutex_;
  Notes* clients_ = nullptr;
  bool is_lost_ = false;
  std::array<uffd_msg, 16> messages_;
};

}  // namespace unisono::verbs
