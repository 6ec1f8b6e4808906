// The body of the reducing kernels: what one of the threads that share a piece does with it. The
// same code is the host twin of the kernel.
//
// A piece whose buffers all lie alike modulo 16 is a short head of single elements, whole units of
// up to 16 bytes, and a tail; head and tail go to the last threads, which have the fewest units.
// Other pieces are single elements. An element is read from all inputs by the thread that writes
// it, before it writes, which is what makes any output equal to any input correct.
//
// Host and device code. No state.
#pragma once

#include "cuda/kernels/arithmetic.h"
#include "cuda/kernels/device_work.h"
#include "cuda/kernels/elements.h"
#include "cuda/kernels/piece_buffers.h"

namespace unisono::cuda {

inline constexpr int kTreeLevels = 5;  ///< complete subtrees of 1, 2, 4, 8 and 16 inputs

/// Where canonical trees split: lo + the largest power of two below hi - lo.
constexpr int split_of(int lo, int hi) {
  int half = 1;
  while (2 * half < hi - lo) half *= 2;
  return lo + half;
}

/// T(kLow, kHigh) of lane `lane` over the values of all inputs, in registers.
template <int kLow, int kHigh, class A, class Value>
UNISONO_HOST_DEVICE typename A::Node tree_of(const A& arithmetic, const Value& value) {
  if constexpr (kHigh - kLow == 1) {
    return arithmetic.leaf(value(kLow));
  } else {
    constexpr int kMiddle = split_of(kLow, kHigh);
    return arithmetic.combine(tree_of<kLow, kMiddle>(arithmetic, value),
                              tree_of<kMiddle, kHigh>(arithmetic, value));
  }
}

/// The canonical tree over inputs that come one after the other: a binary counter of complete
/// subtrees. After input i its levels are the bits of i + 1, and T(0, i + 1) combines them from the
/// right. `i` is a constant in unrolled code, so the levels stay in registers.
template <class A>
struct TreeSoFar {
  using Node = typename A::Node;
  Node level[kTreeLevels];

  UNISONO_HOST_DEVICE void push(const A& arithmetic, int i, Node node) {
    UNISONO_UNROLLED
    for (int l = 0; l < kTreeLevels; ++l) {
      if ((i >> l & 1) == 0) {
        level[l] = node;
        return;
      }
      node = arithmetic.combine(level[l], node);
    }
  }
  /// `n` inputs were pushed, 1 to kWorkRanksMax.
  UNISONO_HOST_DEVICE Node total(const A& arithmetic, int n) const {
    Node node{};
    bool has_node = false;
    UNISONO_UNROLLED
    for (int l = 0; l < kTreeLevels; ++l) {
      if ((n >> l & 1) == 0) continue;
      node = has_node ? arithmetic.combine(level[l], node) : level[l];
      has_node = true;
    }
    return node;
  }
};

/// The result of a tree's root.
template <class A>
UNISONO_HOST_DEVICE typename A::Stored finished_by(const A& arithmetic, const DeviceWork& work,
                                                   typename A::Node node) {
  if constexpr (A::kScales) {
    if (work.finish == WorkFinish::kAverage) return arithmetic.averaged(node);
  }
  return arithmetic.root(node);
}

/// What all elements of a piece share.
template <class A>
struct Reducing {
  using T = typename A::Stored;
  using Node = typename A::Node;

  UNISONO_HOST_DEVICE Reducing(const DeviceWork& of_work, const WorkPiece& piece)
      : work(of_work),
        buffers(of_work, piece),
        arithmetic(of_work),
        aligned(buffers.all_multiples_of(kElementAlignment<T>)) {}

  UNISONO_HOST_DEVICE bool averages() const {
    return A::kScales && work.finish == WorkFinish::kAverage;
  }
  UNISONO_HOST_DEVICE T prepared(T value, int input) const {
    if constexpr (A::kScales) {
      if (work.premultiplied) return arithmetic.scaled(value, work.factors[input]);
    }
    return value;
  }
  UNISONO_HOST_DEVICE T finished(Node node) const { return finished_by(arithmetic, work, node); }
  /// The result over one input, which is `value`.
  UNISONO_HOST_DEVICE T finished_alone(T value) const {
    return averages() ? finished(arithmetic.leaf(value)) : arithmetic.alone(value);
  }

  const DeviceWork& work;
  PieceBuffers buffers;
  A arithmetic;
  bool aligned;  ///< every buffer to kElementAlignment
};

/// Bytes that spread_fixed() loads from each input at once. Eight times 16 bytes of one-byte
/// elements, unpacked, do not fit into the registers.
template <typename T>
UNISONO_HOST_DEVICE constexpr unsigned fixed_unit_bytes(int inputs) {
  return sizeof(T) == 1 && inputs == 8 ? 8 : 16;
}

/// Units over a number of inputs known to the compiler. All loads come before the first store, and
/// kAtOnce units are under way together: the more inputs, the fewer are needed.
template <int kInputs, class A>
UNISONO_HOST_DEVICE void spread_fixed(const Reducing<A>& job, const Split& split,
                                      ThreadOfPiece me) {
  using T = typename A::Stored;
  constexpr int kBytes = fixed_unit_bytes<T>(kInputs);
  constexpr bool kIsDemanding = sizeof(T) == 1 || sizeof(T) == 8;  // unpacking, dividing
  constexpr int kAtOnce = kInputs == 8 ? 1 : (kInputs == 4 ? 2 : 4) / (kIsDemanding ? 2 : 1);
  constexpr int kLanes = kBytes / static_cast<int>(sizeof(T));
  for (std::uint64_t first = me.index; first < split.units; first += me.count * kAtOnce) {
    Unit<kBytes> in[kAtOnce][kInputs] = {};
    UNISONO_UNROLLED
    for (int u = 0; u < kAtOnce; ++u) {
      const std::uint64_t unit = first + u * me.count;
      if (unit >= split.units) continue;
      UNISONO_UNROLLED
      for (int k = 0; k < kInputs; ++k)
        in[u][k] = load_unit<kBytes>(split.at(job.buffers.input(k), unit));
    }
    UNISONO_UNROLLED
    for (int u = 0; u < kAtOnce; ++u) {
      const std::uint64_t unit = first + u * me.count;
      if (unit >= split.units) continue;
      T lanes[kInputs][kLanes];
      T result[kLanes];
      std::memcpy(lanes, in[u], sizeof lanes);
      UNISONO_UNROLLED
      for (int l = 0; l < kLanes; ++l) {
        const auto tree = tree_of<0, kInputs>(job.arithmetic, [&](int k) { return lanes[k][l]; });
        result[l] = job.finished(tree);
      }
      const auto stored = bits_as<Unit<kBytes>>(result);
      job.buffers.for_each_output([&](void* to) { store_unit(split.at(to, unit), stored); });
    }
  }
}

/// kLanes elements at `offset` bytes of any number of inputs. Four inputs are loaded together.
template <int kLanes, class A>
UNISONO_HOST_DEVICE void spread_any(const Reducing<A>& job, std::uint64_t offset) {
  using T = typename A::Stored;
  struct Lanes {
    T lane[kLanes];
  };
  constexpr int kTogether = 4;
  const int inputs = job.buffers.inputs();
  const int zero = unknown_zero();
  TreeSoFar<A> trees[kLanes];
  Lanes result = {};
  UNISONO_UNROLLED
  for (int base = 0; base < kWorkRanksMax; base += kTogether) {
    if (base >= inputs) break;
    Lanes in[kTogether] = {};
    UNISONO_UNROLLED
    for (int j = 0; j < kTogether; ++j) {
      if (base + j < inputs)
        in[j] = load_lanes<Lanes, T>(job.buffers.input(base + j + zero) + offset, job.aligned);
    }
    UNISONO_UNROLLED
    for (int j = 0; j < kTogether; ++j) {
      if (base + j >= inputs) continue;
      UNISONO_UNROLLED
      for (int l = 0; l < kLanes; ++l) {
        const T value = job.prepared(in[j].lane[l], base + j + zero);
        if (base + j == 0) result.lane[l] = value;
        trees[l].push(job.arithmetic, base + j, job.arithmetic.leaf(value));
      }
    }
  }
  UNISONO_UNROLLED
  for (int l = 0; l < kLanes; ++l) {
    result.lane[l] = inputs == 1 ? job.finished_alone(result.lane[l])
                                 : job.finished(trees[l].total(job.arithmetic, inputs));
  }
  job.buffers.for_each_output(
      [&](void* to) { store_lanes<Lanes, T>(advance(to, offset), result, job.aligned); });
}

/// One element of a kPrefix (`shift` 0) or kExclusive (`shift` 1) piece: output j + shift is the
/// operator over inputs 0..j.
template <class A>
UNISONO_HOST_DEVICE void prefix_element(const Reducing<A>& job, std::uint64_t offset, int shift) {
  using T = typename A::Stored;
  const int inputs = job.buffers.inputs();
  const int zero = unknown_zero();
  T in[kWorkRanksMax] = {};
  UNISONO_UNROLLED
  for (int i = 0; i < kWorkRanksMax; ++i) {
    if (i < inputs) in[i] = load_element<T>(job.buffers.input(i + zero) + offset, job.aligned);
  }
  TreeSoFar<A> tree;
  UNISONO_UNROLLED
  for (int i = 0; i < kWorkRanksMax; ++i) {
    if (i + shift >= inputs) break;
    const T value = job.prepared(in[i], i + zero);
    tree.push(job.arithmetic, i, job.arithmetic.leaf(value));
    const T result =
        i == 0 ? job.finished_alone(value) : job.finished(tree.total(job.arithmetic, i + 1));
    if (void* const to = job.buffers.output(i + shift + zero); to != nullptr)
      store_element(advance(to, offset), result, job.aligned);
  }
}

/// Elements per unit of spread_any: at most four, so that their trees fit into registers.
template <typename T>
inline constexpr int kLanesOfAny = sizeof(T) >= 16  ? 1
                                   : sizeof(T) == 8 ? 2
                                                    : 4;

template <class A>
UNISONO_HOST_DEVICE void spread(const Reducing<A>& job, std::uint64_t count, ThreadOfPiece me) {
  using T = typename A::Stored;
  constexpr int kAnyBytes = kLanesOfAny<T> * static_cast<int>(sizeof(T));
  // Integer division and scalars of their own cost registers that the common case has better use
  // for.
  const bool is_plain = !job.work.premultiplied && (kIsFloat<T> || !job.averages());
  const int inputs = job.buffers.inputs();
  const bool fixed = is_plain && (inputs == 2 || inputs == 4 || inputs == 8);
  const Split split(job.buffers, count, sizeof(T), fixed ? fixed_unit_bytes<T>(inputs) : kAnyBytes);
  if (fixed && split.units != 0) {
    if (inputs == 2) spread_fixed<2>(job, split, me);
    if (inputs == 4) spread_fixed<4>(job, split, me);
    if (inputs == 8) spread_fixed<8>(job, split, me);
  } else {
    for (std::uint64_t unit = me.index; unit < split.units; unit += me.count)
      spread_any<kLanesOfAny<T>>(job, split.offset_of_unit(unit));
  }
  for (std::uint64_t i = me.from_the_end(); i < split.singles; i += me.count)
    spread_any<1>(job, split.offset_of_single(i));
}

/// One thread's part of a piece that is reduced.
template <class A>
UNISONO_HOST_DEVICE void reduce_piece(const DeviceWork& work, const WorkPiece& piece,
                                      ThreadOfPiece me) {
  const Reducing<A> job(work, piece);
  if (piece.mode == PieceMode::kSpread) return spread(job, piece.count, me);
  const int shift = piece.mode == PieceMode::kExclusive ? 1 : 0;
  for (std::uint64_t i = me.index; i < piece.count; i += me.count)
    prefix_element(job, i * sizeof(typename A::Stored), shift);
}

}  // namespace unisono::cuda
