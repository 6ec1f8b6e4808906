// The shared memory of a test's ranks; see shared_world.h. All members of Board are atomics or are
// written before a barrier and read after it.
#include "tests/support/shared_world.h"

#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/clock.h"
#include "base/memfd.h"

namespace unisono::test {
namespace {

constexpr std::size_t kRingsAt = 16 * 1024;
constexpr auto kBarrierTimeout = std::chrono::seconds(20);

[[noreturn]] void give_up(const char* call) {
  std::perror(call);
  std::abort();
}

}  // namespace

SharedWorld SharedWorld::create(int ranks, std::size_t ring_bytes) {
  // Inherited on purpose: no MFD_CLOEXEC.
  UniqueFd fd = make_memfd("unisono-test-world", 0);
  if (!fd) give_up("memfd_create");
  const std::size_t bytes = kRingsAt + ring_bytes * ranks * ranks;
  if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) give_up("ftruncate");
  return SharedWorld(std::move(fd), ranks, ring_bytes);
}

SharedWorld SharedWorld::inherit(int fd, int ranks, std::size_t ring_bytes) {
  return SharedWorld(UniqueFd(fd), ranks, ring_bytes);
}

SharedWorld::SharedWorld(UniqueFd fd, int ranks, std::size_t ring_bytes)
    : fd_(std::move(fd)), ranks_(ranks), ring_bytes_(ring_bytes) {
  static_assert(sizeof(Board) <= kRingsAt);
  if (ranks > kRanksMax) std::abort();
  void* at = mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
  if (at == MAP_FAILED) give_up("mmap");
  base_ = static_cast<std::byte*>(at);
  board_ = reinterpret_cast<Board*>(base_);
}

SharedWorld::SharedWorld(SharedWorld&& other) noexcept
    : fd_(std::move(other.fd_)),
      ranks_(other.ranks_),
      ring_bytes_(other.ring_bytes_),
      base_(std::exchange(other.base_, nullptr)),
      board_(other.board_) {}

SharedWorld::~SharedWorld() {
  if (base_ != nullptr) munmap(base_, bytes());
}

std::size_t SharedWorld::bytes() const { return kRingsAt + ring_bytes_ * ranks_ * ranks_; }

std::byte* SharedWorld::ring(Rank from, Rank to) const {
  return base_ + kRingsAt + (static_cast<std::size_t>(from) * ranks_ + to) * ring_bytes_;
}

bool SharedWorld::barrier(const std::function<void()>& meanwhile) {
  const std::uint32_t generation = board_->generation.load();
  if (board_->arrived.fetch_add(1) + 1 == static_cast<std::uint32_t>(ranks_)) {
    board_->arrived.store(0);
    board_->generation.fetch_add(1);
    return !failed();
  }
  const TimePoint deadline = Clock::now() + kBarrierTimeout;
  while (board_->generation.load() == generation) {
    if (failed()) return false;
    if (Clock::now() > deadline) {
      fail();
      return false;
    }
    if (meanwhile) meanwhile();
    sched_yield();
  }
  return !failed();
}

void SharedWorld::fail() { board_->failed.store(1); }
bool SharedWorld::failed() const { return board_->failed.load() != 0; }

void SharedWorld::set_text(Rank rank, const std::string& text) {
  const std::size_t bytes = std::min(text.size(), kTextBytesMax);
  std::memcpy(board_->texts[rank], text.data(), bytes);
  board_->texts[rank][bytes] = '\0';
}

std::vector<std::string> SharedWorld::texts() const {
  std::vector<std::string> result;
  for (int rank = 0; rank < ranks_; ++rank) result.emplace_back(board_->texts[rank]);
  return result;
}

}  // namespace unisono::test
