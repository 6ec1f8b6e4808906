// Memory that the ranks of a test share, whether they are threads or processes: a board with a
// barrier, one text per rank and a failure flag, and room for rings behind it. It is a memfd, so a
// re-executed test program inherits it by descriptor.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "unisono/types.h"

namespace unisono::test {

class SharedWorld {
 public:
  static constexpr int kRanksMax = 16;
  static constexpr std::size_t kTextBytesMax = 512;

  /// Zero-filled. Ends the program when the system refuses: a test cannot go on then.
  static SharedWorld create(int ranks, std::size_t ring_bytes);
  /// The same memory in a re-executed program.
  static SharedWorld inherit(int fd, int ranks, std::size_t ring_bytes);
  SharedWorld(SharedWorld&& other) noexcept;
  ~SharedWorld();

  int fd() const { return fd_.get(); }
  int ranks() const { return ranks_; }
  std::size_t ring_bytes() const { return ring_bytes_; }
  std::byte* ring(Rank from, Rank to) const;

  /// Waits for all ranks, calling `meanwhile` (or yielding) until they are there. False when one of
  /// them has failed or does not come within 20 s.
  bool barrier(const std::function<void()>& meanwhile = nullptr);
  /// This rank gives up: nobody waits for it any more.
  void fail();
  bool failed() const;

  void set_text(Rank rank, const std::string& text);
  std::vector<std::string> texts() const;

 private:
  struct Board {
    std::atomic<std::uint32_t> arrived;
    std::atomic<std::uint32_t> generation;
    std::atomic<std::uint32_t> failed;
    char texts[kRanksMax][kTextBytesMax + 1];
  };
  static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

  SharedWorld(UniqueFd fd, int ranks, std::size_t ring_bytes);
  std::size_t bytes() const;

  UniqueFd fd_;
  int ranks_;
  std::size_t ring_bytes_;
  std::byte* base_ = nullptr;
  Board* board_ = nullptr;
};

}  // namespace unisono::test
