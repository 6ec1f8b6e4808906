#include "recorder/record_reader.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/collective.h"
#include "base/communicator_id.h"
#include "base/errno_text.h"
#include "base/limits.h"

namespace unisono::recorder {
namespace {

constexpr std::uint8_t kLastCode = kErrorCodeCount - 1;

template <typename T>
T read_at(std::span<const std::byte> bytes, std::size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

std::string text_of(const char (&field)[kTextBytes]) {
  return printable(std::string(field, ::strnlen(field, kTextBytes)));
}

// A time of CLOCK_MONOTONIC as one of CLOCK_REALTIME, so that differences of any two have room; 0
// where it cannot be one.
std::int64_t realtime(const Header& header, std::int64_t monotonic_ns) {
  if (monotonic_ns == 0) return 0;
  const std::uint64_t time = static_cast<std::uint64_t>(header.realtime_ns) +
                             static_cast<std::uint64_t>(monotonic_ns) -
                             static_cast<std::uint64_t>(header.monotonic_ns);
  return time < std::uint64_t{1} << 62 ? static_cast<std::int64_t>(time) : 0;
}

Status check_header(const Header& header) {
  const auto refuse = [](const std::string& why) {
    return Status(ErrorCode::kInvalidArgument, why);
  };
  if (header.magic == 0) {
    return Status(ErrorCode::kNotMember, "no rank has joined a job with it");
  }
  if (header.magic != kMagic) return refuse("it is no record of a rank");
  if (header.version != kVersion) {
    return refuse("it is a record of version " + std::to_string(header.version) +
                  ", and this command reads version " + std::to_string(kVersion) +
                  ": use the unisono that the job ran with");
  }
  if (header.entries != kEntries || header.communicators != kCommunicators) {
    return refuse("its size is not that of version " + std::to_string(kVersion));
  }
  if (header.world_size < 1 || header.world_size > kWorldSizeMax || header.rank < 0 ||
      header.rank >= header.world_size) {
    return refuse("it is of rank " + std::to_string(header.rank) + " of " +
                  std::to_string(header.world_size) + ", which cannot be");
  }
  return Status();
}

bool is_possible(const CommunicatorRow& row) {
  return row.size >= 1 && row.size <= kWorldSizeMax && row.member >= 0 &&
         static_cast<std::uint32_t>(row.member) < row.size &&
         row.state <= static_cast<std::uint32_t>(CommunicatorState::kClosed);
}

bool is_possible(const Entry& entry, const Progress& progress) {
  return progress.times > 0 && progress.code <= kLastCode && progress.failed_rank < kWorldSizeMax &&
         progress.state >= EntryState::kStarted && progress.state <= EntryState::kFailedAlone &&
         entry.peer >= -1 && entry.peer < kWorldSizeMax;
}

RecordedCall call_of(const Header& header, const Entry& entry, const Progress& progress) {
  RecordedCall call{.number = entry.number,
                    .state = progress.state,
                    .times = progress.times,
                    .code = static_cast<ErrorCode>(progress.code),
                    .failed_rank = progress.failed_rank,
                    .communicator = entry.communicator,
                    .is_asynchronous = (entry.flags & kAsynchronous) != 0,
                    .is_numbered = (entry.flags & kUnnumbered) == 0,
                    .first_sequence = entry.sequence,
                    .record = {},
                    .peer = entry.peer,
                    .tag = entry.tag,
                    .started_ns = realtime(header, entry.started_ns),
                    .ended_ns = realtime(header, entry.ended_ns)};
  call.record.collective = entry.collective;
  call.record.type = entry.type;
  call.record.op = entry.op;
  call.record.count = entry.count;
  call.record.root = call.is_message() ? -1 : entry.peer;
  if (!call.is_message()) call.peer = -1;
  return call;
}

void read_communicators(std::span<const std::byte> first, std::span<const std::byte> second,
                        RankRecord* record) {
  for (std::size_t i = 0; i < kCommunicators; ++i) {
    const std::size_t at = kCommunicatorsAt + i * sizeof(CommunicatorRow);
    const auto before = read_at<CommunicatorRow>(first, at);
    const auto row = read_at<CommunicatorRow>(second, at);
    const auto none = static_cast<std::uint32_t>(CommunicatorState::kNone);
    if (before.state == none || row.state == none || before.id != row.id) continue;
    if (!is_possible(row)) {
      ++record->damaged;
      continue;
    }
    record->communicators.push_back(
        {row.id, static_cast<int>(row.size), row.member,
         row.state == static_cast<std::uint32_t>(CommunicatorState::kOpen), row.begun});
  }
}

// The words that are constant while an entry has its number come from `first`, the one that changes
// too: what it is now would tell of calls that had not begun when other records were read.
void read_calls(const Header& header, std::span<const std::byte> first,
                std::span<const std::byte> second, RankRecord* record) {
  for (std::size_t i = 0; i < kEntries; ++i) {
    const std::size_t at = kEntriesAt + i * sizeof(Entry);
    const auto entry = read_at<Entry>(first, at);
    if (entry.number == 0 || entry.number != read_at<Entry>(second, at).number) continue;
    const Progress progress = Progress::of(entry.progress);
    if (entry.number % kEntries != i || !is_possible(entry, progress)) {
      ++record->damaged;
      continue;
    }
    record->calls.push_back(call_of(header, entry, progress));
  }
  std::sort(record->calls.begin(), record->calls.end(),
            [](const RecordedCall& a, const RecordedCall& b) { return a.number < b.number; });
}

// Null where it is not among them.
const RecordedCall* find_call(const std::vector<RecordedCall>& calls, std::uint64_t number) {
  const auto found = std::lower_bound(
      calls.begin(), calls.end(), number,
      [](const RecordedCall& each, std::uint64_t its_number) { return each.number < its_number; });
  return found != calls.end() && found->number == number ? &*found : nullptr;
}

RankRecord record_of(const Header& header, const std::string& name) {
  return {.name = name,
          .job = text_of(header.job),
          .rank = header.rank,
          .world_size = header.world_size,
          .pid = header.pid,
          .process_start = header.process_start,
          .pid_namespace = header.pid_namespace,
          .host = text_of(header.host),
          .boot = text_of(header.boot),
          .booted_ns = realtime(header, 1),
          .opened_ns = realtime(header, header.monotonic_ns),
          .closed_ns = realtime(header, header.closed_ns),
          .communicators = {},
          .calls = {},
          .last = header.last};
}

Status too_short(const std::string& name, std::size_t bytes) {
  return Status(ErrorCode::kInvalidArgument, name + ": it has " + std::to_string(bytes) +
                                                 " bytes, and a record has " +
                                                 std::to_string(kRecordBytes));
}

// As many bytes as there are, up to `size`.
Status read_all(int fd, std::size_t size, std::vector<std::byte>* bytes) {
  bytes->resize(size);
  std::size_t done = 0;
  while (done < bytes->size()) {
    const ssize_t read =
        ::pread(fd, bytes->data() + done, bytes->size() - done, static_cast<off_t>(done));
    if (read < 0 && errno == EINTR) continue;
    if (read < 0) return Status(ErrorCode::kSystem, errno_text(errno));
    if (read == 0) break;
    done += static_cast<std::size_t>(read);
  }
  bytes->resize(done);
  return Status();
}

}  // namespace

bool RecordedCall::is_message() const {
  return is_point_to_point(static_cast<Collective>(record.collective));
}

std::int64_t RecordedCall::since_ns() const {
  return state == EntryState::kStarted && times == 1 ? started_ns : ended_ns;
}

std::string RecordedCall::text() const {
  const std::string where = of_communicator(communicator);
  if (!is_message()) {
    const bool has_foreign_root = record.root >= 0 && communicator != kWorldId;
    return (is_numbered ? describe(record, sequence()) : describe(record)) + where +
           (has_foreign_root ? " (the root as it numbers ranks)" : "");
  }
  const bool sends = record.collective == static_cast<std::uint8_t>(Collective::kSend);
  return describe(record) + (sends ? " to " : " from ") +
         (peer < 0 ? "any rank" : "rank " + std::to_string(peer)) + where + " with tag " +
         std::to_string(tag);
}

const RecordedCommunicator* RankRecord::find(std::uint32_t communicator) const {
  const auto found =
      std::find_if(communicators.begin(), communicators.end(),
                   [&](const RecordedCommunicator& each) { return each.id == communicator; });
  return found == communicators.end() ? nullptr : &*found;
}

const RecordedCall* RankRecord::last_call() const {
  if (calls.empty()) return nullptr;
  const RecordedCall* const found = find_call(calls, last);
  return found != nullptr ? found : &calls.back();
}

Result<RankRecord> parse_record(std::span<const std::byte> first, std::span<const std::byte> second,
                                const std::string& name) {
  if (first.size() < kRecordBytes || second.size() < kRecordBytes) {
    return too_short(name, std::min(first.size(), second.size()));
  }
  const auto header = read_at<Header>(second, 0);
  if (const Status checked = check_header(header); !checked.ok()) {
    return Status(checked.code(), name + ": " + checked.message());
  }
  RankRecord record = record_of(header, name);
  record.last = read_at<Header>(first, 0).last;
  read_communicators(first, second, &record);
  read_calls(header, first, second, &record);
  return record;
}

Result<RankRecord> read_record(int fd, const std::string& name) {
  std::vector<std::byte> first, second;
  Status read = read_all(fd, kRecordBytes, &first);
  if (read.ok()) read = read_all(fd, kRecordBytes, &second);
  if (!read.ok()) return Status(read.code(), name + ": cannot be read: " + read.message());
  return parse_record(first, second, name);
}

Result<RankRecord> read_header(int fd, const std::string& name) {
  std::vector<std::byte> bytes;
  const Status read = read_all(fd, sizeof(Header), &bytes);
  if (!read.ok()) return Status(read.code(), name + ": cannot be read: " + read.message());
  const off_t size = ::lseek(fd, 0, SEEK_END);
  if (bytes.size() < sizeof(Header) || size < static_cast<off_t>(kRecordBytes)) {
    return too_short(name, static_cast<std::size_t>(std::max<off_t>(size, 0)));
  }
  const auto header = read_at<Header>(bytes, 0);
  const Status checked = check_header(header);
  if (!checked.ok()) return Status(checked.code(), name + ": " + checked.message());
  return record_of(header, name);
}

void update_record(int fd, RankRecord* record) {
  Result<RankRecord> now = read_record(fd, record->name);
  if (!now || now->pid != record->pid || now->process_start != record->process_start ||
      now->opened_ns != record->opened_ns) {
    return;
  }
  record->closed_ns = now->closed_ns;
  record->communicators = std::move(now->communicators);
  // A later call than the first reading knows is not among those.
  if (find_call(record->calls, now->last) != nullptr) record->last = now->last;
  for (RecordedCall& call : record->calls) {
    if (call.state != EntryState::kStarted) continue;
    const RecordedCall* const same = find_call(now->calls, call.number);
    const bool is_same = same != nullptr && same->times == call.times;
    if (is_same) call = *same;
    if (!is_same) call.state = EntryState::kCompleted;
  }
}

std::string printable(std::string text) {
  for (char& c : text) {
    if (c < ' ' || c > '~') c = '?';
  }
  return text;
}

}  // namespace unisono::recorder
