// See incoming.h.
#include "transports/verbs/incoming.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/direct_memory.h"
#include "transports/checksum.h"

namespace unisono::verbs {
namespace {

bool overlap(const std::byte* a, std::size_t a_bytes, const std::byte* b, std::size_t b_bytes) {
  return a < b + b_bytes && b < a + a_bytes;
}

// What is wrong, and which port of this rank it came over.
Status came_over(const QueuePair& way, const Status& wrong) {
  return {wrong.code(), wrong.message() + "; it came over " + way.rail().name(), wrong.rank()};
}

}  // namespace

Incoming::~Incoming() { drop(); }

void Incoming::drop() {
  for (std::size_t i = 0; i < pulls_.size(); ++i) release(&pulls_[i]);
  pulls_.clear();
  ring_.restart();
}

void Incoming::release(Pull* pull) {
  if (pull->held != nullptr) shared_.cache.release(pull->held);
  if (pull->slot != nullptr) shared_.staging.give_back(pull->slot);
  pull->held = nullptr;
  pull->slot = nullptr;
}

// Pieces of granted messages may overtake one another; everything else waits its turn.
bool Incoming::may_begin(const FrameHeader& header) const {
  if (pulls_.empty()) return true;
  return header.kind == FrameKind::kData && pulls_[0].header.kind == FrameKind::kData;
}

Result<bool> Incoming::progress(QueuePairs& queue_pairs, FrameSink& sink) {
  UNISONO_ASSIGN(bool moved, finish_pulls(sink));
  const Result<bool> taken = take_records(sink);
  if (!taken && !queue_pairs.is_open()) return taken.error();
  if (!taken) return came_over(queue_pairs.control(), taken.error());
  moved |= *taken;
  if (queue_pairs.is_connected()) moved |= stage_reads(queue_pairs);
  return moved;
}

Result<bool> Incoming::take_records(FrameSink& sink) {
  bool moved = false;
  ReceiveRing::Record record;
  while (true) {
    UNISONO_ASSIGN(const bool there, ring_.peek(&record));
    if (!there || !may_begin(record.header)) break;
    if (record.kind == RecordKind::kWhole) {
      UNISONO_TRY(take_whole(record, sink));
    } else if (!begin_pull(record, sink)) {
      break;
    }
    moved = true;
  }
  return moved;
}

Status Incoming::check_payload(const FrameHeader& header, const std::byte* payload,
                               std::uint64_t sent) const {
  const std::uint64_t found = sum_of_payload({payload, header.payload_bytes});
  return found == sent ? Status() : payload_changed(peer_, header, found, sent);
}

Status Incoming::take_whole(const ReceiveRing::Record& record, FrameSink& sink) {
  if (shared_.options.checksum) {
    UNISONO_TRY(check_payload(record.header, record.payload.data(), record.payload_sum));
  }
  const Placement placement = sink.place(peer_, record.header);
  if (placement.kind == Placement::Kind::kDeliver && !record.payload.empty()) {
    sink.deliver(peer_, record.header, 0, record.payload);
  } else if (placement.kind == Placement::Kind::kInto && !record.payload.empty()) {
    copy_bytes(placement.target, record.payload.data(), record.payload.size());
  }
  // The ring's place is free before the sink may send, and with it the word that it is.
  ring_.pop();
  sink.received(peer_, record.header);
  return {};
}

// False: no memory for it now.
bool Incoming::begin_pull(const ReceiveRing::Record& record, FrameSink& sink) {
  // Whether it will need a slot only the sink knows, and asking it cannot be taken back.
  if (pulls_.full() || !shared_.staging.has_free()) return false;
  Pull& pull = pulls_.push_back({});
  pull.header = record.header;
  pull.source = record.source;
  pull.payload_sum = record.payload_sum;
  ring_.pop();
  pull.placement = sink.place(peer_, pull.header);
  choose_memory(&pull);
  return true;
}

// Into the target where that can be registered, else into a slot, taken when the read is staged.
void Incoming::choose_memory(Pull* pull) {
  pull->needs_reading =
      pull->placement.kind != Placement::Kind::kDiscard && pull->header.payload_bytes > 0;
  if (!pull->needs_reading) return;
  if (pull->placement.kind == Placement::Kind::kInto) {
    const std::byte* target = pull->placement.target;
    const std::span piece(target, pull->header.payload_bytes);
    Result<Registration*> held = shared_.cache.acquire(piece, message_around(pull->header, piece));
    if (held && (*held)->writable()) {
      pull->held = *held;
      return;
    }
    if (held) shared_.cache.release(*held);
    shared_.counts.staged_bytes += pull->header.payload_bytes;
  }
}

bool Incoming::stage_reads(QueuePairs& queue_pairs) {
  bool staged = false;
  for (std::size_t i = 0; i < pulls_.size(); ++i) {
    Pull& pull = pulls_[i];
    if (!pull.needs_reading || pull.staged == pull.header.payload_bytes) continue;
    if (pull.held == nullptr && pull.slot == nullptr) pull.slot = shared_.staging.take();
    if (pull.held == nullptr && pull.slot == nullptr) break;
    if (pull.reader == nullptr) pull.reader = queue_pairs.next_with_room();
    if (pull.reader == nullptr) break;
    staged |= stage_read(&pull);
  }
  return staged;
}

// Reads as much of it as its queue pair has room for.
bool Incoming::stage_read(Pull* pull) {
  QueuePair& reader = *pull->reader;
  const std::size_t bytes =
      std::min(pull->header.payload_bytes - pull->staged, reader.transfer_bytes_max());
  if (bytes == 0) return false;
  const Registration& memory = pull->held != nullptr ? *pull->held : shared_.staging.registration();
  const std::byte* target = pull->held != nullptr ? pull->placement.target : pull->slot;
  pull->read_id = reader.stage_read(
      {target + pull->staged, bytes, memory.lkey(reader.rail_index())},
      {pull->source.address + pull->staged, pull->source.keys[reader.peer_rail()]});
  pull->staged += bytes;
  return true;
}

Result<bool> Incoming::finish_pulls(FrameSink& sink) {
  bool finished = false;
  while (!pulls_.empty()) {
    Pull& first = pulls_.front();
    const bool is_read = first.staged == first.header.payload_bytes && first.reader != nullptr &&
                         first.reader->is_done(first.read_id);
    if (first.needs_reading && !is_read) break;
    if (first.needs_reading && shared_.options.checksum) {
      const std::byte* landed = first.slot != nullptr ? first.slot : first.placement.target;
      const Status sound = check_payload(first.header, landed, first.payload_sum);
      if (!sound) return came_over(*first.reader, sound);
    }
    Pull pull = first;
    const std::size_t bytes = pull.header.payload_bytes;
    const bool wanted = pull.needs_reading;
    if (wanted && pull.placement.kind == Placement::Kind::kDeliver) {
      sink.deliver(peer_, pull.header, 0, {pull.slot, bytes});
    } else if (wanted && pull.placement.kind == Placement::Kind::kInto && pull.slot != nullptr) {
      copy_bytes(pull.placement.target, pull.slot, bytes);
    }
    release(&pull);
    pulls_.pop_front();
    ++read_;
    finished = true;
    sink.received(peer_, pull.header);
    // The next reads go out, and the sender hears of this one, before the next sum is made.
    if (shared_.options.checksum) break;
  }
  return finished;
}

bool Incoming::is_being_read(const std::byte* begin, std::size_t bytes) const {
  for (std::size_t i = 0; i < pulls_.size(); ++i) {
    const Pull& pull = pulls_[i];
    if (pull.held != nullptr && pull.reader != nullptr &&
        overlap(pull.placement.target, pull.header.payload_bytes, begin, bytes)) {
      return true;
    }
  }
  return false;
}

void Incoming::abandon(const std::byte* begin, std::size_t bytes) {
  for (std::size_t i = 0; i < pulls_.size(); ++i) {
    Pull& pull = pulls_[i];
    if (pull.placement.kind != Placement::Kind::kInto ||
        !overlap(pull.placement.target, pull.header.payload_bytes, begin, bytes)) {
      continue;
    }
    // What is being read into staging comes to its end there; it is only not copied any more.
    pull.placement = {};
    if (pull.held == nullptr && pull.reader != nullptr) continue;
    pull.needs_reading = false;
    release(&pull);
  }
}

void Incoming::forget_readers() {
  for (std::size_t i = 0; i < pulls_.size(); ++i) {
    pulls_[i].reader = nullptr;
    pulls_[i].staged = 0;
    // Other links may have use for it until this one stands again.
    if (pulls_[i].slot != nullptr) {
      shared_.staging.give_back(std::exchange(pulls_[i].slot, nullptr));
    }
  }
}

void Incoming::restart() {
  forget_readers();
  ring_.restart();
  pieces_.clear();
  // The hello that follows tells it.
  consumed_told_ = ring_.consumed();
  read_told_ = read_;
  pieces_untold_ = 0;
}

Status Incoming::written(std::uint32_t value) {
  if (pieces_.full()) {
    return Status(ErrorCode::kProtocol, "it wrote more pieces than it was granted");
  }
  UNISONO_TRY(ring_.written(value));
  pieces_.push_back(ring_.written());
  return Status();
}

Status Incoming::resume(const Hello& hello) {
  if (hello.sources.size() > hello.lent) {
    return Status(ErrorCode::kProtocol, "its hello names payloads that it has not lent");
  }
  const std::uint64_t first_known = hello.lent - hello.sources.size();
  if (hello.lent < read_ + pulls_.size() || (!pulls_.empty() && first_known > read_)) {
    return Status(ErrorCode::kProtocol, "its hello leaves out payloads that it has lent");
  }
  for (std::size_t i = 0; i < pulls_.size(); ++i) {
    pulls_[i].source = hello.sources[read_ + i - first_known];
  }
  return Status();
}

void Incoming::stage_acknowledgements(QueuePair& control) {
  if (read_told_ != read_ && control.room() > 0) {
    control.stage_immediate(encode(ImmediateKind::kRead, read_));
    read_told_ = read_;
  }
  for (; !pieces_.empty() && pieces_.front() <= ring_.consumed(); ++pieces_untold_) {
    pieces_.pop_front();
  }
  const bool due = ring_.consumed() - consumed_told_ >= untold_bytes_max(ring_.memory().size()) ||
                   pieces_untold_ >= std::max(1, shared_.immediates / 4);
  if (due && control.room() > 0) {
    control.stage_immediate(encode(ImmediateKind::kConsumed, ring_.consumed() / kLine));
    consumed_told_ = ring_.consumed();
    pieces_untold_ = 0;
  }
}

}  // namespace unisono::verbs
