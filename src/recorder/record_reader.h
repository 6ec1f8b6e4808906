// Reads a record that may be of a living process, damaged, cut short or made to do harm: all of it
// is checked, and what cannot be true is left out and counted.
//
// Thread rule: values; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/call_record.h"
#include "base/result.h"
#include "recorder/record_format.h"

namespace unisono::recorder {

/// An operation, or the same one several times in a row.
struct RecordedCall {
  std::uint64_t number = 0;  ///< among the rank's, from 1
  EntryState state = EntryState::kStarted;
  std::uint64_t times = 1;
  ErrorCode code = ErrorCode::kOk;  ///< of a failure
  Rank failed_rank = -1;            ///< a member
  std::uint32_t communicator = 0;
  bool is_asynchronous = false;      ///< a Request waits for it, or nobody does
  bool is_numbered = true;           ///< else nobody can tell which call of the peers it is
  std::uint64_t first_sequence = 0;  ///< 0 for messages
  CallRecord record;
  Rank peer = -1;  ///< the other rank of a message: a member; -1: any
  std::uint32_t tag = 0;
  std::int64_t started_ns = 0;  ///< CLOCK_REALTIME of its host, as below
  std::int64_t ended_ns = 0;    ///< about; 0: not known

  bool is_message() const;
  std::uint64_t sequence() const { return first_sequence + times - 1; }
  /// When it was started, or else completed or failed; 0: not known. Of one that was made several
  /// times the last end may be later.
  std::int64_t since_ns() const;
  /// "all_reduce(count 4, float32, sum) (operation 7)", "send(count 4, uint8) to rank 1 of
  /// communicator 5 with tag 0"; nothing is said of the world.
  std::string text() const;
};

struct RecordedCommunicator {
  std::uint32_t id = 0;
  int size = 0;
  Rank member = 0;  ///< the rank's place in it
  bool is_open = false;
  std::uint64_t begun = 0;  ///< collectives
};

struct RankRecord {
  std::string name;  ///< of the file, for people
  std::string job;
  Rank rank = 0;
  int world_size = 1;
  int pid = 0;
  std::uint64_t process_start = 0;
  std::uint64_t pid_namespace = 0;
  std::string host;
  std::string boot;            ///< of the host, which its clocks and pids are of
  std::int64_t booted_ns = 0;  ///< about when that was; 0: not known
  std::int64_t opened_ns = 0;
  std::int64_t closed_ns = 0;  ///< 0: it has not left its job
  std::vector<RecordedCommunicator> communicators;
  std::vector<RecordedCall> calls;  ///< by number
  std::uint64_t last = 0;           ///< as Header::last
  int damaged = 0;                  ///< rows that made no sense

  const RecordedCommunicator* find(std::uint32_t communicator) const;
  /// The one that was made last, of those that are read, but for messages that repeated earlier
  /// ones and were over at once; null: there is none.
  const RecordedCall* last_call() const;
  /// The host was booted again between the two.
  bool is_of_earlier_boot_than(const RankRecord& other) const {
    return host == other.host && boot != other.boot && opened_ns < other.booted_ns;
  }
};

/// `first` and `second` were read one after the other: what was replaced meanwhile is left out.
/// kInvalidArgument says what is wrong with `name`; kNotMember: no rank has joined a job with it.
Result<RankRecord> parse_record(std::span<const std::byte> first, std::span<const std::byte> second,
                                const std::string& name);
/// The same from an open file. kSystem where it cannot be read.
Result<RankRecord> read_record(int fd, const std::string& name);
/// Whose it is alone, without communicators and calls. Errors as above.
Result<RankRecord> read_header(int fd, const std::string& name);
/// Reads anew what has become of the calls that ran, what the rank has begun and whether it has
/// left. All records of a job that goes on have to be read once before: calls that run all the time
/// are waited in, and whoever has not begun one at the end is missing. Nothing changes where the
/// record cannot be read or is another process' now.
void update_record(int fd, RankRecord* record);

/// `text` as it may go to a terminal.
std::string printable(std::string text);

}  // namespace unisono::recorder
