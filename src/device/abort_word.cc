#include "device/abort_word.h"

#include <atomic>
#include <utility>

namespace unisono::device {

Result<AbortWord> AbortWord::take(std::shared_ptr<DeviceShare> share) {
  AbortWord word;
  UNISONO_ASSIGN(word.word_, share->take_word());
  word.share_ = std::move(share);
  return word;
}

AbortWord::AbortWord(AbortWord&& other) noexcept { *this = std::move(other); }

AbortWord& AbortWord::operator=(AbortWord&& other) noexcept {
  std::swap(share_, other.share_);
  std::swap(word_, other.word_);
  return *this;
}

AbortWord::~AbortWord() {
  if (share_ != nullptr) share_->give_back_word(word_);
}

void AbortWord::set() {
  if (word_ == nullptr) return;
  std::atomic_ref<std::uint32_t>(*word_).store(1, std::memory_order_release);
}

}  // namespace unisono::device
