#include "engine/scratch_pool.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <numeric>
#include <utility>

namespace unisono {
namespace {

constexpr std::size_t kBlockBytesMin = 4096;
constexpr std::size_t kLineBytes = 64;

std::size_t whole_lines(std::size_t bytes) { return bytes / kLineBytes * kLineBytes; }

}  // namespace

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
  if (bytes > bytes_max_) return too_little(bytes);
  // Few sizes, so that blocks are found again; where that is too much, no more than is needed.
  const std::size_t usual = std::bit_ceil(std::max(bytes, kBlockBytesMin));
  const std::size_t least = whole_lines(bytes + kLineBytes - 1);
  if (take_kept(usual, &block) || take_kept(least, &block)) return block;
  while (usual > room() && !free_.empty()) free_last();
  const std::size_t size = usual <= room() ? usual : least;
  if (size > room()) return too_little(bytes);
  free_.reserve(blocks_ + 1);  // for give_back()
  block.data_ = static_cast<std::byte*>(std::aligned_alloc(kLineBytes, size));
  if (block.data_ == nullptr) {
    return Status(ErrorCode::kOutOfResources,
                  "no memory for " + std::to_string(size) + " bytes of scratch");
  }
  block.bytes_ = size;
  in_use_ += size;
  ++blocks_;
  return block;
}

bool ScratchPool::take_kept(std::size_t size, Block* block) {
  const auto found = std::find_if(free_.begin(), free_.end(),
                                  [&](const Freed& freed) { return freed.bytes == size; });
  if (found == free_.end()) return false;
  block->data_ = found->data;
  block->bytes_ = size;
  free_.erase(found);
  return true;
}

void ScratchPool::free_last() {
  std::free(free_.back().data);
  in_use_ -= free_.back().bytes;
  free_.pop_back();
  --blocks_;
}

std::size_t ScratchPool::room() const { return whole_lines(bytes_max_ - in_use_); }

Status ScratchPool::too_little(std::size_t bytes) const {
  return Status(ErrorCode::kOutOfResources,
                "the call needs " + std::to_string(bytes) + " bytes of scratch memory and " +
                    std::to_string(whole_lines(bytes_max_ - lent())) +
                    " are left of UNISONO_SCRATCH_BYTES=" + std::to_string(bytes_max_) +
                    "; raise it or choose an algorithm that needs less");
}

std::size_t ScratchPool::lent() const {
  return std::accumulate(free_.begin(), free_.end(), in_use_,
                         [](std::size_t bytes, const Freed& kept) { return bytes - kept.bytes; });
}

// There is room in the list: destructors of blocks call this.
void ScratchPool::give_back(std::byte* data, std::size_t bytes) { free_.push_back({data, bytes}); }

}  // namespace unisono
