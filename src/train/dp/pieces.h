// How one tensor is cut along a dimension, or put together from pieces: shapes, counts, and the
// order of elements in which pieces lie end to end, as scatter_v and gather_v move them.
//
// Values without state to share; safe from any thread.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "unisono/train/tensor.h"

namespace unisono::train {

class Pieces {
 public:
  Pieces() = default;
  /// Cuts `whole` along `dim`, where the extents sum up to its extent; an extent may be 0.
  Pieces(Shape whole, std::size_t dim, std::vector<std::size_t> extents);
  /// Puts pieces of these shapes together along `dim`; scalars become a vector. A null pointer is a
  /// device without a piece. std::invalid_argument when other extents differ.
  static Pieces joining(const std::vector<const Shape*>& shapes, std::size_t dim);

  const Shape& whole() const { return whole_; }
  Shape piece(std::size_t index) const;
  /// Elements of each of `devices` pieces; 0 for those that there are not.
  std::vector<std::size_t> counts(std::size_t devices) const;

  /// Pieces that lie end to end in the whole tensor as it is need neither of the next two.
  bool are_end_to_end() const { return outer_ == 1; }
  Tensor pack(const Tensor& whole) const;
  Tensor unpack(const Tensor& packed) const;

 private:
  void for_each_run(const std::function<void(std::size_t whole, std::size_t packed,
                                             std::size_t count)>& fn) const;

  Shape whole_;
  std::size_t dim_ = 0;
  std::vector<std::size_t> extents_;
  std::size_t outer_ = 1, inner_ = 1;  ///< elements per index before and behind dim
  bool scalars_ = false;
};

}  // namespace unisono::train
