#include "recorder/recorder.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <span>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "base/collective.h"
#include "base/errno_text.h"
#include "base/log.h"
#include "base/process_facts.h"
#include "base/write_all.h"
#include "recorder/record_reader.h"
#include "recorder/trace.h"

namespace unisono::recorder {
namespace {

// Calls of as many bytes take thousands of times what the clock does.
constexpr std::uint64_t kLongBytes = std::uint64_t{64} << 10;

template <typename AnyClock>
std::int64_t nanoseconds_now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(AnyClock::now().time_since_epoch())
      .count();
}
std::int64_t now() { return nanoseconds_now<Clock>(); }

void store_time(std::int64_t& word, std::int64_t value) {
  std::atomic_ref(word).store(value, std::memory_order_release);
}

template <std::size_t kBytes>
void copy_text(std::string_view text, char (&out)[kBytes]) {
  std::copy_n(text.data(), std::min(text.size(), kBytes - 1), out);
}

// What names a file must be no path.
std::string file_name(const RankIdentity& identity, const char* suffix) {
  std::string name = identity.job.substr(0, kTextBytes - 1);
  for (char& c : name) {
    const bool is_plain =
        (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-';
    if (!is_plain) c = '_';
  }
  return name + "-" + std::to_string(identity.rank) + suffix;
}

std::uint64_t bytes_of(const CallRecord& record) {
  const bool has_type = record.type < kDataTypeCount;
  return has_type ? record.count * size_of(static_cast<DataType>(record.type)) : 0;
}

bool is_message(const CallRecord& record) {
  return is_point_to_point(static_cast<Collective>(record.collective));
}

std::uint8_t flags_of(const Operation& operation) {
  return static_cast<std::uint8_t>((operation.is_numbered ? 0 : kUnnumbered) |
                                   (operation.is_asynchronous ? kAsynchronous : 0));
}

}  // namespace

Result<std::unique_ptr<Recorder>> Recorder::open(const RecordPlace& place,
                                                 const RankIdentity& identity) {
  const bool is_traced = !place.trace_folder.empty();
  if (place.setting.is_off && is_traced) {
    return Status(ErrorCode::kInvalidArgument,
                  "UNISONO_TRACE=" + place.trace_folder +
                      ": a trace is made of the record, and UNISONO_RECORDER is off");
  }
  if (place.setting.is_off) return std::make_unique<Recorder>(nullptr, identity);
  // The trace comes first: memory that was claimed and not used would look like a rank that never
  // joined.
  const std::string trace_name = file_name(identity, ".json");
  UniqueFd trace;
  if (is_traced) {
    UNISONO_ASSIGN(trace, create_rank_file("UNISONO_TRACE", place.trace_folder, trace_name));
    // What a rank that is killed leaves. Where there is no room, close() tells.
    write_all(trace.get(), trace_of({}));
  }
  const std::string trace_path = place.trace_folder + "/" + trace_name;
  Result<RecordMemory> memory = RecordMemory::make(place, file_name(identity, kFileSuffix));
  if (!memory) {
    if (is_traced) ::unlink(trace_path.c_str());
    return memory.error();
  }
  auto recorder = std::make_unique<Recorder>(memory->data(), identity);
  recorder->own_.emplace(std::move(*memory));
  recorder->trace_ = std::move(trace);
  recorder->trace_path_ = trace_path;
  return recorder;
}

Recorder::Recorder(std::byte* memory, const RankIdentity& identity) : memory_(memory) {
  if (!is_on()) return;
  Header& header = this->header();
  header.version = kVersion;
  header.entries = kEntries;
  header.communicators = kCommunicators;
  header.rank = identity.rank;
  header.world_size = identity.world_size;
  header.pid = ::getpid();
  header.process_start = facts_of_process(header.pid).start;
  header.pid_namespace = pid_namespace();
  header.realtime_ns = nanoseconds_now<std::chrono::system_clock>();
  header.monotonic_ns = now();
  copy_text(identity.job, header.job);
  copy_text(identity.host, header.host);
  copy_text(identity.boot, header.boot);
  std::atomic_ref(header.magic).store(kMagic, std::memory_order_release);
}

void Recorder::close() {
  if (!is_on() || std::exchange(is_closed_, true)) return;
  store_time(header().closed_ns, now());
  if (trace_) {
    const Status written = write_trace();
    if (!written.ok()) {
      log::warning("rank " + std::to_string(header().rank) + ": " + trace_path_ +
                   " (UNISONO_TRACE) is not whole: " + written.message() +
                   "; of a record in a directory (UNISONO_RECORDER=DIR) `unisono blame DIR "
                   "--trace FILE` makes one");
    }
    trace_.reset();
  }
  // From here on the memory may be another rank's.
  std::atomic_ref(header().claim).store(0, std::memory_order_release);
}

Status Recorder::write_trace() const {
  const std::span record(memory_, kRecordBytes);
  UNISONO_ASSIGN(const RankRecord read, parse_record(record, record, "the record"));
  // The trace takes the place of the empty one, which is shorter.
  const bool is_at_begin = ::lseek(trace_.get(), 0, SEEK_SET) == 0;
  const int error = is_at_begin ? write_all(trace_.get(), trace_of({&read, 1})) : errno;
  return error == 0 ? Status() : Status(ErrorCode::kSystem, errno_text(error));
}

CommunicatorRow* Recorder::take_row() {
  auto* const rows = reinterpret_cast<CommunicatorRow*>(memory_ + kCommunicatorsAt);
  for (std::size_t i = 0; i < kCommunicators; ++i) {
    const std::size_t at = (next_row_ + i) % kCommunicators;
    if (rows[at].state == static_cast<std::uint32_t>(CommunicatorState::kOpen)) continue;
    next_row_ = at + 1;
    return &rows[at];
  }
  return nullptr;
}

CallRecorder::CallRecorder(Recorder* recorder, std::uint32_t id)
    : recorder_(recorder != nullptr && recorder->is_on() ? recorder : nullptr),
      id_(id),
      row_(&own_row_) {}

void CallRecorder::open(int size, int member) {
  if (recorder_ == nullptr) return;
  CommunicatorRow* const row = recorder_->take_row();
  if (row == nullptr) return;
  row_ = row;
  const std::atomic_ref state(row->state);
  state.store(static_cast<std::uint32_t>(CommunicatorState::kNone), std::memory_order_release);
  std::atomic_ref(row->id).store(id_, std::memory_order_release);
  std::atomic_ref(row->size).store(static_cast<std::uint32_t>(size), std::memory_order_release);
  std::atomic_ref(row->member).store(member, std::memory_order_release);
  store(row->begun, 0);
  state.store(static_cast<std::uint32_t>(CommunicatorState::kOpen), std::memory_order_release);
}

void CallRecorder::close() {
  std::atomic_ref(row_->state)
      .store(static_cast<std::uint32_t>(CommunicatorState::kClosed), std::memory_order_release);
  // The row may be another communicator's from now on.
  row_ = &own_row_;
}

std::uint64_t CallRecorder::write(const Operation& operation) {
  const CallRecord& record = operation.record;
  const std::uint64_t number = recorder_->latest_ + 1;
  Entry& entry = *recorder_->entry(number);
  // Each field by itself: a copy of what was just put together in parts would wait for them.
  const auto put = [](auto& field, auto value) {
    std::atomic_ref(field).store(value, std::memory_order_release);
  };
  put(entry.number, 0u);
  put(entry.progress, Progress{.state = EntryState::kStarted, .times = 1}.word());
  put(entry.sequence, operation.sequence);
  put(entry.count, record.count);
  put(entry.communicator, id_);
  put(entry.collective, record.collective);
  put(entry.type, record.type);
  put(entry.op, record.op);
  put(entry.flags, flags_of(operation));
  put(entry.peer, operation.peer);
  put(entry.tag, operation.tag);
  put(entry.started_ns, now());
  put(entry.ended_ns, 0);
  put(entry.number, number);
  recorder_->latest_ = number;
  recorder_->note_last(number);
  if (operation.is_numbered && !is_message(record)) store(row_->begun, operation.sequence + 1);
  return number;
}

std::uint64_t CallRecorder::begin(const Operation& operation) {
  if (recorder_ == nullptr) return 0;
  if (!is_message(operation.record)) collectives_.number = 0;
  return write(operation);
}

void CallRecorder::end(std::uint64_t entry, const Status& outcome, bool concerns_it_alone) {
  if (entry == 0 || recorder_ == nullptr || !recorder_->holds(entry)) return;
  Progress progress{.state = EntryState::kCompleted, .times = 1};
  // Calls that end because their communicator was closed have nothing to blame anybody for.
  if (!outcome.ok() && outcome.code() != ErrorCode::kClosed) {
    progress.state = concerns_it_alone ? EntryState::kFailedAlone : EntryState::kFailed;
    progress.code = static_cast<std::uint8_t>(outcome.code());
    progress.failed_rank = concerns_it_alone ? -1 : outcome.rank();
    // Whoever goes on shows it by new entries.
    recorder_->failed_ = recorder_->latest_;
    recorder_->last_ = 0;
  }
  Entry& ended = *recorder_->entry(entry);
  store_time(ended.ended_ns, now());
  store(ended.progress, progress.word());
}

void CallRecorder::open_quick(Shared& shared, const Operation& operation) {
  if (recorder_ == nullptr) return;
  shared.number = write(operation);
  shared.entry = recorder_->entry(shared.number);
  shared.times = Progress::kOnce;
  shared.record = operation.record;
  shared.peer = operation.peer;
  shared.tag = operation.tag;
  shared.is_long = bytes_of(operation.record) >= kLongBytes;
}

void CallRecorder::note_time(const Shared& shared) { store_time(shared.entry->ended_ns, now()); }

void CallRecorder::end_quick(const Status& failure) { end(leave_quick(), failure); }

std::uint64_t CallRecorder::leave_quick() {
  Shared& shared = collectives_;
  const std::uint64_t number = std::exchange(shared.number, 0);
  if (number == 0 || shared.times == Progress::kOnce) return number;
  shared.times -= Progress::kOnce;
  if (recorder_->holds(number)) {
    store(shared.entry->progress, shared.times | kCompleted);
    note_time(shared);
  }
  return write({shared.record, row_->begun - 1, shared.peer});
}

}  // namespace unisono::recorder
