// The bodies of the kernels for the commonest work: sums over two, four or eight inputs and copies
// of one, in pieces whose buffers all lie alike (Kernels::launch() looks). Each thread has one unit
// of 16 bytes: what is under way lies together in memory then, which serves more of it than threads
// that stay and stride through it (README.md, "Speed").
//
// Host and device code. No state.
#pragma once

#include "cuda/kernels/device_work.h"
#include "cuda/kernels/elements.h"
#include "cuda/kernels/piece_buffers.h"
#include "cuda/kernels/work_loop.h"

namespace unisono::cuda {

inline constexpr unsigned kUnitBytes = 16;

/// A piece as units and the single elements before and behind them, by its first input.
struct Units {
  UNISONO_HOST_DEVICE Units(const DeviceWork& work, const WorkPiece& piece, unsigned element)
      : first(static_cast<const std::byte*>(work.pointers[piece.first_input])),
        element_bytes(element) {
    const auto address = reinterpret_cast<std::uintptr_t>(first);
    const std::uint64_t head = ((0u - static_cast<unsigned>(address)) & (kUnitBytes - 1)) / element;
    before = head < piece.count ? head : piece.count;
    const unsigned in_a_unit = kUnitBytes / element;
    units = (piece.count - before) / in_a_unit;
    singles = piece.count - units * in_a_unit;
  }

  /// Of unit or single `i`, of `units + singles`.
  UNISONO_HOST_DEVICE bool is_unit(std::uint64_t i) const { return i < units; }
  UNISONO_HOST_DEVICE std::uint64_t offset_of(std::uint64_t i) const {
    if (is_unit(i)) return before * element_bytes + i * kUnitBytes;
    const std::uint64_t single = i - units;
    return single * element_bytes + (single < before ? 0 : units * kUnitBytes);
  }

  const std::byte* first;
  unsigned element_bytes;
  std::uint64_t before;
  std::uint64_t units;
  std::uint64_t singles;
};

/// Calls store(output) for those that are there.
template <class Store>
UNISONO_HOST_DEVICE void for_outputs(const DeviceWork& work, const WorkPiece& piece,
                                     const Store& store) {
  UNISONO_ROLLED
  for (int j = 0; j < piece.outputs; ++j) {
    if (void* const to = work.pointers[piece.first_output + j]; to != nullptr) store(to);
  }
}

/// `count` is in bytes.
UNISONO_HOST_DEVICE void copy_piece_by_units(const DeviceWork& work, const WorkPiece& piece,
                                             ThreadOfPiece me) {
  const Units split(work, piece, 1);
  const auto copy = [&](auto unit, std::uint64_t offset) {
    for_outputs(work, piece, [&](void* to) {
      if (to != split.first) store_unit(advance(to, offset), unit);
    });
  };
  for (std::uint64_t i = me.index; i < split.units + split.singles; i += me.count) {
    const std::uint64_t offset = split.offset_of(i);
    if (split.is_unit(i)) {
      copy(load_unit<kUnitBytes>(split.first + offset), offset);
    } else {
      copy(load_unit<1>(split.first + offset), offset);
    }
  }
}

/// kLanes elements at `offset`, all inputs read before the first output is written.
template <int kInputs, class A, class Lanes>
UNISONO_HOST_DEVICE void reduce_lanes(const A& arithmetic, const DeviceWork& work,
                                      const WorkPiece& piece, std::uint64_t offset) {
  using T = typename A::Stored;
  constexpr int kLanes = sizeof(Lanes) / sizeof(T);
  Lanes in[kInputs];
  UNISONO_UNROLLED
  for (int k = 0; k < kInputs; ++k) {
    in[k] = load_lanes<Lanes, T>(
        static_cast<const std::byte*>(work.pointers[piece.first_input + k]) + offset, true);
  }
  Lanes result;
  UNISONO_UNROLLED
  for (int l = 0; l < kLanes; ++l) {
    const auto tree = tree_of<0, kInputs>(arithmetic, [&](int k) { return in[k].lane[l]; });
    result.lane[l] = finished_by(arithmetic, work, tree);
  }
  for_outputs(work, piece,
              [&](void* to) { store_lanes<Lanes, T>(advance(to, offset), result, true); });
}

template <int kInputs, class A>
UNISONO_HOST_DEVICE void reduce_piece_by_units(const DeviceWork& work, const WorkPiece& piece,
                                               ThreadOfPiece me) {
  using T = typename A::Stored;
  struct Unit {
    T lane[kUnitBytes / sizeof(T)];
  };
  struct Single {
    T lane[1];
  };
  const A arithmetic(work);
  const Units split(work, piece, sizeof(T));
  for (std::uint64_t i = me.index; i < split.units + split.singles; i += me.count) {
    const std::uint64_t offset = split.offset_of(i);
    if (split.is_unit(i)) {
      reduce_lanes<kInputs, A, Unit>(arithmetic, work, piece, offset);
    } else {
      reduce_lanes<kInputs, A, Single>(arithmetic, work, piece, offset);
    }
  }
}

}  // namespace unisono::cuda
