// Arithmetic of shapes cut along a dimension.
#include "train/dp/pieces.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "train/model/backend.h"

namespace unisono::train {

Pieces::Pieces(Shape whole, std::size_t dim, std::vector<std::size_t> extents)
    : whole_(std::move(whole)), dim_(dim), extents_(std::move(extents)) {
  for (std::size_t axis = 0; axis < whole_.size(); ++axis) {
    if (axis < dim_) outer_ *= whole_[axis];
    if (axis > dim_) inner_ *= whole_[axis];
  }
}

Pieces Pieces::joining(const std::vector<const Shape*>& shapes, std::size_t dim) {
  const auto first =
      std::find_if(shapes.begin(), shapes.end(), [](const Shape* s) { return s != nullptr; });
  if (first == shapes.end()) throw std::invalid_argument("there are no outputs to put together");
  const bool scalars = (*first)->empty();
  if (!scalars && (*first)->size() <= dim) {
    throw std::invalid_argument("outputs " + to_string(**first) + " have no dimension " +
                                std::to_string(dim) + " along which to put them together");
  }
  std::vector<std::size_t> extents;
  for (const Shape* shape : shapes) {
    if (shape == nullptr) {
      extents.push_back(0);
      continue;
    }
    Shape alike = *shape;
    if (!scalars && alike.size() > dim) alike[dim] = (**first)[dim];
    if (alike != **first) {
      throw std::invalid_argument("outputs " + to_string(**first) + " and " + to_string(*shape) +
                                  " of two replicas differ elsewhere than along dimension " +
                                  std::to_string(dim));
    }
    extents.push_back(scalars ? 1 : (*shape)[dim]);
  }
  const std::size_t sum = std::accumulate(extents.begin(), extents.end(), std::size_t{0});
  Shape whole = scalars ? Shape{sum} : **first;
  if (!scalars) whole[dim] = sum;
  Pieces pieces(std::move(whole), scalars ? 0 : dim, std::move(extents));
  pieces.scalars_ = scalars;
  return pieces;
}

Shape Pieces::piece(std::size_t index) const {
  if (scalars_) return {};
  Shape shape = whole_;
  shape[dim_] = index < extents_.size() ? extents_[index] : 0;
  return shape;
}

std::vector<std::size_t> Pieces::counts(std::size_t devices) const {
  std::vector<std::size_t> counts(devices, 0);
  for (std::size_t i = 0; i < std::min(devices, extents_.size()); ++i) {
    counts[i] = extents_[i] * outer_ * inner_;
  }
  return counts;
}

void Pieces::for_each_run(
    const std::function<void(std::size_t, std::size_t, std::size_t)>& fn) const {
  const std::size_t row = whole_[dim_] * inner_;
  std::size_t before = 0, packed = 0;
  for (const std::size_t extent : extents_) {
    for (std::size_t outer = 0; outer < outer_; ++outer) {
      fn(outer * row + before, packed, extent * inner_);
      packed += extent * inner_;
    }
    before += extent * inner_;
  }
}

Tensor Pieces::pack(const Tensor& whole) const {
  Tensor packed = uninitialised_beside(whole);
  Backend& backend = backend_of(whole);
  for_each_run([&](std::size_t at, std::size_t to, std::size_t count) {
    backend.copy(whole.data() + at, count, packed.data() + to);
  });
  return packed;
}

Tensor Pieces::unpack(const Tensor& packed) const {
  Tensor whole = uninitialised_beside(packed);
  Backend& backend = backend_of(packed);
  for_each_run([&](std::size_t to, std::size_t at, std::size_t count) {
    backend.copy(packed.data() + at, count, whole.data() + to);
  });
  return whole;
}

}  // namespace unisono::train
