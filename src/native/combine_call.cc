#include "native/combine_call.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/traffic_count.h"

namespace unisono::native {
namespace {

// What is combined into a slot is copied to the output while it is in the first-level cache.
constexpr std::size_t kPieceBytes = std::size_t{16} << 10;
constexpr std::size_t kChunkBytesMin = std::size_t{64} << 10;

std::size_t choose_chunk_bytes(std::size_t total, std::size_t most) {
  const std::size_t quarter = shm::round_up(total / 4, shm::kPageBytes);
  return std::clamp(quarter, kChunkBytesMin, most);
}

// A merged part fits behind such a chunk, and all chunks are about as long: not the last one alone
// a few lines.
std::size_t choose_chunk_in_levels(std::size_t total, std::size_t parts) {
  const std::size_t granule = parts * shm::kLineBytes;
  const std::size_t most = shm::kWindowSlotBytes / (parts + 1) / shm::kLineBytes * granule;
  const std::uint64_t chunks =
      std::max<std::uint64_t>(1, chunks_of(total, choose_chunk_bytes(total, most)));
  return std::max(granule, shm::round_up((total + chunks - 1) / chunks, granule));
}

}  // namespace

Status CombineCall::plan(Offer* offer) {
  const MemberRange everyone{0, size()};
  // Everyone combines a part, also where only the root gets the result.
  wants_result_ = transfer_.sources.has(self());
  wanting_ = transfer_.readers;
  const bool all_want_result = transfer_.readers.size() == size();
  transfer_.sources = transfer_.readers = everyone;
  domain_ = everyone;
  if (context_.levels.domain_ranks > 0 && reduction_->nests()) {
    domain_.last = context_.levels.domain_ranks;
    domain_ = domain_of(self());
  }
  const std::size_t total = transfer_.input_bytes;
  const auto parts = static_cast<std::size_t>(domain_.size());
  chunk_bytes_ = is_in_levels() ? choose_chunk_in_levels(total, parts)
                                : choose_chunk_bytes(total, shm::kWindowSlotBytes);
  chunks_ = chunks_of(total, chunk_bytes_);
  filled_ = combined_ = merged_ = taken_ = 0;
  reads_by_copies_ = false;
  results_.resize(static_cast<std::size_t>(size()));
  operands_.resize(static_cast<std::size_t>(size()));
  if (chunks_ > kChunksMax) {
    return Status(ErrorCode::kOutOfResources,
                  std::to_string(total) + " bytes in one reduction; split it");
  }
  shm::MemoryHandle& input = offer->input = {shm::MemoryPath::kNone, total};
  shm::MemoryHandle& result = offer->result = {shm::MemoryPath::kNone, total};
  if (!reduction_->prepares()) {
    input = offered(transfer_.input, total);
  }
  if (all_want_result) {
    result = offered(transfer_.output, total);
    stores_results();
  }
  input_path_ = input.path;
  result_path_ = result.path;
  const bool was_read = transfer_.input == transfer_.output && !shm::is_in_place(input_path_);
  streaming_ = !was_read && (total * static_cast<std::size_t>(size()) >= 2 * kStreamingBytes ||
                             (wants_result_ && total >= shm::kColdBytesMin && is_cold({0, total})));
  if (shm::is_in_place(input_path_) && !needs_slot()) return {};
  return context_.group.reserve_windows();
}

std::size_t CombineCall::bytes_of(std::uint64_t chunk) const {
  return std::min(chunk_bytes_, transfer_.input_bytes - chunk * chunk_bytes_);
}

Block CombineCall::part_of(int member, std::uint64_t chunk) const {
  const std::size_t bytes = bytes_of(chunk);
  const auto ranks = static_cast<std::size_t>(domain_.size());
  const std::size_t part = shm::round_up((bytes + ranks - 1) / ranks, shm::kLineBytes);
  const std::size_t begin = std::min(bytes, part * (static_cast<std::size_t>(member) % ranks));
  return {begin, std::min(part, bytes - begin)};
}

// All chunks but the last are alike.
std::size_t CombineCall::total_part_of(int member) const {
  if (chunks_ == 0) return 0;
  return (chunks_ - 1) * part_of(member, 0).bytes + part_of(member, chunks_ - 1).bytes;
}

bool CombineCall::prepare_cell() {
  if (shm::is_in_place(input_path_) || chunks_ == 0) return true;
  if (!can_fill()) return false;
  fill();
  return true;
}

Status CombineCall::accept(int member, const Offer& offer) {
  const auto index = static_cast<std::size_t>(member);
  const std::size_t total = transfer_.input_bytes;
  if (offer.input.bytes != total || offer.result.bytes != total) {
    return Status(ErrorCode::kMismatch,
                  "rank " + std::to_string(member) + " reduces " +
                      std::to_string(offer.input.bytes) + " bytes, this rank " +
                      std::to_string(total),
                  member);
  }
  if (!domain_.has(member)) return {};  // of another domain partials are read alone
  UNISONO_ASSIGN(inputs_[index], open(member, offer.input));
  UNISONO_ASSIGN(results_[index], open(member, offer.result));
  if (inputs_[index].path == shm::MemoryPath::kSingleCopy) {
    reads_by_copies_ = true;
    context_.scratch.resize(kScratchBytes);
  }
  if (inputs_[index].path == shm::MemoryPath::kNone) context_.progress.saw_first_chunk(member);
  return {};
}

// A slot also receives this rank's part of the result. Where results are not wanted by everyone the
// others may have drained a chunk that this rank has yet to combine, or to merge.
bool CombineCall::can_fill() const {
  return !shm::is_in_place(input_path_) && filled_ < chunks_ &&
         filled_ < merged_ + shm::kWindowSlots &&
         context_.progress.slot_is_free(filled_, transfer_.readers);
}

bool CombineCall::can_combine() const {
  if (!accepted_all() || combined_ == chunks_) return false;
  if (!shm::is_in_place(input_path_)) {
    if (combined_ == filled_) return false;
  } else if (needs_slot() && (combined_ == merged_ + shm::kWindowSlots ||
                              !context_.progress.slot_is_free(combined_, transfer_.readers))) {
    return false;
  }
  for (int member = domain_.first; member < domain_.last; ++member) {
    if (is_self(member) ||
        inputs_[static_cast<std::size_t>(member)].path != shm::MemoryPath::kNone) {
      continue;
    }
    if (!context_.progress.has_filled(member, combined_ + 1)) return false;
  }
  return true;
}

bool CombineCall::can_merge() const {
  if (merged_ == combined_) return false;
  for (int domain = 0; domain < size() / domain_.size(); ++domain) {
    const int member = counterpart(domain);
    if (!is_self(member) && !context_.progress.has_combined(member, merged_ + 1)) return false;
  }
  return true;
}

bool CombineCall::can_take() const {
  if (taken_ == merged_) return false;
  for (int member = domain_.first; wants_result_ && member < domain_.last; ++member) {
    if (!is_self(member) && !context_.progress.has_reduced(member, taken_ + 1)) return false;
  }
  return true;
}

// It combines first: the others wait for that.
bool CombineCall::step() {
  if (can_combine()) {
    combine();
  } else if (can_merge()) {
    merge();
  } else if (can_take()) {
    take();
  } else if (can_fill()) {
    fill();
  } else {
    return false;
  }
  return true;
}

void CombineCall::fill() {
  std::byte* const slot = slot_of(self(), filled_);
  const std::byte* const from = transfer_.input + filled_ * chunk_bytes_;
  const std::size_t bytes = bytes_of(filled_);
  if (reduction_->prepares()) {
    reduction_->prepare(slot, from, bytes / element_bytes());
  } else {
    // Its own part a rank combines straight from its input.
    const Block own = part_of(self(), filled_);
    const std::size_t after = own.offset + own.bytes;
    write_shared(slot, from, own.offset);
    if (after < bytes) write_shared(slot + after, from + after, bytes - after);
  }
  note_read(bytes);
  context_.progress.filled(++filled_);
}

void CombineCall::combine() {
  const Block part = part_of(self(), combined_);
  for (std::size_t done = 0; done < part.bytes && !ended();) {
    const std::size_t limit =
        reads_by_copies_ ? std::min(kPieceBytes, scratch_share()) : kPieceBytes;
    const std::size_t bytes = std::min(limit, part.bytes - done);
    combine_piece(combined_, part.offset + done, bytes);
    note_read(bytes * static_cast<std::size_t>(domain_.size()));
    done += bytes;
  }
  if (ended()) return;
  ++combined_;
  if (!is_in_levels()) {
    context_.progress.reduced(combined_);
  } else {
    context_.progress.combined(combined_);
    if (is_wanted_in(domain_)) return;  // merge() goes on, else those of another domain do
  }
  merged_ = combined_;
  skip_taking();
}

// Who does not want the result has nothing to take.
void CombineCall::skip_taking() {
  if (wants_result_) return;
  taken_ = merged_;
  context_.progress.drained(taken_);
}

void CombineCall::combine_piece(std::uint64_t chunk, std::size_t offset, std::size_t bytes) {
  const std::size_t at = chunk * chunk_bytes_ + offset;
  for (int member = domain_.first; member < domain_.last; ++member) {
    const auto index = static_cast<std::size_t>(member);
    const std::byte* in_window = slot_of(member, chunk) + offset;
    const void*& operand = operands_[static_cast<std::size_t>(member - domain_.first)];
    if (is_self(member)) {
      operand = reduction_->prepares() ? in_window : transfer_.input + at;
    } else {
      operand = look(inputs_[index], member, in_window, at, bytes, scratch_of(member));
    }
  }
  if (ended()) return;
  std::byte* const slot = slot_of(self(), chunk) + offset;
  if (!is_in_levels()) return finish_operands(at, slot, size(), bytes);
  reduction_->combine_tree(slot, operands_.data(), domain_.size(), bytes / element_bytes(),
                           streams());
}

// The upper part of the tree, over the domains' partials.
void CombineCall::merge() {
  const Block part = part_of(self(), merged_);
  const int domains = size() / domain_.size();
  for (std::size_t done = 0; done < part.bytes; done += kPieceBytes) {
    const std::size_t bytes = std::min(kPieceBytes, part.bytes - done);
    for (int domain = 0; domain < domains; ++domain) {
      operands_[static_cast<std::size_t>(domain)] =
          slot_of(counterpart(domain), merged_) + part.offset + done;
    }
    finish_operands(merged_ * chunk_bytes_ + part.offset + done,
                    result_slot(self(), merged_) + done, domains, bytes);
  }
  note_read(part.bytes * static_cast<std::size_t>(domains));
  context_.progress.reduced(++merged_);
  skip_taking();
}

// Others read the result where it lies. With non-temporal stores it must be complete before it is
// stored, or it is combined in the output first; so it is where nobody else wants it.
void CombineCall::finish_operands(std::size_t at, std::byte* slot, int operands,
                                  std::size_t bytes) {
  const bool in_place = shm::is_in_place(result_path_);
  const bool is_shared = wanting_.size() > (wants_result_ ? 1 : 0);
  const bool by_output = !in_place && wants_result_ && (streams() || !is_shared);
  std::byte* const result = in_place || by_output ? transfer_.output + at : slot;
  const std::size_t count = bytes / element_bytes();
  reduction_->combine_tree(result, operands_.data(), operands, count,
                           streams() && !by_output && !reduction_->finishes());
  reduction_->finish(result, count);
  if (by_output) {
    if (is_shared) write_shared(slot, result, bytes);
  } else if (!in_place && wants_result_) {
    deliver(transfer_.output + at, result, bytes);
  }
}

void CombineCall::take() {
  for (int step = 1; wants_result_ && step < domain_.size() && !ended(); ++step) {
    // Everyone begins with another rank's part.
    const int member = domain_.first + (self() + step) % domain_.size();
    const Block part = part_of(member, taken_);
    if (part.bytes == 0) continue;
    const std::size_t at = taken_ * chunk_bytes_ + part.offset;
    const std::byte* const from =
        look(results_[static_cast<std::size_t>(member)], member, result_slot(member, taken_), at,
             part.bytes, transfer_.output + at);
    if (from != transfer_.output + at) deliver(transfer_.output + at, from, part.bytes);
    note_read(part.bytes);
  }
  if (!ended()) context_.progress.drained(++taken_);
}

void CombineCall::deliver(std::byte* to, const std::byte* from, std::size_t bytes) const {
  if (streaming_) {
    compute::copy_streaming(to, from, bytes);
  } else {
    std::memcpy(to, from, bytes);
  }
}

bool CombineCall::took_all() const { return taken_ == chunks_; }
bool CombineCall::gave_all() const { return shm::is_in_place(input_path_) || filled_ == chunks_; }

bool CombineCall::is_released_by(int member) const {
  if (is_self(member) || !domain_.has(member)) return true;
  if (shm::is_in_place(result_path_)) return context_.progress.has_finished(member);
  return !shm::is_in_place(input_path_) || has_combined(member, chunks_);
}

bool CombineCall::has_combined(int member, std::uint64_t chunks) const {
  return is_in_levels() ? context_.progress.has_combined(member, chunks)
                        : context_.progress.has_reduced(member, chunks);
}

bool CombineCall::released() {
  for (int member = 0; member < size(); ++member) {
    if (!is_released_by(member)) return false;
  }
  return true;
}

void CombineCall::let_go() {
  LargeCall::let_go();
  for (shm::MemoryView& view : results_) view.mapping.reset();
}

bool CombineCall::waits_for_slot(int member) const {
  return !shm::is_in_place(input_path_) && filled_ < chunks_ &&
         context_.progress.holds_slot(member, filled_, transfer_.readers);
}

// In the order in which a chunk moves, last step first: that is what the earlier ones wait for.
bool CombineCall::waits_for(int member) const {
  Progress& progress = context_.progress;
  if (taken_ < merged_) {
    return wants_result_ && domain_.has(member) && !progress.has_reduced(member, taken_ + 1);
  }
  if (merged_ < combined_) {
    return is_counterpart(member) && !progress.has_combined(member, merged_ + 1);
  }
  const bool has_filled = shm::is_in_place(input_path_) || combined_ < filled_;
  if (combined_ < chunks_ && !has_filled) return waits_for_slot(member);
  if (combined_ < chunks_) {
    if (needs_slot() && progress.holds_slot(member, combined_, transfer_.readers)) return true;
    return domain_.has(member) &&
           inputs_[static_cast<std::size_t>(member)].path == shm::MemoryPath::kNone &&
           !progress.has_filled(member, combined_ + 1);
  }
  return !is_released_by(member);
}

void CombineCall::count(Collective collective, std::uint64_t times, TrafficReport* report) const {
  const std::size_t own = total_part_of(self());
  for (int member = 0; member < size(); ++member) {
    if (is_self(member)) continue;
    if (!domain_.has(member)) {
      if (!is_counterpart(member)) continue;
      if (is_wanted_in(domain_of(member))) count_sent(collective, member, own, report, times);
      if (is_wanted_in(domain_)) count_received(collective, member, own, report, times);
      continue;
    }
    const std::size_t part = total_part_of(member);
    count_sent(collective, member, part, report, times);
    count_received(collective, member, own, report, times);
    if (wanting_.has(member)) count_sent(collective, member, own, report, times);
    if (wants_result_) count_received(collective, member, part, report, times);
  }
}

}  // namespace unisono::native
