// The flight recorder: an always-on record of a rank's last operations, in memory that outlives the
// process. It costs a few stores a call: no lock, no system call, no allocation, and the clock is
// read only by calls that take long or differ from the one before.
//
// Calls that are over at once share an entry while they repeat each other (begin_quick()); every
// other call has one of its own (begin()). Whoever reads finds both by the state: a call is
// marked as started before it waits.
//
// Thread rule: the engine's lock. A forked child must leave its parent's recorder alone, as all of
// its parent's job.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>

#include "base/call_record.h"
#include "base/result.h"
#include "recorder/record_format.h"
#include "recorder/record_memory.h"

namespace unisono::recorder {

/// Whose record it is.
struct RankIdentity {
  std::string job;  ///< what tells the jobs of a folder apart
  int rank = 0;
  int world_size = 1;
  std::string host;
  std::string boot;  ///< what tells the boots of the host apart
};

/// The record of one rank.
class Recorder {
 public:
  /// Errors as RecordMemory::make(), and kInvalidArgument where a trace is wanted of one that is
  /// off.
  static Result<std::unique_ptr<Recorder>> open(const RecordPlace& place,
                                                const RankIdentity& identity);
  /// Over kRecordBytes of zeros that outlive it; null: it is off.
  Recorder(std::byte* memory, const RankIdentity& identity);
  Recorder(const Recorder&) = delete;
  ~Recorder() { close(); }

  bool is_on() const { return memory_ != nullptr; }
  /// The rank has left its job; the record stays, and its trace is written where one is wanted, of
  /// which a warning tells if it fails. Idempotent.
  void close();

 private:
  friend class CallRecorder;
  Header& header() const { return *reinterpret_cast<Header*>(memory_); }
  Entry* entry(std::uint64_t number) const {
    return reinterpret_cast<Entry*>(memory_ + kEntriesAt) + number % kEntries;
  }
  /// False once its place in the ring is another's.
  bool holds(std::uint64_t number) const { return latest_ - number < kEntries; }
  void note_last(std::uint64_t number) {
    last_ = number;
    std::atomic_ref(header().last).store(number, std::memory_order_release);
  }
  /// Null where all are of open communicators.
  CommunicatorRow* take_row();
  Status write_trace() const;

  std::optional<RecordMemory> own_;
  std::byte* memory_;
  std::uint64_t latest_ = 0;  // number of the newest entry
  std::uint64_t last_ = 0;    // as Header::last; 0: a call has failed since
  std::uint64_t failed_ =
      0;  // number of the newest entry when a call failed: none until then is shared
  std::size_t next_row_ = 0;
  bool is_closed_ = false;
  UniqueFd trace_;  // none: no trace is wanted
  std::string trace_path_;
};

/// One operation that waits, and what is told of it.
struct Operation {
  CallRecord record;
  std::uint64_t sequence = 0;  ///< 0 for messages
  int peer = -1;               ///< root, or the other rank of a message
  std::uint32_t tag = 0;
  bool is_numbered = true;  ///< a collective that has a number here, or a message
  bool is_asynchronous = false;
};

/// What one communicator records.
class CallRecorder {
 public:
  /// `recorder` may be null, and else outlives it.
  CallRecorder(Recorder* recorder, std::uint32_t id);
  CallRecorder(const CallRecorder&) = delete;
  ~CallRecorder() { close(); }
  /// Before its first call. `member`: this rank's place among `size`.
  void open(int size, int member);
  /// The communicator is closed on this rank.
  void close();

  /// Before a call waits; gives its entry's number, for end(). 0: nothing is recorded.
  std::uint64_t begin(const Operation& operation);
  /// `concerns_it_alone`: a failure that ends no more than the call.
  void end(std::uint64_t entry, const Status& outcome, bool concerns_it_alone = false);

  /// A blocking collective that is most often over soon: before it looks for its peers. end_quick()
  /// or leave_quick() follows.
  void begin_quick(const CallRecord& record, std::uint64_t sequence) {
    if ((!is_last(collectives_) && !resume(collectives_)) || sequence != row_->begun ||
        !collectives_.is(record, record.root, 0)) {
      return open_quick(collectives_, {record, sequence, record.root});
    }
    collectives_.times += Progress::kOnce;
    store(collectives_.entry->progress, collectives_.times | kStarted);
    store(row_->begun, sequence + 1);
  }
  void end_quick() { finish_quick(collectives_); }
  void end_quick(const Status& failure);
  /// It goes on: the number of its entry, one of its own from here on.
  std::uint64_t leave_quick();
  /// A send or receive that was over at once. Where it shares an entry, Header::last stays.
  void note_message(const CallRecord& record, int peer, std::uint32_t tag) {
    Shared& shared =
        record.collective == static_cast<std::uint8_t>(Collective::kSend) ? sends_ : receives_;
    if (is_shared(shared) && shared.is(record, peer, tag)) {
      shared.times += Progress::kOnce;
    } else {
      open_quick(shared, {record, 0, peer, tag});
    }
    finish_quick(shared);
  }

 private:
  static constexpr auto kStarted = static_cast<std::uint64_t>(EntryState::kStarted);
  static constexpr auto kCompleted = static_cast<std::uint64_t>(EntryState::kCompleted);
  static constexpr std::uint64_t kTimesMax = 0xffff'ffff * Progress::kOnce;
  /// Short calls read the clock at the end of every 64th.
  static constexpr std::uint64_t kClockMask = 63 * Progress::kOnce;

  /// An entry that calls share while they repeat each other.
  struct Shared {
    Entry* entry = nullptr;
    std::uint64_t number = 0;  ///< of the entry; 0: it is to be shared no more
    std::uint64_t times = 0;   ///< a Progress word without its state
    CallRecord record;
    int peer = -1;
    std::uint32_t tag = 0;
    bool is_long = false;  ///< the clock is nothing beside it

    /// What came before a call is not part of what it is.
    bool is(const CallRecord& other, int its_peer, std::uint32_t its_tag) const {
      return record.count == other.count && std::memcmp(&record, &other, kKindBytes) == 0 &&
             record.details == other.details && peer == its_peer && tag == its_tag;
    }
    static constexpr std::size_t kKindBytes = offsetof(CallRecord, count);
  };

  static void store(std::uint64_t& word, std::uint64_t value) {
    std::atomic_ref(word).store(value, std::memory_order_release);
  }
  /// Its next call may share it: none has failed meanwhile.
  bool is_shared(const Shared& shared) const {
    return shared.number != 0 && shared.number > recorder_->failed_ &&
           recorder_->holds(shared.number) && shared.times < kTimesMax;
  }
  bool is_last(const Shared& shared) const {
    return shared.number != 0 && shared.number == recorder_->last_ && shared.times < kTimesMax;
  }
  /// Other communicators have called meanwhile: it is the last one again.
  bool resume(const Shared& shared) {
    if (!is_shared(shared)) return false;
    recorder_->note_last(shared.number);
    return true;
  }
  void finish_quick(Shared& shared) {
    if (shared.number == 0 || !recorder_->holds(shared.number)) return;
    store(shared.entry->progress, shared.times | kCompleted);
    if (shared.is_long || (shared.times & kClockMask) == 0) note_time(shared);
  }
  std::uint64_t write(const Operation& operation);
  void open_quick(Shared& shared, const Operation& operation);
  static void note_time(const Shared& shared);

  Recorder* recorder_;  // null: off
  const std::uint32_t id_;
  CommunicatorRow* row_;
  CommunicatorRow own_row_;  // what stands in `row_`, or serves where there is none
  Shared collectives_, sends_, receives_;
};

}  // namespace unisono::recorder
