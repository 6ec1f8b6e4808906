// Arenas: named ranges end to end in one tensor.
#include <utility>

#include "train/model/backend.h"
#include "unisono/train/model.h"

namespace unisono::train {

int Arena::add(std::string name, Shape shape) {
  if (!storage_.empty()) {
    throw std::invalid_argument("arena: '" + name + "' is added after allocate()");
  }
  if (find(name) >= 0) throw std::invalid_argument("arena: two entries are named '" + name + "'");
  const std::size_t count = element_count(shape);
  entries_.push_back({std::move(name), std::move(shape), size_, count});
  size_ += count;
  return static_cast<int>(entries_.size()) - 1;
}

void Arena::allocate() { storage_ = Tensor({size_}); }

void Arena::zero() {
  if (size_ != 0) backend_of(*this).fill(storage_.data(), size_, 0.0F);
}

std::vector<float> Arena::read() const { return host_copy(backend_of(*this), values()); }

void Arena::write(std::span<const float> host) {
  if (host.size() != storage_.size()) {
    throw std::invalid_argument("arena: " + std::to_string(host.size()) + " values for " +
                                std::to_string(storage_.size()));
  }
  if (!host.empty()) backend_of(*this).write(host.data(), host.size(), storage_.data());
}

std::span<float> Arena::operator[](int index) {
  const Entry& entry = entries_.at(static_cast<std::size_t>(index));
  return storage_.values().subspan(entry.offset, entry.count);
}

std::span<const float> Arena::operator[](int index) const {
  const Entry& entry = entries_.at(static_cast<std::size_t>(index));
  return storage_.values().subspan(entry.offset, entry.count);
}

int Arena::find(std::string_view name) const {
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

}  // namespace unisono::train
