// The layout of a rank's record: a header, the communicators it has been in, and a ring of its last
// operations. Little-endian, of fixed size, and only ever changed by whole aligned fields, so that
// the record of a process that was killed at any moment can be read.
//
//   offset 0       Header
//   4096           kCommunicators rows of CommunicatorRow
//   12288          kEntries rows of Entry: operation `number` stands in row number % kEntries
//
// Thread rule: constants and values.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace unisono::recorder {

static_assert(std::endian::native == std::endian::little, "records are little-endian");

inline constexpr std::uint64_t kMagic = 0x4443'4552'534e'5531;  // "1UNSRECD" in a file
inline constexpr std::uint32_t kVersion = 2;                    ///< of this layout
inline constexpr std::size_t kEntries = 4096;
inline constexpr std::size_t kCommunicators = 256;
inline constexpr std::size_t kTextBytes = 80;  ///< with the zero that ends it

/// What a record is called where it has no file: the name of the memfd.
inline constexpr char kMemoryName[] = "unisono-record";
inline constexpr char kFileSuffix[] = ".record";

struct Header {
  std::uint64_t magic = 0;  ///< written last; 0: the rank has not joined its job
  std::uint32_t version = 0;
  std::uint32_t entries = 0;
  std::uint32_t communicators = 0;
  std::int32_t rank = 0;  ///< in the world
  std::int32_t world_size = 0;
  std::int32_t pid = 0;             ///< in `pid_namespace`
  std::uint64_t pid_namespace = 0;  ///< its inode
  /// Clock ticks after boot, by /proc/PID/stat: the number may be another process' later.
  std::uint64_t process_start = 0;
  /// CLOCK_REALTIME and CLOCK_MONOTONIC at one moment; all other times are of the second.
  std::int64_t realtime_ns = 0, monotonic_ns = 0;
  std::int64_t closed_ns = 0;  ///< when the rank left its job; 0: it has not
  char job[kTextBytes] = {};
  char host[kTextBytes] = {};
  char boot[kTextBytes] = {};  ///< of the host: without the same one clocks and pids mean nothing
  /// Number of the entry of the last call: an older one where collectives share it. Messages that
  /// share one do not count.
  std::uint64_t last = 0;
  std::uint64_t claim = 0;  ///< of memory that several processes were handed: whose it is; 0: free
};

struct CommunicatorRow {
  std::uint32_t id = 0;
  std::uint32_t size = 0;
  std::int32_t member = 0;  ///< this rank's place in it
  std::uint32_t state = 0;  ///< CommunicatorState
  std::uint64_t begun = 0;  ///< collectives of this rank: one more than the last one's number
  std::uint64_t unused = 0;
};
enum class CommunicatorState : std::uint32_t { kNone, kOpen, kClosed };

/// One operation, or the same one several times in a row.
struct Entry {
  std::uint64_t number = 0;    ///< 1, 2, ... of the rank; 0: none, or just being replaced
  std::uint64_t progress = 0;  ///< Progress
  std::uint64_t sequence = 0;  ///< in its communicator, of the first; 0 for sends and receives
  std::uint64_t count = 0;     ///< elements; 0 where ranks need not agree
  std::uint32_t communicator = 0;
  std::uint8_t collective = 0;
  std::uint8_t type = 0;
  std::uint8_t op = 0;          ///< as CallRecord's
  std::uint8_t flags = 0;       ///< kUnnumbered, kAsynchronous
  std::int32_t peer = 0;        ///< root, or the other rank of a message: a member; -1: none
  std::uint32_t tag = 0;        ///< of a message
  std::int64_t started_ns = 0;  ///< the first of them
  std::int64_t ended_ns = 0;    ///< about the last of them; 0: not known
};
/// Flag of an entry: `sequence` means nothing.
/// And: the caller need not wait for it.
inline constexpr std::uint8_t kUnnumbered = 1, kAsynchronous = 2;
/// kFailedAlone: the communicator goes on.
enum class EntryState : std::uint8_t { kNone, kStarted, kCompleted, kFailed, kFailedAlone };

/// The word of an entry that changes while it is in use.
struct Progress {
  EntryState state = EntryState::kNone;
  std::uint8_t code = 0;          ///< ErrorCode of a failure
  std::int32_t failed_rank = -1;  ///< a member
  std::uint32_t times = 0;        ///< how often, with the one that runs or failed

  static constexpr std::uint64_t kOnce = std::uint64_t{1} << 32;

  constexpr std::uint64_t word() const {
    return static_cast<std::uint64_t>(state) | static_cast<std::uint64_t>(code) << 4 |
           static_cast<std::uint64_t>(failed_rank + 1) << 12 |
           static_cast<std::uint64_t>(times) << 32;
  }
  static constexpr Progress of(std::uint64_t word) {
    return {static_cast<EntryState>(word & 0xf), static_cast<std::uint8_t>(word >> 4),
            static_cast<std::int32_t>(word >> 12 & 0xf'ffff) - 1,
            static_cast<std::uint32_t>(word >> 32)};
  }
};

inline constexpr std::size_t kCommunicatorsAt = 4096;
inline constexpr std::size_t kEntriesAt =
    kCommunicatorsAt + kCommunicators * sizeof(CommunicatorRow);
inline constexpr std::size_t kRecordBytes = kEntriesAt + kEntries * sizeof(Entry);

static_assert(sizeof(Header) <= kCommunicatorsAt && std::is_trivially_copyable_v<Header>);
static_assert(sizeof(CommunicatorRow) == 32 && std::is_trivially_copyable_v<CommunicatorRow>);
static_assert(sizeof(Entry) == 64 && std::is_trivially_copyable_v<Entry>);
static_assert(kEntriesAt == 12288);

}  // namespace unisono::recorder
