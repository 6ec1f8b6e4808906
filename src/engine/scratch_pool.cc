#include "engine/scratch_pool.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <numeric>
#include <utility>

namespace unisono {

ScratchPool::Block& ScratchPool::Block::operator=(Block&& other) noexcept {
  if (this != &other) {
    if (data_ != nullptr) pool_->give_back(data_, bytes_);
    pool_ = other.pool_;
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
  }
  return *this;
}

ScratchPool::Block::~Block() {
  if (data_ != nullptr) pool_->give_back(data_, bytes_);
}

ScratchPool::FreedList::~FreedList() {
  for (const Freed& block : *this) std::free(block.data);
}

Result<ScratchPool::Block> ScratchPool::take(std::size_t bytes) {
  Block block;
  block.pool_ = this;
  if (bytes == 0) return block;
  // Few sizes, so that blocks are found again.
  const std::size_t rounded = bytes <= 4096         ? 4096
                              : bytes <= bytes_max_ ? std::bit_ceil(bytes)
                                                    : bytes;  // refused below, whatever it is
  const auto found = std::find_if(free_.begin(), free_.end(),
                                  [&](const Freed& freed) { return freed.bytes == rounded; });
  if (found != free_.end()) {
    block.data_ = found->data;
    block.bytes_ = rounded;
    free_.erase(found);
    return block;
  }
  const auto room = [this] { return bytes_max_ - std::min(in_use_, bytes_max_); };
  while (rounded > room() && !free_.empty()) {
    std::free(free_.back().data);
    in_use_ -= free_.back().bytes;
    free_.pop_back();
    --blocks_;
  }
  if (rounded > room()) {
    return Status(ErrorCode::kOutOfResources,
                  "the call needs " + std::to_string(bytes) + " bytes of scratch memory and " +
                      std::to_string(room()) +
                      " are left of UNISONO_SCRATCH_BYTES=" + std::to_string(bytes_max_) +
                      "; raise it or choose an algorithm that needs less");
  }
  free_.reserve(blocks_ + 1);  // for give_back()
  block.data_ = static_cast<std::byte*>(std::aligned_alloc(64, rounded));
  if (block.data_ == nullptr) {
    return Status(ErrorCode::kOutOfResources,
                  "no memory for " + std::to_string(rounded) + " bytes of scratch");
  }
  block.bytes_ = rounded;
  in_use_ += rounded;
  ++blocks_;
  return block;
}

std::size_t ScratchPool::lent() const {
  return std::accumulate(free_.begin(), free_.end(), in_use_,
                         [](std::size_t bytes, const Freed& kept) { return bytes - kept.bytes; });
}

// There is room in the list: destructors of blocks call this.
void ScratchPool::give_back(std::byte* data, std::size_t bytes) { free_.push_back({data, bytes}); }

}  // namespace unisono
