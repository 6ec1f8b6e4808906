// The body of the kernel that moves bytes and computes nothing: one input to any number of outputs,
// or input j to output j. `count` of a piece is in bytes, whatever its elements are, and units are
// as wide as the addresses allow.
//
// Host and device code. No state.
#pragma once

#include "cuda/kernels/device_work.h"
#include "cuda/kernels/elements.h"
#include "cuda/kernels/piece_buffers.h"

namespace unisono::cuda {

/// One input to all outputs but those that are the input itself.
template <int kBytes>
UNISONO_HOST_DEVICE void copy_units(const PieceBuffers& buffers, const Split& split,
                                    ThreadOfPiece me) {
  constexpr int kAtOnce = 4;
  for (std::uint64_t first = me.index; first < split.units; first += me.count * kAtOnce) {
    Unit<kBytes> in[kAtOnce] = {};
    UNISONO_UNROLLED
    for (int u = 0; u < kAtOnce; ++u) {
      const std::uint64_t unit = first + u * me.count;
      if (unit < split.units) in[u] = load_unit<kBytes>(split.at(buffers.input(0), unit));
    }
    buffers.for_each_output([&](void* to) {
      if (to == buffers.input(0)) return;
      UNISONO_UNROLLED
      for (int u = 0; u < kAtOnce; ++u) {
        const std::uint64_t unit = first + u * me.count;
        if (unit < split.units) store_unit(split.at(to, unit), in[u]);
      }
    });
  }
}

/// Input j to output j, kBytes at `offset`, all of them read before the first is written.
template <int kBytes>
UNISONO_HOST_DEVICE void permute_unit(const PieceBuffers& buffers, std::uint64_t offset) {
  Unit<kBytes> in[kWorkRanksMax] = {};
  UNISONO_UNROLLED
  for (int j = 0; j < kWorkRanksMax; ++j) {
    if (j < buffers.inputs()) in[j] = load_unit<kBytes>(buffers.input(j) + offset);
  }
  UNISONO_UNROLLED
  for (int j = 0; j < kWorkRanksMax; ++j) {
    if (j >= buffers.inputs()) break;
    if (void* const to = buffers.output(j); to != nullptr) store_unit(advance(to, offset), in[j]);
  }
}

template <int kBytes>
UNISONO_HOST_DEVICE void move_units(const PieceBuffers& buffers, const WorkPiece& piece,
                                    ThreadOfPiece me) {
  const Split split(buffers, piece.count, 1, kBytes);
  if (piece.mode == PieceMode::kPermute) {
    for (std::uint64_t unit = me.index; unit < split.units; unit += me.count)
      permute_unit<kBytes>(buffers, split.offset_of_unit(unit));
    for (std::uint64_t i = me.from_the_end(); i < split.singles; i += me.count)
      permute_unit<1>(buffers, split.offset_of_single(i));
    return;
  }
  copy_units<kBytes>(buffers, split, me);
  for (std::uint64_t i = me.from_the_end(); i < split.singles; i += me.count) {
    const std::uint64_t offset = split.offset_of_single(i);
    const Unit<1> byte = load_unit<1>(buffers.input(0) + offset);
    buffers.for_each_output([&](void* to) { store_unit(advance(to, offset), byte); });
  }
}

/// One thread's part of a piece that is moved. Units of kPermute are at most 8 bytes, of which 16
/// inputs leave registers for the addresses.
UNISONO_HOST_DEVICE void move_piece(const DeviceWork& work, const WorkPiece& piece,
                                    ThreadOfPiece me) {
  const PieceBuffers buffers(work, piece);
  const unsigned width = buffers.common_width();
  if (width == 16 && piece.mode != PieceMode::kPermute) return move_units<16>(buffers, piece, me);
  if (width >= 8) return move_units<8>(buffers, piece, me);
  if (width == 4) return move_units<4>(buffers, piece, me);
  if (width == 2) return move_units<2>(buffers, piece, me);
  move_units<1>(buffers, piece, me);
}

}  // namespace unisono::cuda
