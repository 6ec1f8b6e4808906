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
#pragma once

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
  bool move() override;
  bool took_all() const override;
  bool gave_all() const override;
  bool released() override;
  bool waits_for_slot(int member) const override;
  bool waits_for(int member) const override;
  void let_go() override;

  /// True when `member` reads nothing of this rank's own buffers any more.
  bool is_released_by(int member) const;
  /// A rank's part of a chunk; offset counts from the chunk's begin.
  Block part_of(int member, std::uint64_t chunk) const;
  std::size_t bytes_of(std::uint64_t chunk) const;
  /// Of all chunks' parts together.
  std::size_t total_part_of(int member) const;
  bool can_fill() const;
  bool can_combine() const;
  bool can_take() const;
  void fill();
  void combine();
  void combine_piece(std::uint64_t chunk, std::size_t offset, std::size_t bytes);
  void combine_operands(std::size_t at, std::byte* slot, std::size_t bytes);
  void take();
  void deliver(std::byte* to, const std::byte* from, std::size_t bytes) const;

  std::size_t chunk_bytes_ = 0;
  std::uint64_t chunks_ = 0;
  std::uint64_t filled_ = 0, combined_ = 0, taken_ = 0;
  shm::MemoryPath input_path_ = shm::MemoryPath::kNone;
  shm::MemoryPath result_path_ = shm::MemoryPath::kNone;
  MemberRange wanting_;  // of the result
  bool wants_result_ = false;
  bool streaming_ = false;
  bool reads_by_copies_ = false;          // some member's memory, into scratch
  std::vector<shm::MemoryView> results_;  // by member
  std::vector<const void*> operands_;
};

}  // namespace unisono::native
