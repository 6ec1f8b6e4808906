// An all-reduce of any number of vectors of each rank: of micro-batches, for example.
//
//   std::vector<std::span<const float>> gradients;  // one of each micro-batch of this rank
//   all_reduce_addends(comm, gradients, mean, ops::average, {.order = Order::kExact});
//
// The result is that of an all_reduce in which every addend is the input of a rank of its own,
// numbered by rank and then as they are given; an average divides by their number. So it depends on
// the addends and not on how they are dealt out to ranks, nor on how many ranks there are: in
// Order::kCanonical, the least that this call keeps, while their sequence is the same, and in
// Order::kExact whatever it is.
//
// Shapes: every addend and `out` have the same number of elements, on all ranks. A rank may have no
// addend; all ranks together have at least one and at most kAddendsMax. `out` may be one of the
// addends and overlaps none otherwise. Host memory.
//
// Cost: every rank sends its addends once, and the result. Staging memory is 8 MiB, or what 16
// elements of every addend take for each rank.
//
// Errors: what is wrong with one rank's part is an Error with that rank on every rank, before
// anything else is sent, and the communicator stays usable: kInvalidArgument, and kMismatch where
// the ranks' calls differ. A rank without the memory aborts. Others as all_reduce, in the name of
// the collectives that this call is made of; `timeout` is each one's. Threads as Communicator.
#pragma once

#include <cstddef>
#include <ranges>
#include <span>
#include <type_traits>
#include <vector>

#include "unisono/communicator.h"
#include "unisono/export.h"
#include "unisono/options.h"
#include "unisono/types.h"

namespace unisono {

inline constexpr std::size_t kAddendsMax = 4096;

UNISONO_API void all_reduce_addends(Communicator& communicator,
                                    std::span<const void* const> addends, void* out,
                                    std::size_t count, DataType type, ReduceOp op,
                                    const CallOptions& options = {});

namespace detail {
inline constexpr std::size_t kOtherType = ~std::size_t{0};

/// Throws kInvalidArgument unless all lengths are `count`, on every rank. kOtherType: of an addend
/// of another type.
UNISONO_API void all_reduce_addends(Communicator& communicator,
                                    std::span<const void* const> addends,
                                    std::span<const std::size_t> lengths, void* out,
                                    std::size_t count, DataType type, ReduceOp op,
                                    const CallOptions& options);
/// Makes the call without addends, so that the other ranks hear that this one cannot give its own.
/// Why is for the caller to say.
UNISONO_API void refuse_addends(Communicator& communicator,
                                const CallOptions& options = {}) noexcept;
}  // namespace detail

/// Of typed buffers: `addends` is a range of them.
template <std::ranges::range Addends, Buffer Out>
void all_reduce_addends(Communicator& communicator, const Addends& addends, Out&& out, ReduceOp op,
                        const CallOptions& options = {}) {
  using T = ElementOf<Out>;
  std::vector<const void*> places;
  std::vector<std::size_t> lengths;
  for (const auto& addend : addends) {
    static_assert(std::is_same_v<ElementOf<decltype(addend)>, T>);
    places.push_back(std::ranges::data(addend));
    lengths.push_back(std::ranges::size(addend));
  }
  detail::all_reduce_addends(communicator, places, lengths, std::ranges::data(out),
                             std::ranges::size(out), data_type_of<T>, op, options);
}

}  // namespace unisono
