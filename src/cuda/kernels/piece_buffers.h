// The buffers of one piece, how they lie in memory, and how their elements are shared out: whole
// units that one instruction moves, and single elements before, behind, or instead of them.
//
// Host and device code. Values.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/kernels/device_work.h"
#include "cuda/kernels/elements.h"

namespace unisono::cuda {

/// One of the `count` threads that share a piece.
struct ThreadOfPiece {
  std::uint64_t index;
  std::uint64_t count;

  UNISONO_HOST_DEVICE std::uint64_t from_the_end() const { return count - 1 - index; }
};

UNISONO_HOST_DEVICE void* advance(void* pointer, std::uint64_t bytes) {
  return static_cast<std::byte*>(pointer) + bytes;
}

/// Zero, which the compiler cannot know: what is indexed with it is read in each round of a loop
/// from the constant bank where kernel parameters lie, and not kept in registers around the loop.
UNISONO_HOST_DEVICE int unknown_zero() {
  int zero = 0;
#ifdef __CUDA_ARCH__
  asm volatile("" : "+r"(zero));
#endif
  return zero;
}

/// Bytes from an address, of which the low bits are given, to the next multiple of `width`.
UNISONO_HOST_DEVICE unsigned head_bytes(unsigned low_bits, unsigned width) {
  return (0u - low_bits) & (width - 1);
}

/// Calls store(output) for those that are not null. A loop, not unrolled: the addresses are read
/// when they are needed instead of occupying registers.
template <class Store>
UNISONO_HOST_DEVICE void for_outputs(void* const* outputs, int count, const Store& store) {
  UNISONO_ROLLED
  for (int j = 0; j < count; ++j) {
    if (void* const to = outputs[j]; to != nullptr) store(to);
  }
}

class PieceBuffers {
 public:
  UNISONO_HOST_DEVICE PieceBuffers(const DeviceWork& work, const WorkPiece& piece)
      : inputs_(work.pointers + piece.first_input),
        outputs_(work.pointers + piece.first_output),
        input_count_(piece.inputs),
        output_count_(piece.outputs) {
    low_bits_ = address_of(inputs_[0]);
    for (int i = 1; i < input_count_; ++i) differences_ |= address_of(inputs_[i]) ^ low_bits_;
    for (int j = 0; j < output_count_; ++j) {
      if (outputs_[j] != nullptr) differences_ |= address_of(outputs_[j]) ^ low_bits_;
    }
  }

  UNISONO_HOST_DEVICE int inputs() const { return input_count_; }
  UNISONO_HOST_DEVICE const std::byte* input(int i) const {
    return static_cast<const std::byte*>(inputs_[i]);
  }
  /// May be null.
  UNISONO_HOST_DEVICE void* output(int j) const { return outputs_[j]; }

  template <class Store>
  UNISONO_HOST_DEVICE void for_each_output(const Store& store) const {
    for_outputs(outputs_, output_count_, store);
  }

  /// The widest power of two up to 16 by which all buffers are equally misaligned.
  UNISONO_HOST_DEVICE unsigned common_width() const {
    const unsigned differences = differences_ & 15u;
    return differences == 0 ? 16 : differences & (0u - differences);
  }
  UNISONO_HOST_DEVICE bool all_multiples_of(unsigned bytes) const {
    return ((low_bits_ | differences_) & (bytes - 1)) == 0;
  }
  /// Bytes before the first multiple of `width`, which is at most common_width().
  UNISONO_HOST_DEVICE unsigned head(unsigned width) const { return head_bytes(low_bits_, width); }

 private:
  static UNISONO_HOST_DEVICE unsigned address_of(const void* pointer) {
    return static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(pointer));
  }

  void* const* inputs_;
  void* const* outputs_;
  int input_count_;
  int output_count_;
  unsigned low_bits_ = 0;
  unsigned differences_ = 0;
};

/// `count` elements as `units` of `unit_bytes` and `singles` elements, some before the units and
/// the others behind. No units where the buffers do not lie alike.
struct Split {
  UNISONO_HOST_DEVICE Split(const PieceBuffers& buffers, std::uint64_t count,
                            unsigned of_element_bytes, unsigned of_unit_bytes)
      : element_bytes(of_element_bytes), unit_bytes(of_unit_bytes), singles(count) {
    const unsigned head = buffers.head(unit_bytes);
    const bool fits = buffers.common_width() >= unit_bytes && head % element_bytes == 0;
    if (fits) begin_units_behind(head / element_bytes, count);
  }
  /// Of buffers that are known to lie alike, by the address of one of them.
  UNISONO_HOST_DEVICE Split(const std::byte* buffer, std::uint64_t count, unsigned of_element_bytes,
                            unsigned of_unit_bytes)
      : element_bytes(of_element_bytes), unit_bytes(of_unit_bytes), singles(count) {
    const auto low_bits = static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(buffer));
    begin_units_behind(head_bytes(low_bits, unit_bytes) / element_bytes, count);
  }

  UNISONO_HOST_DEVICE void begin_units_behind(unsigned head_elements, std::uint64_t count) {
    if (head_elements >= count) return;
    const unsigned unit_elements = unit_bytes / element_bytes;
    before = head_elements;
    units = (count - before) / unit_elements;
    singles = count - units * unit_elements;
  }

  UNISONO_HOST_DEVICE std::uint64_t offset_of_unit(std::uint64_t unit) const {
    return before * element_bytes + unit * unit_bytes;
  }
  UNISONO_HOST_DEVICE std::uint64_t offset_of_single(std::uint64_t i) const {
    return i * element_bytes + (i < before ? 0 : units * unit_bytes);
  }
  UNISONO_HOST_DEVICE const std::byte* at(const std::byte* buffer, std::uint64_t unit) const {
    return buffer + offset_of_unit(unit);
  }
  UNISONO_HOST_DEVICE void* at(void* buffer, std::uint64_t unit) const {
    return advance(buffer, offset_of_unit(unit));
  }

  unsigned element_bytes;
  unsigned unit_bytes;
  std::uint64_t before = 0;  ///< singles that come before the units
  std::uint64_t units = 0;
  std::uint64_t singles;
};

/// Elements of type T in a struct `Lanes`: as one unit if there are several, which their buffers
/// are aligned for; else as a single element.
template <class Lanes, typename T>
UNISONO_HOST_DEVICE Lanes load_lanes(const std::byte* from, bool aligned) {
  if constexpr (sizeof(Lanes) == sizeof(T)) {
    return {load_element<T>(from, aligned)};
  } else {
    return bits_as<Lanes>(load_unit<sizeof(Lanes)>(from));
  }
}
template <class Lanes, typename T>
UNISONO_HOST_DEVICE void store_lanes(void* to, const Lanes& lanes, bool aligned) {
  if constexpr (sizeof(Lanes) == sizeof(T)) {
    store_element(to, lanes.lane[0], aligned);
  } else {
    store_unit(to, bits_as<Unit<sizeof(Lanes)>>(lanes));
  }
}

}  // namespace unisono::cuda
