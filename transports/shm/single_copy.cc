#include "transports/shm/single_copy.h"

#include <poll.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>

#include "transports/shm/file_memory.h"

namespace unisono::shm {
namespace {

// One call of the kernel moves at most 2 GiB.
constexpr std::size_t kReadBytesMax = std::size_t{1} << 30;

// A process that dies loses its memory a moment before its end is told.
constexpr std::chrono::milliseconds kEndsWithin{20};

bool ended(int process, std::chrono::milliseconds within) {
  pollfd entry{process, POLLIN, 0};
  int ready;
  do {
    ready = poll(&entry, 1, static_cast<int>(within.count()));
  } while (ready < 0 && errno == EINTR);
  return ready > 0;
}

Status ended_status(int pid) {
  return Status(ErrorCode::kRankFailed, "process " + std::to_string(pid) + " has ended");
}

}  // namespace

bool may_be_read(std::span<const std::byte> memory) {
  if (memory.empty() || !is_dumpable()) return false;
  char ends[2];
  const iovec here{ends, sizeof ends};
  const iovec there[]{{const_cast<std::byte*>(&memory.front()), 1},
                      {const_cast<std::byte*>(&memory.back()), 1}};
  return process_vm_readv(getpid(), &here, 1, there, 2, 0) == sizeof ends;
}

SingleCopy::SingleCopy(std::int64_t pid) {
  if (pid <= 0 || pid > INT32_MAX) return;
#ifdef SYS_pidfd_open
  pid_ = static_cast<int>(pid);
  process_.reset(static_cast<int>(syscall(SYS_pidfd_open, pid_, 0)));
#endif
}

void SingleCopy::probe(std::uint64_t address, const void* nonce, std::size_t nonce_bytes) {
  std::array<std::byte, 64> seen;
  if (!process_ || nonce_bytes > seen.size()) return;
  usable_ = read(seen.data(), address, nonce_bytes).ok() &&
            std::memcmp(seen.data(), nonce, nonce_bytes) == 0;
}

bool SingleCopy::has_ended() const { return process_ && ended(process_.get(), {}); }

Status SingleCopy::read(void* out, std::uint64_t address, std::size_t bytes) const {
  auto* target = static_cast<std::byte*>(out);
  while (bytes > 0) {
    const std::size_t piece = bytes < kReadBytesMax ? bytes : kReadBytesMax;
    const iovec local{target, piece};
    const iovec remote{reinterpret_cast<void*>(address), piece};
    const ssize_t got = process_vm_readv(pid_, &local, 1, &remote, 1, 0);
    if (got <= 0) {
      const int error = got < 0 ? errno : 0;
      if (error == EINTR) continue;
      if (error == ESRCH || ended(process_.get(), kEndsWithin)) return ended_status(pid_);
      const std::string why = error != 0 ? std::strerror(error) : "nothing was read";
      return Status(ErrorCode::kSystem, "cannot read " + std::to_string(piece) +
                                            " bytes of process " + std::to_string(pid_) + ": " +
                                            why);
    }
    target += got;
    address += static_cast<std::uint64_t>(got);
    bytes -= static_cast<std::size_t>(got);
  }
  // Another process may have taken over the number of one that ended before the read.
  return ended(process_.get(), {}) ? ended_status(pid_) : Status();
}

}  // namespace unisono::shm
