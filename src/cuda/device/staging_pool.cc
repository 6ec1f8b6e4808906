#include "cuda/device/staging_pool.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdlib>
#include <system_error>
#include <thread>
#include <utility>

#include "base/signals_blocked.h"
#include "cuda/device/leaked.h"
#include "cuda/driver/driver_section.h"

namespace unisono::device {
namespace {

constexpr std::size_t kLineBytes = 64;

std::size_t block_bytes(std::size_t bytes) {
  constexpr std::size_t kSmallest = 64 << 10;
  return bytes == 0 ? 0 : std::bit_ceil(std::max(bytes, kSmallest));
}

}  // namespace

StagingPool::StagingPool(std::shared_ptr<const cuda::CudaApi> api, CUcontext context,
                         std::string device, std::size_t bytes_max)
    : api_(std::move(api)), context_(context), device_(std::move(device)), bytes_max_(bytes_max) {}

// A driver that does not answer keeps what it was asked for until the process ends.
StagingPool::~StagingPool() {
  if (order_.has_value() && order_->refusal.ok() &&
      order_->memory.wait_for(kReleaseLimit) == std::future_status::ready) {
    const Result<std::byte*> memory = order_->memory.get();
    if (memory) free_.push_back({*memory, order_->bytes});
  }
  for (const Free& block : free_) api_->MemFreeHost(block.data);
}

StagingPool::Block& StagingPool::Block::operator=(Block&& other) noexcept {
  release();
  pool_ = std::exchange(other.pool_, nullptr);
  data_ = std::exchange(other.data_, nullptr);
  bytes_ = std::exchange(other.bytes_, 0);
  charged_ = std::exchange(other.charged_, 0);
  is_page_locked_ = other.is_page_locked_;
  return *this;
}

void StagingPool::Block::release() {
  if (data_ == nullptr) return;
  if (is_page_locked_) {
    pool_->free_.push_back({data_, bytes_});
  } else {
    std::free(data_);
  }
  abandon();
}

void StagingPool::Block::abandon() {
  if (data_ != nullptr) pool_->charged_bytes_ -= charged_;
  data_ = nullptr;
}

Status StagingPool::can_hold(std::size_t bytes, std::size_t other_bytes) const {
  const std::size_t needed = block_bytes(bytes) + block_bytes(other_bytes);
  if (needed <= bytes_max_) return Status();
  return Status(ErrorCode::kOutOfResources,
                "staging " + std::to_string(bytes + other_bytes) + " bytes of " + device_ +
                    " needs " + std::to_string(needed) +
                    " bytes of page-locked memory, and at most " + std::to_string(bytes_max_) +
                    " are in use at a time: raise UNISONO_SCRATCH_BYTES");
}

Result<std::optional<StagingPool::Block>> StagingPool::take(std::size_t bytes, Bound bound,
                                                            Meanwhile meanwhile) {
  const std::size_t wanted = block_bytes(std::max<std::size_t>(bytes, 1));
  const std::size_t charged = bound == Bound::kHolds ? wanted : 0;
  if (charged_bytes_ + charged > bytes_max_) return std::optional<Block>();
  UNISONO_TRY(collect(wanted));
  if (const auto found = find_free(wanted); found != free_.end()) {
    const Free block = *found;
    free_.erase(found);
    return std::optional<Block>(lend(block, charged));
  }
  if (!order_.has_value() || !order_->refusal.ok()) UNISONO_TRY(order(wanted));
  if (meanwhile == Meanwhile::kNothing) return std::optional<Block>();
  void* const ordinary = std::aligned_alloc(kLineBytes, wanted);
  if (ordinary == nullptr) return std::optional<Block>();
  Block block = lend({static_cast<std::byte*>(ordinary), wanted}, charged);
  block.is_page_locked_ = false;
  return std::optional<Block>(std::move(block));
}

// Takes a block of exactly this length or, where the bound leaves no room to make one, the shortest
// longer one.
std::vector<StagingPool::Free>::iterator StagingPool::find_free(std::size_t wanted) {
  const bool is_full = bytes_ + wanted > bytes_max_;
  auto best = free_.end();
  for (auto block = free_.begin(); block != free_.end(); ++block) {
    const bool will_do = block->bytes == wanted || (is_full && block->bytes > wanted);
    if (will_do && (best == free_.end() || block->bytes < best->bytes)) best = block;
  }
  return best;
}

StagingPool::Block StagingPool::lend(Free block, std::size_t charged) {
  Block lent;
  lent.pool_ = this;
  lent.data_ = block.data;
  lent.bytes_ = block.bytes;
  lent.charged_ = charged;
  charged_bytes_ += charged;
  return lent;
}

// What was ordered, if it is here. A refusal is for those who want as much.
Status StagingPool::collect(std::size_t wanted) {
  if (!order_.has_value()) return Status();
  if (order_->refusal.ok()) {
    if (order_->memory.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
      return Status();
    }
    const Result<std::byte*> memory = order_->memory.get();
    if (memory) {
      free_.push_back({*memory, order_->bytes});
      bytes_ += order_->bytes;
      order_.reset();
      return Status();
    }
    order_->refusal = memory.error();
  }
  if (wanted != order_->bytes) return Status();
  const Status refusal = order_->refusal;
  order_.reset();
  return refusal;
}

Status StagingPool::order(std::size_t bytes) {
  const auto lock_pages = [api = api_, context = context_, device = device_,
                           bytes]() -> Result<std::byte*> {
    const cuda::DriverSection section(*api, context);
    UNISONO_TRY(section.status());
    void* memory = nullptr;
    UNISONO_TRY(api->check(api->MemHostAlloc(&memory, bytes, CU_MEMHOSTALLOC_PORTABLE),
                           "page-locking " + std::to_string(bytes) + " bytes for " + device));
    return static_cast<std::byte*>(memory);
  };
  std::packaged_task<Result<std::byte*>()> task(lock_pages);
  std::future<Result<std::byte*>> memory = task.get_future();
  try {
    const SignalsBlocked blocked;
    std::thread(std::move(task)).detach();
  } catch (const std::system_error& error) {
    return Status(ErrorCode::kOutOfResources,
                  std::string("no thread that page-locks memory: ") + error.what());
  }
  order_ = Order{bytes, std::move(memory)};
  return Status();
}

}  // namespace unisono::device
