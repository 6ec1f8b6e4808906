// Shared mappings of sealed memfds, and the layout of the segment that the ranks of one host share.
// A process maps each memfd once and holds one descriptor of it, however many of its threads are
// ranks.
//
// Thread rule: Mapping is immutable after it is made; reserve(), populate() and punch() from any
// thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/call_record.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "transports/shm/trial_memory.h"

namespace unisono::shm {

/// A memfd of a peer.
using PeerMemfd = std::shared_ptr<const UniqueFd>;
/// The one descriptor that this process holds of a memfd: `fd`, or the one that another rank of the
/// process was sent before.
Result<PeerMemfd> keep_once(UniqueFd fd);
/// Allocates the pages of a range, so that touching them cannot fail later. After an error some of
/// them may be allocated.
Status reserve_pages(int fd, std::size_t offset, std::size_t bytes);

/// A sealed memfd in this process.
class Mapping {
 public:
  /// Makes a sparse memfd of `bytes`, seals its size and maps it.
  static Result<std::shared_ptr<Mapping>> create(const char* name, std::size_t bytes);
  /// Maps a descriptor that came from a peer, after checking that its size is sealed and is one of
  /// [bytes_min, bytes_max]. Returns the mapping this process already has, if any.
  static Result<std::shared_ptr<Mapping>> attach(UniqueFd fd, std::size_t bytes_min,
                                                 std::size_t bytes_max);
  /// The same for reading only; `fd` is not needed afterwards.
  static Result<std::shared_ptr<Mapping>> view(int fd, std::size_t bytes_min,
                                               std::size_t bytes_max);
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  std::byte* base() const { return base_; }
  std::size_t bytes() const { return bytes_; }
  /// -1 of a view. Otherwise open as long as this: reserving pages needs it.
  int fd() const { return fd_.get(); }

  /// reserve_pages() of this memory.
  Status reserve(std::size_t offset, std::size_t bytes) const;
  /// Maps pages that are reserved, so that no access of this process faults. Where the system
  /// cannot, nothing is lost but time.
  void populate(std::size_t offset, std::size_t bytes) const;
  /// Gives the pages of a range back; they read as zero afterwards.
  void punch(std::size_t offset, std::size_t bytes) const;

 private:
  Mapping(UniqueFd fd, std::byte* base, std::size_t bytes)
      : fd_(std::move(fd)), base_(base), bytes_(bytes) {}
  static Result<std::shared_ptr<Mapping>> map(int fd, std::size_t bytes, UniqueFd kept);

  UniqueFd fd_;
  std::byte* base_;
  std::size_t bytes_;
};

inline constexpr std::size_t kPageBytes = 4096;
inline constexpr std::size_t kLineBytes = 64;
/// Neighbouring lines are prefetched in pairs: what different ranks write keeps this distance.
inline constexpr std::size_t kLinePairBytes = 128;
inline constexpr int kLocalRanksMax = 256;
inline constexpr int kGroupsMax = 1024;

/// The message rings that one rank writes share kRingsBytesMax equally, each within these bounds.
inline constexpr std::size_t kSegmentRingBytesMin = std::size_t{256} << 10;
inline constexpr std::size_t kSegmentRingBytesMax = std::size_t{2} << 20;
inline constexpr std::size_t kRingsBytesMax = std::size_t{8} << 20;

/// Cells of one member, which small calls exchange. native/shared_cells.h says why there are four.
inline constexpr int kCellSlots = 4;
inline constexpr std::size_t kCellPayloadBytes = 16 * 1024;
inline constexpr std::size_t kInlineBytes = 32;
/// Cells are a page apart: what a processor fetches ahead of a payload must not be the line for
/// which somebody waits next (8 KiB of all_reduce: 0.54 instead of 0.58 us).
inline constexpr std::size_t kCellStride = kLinePairBytes + kCellPayloadBytes + kPageBytes;

/// Slots of one member's window: what larger calls stream through.
inline constexpr int kWindowSlots = 4;
inline constexpr std::size_t kWindowSlotBytes = 256 * 1024;
inline constexpr std::size_t kWindowBytes = kWindowSlots * kWindowSlotBytes;
/// The rotation of a group is what chunks go around from call to call where one member writes what
/// others read, so that by the time the writer comes back to a line it has left the reader's cache,
/// and need not be fetched from there (native/exchange_call.h): twice a second-level cache, behind
/// it a part for what is written past the caches, and as much as the first again for what would fit
/// cells (native/payload_rotation.h).
inline constexpr std::size_t kCachedRotationMin = std::size_t{1} << 20;
inline constexpr std::size_t kCachedRotationMax = std::size_t{4} << 20;
inline constexpr std::size_t kStreamedRotation = std::size_t{1} << 20;
inline constexpr std::size_t kRotationBytesMax = 2 * kCachedRotationMax + kStreamedRotation;

/// The first line of a cell: a call of at most kInlineBytes is this one line. Longer payload
/// follows it directly.
struct alignas(kLineBytes) CellLine {
  std::atomic<std::uint64_t> flag;  ///< number of the call whose cell this is; stored last
  CallRecord record;
  std::byte payload[kInlineBytes];
};
static_assert(sizeof(CellLine) == kLineBytes);

struct alignas(kLinePairBytes) CounterLine {
  std::atomic<std::uint64_t> value;
};

/// Progress of one member in large calls, each counter written by that member alone.
struct Counters {
  CounterLine filled;    ///< chunks that it has written for others
  CounterLine reduced;   ///< chunks of which it has combined its part
  CounterLine drained;   ///< chunks it has taken from everyone
  CounterLine left;      ///< 1: makes no further call
  CounterLine reading;   ///< 1: reads the private memory of threads of its process right now
  CounterLine combined;  ///< chunks of which it has combined its part of its domain's input
};

/// When one member began a call that is a trial, and when it had finished, in nanoseconds of the
/// monotonic clock; written by it alone. native/access_trials.h says of which calls.
struct alignas(32) TrialStamp {
  std::atomic<std::uint64_t> begin;
  std::atomic<std::uint64_t> end;
  std::atomic<bool> path_matters;  ///< the call's path made a difference to this member
};
inline constexpr std::size_t kTrialStamps = 8;
using TrialStamps = TrialStamp[kTrialStamps];
static_assert(sizeof(TrialStamps) % kLinePairBytes == 0);

struct GroupHeader {
  std::atomic<std::uint64_t> raised;  ///< first failure; 0: none
  alignas(kLineBytes) std::atomic<std::uint32_t> closed_count;
  /// By member: it is counted, by itself or, since its process has ended, by another one.
  std::atomic<std::uint64_t> closed[kLocalRanksMax / 64];
};

/// What a rank says about itself to the others.
struct RankEntry {
  std::uint64_t process_token[2];  ///< random, the same for all threads of one process
  std::int64_t pid;
  std::uint64_t nonce_address;  ///< where `nonce` lies in that process
  std::uint64_t nonce[2];
  std::int64_t heap_fd;                                      ///< its heap, in that process
  std::atomic<std::uint64_t> readable[kLocalRanksMax / 64];  ///< ranks it can read by single copy
  std::atomic<std::uint64_t> mappable[kLocalRanksMax / 64];  ///< whose descriptors it can open
  std::atomic<std::uint64_t> heaps[kLocalRanksMax / 64];     ///< ranks whose heaps it has mapped
  std::atomic<std::uint32_t> published;  ///< 1: written, but for what it can do with others'
};

struct ControlPage {
  std::atomic<std::uint64_t> magic;  ///< stored last
  std::uint64_t rank_count;
  /// Bytes, twice the second-level cache as its maker knows that; 0: it does not. Read by all,
  /// since cores of one host may differ.
  std::atomic<std::uint64_t> cached_rotation;
  std::atomic<std::uint64_t> blocks_taken[kGroupsMax / 64];
  RankEntry ranks[kLocalRanksMax];
  TrialMemory trials;
};

/// Ranges of the caller's memory that one rank may have registered at a time.
inline constexpr std::size_t kRegisteredMax = 64;

/// A part of a file that its owner lets others map; registered_memory.h says how.
struct alignas(kLineBytes) RegisteredEntry {
  std::atomic<std::uint64_t> generation;  ///< 0: none, or being written; never used again
  std::atomic<std::int64_t> fd;           ///< in the owner's process
  std::atomic<std::uint64_t> device;      ///< of the file, as `inode`
  std::atomic<std::uint64_t> inode;
  std::atomic<std::uint64_t> offset;  ///< in the file
  std::atomic<std::uint64_t> bytes;
};

struct RegisteredTable {
  RegisteredEntry entries[kRegisteredMax];
};
static_assert(sizeof(RegisteredTable) == kPageBytes);

constexpr std::size_t round_up(std::size_t value, std::size_t to) {
  return (value + to - 1) / to * to;
}

/// Offsets in the segment of `rank_count` ranks.
struct SegmentLayout {
  std::size_t rank_count;

  static constexpr std::size_t member_bytes() {
    return sizeof(Counters) + kCellSlots * kCellStride + sizeof(TrialStamps);
  }
  /// A larger ring is faster: by the time the writer comes back to a line, the line has left the
  /// reader's own cache, and need not be fetched from there. 1 MiB moves two to three times as much
  /// as 256 KiB. Two ranks that exchange 1 MiB write all before they read in one of 2 MiB (57 us in
  /// one of 1 MiB, else 49; fast state of an EPYC).
  std::size_t ring_bytes() const {
    return std::clamp(round_up(kRingsBytesMax / rank_count, kPageBytes), kSegmentRingBytesMin,
                      kSegmentRingBytesMax) +
           kPageBytes;
  }
  std::size_t registered_offset(int rank) const {
    return round_up(sizeof(ControlPage), kPageBytes) +
           static_cast<std::size_t>(rank) * sizeof(RegisteredTable);
  }
  std::size_t rings_offset() const { return registered_offset(static_cast<int>(rank_count)); }
  std::size_t ring_offset(int from, int to) const {
    return rings_offset() +
           (static_cast<std::size_t>(from) * rank_count + static_cast<std::size_t>(to)) *
               ring_bytes();
  }
  std::size_t blocks_offset() const {
    return rings_offset() + rank_count * rank_count * ring_bytes();
  }
  /// Header, counters, cells and stamps of all members: reserved when a group opens.
  std::size_t block_head_bytes(std::size_t members) const {
    return round_up(kPageBytes + members * member_bytes(), kPageBytes);
  }
  std::size_t block_bytes() const {
    return block_head_bytes(rank_count) + rank_count * kWindowBytes + kRotationBytesMax;
  }
  std::size_t block_offset(std::uint32_t block) const {
    return blocks_offset() + block * block_bytes();
  }
  std::size_t bytes() const { return blocks_offset() + kGroupsMax * block_bytes(); }
};

/// Another one for every change of what lies where.
inline constexpr std::uint64_t kSegmentMagic = 0x38'6f6e'6f73'696e'75;  // "unisono8"

}  // namespace unisono::shm
