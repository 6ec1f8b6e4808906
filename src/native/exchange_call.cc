#include "native/exchange_call.h"

#include <algorithm>
#include <cstring>

namespace unisono::native {
namespace {

constexpr std::size_t kRootedPieceBytes = std::size_t{64} << 10;

// What a giver tells of its chunks' places: 0, one in each slot; else whether they go around the
// part of the rotation past the caches, and the first one's number there.
std::uint64_t told_of(bool streamed, std::uint64_t first) {
  return 1 + (streamed ? 1 : 0) + 2 * first;
}
bool tells_streamed(std::uint64_t told) { return told % 2 == 0; }
std::uint64_t first_place(std::uint64_t told) { return (told - 1) / 2; }

/// A reader's block in the table of a cell.
struct TableEntry {
  std::uint64_t offset;
  std::uint64_t bytes;
};

}  // namespace

std::size_t ExchangeCall::table_bytes() const {
  return has_table() ? static_cast<std::size_t>(size()) * sizeof(TableEntry) : 0;
}

std::size_t ExchangeCall::packed_bytes() const {
  if (!transfer_.in_parts) return transfer_.input_bytes;
  std::size_t bytes = 0;
  for (int member = 0; member < size(); ++member) bytes += transfer_.give.at(member).bytes;
  return bytes;
}

// A scan or all_to_all in place overwrites what others still have to read.
bool ExchangeCall::overwrites_input() const {
  const int others = transfer_.sources.size() - (transfer_.sources.has(self()) ? 1 : 0);
  const bool reads_what_it_writes = transfer_.combines ? !transfer_.in_parts : transfer_.in_parts;
  return transfer_.input == transfer_.output && others > 0 && reads_what_it_writes;
}

// Where one rank gives and the others take, or the other way round, these take a piece while those
// write the next.
void ExchangeCall::choose_units() {
  const std::size_t blocks = transfer_.in_parts ? static_cast<std::size_t>(size()) : 1;
  const std::size_t parts = is_prepared() ? blocks : std::max<std::size_t>(blocks - 1, 1);
  const std::size_t given = transfer_.largest_input_bytes;
  unit_ = shm::kWindowSlotBytes / parts / shm::kLineBytes * shm::kLineBytes;
  single_copy_unit_ = unit_;
  place_bytes_ = 0;
  place_counts_ = {};
  if (given == kNotAgreed || !transfer_.goes_one_way) return;
  // A block comes in quarters of at most 64 KiB, a long one in sixteenths.
  const std::size_t block = given / blocks;
  const std::size_t piece = std::max(std::min(block / 4, kRootedPieceBytes), block / 16);
  unit_ = std::min(unit_, shm::round_up(std::max<std::size_t>(piece, 1), shm::kPageBytes));
  single_copy_unit_ = single_copy_unit_ / unit_ * unit_;
  place_bytes_ = unit_ * parts;
  for (const bool streamed : {false, true}) {
    // None where that would be too few for the chunks that are under way.
    const std::size_t count = rotation_of(self(), streamed).size() / place_bytes_;
    place_counts_[streamed ? 1 : 0] = count >= shm::kWindowSlots ? count : 0;
  }
}

// Of the most ranks, whose pieces are the shortest, a block may have 32 GiB at least.
static_assert(shm::kWindowSlotBytes / shm::kLocalRanksMax / shm::kLineBytes * shm::kLineBytes *
                  kChunksMax >=
              std::size_t{32} << 30);

Status ExchangeCall::plan(Offer* offer) {
  choose_units();
  filled_ = round_ = own_taken_ = 0;
  keeps_filling_ = !transfer_.goes_one_way;
  taken_in_round_ = 0;
  operands_.resize(static_cast<std::size_t>(size()));
  plan_input(offer);
  plan_chunks();
  if (fill_chunks_ > kChunksMax || rounds_ > kChunksMax) {
    return Status(ErrorCode::kOutOfResources, "blocks too large for one call at " +
                                                  std::to_string(size()) + " ranks; split it");
  }
  own_places_ = 0;
  if (fill_chunks_ == 0) return {};
  if (place_bytes_ > 0) plan_places(offer);
  const bool in_window = own_places_ == 0 || !context_.group.takes_turns();
  return in_window ? context_.group.reserve_windows() : Status();
}

// Where the chunks of the call before that gave so have ended.
void ExchangeCall::plan_places(Offer* offer) {
  const int part = streams() ? 1 : 0;
  const std::size_t count = place_counts_[part];
  if (count == 0 || (context_.group.takes_turns() && !context_.group.has_rotation())) return;
  const std::uint64_t first = chunks_of(next_place_[part], place_bytes_) % count;
  next_place_[part] = (first + fill_chunks_) % count * place_bytes_;
  offer->input.address = own_places_ = told_of(streams(), first);
}

// More than two would have to share the group's, and those that disagree about the root write into
// the same place.
std::span<std::byte> ExchangeCall::rotation_of(int owner, bool streamed) const {
  const shm::SegmentGroup& group = context_.group;
  if (!group.takes_turns()) return {group.window(owner), shm::kWindowBytes};
  return streamed ? group.streamed_rotation() : group.cached_rotation();
}

// What another rank tells is checked once, here.
Status ExchangeCall::accept_places(int member, std::uint64_t told) {
  if (told == 0) return {};
  const std::size_t count = place_counts_[tells_streamed(told) ? 1 : 0];
  if (first_place(told) >= count) {
    return Status(ErrorCode::kProtocol,
                  "rank " + std::to_string(member) + " offers place " +
                      std::to_string(first_place(told)) + " of " + std::to_string(count) +
                      " of its rotation",
                  member);
  }
  inputs_[static_cast<std::size_t>(member)].address = told;
  return {};
}

void ExchangeCall::plan_input(Offer* offer) {
  const bool prepares = is_prepared();
  const bool is_read = transfer_.readers.last > transfer_.readers.first;
  const bool small = transfer_.largest_input_bytes == kNotAgreed && is_read &&
                     packed_bytes() + table_bytes() <= shm::kCellPayloadBytes;
  offer->input = {small ? shm::MemoryPath::kInline : shm::MemoryPath::kNone, transfer_.input_bytes};
  if (!small && is_read && !prepares && !overwrites_input()) {
    offer->input = offered(transfer_.input, transfer_.input_bytes);
  }
  path_ = offer->input.path;
  own_from_offer_ = prepares;
  fills_before_taking_ = path_ == shm::MemoryPath::kNone && (prepares || overwrites_input());
}

void ExchangeCall::plan_chunks() {
  fill_chunks_ = rounds_ = 0;
  std::size_t taken_bytes = 0;
  Block longest;
  for (int member = 0; member < size(); ++member) {
    const bool reads = transfer_.readers.has(member) && (!is_self(member) || own_from_offer_);
    if (path_ == shm::MemoryPath::kNone && reads) {
      const std::size_t given =
          transfer_.in_parts ? transfer_.give.at(member).bytes : transfer_.input_bytes;
      fill_chunks_ = std::max(fill_chunks_, chunks_of(given, unit_));
    }
    if (transfer_.sources.has(member)) {
      const Block wanted = transfer_.take.at(member);
      rounds_ = std::max(rounds_, chunks_of(wanted.bytes, unit_));
      taken_bytes += wanted.bytes;
      if (!is_self(member) && wanted.bytes > longest.bytes) longest = wanted;
    }
  }
  const std::size_t stored_bytes = transfer_.combines ? longest.bytes : taken_bytes;
  streaming_ =
      !transfer_.writes_into_input(size()) &&
      (taken_bytes >= kStreamingBytes || (stored_bytes >= shm::kColdBytesMin && is_cold(longest)));
}

bool ExchangeCall::prepare_cell() {
  if (fill_chunks_ > 0 && !can_fill()) return false;
  if (path_ == shm::MemoryPath::kInline || has_table()) write_table_and_blocks();
  if (fill_chunks_ > 0) fill();
  return true;
}

void ExchangeCall::write_table_and_blocks() {
  const bool with_blocks = path_ == shm::MemoryPath::kInline;
  std::byte* const payload = SharedCells::long_payload(context_.cells.own());
  std::byte* const blocks = payload + table_bytes();
  const bool gives = transfer_.readers.last > transfer_.readers.first;
  if (!gives) return;
  if (!transfer_.in_parts) return put(blocks, transfer_.input, transfer_.input_bytes);
  std::size_t packed = 0;
  for (int member = 0; member < size(); ++member) {
    const Block block = transfer_.give.at(member);
    if (with_blocks && block.bytes > 0) {
      put(blocks + packed, transfer_.input + block.offset, block.bytes);
    }
    const TableEntry entry{with_blocks ? packed : block.offset, block.bytes};
    std::memcpy(payload + static_cast<std::size_t>(member) * sizeof entry, &entry, sizeof entry);
    packed += block.bytes;
  }
}

Status ExchangeCall::accept(int member, const Offer& offer) {
  const auto index = static_cast<std::size_t>(member);
  std::byte* const payload = SharedCells::long_payload(context_.cells.line(member));
  const std::size_t wanted = transfer_.take.at(member).bytes;
  TableEntry block{transfer_.source_offset, transfer_.in_parts ? wanted : offer.input.bytes};
  if (has_table()) {
    std::memcpy(&block, payload + static_cast<std::size_t>(self()) * sizeof block, sizeof block);
  }
  if (block.bytes != wanted) {
    return Status(ErrorCode::kMismatch,
                  "rank " + std::to_string(member) + " gives " + std::to_string(block.bytes) +
                      " bytes to rank " + std::to_string(self()) + ", which expects " +
                      std::to_string(wanted),
                  member);
  }
  if (offer.input.path == shm::MemoryPath::kInline) {
    const std::size_t room = shm::kCellPayloadBytes - table_bytes();
    if (block.offset > room || block.bytes > room - block.offset) {
      return Status(ErrorCode::kProtocol,
                    "rank " + std::to_string(member) + " offers more than fits its cell", member);
    }
    inputs_[index] = {shm::MemoryPath::kInline, payload + table_bytes() + block.offset, 0};
    return {};
  }
  UNISONO_ASSIGN(inputs_[index],
                 open(member, {offer.input.path, wanted, offer.input.address + block.offset}));
  if (inputs_[index].path == shm::MemoryPath::kNone && wanted > 0) {
    UNISONO_TRY(accept_places(member, offer.input.address));
    context_.progress.saw_first_chunk(member);
  }
  if (inputs_[index].path == shm::MemoryPath::kSingleCopy && transfer_.combines) {
    context_.scratch.resize(kScratchBytes);
  }
  return {};
}

// Ranks that give and take fill all slots that are free, then take all chunks that have come: a
// chunk to and a chunk fro takes longer than all to and all fro (README.md has figures).
bool ExchangeCall::step() {
  if (keeps_filling_ && can_fill()) {
    fill();
    return true;
  }
  keeps_filling_ = false;
  if (take()) return true;
  if (!can_fill()) return take_own_early();
  keeps_filling_ = !transfer_.goes_one_way;
  fill();
  return true;
}

// ---- Giving --------------------------------------------------------------------------------

std::byte* ExchangeCall::place_of(int owner, std::uint64_t chunk) const {
  const shm::MemoryView& input = inputs_[static_cast<std::size_t>(owner)];
  const bool in_place = !is_self(owner) && input.path != shm::MemoryPath::kNone;
  const std::uint64_t told = is_self(owner) ? own_places_ : input.address;
  if (in_place || told == 0) return slot_of(owner, chunk);
  const bool streamed = tells_streamed(told);
  const std::uint64_t place = (first_place(told) + chunk) % place_counts_[streamed ? 1 : 0];
  return rotation_of(owner, streamed).data() + place * place_bytes_;
}

std::byte* ExchangeCall::part_in_slot(int owner, int reader, std::uint64_t chunk) const {
  std::byte* const slot = place_of(owner, chunk);
  if (!transfer_.in_parts) return slot;
  return slot + static_cast<std::size_t>((reader - owner - 1 + size()) % size()) * unit_;
}

bool ExchangeCall::can_fill() const {
  if (filled_ == fill_chunks_) return false;
  if (own_from_offer_ && filled_ >= round_ + shm::kWindowSlots && round_ < rounds_) return false;
  return context_.progress.slot_is_free(filled_, transfer_.readers);
}

void ExchangeCall::put(std::byte* to, const std::byte* from, std::size_t bytes) const {
  if (!own_from_offer_) {
    write_shared(to, from, bytes);
  } else if (bytes > 0) {
    reduction_->prepare(to, from, bytes / element_bytes());
  }
}

void ExchangeCall::fill() {
  const std::size_t offset = filled_ * unit_;
  const auto piece = [&](std::size_t bytes) {
    const std::size_t next = offset < bytes ? std::min(unit_, bytes - offset) : 0;
    note_read(next);
    return next;
  };
  if (!transfer_.in_parts) {
    put(part_in_slot(self(), 0, filled_), transfer_.input + offset, piece(transfer_.input_bytes));
  } else {
    for (int member = 0; member < size(); ++member) {
      if (is_self(member) && !own_from_offer_) continue;
      const Block block = transfer_.give.at(member);
      put(part_in_slot(self(), member, filled_), transfer_.input + block.offset + offset,
          piece(block.bytes));
    }
  }
  context_.progress.filled(++filled_);
}

// ---- Taking --------------------------------------------------------------------------------

bool ExchangeCall::is_ready(int source) const {
  if (is_self(source)) return true;
  return inputs_[static_cast<std::size_t>(source)].path != shm::MemoryPath::kNone ||
         context_.progress.has_filled(source, round_ + 1);
}

// A source whose block has ended early fills no further chunk.
bool ExchangeCall::is_awaited_source(int member) const {
  return transfer_.sources.has(member) && round_ * unit_ < transfer_.take.at(member).bytes &&
         !is_ready(member);
}

bool ExchangeCall::fills_first() const {
  return fills_before_taking_ && filled_ <= round_ && filled_ < fill_chunks_;
}

bool ExchangeCall::take() {
  if (!accepted_all() || round_ == rounds_) return false;
  if (fills_first()) return false;
  return transfer_.combines ? take_combined() : take_next_copy();
}

bool ExchangeCall::take_next_copy() {
  // Everyone begins with another source, so that no rank's memory is read by all at once.
  const int source = (self() + 1 + taken_in_round_) % size();
  if (is_self(source)) {
    if (own_taken_ <= round_) take_own();
    end_source();
    return true;
  }
  const Block block = transfer_.sources.has(source) ? transfer_.take.at(source) : Block{};
  const shm::MemoryPath path = inputs_[static_cast<std::size_t>(source)].path;
  const bool is_single_copy = path == shm::MemoryPath::kSingleCopy;
  const std::size_t unit = is_single_copy ? single_copy_unit_ : unit_;
  const std::size_t offset = round_ * unit_;
  if (offset < block.bytes && offset % unit == 0) {
    if (!is_ready(source)) return false;
    const std::size_t bytes = std::min(unit, block.bytes - offset);
    std::byte* const to = transfer_.output + block.offset + offset;
    const std::byte* const from = look(inputs_[static_cast<std::size_t>(source)], source,
                                       part_in_slot(source, self(), round_), offset, bytes, to);
    if (ended()) return true;
    copy_out(to, from, bytes);
  }
  end_source();
  return true;
}

// The next piece of the block that this rank gives itself. False: there is none.
bool ExchangeCall::take_own() {
  const bool takes = !transfer_.combines && transfer_.sources.has(self());
  const Block block = takes ? transfer_.take.at(self()) : Block{};
  const std::size_t offset = own_taken_ * unit_;
  if (offset >= block.bytes) return false;
  ++own_taken_;
  copy_out(transfer_.output + block.offset + offset, own_source(offset),
           std::min(unit_, block.bytes - offset));
  return true;
}

// Where this rank would only wait. Pieces of later rounds only where it goes past the caches, as
// the others mostly do then: else it would catch up with those that write for it, and what has just
// been written to a cache comes from there more slowly than what has left it (gather of 4 MiB
// 165 us, not 99; two cores of an EPYC). Before it has looked who has come no more than those can
// write without its taking any.
bool ExchangeCall::take_own_early() {
  const bool may_run_ahead = streams() && (accepted_all() || own_taken_ < shm::kWindowSlots);
  return (own_taken_ <= round_ || may_run_ahead) && take_own();
}

void ExchangeCall::copy_out(std::byte* to, const std::byte* from, std::size_t bytes) {
  note_read(bytes);
  if (from == to) return;
  streaming_ ? compute::copy_streaming(to, from, bytes)
             : static_cast<void>(std::memcpy(to, from, bytes));
}

void ExchangeCall::end_source() {
  if (++taken_in_round_ == size()) end_round();
}

const std::byte* ExchangeCall::own_source(std::size_t offset) const {
  const Block own = transfer_.in_parts ? transfer_.give.at(self()) : Block{};
  if (!own_from_offer_) return transfer_.input + own.offset + offset;
  if (path_ == shm::MemoryPath::kNone) return part_in_slot(self(), self(), round_);
  std::size_t packed = 0;
  for (int member = 0; transfer_.in_parts && member < self(); ++member) {
    packed += transfer_.give.at(member).bytes;
  }
  return SharedCells::long_payload(context_.cells.own()) + table_bytes() + packed + offset;
}

bool ExchangeCall::take_combined() {
  bool single_copy = false;
  for (int source = transfer_.sources.first; source < transfer_.sources.last; ++source) {
    if (!is_ready(source)) return false;
    const shm::MemoryView& view = inputs_[static_cast<std::size_t>(source)];
    single_copy = single_copy || (!is_self(source) && view.path == shm::MemoryPath::kSingleCopy);
  }
  const std::size_t begin = round_ * unit_;
  const std::size_t end = std::min(begin + unit_, transfer_.take.bytes);
  const std::size_t limit = single_copy ? std::min(unit_, scratch_share()) : unit_;
  for (std::size_t at = begin; at < end && !ended(); at += limit) {
    combine_piece(at, std::min(limit, end - at));
  }
  note_read((end - begin) * static_cast<std::size_t>(transfer_.sources.size()));
  if (!ended()) end_round();
  return true;
}

void ExchangeCall::combine_piece(std::size_t offset, std::size_t bytes) {
  const std::size_t in_unit = offset - round_ * unit_;
  for (int source = transfer_.sources.first; source < transfer_.sources.last; ++source) {
    const auto index = static_cast<std::size_t>(source);
    if (is_self(source)) {
      operands_[index] = own_source(offset - in_unit) + in_unit;
    } else {
      operands_[index] =
          look(inputs_[index], source, part_in_slot(source, self(), round_) + in_unit, offset,
               bytes, scratch_of(source));
    }
  }
  if (ended()) return;
  const std::size_t count = bytes / element_bytes();
  std::byte* const result = transfer_.output + offset;
  reduction_->combine_tree(result, operands_.data() + transfer_.sources.first,
                           transfer_.sources.size(), count, streaming_ && !reduction_->finishes());
  reduction_->finish(result, count);
}

void ExchangeCall::end_round() {
  taken_in_round_ = 0;
  context_.progress.drained(++round_);
}

// ---- Leaving -------------------------------------------------------------------------------

bool ExchangeCall::took_all() const { return round_ == rounds_; }
bool ExchangeCall::gave_all() const { return filled_ == fill_chunks_; }

bool ExchangeCall::released() {
  for (int member = transfer_.readers.first;
       shm::is_in_place(path_) && member < transfer_.readers.last; ++member) {
    if (!is_self(member) && !context_.progress.has_finished(member)) return false;
  }
  return true;
}

bool ExchangeCall::waits_for_slot(int member) const {
  return filled_ < fill_chunks_ && context_.progress.holds_slot(member, filled_, transfer_.readers);
}

bool ExchangeCall::waits_for(int member) const {
  if (round_ < rounds_ && !fills_first()) return is_awaited_source(member);
  if (filled_ < fill_chunks_) return waits_for_slot(member);
  return shm::is_in_place(path_) && transfer_.readers.has(member) &&
         !context_.progress.has_finished(member);
}

void ExchangeCall::count(Collective collective, std::uint64_t times, TrafficReport* report) const {
  count_transfer(transfer_, self(), collective, times, report);
}

}  // namespace unisono::native
