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

UNISONO_HOST_DEVICE const std::byte* input_of(const DeviceWork& work, const WorkPiece& piece,
                                              int i) {
  return static_cast<const std::byte*>(work.pointers[piece.first_input + i]);
}

/// The piece as units and single elements.
UNISONO_HOST_DEVICE Split units_of(const DeviceWork& work, const WorkPiece& piece,
                                   unsigned element_bytes) {
  return {input_of(work, piece, 0), piece.count, element_bytes, kUnitBytes};
}

/// Calls store(output) for those that are there.
template <class Store>
UNISONO_HOST_DEVICE void for_outputs(const DeviceWork& work, const WorkPiece& piece,
                                     const Store& store) {
  for_outputs(work.pointers + piece.first_output, piece.outputs, store);
}

/// `count` is in bytes.
UNISONO_HOST_DEVICE void copy_piece_by_units(const DeviceWork& work, const WorkPiece& piece,
                                             ThreadOfPiece me) {
  const Split split = units_of(work, piece, 1);
  const std::byte* const from = input_of(work, piece, 0);
  const auto copy = [&](auto unit, std::uint64_t offset) {
    for_outputs(work, piece, [&](void* to) {
      if (to != from) store_unit(advance(to, offset), unit);
    });
  };
  for (std::uint64_t i = me.index; i < split.units + split.singles; i += me.count) {
    if (i < split.units) {
      const std::uint64_t offset = split.offset_of_unit(i);
      copy(load_unit<kUnitBytes>(from + offset), offset);
    } else {
      const std::uint64_t offset = split.offset_of_single(i - split.units);
      copy(load_unit<1>(from + offset), offset);
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
    in[k] = load_lanes<Lanes, T>(input_of(work, piece, k) + offset, true);
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
  const Split split = units_of(work, piece, sizeof(T));
  for (std::uint64_t i = me.index; i < split.units + split.singles; i += me.count) {
    if (i < split.units) {
      reduce_lanes<kInputs, A, Unit>(arithmetic, work, piece, split.offset_of_unit(i));
    } else {
      const std::uint64_t offset = split.offset_of_single(i - split.units);
      reduce_lanes<kInputs, A, Single>(arithmetic, work, piece, offset);
    }
  }
}

}  // namespace unisono::cuda
