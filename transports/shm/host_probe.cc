#include "transports/shm/host_probe.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>

#include "compute/compute.h"
#include "transports/shm/shared_segment_state.h"
#include "transports/shm/trial_times.h"

namespace unisono::shm {
namespace {

constexpr std::array<int, kMeasuredCopySizes> kCallsOfSize{5, 3, 3};
constexpr int kWaitRows = 6, kWaitsOfARow = 6;
constexpr int kKernelCalls = 8;
// Looks at who is awaited before this rank gives its processor away.
constexpr int kLooksBeforeYield = 2000;
constexpr int kLooksPerClock = 64;

class HostProbe {
 public:
  HostProbe(const ProbePlaces& places, TimePoint deadline)
      : places_(places),
        ranks_(static_cast<int>(places.boards.size())),
        next_((places.self + 1) % ranks_),
        deadline_(deadline),
        target_(std::make_unique_for_overwrite<std::byte[]>(kProbeBytes)) {}

  HostFacts run() {
    own().source = reinterpret_cast<std::uint64_t>(places_.source);
    bool goes_on = meet() && time_waits();
    for (std::size_t size = 0; goes_on && size < kMeasuredCopySizes; ++size) {
      goes_on = agree_on(size) && reserve(size) && time_size(size) && tell();
      if (goes_on) agreed_ = medians();
    }
    if (!goes_on) own().has_ended.value.store(1, std::memory_order_relaxed);
    return agreed_;
  }

 private:
  ProbeBoard& own() const { return board(places_.self); }
  ProbeBoard& board(int rank) const { return *places_.boards[static_cast<std::size_t>(rank)]; }

  // All are here. False: not in time, or one has given up.
  bool meet() {
    own().meetings.value.store(++meetings_, std::memory_order_release);
    for (int rank = 0; rank < ranks_; ++rank) {
      // Acquire: what that rank wrote before it came is read from here on.
      for (int looks = 1; board(rank).meetings.value.load(std::memory_order_acquire) < meetings_;
           ++looks) {
        if (looks % kLooksPerClock == 0 && has_to_end()) return false;
        if (looks > kLooksBeforeYield) sched_yield();
      }
    }
    return true;
  }

  bool has_to_end() const {
    return Clock::now() > deadline_ ||
           std::any_of(places_.boards.begin(), places_.boards.end(), [](const ProbeBoard* other) {
             return other->has_ended.value.load(std::memory_order_relaxed) != 0;
           });
  }

  // Whether there is time for the size, by what the one before took; the first rank says so.
  bool agree_on(std::size_t size) {
    const bool fits = size == 0 || Clock::now() + expected(size) < deadline_;
    if (fits) own().next_size.value.store(size, std::memory_order_relaxed);
    return meet() && board(0).next_size.value.load(std::memory_order_relaxed) == size;
  }

  // Reserves so much of its own window.
  bool reserve(std::size_t size) const {
    return !places_.reserve || places_.reserve(std::min(bytes_of_copy(size), kWindowBytes));
  }

  bool tell() {
    own().found = found_;
    return meet();
  }

  Duration expected(std::size_t size) const {
    double of_a_mib = 0;
    for (const std::uint32_t time : found_.copies[size - 1]) of_a_mib += time;
    const double mib = static_cast<double>(bytes_of_copy(size)) / 1048576.0;
    // The first call of a size is slower, and data are written before each copy.
    const double copies = 2 * of_a_mib * mib * kCallsOfSize[size];
    const auto pieces = static_cast<double>(chunks_of(size));
    const double waits = (4 * pieces + 4) * kCallsOfSize[size] * found_.waits[kLineWait];
    return std::chrono::nanoseconds(static_cast<std::int64_t>(copies + waits));
  }

  bool time_waits() {
    for (int row = 0; row < kWaitRows; ++row) {
      const TimePoint begin = Clock::now();
      for (int wait = 0; wait < kWaitsOfARow; ++wait) {
        if (!meet()) return false;
      }
      note(found_.waits[kLineWait], Clock::now() - begin, kWaitsOfARow);
    }
    for (int call = 0; can_read_next_ && call < kKernelCalls; ++call) {
      const TimePoint begin = Clock::now();
      can_read_next_ = read_next(0, kLineBytes);
      if (!can_read_next_) break;
      note(found_.waits[kKernelWait], Clock::now() - begin, 1);
    }
    return meet();
  }

  bool time_size(std::size_t size) {
    turn_ = 0;  // each rank's own window, which it has reserved
    for (int call = 0; call < kCallsOfSize[size]; ++call) {
      const bool counts = call > 0;  // in the first one pages are touched for the first time
      if (!time_slots(size, false, counts) || !time_slots(size, true, counts)) return false;
      if (!time_private(size, counts)) return false;
      turn_ = ranks_ == 2 ? 1 - turn_ : 0;
    }
    if (!can_read_next_) found_.copies[size][kKernelCopy] = 0;
    return true;
  }

  static std::size_t chunks_of(std::size_t size) {
    return (bytes_of_copy(size) + kWindowSlotBytes - 1) / kWindowSlotBytes;
  }

  // Two ranks write where they have read, as they do in calls (native/shared_cells.h).
  std::byte* slot_of(int rank, std::size_t chunk) const {
    const int owner = (rank + turn_) % ranks_;
    return places_.windows[static_cast<std::size_t>(owner)] +
           chunk % kWindowSlots * kWindowSlotBytes;
  }

  bool time_slots(std::size_t size, bool streams, bool counts) {
    write_source(size);
    Duration writing{}, reading{};
    const std::size_t bytes = std::min(bytes_of_copy(size), kWindowSlotBytes);
    for (std::size_t chunk = 0; chunk < chunks_of(size); ++chunk) {
      const std::size_t at = chunk * kWindowSlotBytes;
      const TimePoint begin = Clock::now();
      std::byte* const slot = slot_of(places_.self, chunk);
      streams ? compute::copy_streaming(slot, places_.source + at, bytes)
              : static_cast<void>(std::memcpy(slot, places_.source + at, bytes));
      writing += Clock::now() - begin;
      if (!meet()) return false;
      const TimePoint read = Clock::now();
      std::memcpy(target_.get() + at, slot_of(next_, chunk), bytes);
      reading += Clock::now() - read;
      if (!meet()) return false;
    }
    if (counts) {
      note_copy(size, streams ? kStreamedWriteCopy : kWriteCopy, writing);
      note_copy(size, streams ? kStreamedReadCopy : kReadCopy, reading);
    }
    return true;
  }

  bool time_private(std::size_t size, bool counts) {
    write_source(size);
    if (!meet()) return false;
    const TimePoint begin = Clock::now();
    for (std::size_t chunk = 0; can_read_next_ && chunk < chunks_of(size); ++chunk) {
      const std::size_t bytes = std::min(bytes_of_copy(size), kWindowSlotBytes);
      can_read_next_ = read_next(chunk * kWindowSlotBytes, bytes);
    }
    const TimePoint end = Clock::now();
    if (counts && can_read_next_) note_copy(size, kKernelCopy, end - begin);
    // The others read this rank's data no longer.
    if (!meet()) return false;
    const TimePoint local = Clock::now();
    std::memcpy(target_.get(), places_.source, bytes_of_copy(size));
    if (counts) note_copy(size, kLocalCopy, Clock::now() - local);
    return true;
  }

  bool read_next(std::size_t at, std::size_t bytes) {
    return places_.next->read(target_.get() + at, board(next_).source + at, bytes).ok();
  }

  // A caller does so before each call.
  void write_source(std::size_t size) {
    std::memset(places_.source, ++written_, bytes_of_copy(size));
  }

  void note_copy(std::size_t size, Copy copy, Duration took) {
    std::uint32_t& least = found_.copies[size][copy];
    least = lesser_time(least, time_of_a_mib(bytes_of_copy(size), took));
  }
  static void note(std::uint32_t& least, Duration took, int count) {
    const auto time = std::chrono::duration_cast<std::chrono::nanoseconds>(took).count() / count;
    least =
        lesser_time(least, static_cast<std::uint32_t>(std::clamp<std::int64_t>(time, 1, 1 << 30)));
  }

  std::uint32_t median_of(auto&& time_in) const {
    std::vector<std::uint32_t> times;
    for (int rank = 0; rank < ranks_; ++rank) times.push_back(time_in(board(rank).found));
    std::sort(times.begin(), times.end());
    return times.front() == 0 ? 0 : times[times.size() / 2];
  }

  HostFacts medians() const {
    HostFacts facts{};
    for (std::size_t wait = 0; wait < facts.waits.size(); ++wait) {
      facts.waits[wait] = median_of([&](const HostFacts& found) { return found.waits[wait]; });
    }
    for (std::size_t size = 0; size < kMeasuredCopySizes; ++size) {
      for (std::size_t copy = 0; copy < kCopyNames.size(); ++copy) {
        facts.copies[size][copy] =
            median_of([&](const HostFacts& found) { return found.copies[size][copy]; });
      }
    }
    return facts;
  }

  const ProbePlaces& places_;
  const int ranks_;
  const int next_;
  const TimePoint deadline_;
  std::unique_ptr<std::byte[]> target_;
  HostFacts found_{}, agreed_{};
  std::uint64_t meetings_ = 0;
  int turn_ = 0;
  int written_ = 0;
  bool can_read_next_ = places_.next != nullptr;
};

// Between the segment's last block and those that groups take first there is nobody else.
constexpr std::uint32_t kProbeBlock = kGroupsMax - 1;
static_assert(sizeof(ProbeBoard) <= kPageBytes);

}  // namespace

HostFacts probe_host(const ProbePlaces& places, TimePoint deadline) {
  return HostProbe(places, deadline).run();
}

void SharedSegment::State::measure_host() {
  const TimePoint deadline = Clock::now() + std::chrono::nanoseconds(control().trials.measuring_ns);
  const std::size_t boards = layout.block_offset(kProbeBlock);
  const auto ranks = static_cast<std::size_t>(size());
  const auto self = static_cast<std::size_t>(peers.self);
  const std::size_t windows = boards + layout.block_head_bytes(ranks);
  ProbePlaces places{.self = peers.self};
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    std::byte* const board = segment->base() + boards + rank * sizeof(ProbeBoard);
    places.boards.push_back(reinterpret_cast<ProbeBoard*>(board));
    places.windows.push_back(segment->base() + windows + rank * kWindowBytes);
  }
  const SingleCopy& next = single_copies[(self + 1) % ranks];
  if (next.usable()) places.next = &next;
  probe_source = std::make_unique_for_overwrite<std::byte[]>(kProbeBytes);
  places.source = probe_source.get();
  // Who has no memory for it does not come, and the others wait in vain.
  if (!segment->reserve(boards, ranks * sizeof(ProbeBoard))) return;
  places.reserve = [&](std::size_t bytes) {
    return segment->reserve(windows + self * kWindowBytes, bytes).ok();
  };
  const HostFacts facts = probe_host(places, deadline);
  if (peers.self == 0) control().trials.host = facts;
}

void SharedSegment::State::forget_measuring() {
  probe_source.reset();
  if (peers.self == 0) return_block(kProbeBlock);
}

}  // namespace unisono::shm
