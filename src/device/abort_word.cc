#include "device/abort_word.h"

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
  std::swap(is_set_, other.is_set_);
  return *this;
}

AbortWord::~AbortWord() {
  if (share_ != nullptr) share_->give_back_word(word_);
}

bool AbortWord::set() {
  if (share_ == nullptr || std::exchange(is_set_, true)) return true;
  return share_->fill_word(word_, true).ok();
}

}  // namespace unisono::device
