// Large all_reduce and reduce. Each chunk is cut into one part per rank; rank r combines part r of
// everyone's input, then those who want the result take the other parts from where they were
// combined. Per chunk of C bytes and rank: at most C read and written to fill, C combined, C taken.
//
//   rank 0  | fill chunk k | combine part 0 of k | take part 1 of k from rank 1 |
//   rank 1  | fill chunk k | combine part 1 of k | take part 0 of k from rank 0 |
//
// Inputs that peers can read in place are not filled; results likewise stay in the output.
//
// In place is safe without further waiting: rank r's own part is read as input by r alone, and it
// takes part q only after q has combined it, when nobody reads part q of r's input any more.
//
// In two levels (levels.h) parts are those of the ranks of a domain, and the i-th ranks of the D
// domains are counterparts: each combines part i of its own domain's input, then the D partials.
//
//   rank 0 | fill | combine part 0 of 0, 1 | merge it with rank 2's | take part 1 from rank 1 |
//   rank 2 | fill | combine part 0 of 2, 3 | merge it with rank 0's | take part 1 from rank 3 |
//
//   slot   | input; in this rank's part the partial, for its counterparts | the merged part |
//
// Only merging reads across domains: D - 1 partials of C / d bytes. Where one rank wants the
// result, its domain alone merges. The exact order has no partials, and one level.
#pragma once

#include <algorithm>

#include "native/large_call.h"

namespace unisono::native {

class CombineCall final : public LargeCall {
 public:
  using LargeCall::LargeCall;
  void count(Collective collective, std::uint64_t times, TrafficReport* report) const override;

 private:
  Status plan(Offer* offer) override;
  bool prepare_cell() override;
  Status accept(int member, const Offer& offer) override;
  bool step() override;
  bool took_all() const override;
  bool gave_all() const override;
  bool released() override;
  bool waits_for_slot(int member) const override;
  bool waits_for(int member) const override;
  void let_go() override;

  /// True when `member` reads nothing of this rank's own buffers any more.
  bool is_released_by(int member) const;
  bool is_in_levels() const { return domain_.size() < size(); }
  /// Some rank of the domain wants the result.
  bool is_wanted_in(MemberRange domain) const {
    return std::max(domain.first, wanting_.first) < std::min(domain.last, wanting_.last);
  }
  MemberRange domain_of(int member) const {
    const int first = member / domain_.size() * domain_.size();
    return {first, first + domain_.size()};
  }
  /// The rank of the `domain`-th domain that has the same part as this one.
  int counterpart(int domain) const { return domain * domain_.size() + self() - domain_.first; }
  bool is_counterpart(int member) const {
    return member % domain_.size() == self() - domain_.first;
  }
  /// A rank's part of a chunk; offset counts from the chunk's begin.
  Block part_of(int member, std::uint64_t chunk) const;
  std::size_t bytes_of(std::uint64_t chunk) const;
  /// Of all chunks' parts together.
  std::size_t total_part_of(int member) const;
  /// Where a member's part of the result lies in its slot.
  std::byte* result_slot(int member, std::uint64_t chunk) const {
    return slot_of(member, chunk) + (is_in_levels() ? chunk_bytes_ : part_of(member, chunk).offset);
  }
  /// `member`, of the domain, reads nothing of the first `chunks` chunks of the input any more.
  bool has_combined(int member, std::uint64_t chunks) const;
  /// It combines into slots that it does not fill.
  bool needs_slot() const {
    return shm::is_in_place(input_path_) && (is_in_levels() || !shm::is_in_place(result_path_));
  }
  bool can_fill() const;
  bool can_combine() const;
  bool can_merge() const;
  bool can_take() const;
  void fill();
  void combine();
  void combine_piece(std::uint64_t chunk, std::size_t offset, std::size_t bytes);
  void finish_operands(std::size_t at, std::byte* slot, int operands, std::size_t bytes);
  void merge();
  void skip_taking();
  void take();
  void deliver(std::byte* to, const std::byte* from, std::size_t bytes) const;

  std::size_t chunk_bytes_ = 0;
  std::uint64_t chunks_ = 0;
  std::uint64_t filled_ = 0, combined_ = 0, merged_ = 0, taken_ = 0;
  shm::MemoryPath input_path_ = shm::MemoryPath::kNone;
  shm::MemoryPath result_path_ = shm::MemoryPath::kNone;
  MemberRange wanting_;  // of the result
  MemberRange domain_;   // this rank's; everyone in one level
  bool wants_result_ = false;
  bool streaming_ = false;
  bool reads_by_copies_ = false;          // some member's memory, into scratch
  std::vector<shm::MemoryView> results_;  // by member
  std::vector<const void*> operands_;
};

}  // namespace unisono::native
