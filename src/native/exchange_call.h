// All large collectives but all_reduce and reduce: every rank gives its input, whole or in a part
// per reader, and takes blocks from its sources, which it copies side by side or combines.
//
//   slot of a broadcast, all_gather, gather, scan:  |          chunk k of the input           |
//   slot of a scatter, all_to_all, reduce_scatter:  | piece k for the next rank | ... |
//
// The last piece is the rank's own, where what it gives is prepared; else it reads its input.
//
// In rounds: round k takes piece k of every block. A rank that is ahead is held up by the number
// of slots alone.
//
// Where one rank gives all, or takes all, chunks go around a rotation, from call to call: who
// writes a line that a reader has just read fetches it from that one's cache, which takes several
// times as long as from one that both share. Two ranks have memory for that, in which what is
// written past the caches has a part of its own, because either way leaves lines where the other
// would not; each of more goes around its own window. The giver tells in its offer which part, and
// where its first chunk lies there.
//
// Blocks whose length the ranks have not agreed on (v-collectives) come with a table in the cell;
// where they are small, so do the blocks.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "native/large_call.h"

namespace unisono::native {

class ExchangeCall final : public LargeCall {
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

  void choose_units();
  /// What others read is not the rank's own input.
  bool is_prepared() const { return transfer_.combines && reduction_->prepares(); }
  void plan_input(Offer* offer);
  void plan_chunks();
  bool has_table() const {
    return transfer_.in_parts && transfer_.largest_input_bytes == kNotAgreed;
  }
  std::size_t table_bytes() const;
  std::size_t packed_bytes() const;
  void write_table_and_blocks();
  bool overwrites_input() const;
  void plan_places(Offer* offer);
  std::span<std::byte> rotation_of(int owner, bool streamed) const;
  Status accept_places(int member, std::uint64_t told);
  std::byte* place_of(int owner, std::uint64_t chunk) const;
  std::byte* part_in_slot(int owner, int reader, std::uint64_t chunk) const;

  bool can_fill() const;
  void fill();
  void put(std::byte* to, const std::byte* from, std::size_t bytes) const;
  bool is_ready(int source) const;
  bool is_awaited_source(int member) const;
  /// True when the next chunk of the input must be in the window before the output is written.
  bool fills_first() const;
  bool take();
  bool take_next_copy();
  bool take_own();
  bool take_own_early();
  void copy_out(std::byte* to, const std::byte* from, std::size_t bytes);
  void end_source();
  bool take_combined();
  void combine_piece(std::size_t offset, std::size_t bytes);
  const std::byte* own_source(std::size_t offset) const;
  void end_round();

  std::size_t unit_ = 0;              // bytes of a block that one round moves
  std::size_t single_copy_unit_ = 0;  // a multiple: one system call's
  std::size_t place_bytes_ = 0;       // of a chunk that goes around; 0: chunks lie in slots
  std::array<std::size_t, 2> place_counts_{};  // of each part; 0: chunks lie in slots
  std::array<std::size_t, 2> next_place_{};    // this rank's, by part: the offset behind the last
  std::uint64_t own_places_ = 0;               // what this rank tells of where its chunks lie
  std::uint64_t fill_chunks_ = 0, filled_ = 0;
  std::uint64_t rounds_ = 0, round_ = 0;
  std::uint64_t own_taken_ = 0;  // pieces of this rank's own block
  int taken_in_round_ = 0;       // sources, counted from the one after this rank
  shm::MemoryPath path_ = shm::MemoryPath::kNone;
  bool own_from_offer_ = false;  // its own block is read from its slot or cell (prepared input)
  bool fills_before_taking_ = false;
  bool keeps_filling_ = false;  // while a slot is free
  bool streaming_ = false;
  std::vector<const void*> operands_;
};

}  // namespace unisono::native
