// What every form of a call is made of: the buffers that it takes, and the call as a value.
#pragma once

#include <cstddef>
#include <ranges>
#include <span>
#include <type_traits>

#include "unisono/options.h"
#include "unisono/types.h"

namespace unisono {

/// Anything laid out like an array of a supported element type: std::vector, std::span,
/// std::array.
template <typename R>
concept Buffer = std::ranges::contiguous_range<R> && std::ranges::sized_range<R> &&
    Element<std::ranges::range_value_t<R>>;

/// What outlives the expression it stands in: a variable, or a view such as std::span.
template <typename R>
concept Lasting = std::is_lvalue_reference_v<R> || std::ranges::borrowed_range<R>;

/// A buffer that a call may use after the expression has ended.
template <typename R>
concept LentBuffer = Buffer<R> && Lasting<R>;

template <Buffer R>
using ElementOf = std::remove_cv_t<std::ranges::range_value_t<R>>;

/// One call with everything it needs, untyped: what all forms of a call become. Which members
/// matter depends on the collective; see the functions of Collectives.
struct Call {
  Collective collective = Collective::kBarrier;
  const void* in = nullptr;
  void* out = nullptr;
  std::size_t count = 0;
  DataType type = DataType::kUint8;
  ReduceOp op{};
  Rank root = 0;        ///< of rooted collectives
  Rank peer = kNoRank;  ///< of send and receive
  Tag tag = 0;
  std::span<const std::size_t> in_counts{}, in_displacements{};
  std::span<const std::size_t> out_counts{}, out_displacements{};
  CallOptions options{};
};

}  // namespace unisono
