#include "native/small_call.h"

#include <cstring>

namespace unisono::native {
namespace {

template <typename Word>
void copy_overlapping(std::byte* out, const std::byte* in, std::size_t bytes) {
  Word first;
  Word last;
  std::memcpy(&first, in, sizeof first);
  std::memcpy(&last, in + bytes - sizeof last, sizeof last);
  std::memcpy(out, &first, sizeof first);
  std::memcpy(out + bytes - sizeof last, &last, sizeof last);
}

struct Words {
  std::uint64_t low, high;
};

// A few instructions for the sizes where a call of memcpy would show.
inline void copy_small(std::byte* out, const std::byte* in, std::size_t bytes) {
  if (bytes > shm::kInlineBytes) {
    std::memcpy(out, in, bytes);
  } else if (bytes >= sizeof(Words)) {
    copy_overlapping<Words>(out, in, bytes);
  } else if (bytes >= 8) {
    copy_overlapping<std::uint64_t>(out, in, bytes);
  } else if (bytes >= 4) {
    copy_overlapping<std::uint32_t>(out, in, bytes);
  } else {
    for (std::size_t i = 0; i < bytes; ++i) out[i] = in[i];
  }
}

}  // namespace

SmallCall::SmallCall(shm::SegmentGroup& group, SharedCells& cells, AccessTrials& trials)
    : cells_(cells),
      trials_(trials),
      rotation_(group),
      operands_(static_cast<std::size_t>(cells.size())) {}

void SmallCall::start(const Arguments& arguments, const Transfer& transfer) {
  transfer_ = transfer;
  record_ = arguments.record;
  reduction_ = arguments.reduction;
  element_bytes_ = size_of(arguments.call.type);
  waits_for_all_ = transfer.sources.first == 0 && transfer.sources.last == cells_.size();
  class_ = AccessTrials::class_of(arguments.call.collective, transfer.largest_input_bytes);
  may_rotate_ = cells_.size() == 2 && transfer.goes_one_way && !is_inline();
  choose_path(class_ == AccessTrials::kNone ? AccessPath::kMapped : arguments.access);
  if (arguments.access != AccessPath::kAutomatic) class_ = AccessTrials::kNone;
  begin();
}

void SmallCall::repeat(const void* input, void* output, const CallRecord& record) {
  transfer_.input = static_cast<const std::byte*>(input);
  transfer_.output = static_cast<std::byte*>(output);
  record_ = record;
  begin();
}

void SmallCall::begin() {
  next_ = transfer_.sources.first;
  tried_own_ = has_result_ = false;
  done_ = false;
  if (class_ != AccessTrials::kNone) try_path();
  if (may_rotate_) rotation_.next(transfer_.largest_input_bytes);
  write_cell();
}

void SmallCall::choose_path(AccessPath path) {
  streams_ = path == AccessPath::kStreamed;
  // A root that prepares what it gives itself does so in its cell: the place is the other one's.
  rotates_ = may_rotate_ && path == AccessPath::kWindow && rotation_.has_memory() &&
             transfer_.has_other_readers(cells_.self());
}

void SmallCall::try_path() {
  choose_path(trials_.next(class_, cells_.sequence()));
  is_trial_ = trials_.is_trial();
  if (is_trial_) began_ = Clock::now();
}

void SmallCall::write_cell() {
  shm::CellLine& line = cells_.own();
  line.record = record_;
  if (transfer_.input_bytes > 0) write_input(line);
  cells_.publish();
}

// What nobody else reads is not written, but where the own part is taken from the cell too. Long
// parts begin with the next member's, so that two members that take turns with their cells write
// where they have read.
void SmallCall::write_input(shm::CellLine& line) {
  if (may_rotate_) PayloadRotation::tell(line, rotates_);
  std::byte* const to = payload_of(cells_.self());
  if (is_prepared()) {
    reduction_->prepare(to, transfer_.input, transfer_.input_bytes / element_bytes_);
  } else if (is_inline()) {
    copy_small(to, transfer_.input, transfer_.input_bytes);
  } else if (transfer_.in_parts) {
    const Block own = transfer_.give.at(cells_.self());
    const std::size_t end = own.offset + own.bytes;
    const std::size_t behind = transfer_.input_bytes - end;
    SharedCells::write(to, transfer_.input + end, behind, streams_);
    SharedCells::write(to + behind, transfer_.input, own.offset, streams_);
  } else if (transfer_.has_other_readers(cells_.self())) {
    SharedCells::write(to, transfer_.input, transfer_.input_bytes, streams_);
  }
}

bool SmallCall::advance() {
  if (done_) return true;
  for (; next_ < transfer_.sources.last; ++next_) {
    if (next_ == cells_.self()) continue;
    if (!cells_.arrived(next_) && (!take_own() || !cells_.arrived(next_))) return false;
    if (!(cells_.line(next_).record == record_)) {
      status_ = cells_.mismatch(next_);
      done_ = true;
      return true;
    }
  }
  if (!has_result_) {
    finish();
    if (is_trial_) end_trial();
    has_result_ = true;
  }
  done_ = cells_.saw_previous(transfer_.sources, &status_);
  return done_;
}

void SmallCall::end_trial() {
  trials_.note(transfer_.largest_input_bytes, began_, Clock::now(), true);
  is_trial_ = false;
}

std::byte* SmallCall::payload_of(int member) const {
  shm::CellLine& line = cells_.line(member);
  if (is_inline()) return line.payload;
  const bool rotates = may_rotate_ && PayloadRotation::told(line);
  return rotates ? rotation_.place() : SharedCells::long_payload(line);
}

const std::byte* SmallCall::part_of(int source) const {
  const std::byte* const payload = payload_of(source);
  if (!transfer_.in_parts || is_inline() || is_prepared()) return payload + transfer_.source_offset;
  const int members = cells_.size();
  const int between = (cells_.self() - source - 1 + members) % members;
  return payload + static_cast<std::size_t>(between) * transfer_.take.at(source).bytes;
}

void SmallCall::finish() {
  if (waits_for_all_) cells_.saw_everyone();
  if (transfer_.combines) {
    if (transfer_.sources.first < transfer_.sources.last) combine();
  } else if (transfer_.largest_input_bytes > 0) {
    for (int source = transfer_.sources.first; source < transfer_.sources.last; ++source) {
      if (source == cells_.self()) continue;
      const Block block = transfer_.take.at(source);
      copy_small(transfer_.output + block.offset, part_of(source), block.bytes);
    }
    take_own();
  }
  cells_.prefetch_next();
}

// What this rank gives itself is copied while it waits for others, if it does. False: there is
// nothing, or it was copied before.
bool SmallCall::take_own() {
  const bool takes = !tried_own_ && !transfer_.combines && transfer_.sources.has(cells_.self());
  tried_own_ = true;
  if (!takes || transfer_.largest_input_bytes == 0) return false;
  const Block block = transfer_.take.at(cells_.self());
  std::byte* const to = transfer_.output + block.offset;
  const std::byte* const from = transfer_.input + transfer_.source_offset;
  if (to != from) copy_small(to, from, block.bytes);
  return true;
}

void SmallCall::combine() {
  const std::size_t count = transfer_.take.bytes / element_bytes_;
  if (count == 0) return;
  const bool own_is_prepared = reduction_->prepares();
  for (int source = transfer_.sources.first; source < transfer_.sources.last; ++source) {
    const bool raw = source == cells_.self() && !own_is_prepared;
    operands_[static_cast<std::size_t>(source)] =
        raw ? transfer_.input + transfer_.source_offset : part_of(source);
  }
  reduction_->combine_tree(transfer_.output, operands_.data() + transfer_.sources.first,
                           transfer_.sources.size(), count, false);
  reduction_->finish(transfer_.output, count);
}

void SmallCall::fail(const Status& cause) {
  if (done_) return;
  status_ = cause;
  done_ = true;
}

void SmallCall::waiting_for(std::vector<Rank>* ranks) const {
  if (done_) return;
  for (int member = 0; member < cells_.size(); ++member) {
    const bool is_missed = has_result_ ? cells_.misses_in_previous(member)
                                       : member != cells_.self() && transfer_.sources.has(member) &&
                                             !cells_.arrived(member);
    if (is_missed) ranks->push_back(member);
  }
}

void SmallCall::count(Collective collective, std::uint64_t times, TrafficReport* report) const {
  count_transfer(transfer_, cells_.self(), collective, times, report);
}

}  // namespace unisono::native
