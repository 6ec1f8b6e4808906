// An allocation of a device that is none: its addresses belong to nobody, so whoever touches them
// as if they were the host's dies, and what is in there lies in a file, which stands for the
// dma-buf. Thread rule: that of DirectMemory for what it overrides; the rest is the test's.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <cstring>
#include <map>
#include <memory>

#include "base/direct_memory.h"
#include "base/memfd.h"

namespace unisono::verbs::test {

class DirectMemoryDouble final : public DirectMemory {
 public:
  /// Offered until it goes. `at`: addresses that an earlier one had, or null.
  static std::shared_ptr<DirectMemoryDouble> offer(std::size_t bytes, const void* at = nullptr) {
    static std::atomic<std::uint64_t> next_id{1};
    UniqueFd file = make_memfd("device memory", MFD_CLOEXEC);
    EXPECT_EQ(ftruncate(file.get(), static_cast<off_t>(bytes)), 0);
    void* view = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    void* begin =
        mmap(const_cast<void*>(at), bytes, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | (at != nullptr ? MAP_FIXED_NOREPLACE : 0), -1, 0);
    EXPECT_NE(view, MAP_FAILED);
    EXPECT_NE(begin, MAP_FAILED);
    auto made = std::make_shared<DirectMemoryDouble>(
        std::span(static_cast<const std::byte*>(begin), bytes), next_id++, std::move(file),
        static_cast<std::byte*>(view));
    living()[made->begin()] = made->allocation();
    offer_direct_memory(made);
    return made;
  }
  DirectMemoryDouble(std::span<const std::byte> bytes, std::uint64_t id, UniqueFd file,
                     std::byte* view)
      : DirectMemory(bytes, id), file_(std::move(file)), view_(view) {}
  ~DirectMemoryDouble() override {
    living().erase(begin());
    munmap(view_, bytes().size());
    munmap(begin(), bytes().size());
  }

  /// As a pointer of the user's.
  std::byte* begin() const { return const_cast<std::byte*>(bytes().data()); }
  /// What is in there.
  std::byte* view() const { return view_; }
  std::uint64_t copied_bytes() const { return copied_bytes_; }
  int dma_bufs() const { return dma_bufs_; }

  Result<UniqueFd> dma_buf(std::span<const std::byte> piece, std::uint64_t* offset) override {
    ++dma_bufs_;
    EXPECT_TRUE(is_within(bytes(), piece.data(), piece.size()));
    *offset = static_cast<std::uint64_t>(piece.data() - begin());
    return UniqueFd(dup(file_.get()));
  }
  bool is_alive(const std::byte* address, std::uint64_t allocation) const override {
    const auto after = living().upper_bound(const_cast<std::byte*>(address));
    return after != living().begin() && std::prev(after)->second == allocation;
  }
  Status copy(void* to, const void* from, std::size_t bytes) override {
    if (!refuses_.ok()) return refuses_;
    copied_bytes_ += bytes;
    std::memcpy(seen(to, bytes), seen(from, bytes), bytes);
    return Status();
  }
  /// What copies give from here on.
  void refuse(const Status& why) { refuses_ = why; }

 private:
  // By their beginnings. The tests make them in one thread.
  static std::map<std::byte*, std::uint64_t>& living() {
    static std::map<std::byte*, std::uint64_t> all;
    return all;
  }
  void* seen(const void* pointer, std::size_t bytes) const {
    const auto* const place = static_cast<const std::byte*>(pointer);
    if (is_within(this->bytes(), pointer, bytes)) return view_ + (place - begin());
    if (const auto other = find_direct_memory(pointer, bytes)) {
      return static_cast<DirectMemoryDouble&>(*other).seen(pointer, bytes);
    }
    return const_cast<void*>(pointer);
  }

  UniqueFd file_;
  std::byte* view_;
  Status refuses_;
  std::atomic<std::uint64_t> copied_bytes_{0};
  std::atomic<int> dma_bufs_{0};
};

}  // namespace unisono::verbs::test
