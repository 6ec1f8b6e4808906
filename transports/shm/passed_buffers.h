// Buffers that go back and forth between two ranks with the pieces of their messages. A rank writes
// a piece into the buffer that came last from the other: those lines are in its own cache, so each
// goes between the cores once a piece and not twice, there and back (an exchange of 16 KiB between
// two cores of an EPYC: 0.8 us instead of 2.4). Who has no buffer uses the ring, as do messages
// that only go one way.
//
// A buffer belongs to the rank that its last piece was sent to. The record that tells of the piece
// hands the buffer over, too, so nothing is given back or counted. At first each rank has those at
// the end of the ring that it writes.
//
// Thread rule: both ends of a pair's rings on one side use this, on the thread of their engine.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/assert.h"

namespace unisono::shm {

/// Of one ring, at most; the record of a piece has room for the numbers of twice as many.
inline constexpr int kRingBuffersMax = 4;

class PassedBuffers {
 public:
  /// The two rings have `count` buffers each. Numbers below `count` belong to one rank's ring, the
  /// others to the other's: `is_first` says to whose, and both ranks must agree.
  PassedBuffers(int count, bool is_first) : count_(count), is_first_(is_first) {
    for (int i = 0; i < count_; ++i) held_ |= bit(number_of(i, true));
  }

  int count() const { return count_; }
  /// Those of the ring that this rank writes can be used from now on.
  void add_own(std::byte* first, std::size_t bytes) {
    add_memory(first, bytes, true);
    for (int i = 0; i < count_; ++i)
      stack_[static_cast<std::size_t>(depth_++)] = number_of(i, true);
  }
  void add_theirs(std::byte* first, std::size_t bytes) { add_memory(first, bytes, false); }

  /// The number of the one that came last; -1: none is here. It is the other rank's then.
  int take() {
    if (depth_ == 0) return -1;
    const std::uint8_t number = stack_[static_cast<std::size_t>(--depth_)];
    held_ &= ~bit(number);
    return number;
  }
  std::byte* memory(int number) const { return memory_[static_cast<std::size_t>(number)]; }
  /// Whether the other rank has the buffer of that number, which anybody may have written.
  bool is_theirs(int number) const { return number < 2 * count_ && (held_ & bit(number)) == 0; }
  /// The other rank has sent it, and what was in it has been read.
  void came(int number) {
    UNISONO_ASSERT(is_theirs(number), "a buffer comes from the rank that has it");
    held_ |= bit(number);
    stack_[static_cast<std::size_t>(depth_++)] = static_cast<std::uint8_t>(number);
  }

 private:
  static std::uint32_t bit(int number) { return 1u << number; }
  std::uint8_t number_of(int index, bool own) const {
    return static_cast<std::uint8_t>(own == is_first_ ? index : count_ + index);
  }
  void add_memory(std::byte* first, std::size_t bytes, bool own) {
    for (int i = 0; i < count_; ++i) {
      memory_[number_of(i, own)] = first + static_cast<std::size_t>(i) * bytes;
    }
  }

  int count_;
  bool is_first_;
  std::uint32_t held_ = 0;  // a bit for each that this rank has
  int depth_ = 0;
  std::array<std::uint8_t, 2 * kRingBuffersMax> stack_{};  // of numbers; the last is what came last
  std::array<std::byte*, 2 * kRingBuffersMax> memory_{};
};

}  // namespace unisono::shm
