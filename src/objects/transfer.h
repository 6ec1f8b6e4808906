// The second half of every object call, after the announcement: memory for the result, and moving
// without leaving a rank waiting when this one cannot go on.
// Thread rule: as Communicator.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <vector>

#include "objects/announcement.h"
#include "objects/guarded.h"
#include "objects/stream.h"

namespace unisono::objects {

/// Objects above this are received where they stay; smaller ones are packed into rounds.
inline constexpr std::uint64_t kDirectMin = std::uint64_t{1} << 20;

std::uint64_t sum_of(std::span<const std::uint64_t> sizes);
/// The sizes of what goes in rounds, the others zero.
std::vector<std::uint64_t> small_sizes(std::vector<std::uint64_t> sizes);

/// Calls move(rank, offset, count) for every large object, in steps that no deadline is too short
/// for.
template <typename Move>
void for_each_large(std::span<const std::uint64_t> sizes, std::uint64_t staging, const Move& move) {
  const std::uint64_t step = std::max(staging, kDirectMin);
  for (std::size_t r = 0; r < sizes.size(); ++r) {
    if (sizes[r] <= kDirectMin) continue;
    for (std::uint64_t offset = 0; offset < sizes[r]; offset += step) {
      move(static_cast<Rank>(r), offset, std::min(step, sizes[r] - offset));
    }
  }
}

/// The part of one rank in a call that has its bytes in memory, or why there are none.
struct Part {
  std::span<const std::byte> bytes;
  std::exception_ptr failure;
};

/// announce(), except that this rank's own failure is what it throws.
Agreement announce_part(Communicator& communicator, Announcement own,
                        const std::exception_ptr& failure, const ObjectOptions& options);
/// The announcement of a part; `root` -1: the call has none.
Announcement announcement_of(const Communicator& communicator, Kind kind, const Part& part,
                             Rank root);

/// Of so many bytes of objects, whose number all ranks know: they learn whose memory does not
/// suffice, and then all throw kOutOfResources.
void tell_shortage(Communicator& communicator, Kind kind, std::uint64_t total,
                   const CallOptions& options, bool is_short);

/// Runs `allocate`, for `total` bytes on some ranks, the same number on all. Large: what it throws
/// is told as a shortage. Small: aborts as move_guarded() does.
template <typename Allocate>
void allocate_result(Communicator& communicator, Kind kind, std::uint64_t total,
                     const CallOptions& options, const Allocate& allocate) {
  if (total <= kDirectMin) return move_guarded(communicator, kind, allocate);
  bool is_short = false;
  try {
    allocate();
  } catch (...) {  // a user's type may throw anything as it is made
    is_short = true;
  }
  tell_shortage(communicator, kind, total, options, is_short);
}

/// After a stream: rethrows this rank's callback failure, or throws for a producer's elsewhere.
void settle(Communicator& communicator, Kind kind, const Stream& stream, const Agreement& agreement,
            const CallOptions& options);

}  // namespace unisono::objects
