// Reading another process' private memory with one system call (process_vm_readv). Whether that
// works is found out by reading a nonce; a pidfd guards against a reused process id, and tells of
// the process' end also where its memory cannot be read.
//
// Thread rule: a value per rank and peer; one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"
#include "base/unique_fd.h"

namespace unisono::shm {

/// Whether the kernel still lets others read this memory of the process, as far as its two ends
/// tell: secret or device memory it does not, nor what is mapped for writing alone, nor anything of
/// a process that has changed its user or asked not to be read. A system call or two.
bool may_be_read(std::span<const std::byte> memory);

class SingleCopy {
 public:
  SingleCopy() = default;
  /// Of whichever process has this number here.
  explicit SingleCopy(std::int64_t pid);
  /// Makes it usable if `nonce_bytes` at `address` of the process equal `nonce`.
  void probe(std::uint64_t address, const void* nonce, std::size_t nonce_bytes);
  bool usable() const { return usable_; }
  /// The kernel says that the process has ended: nothing of it writes anywhere any more. False
  /// where that is not known.
  bool has_ended() const;
  /// Reads all of it or fails: kRankFailed when the process is gone, kSystem otherwise. The data
  /// are only to be trusted when this returned ok.
  Status read(void* out, std::uint64_t address, std::size_t bytes) const;

 private:
  int pid_ = 0;
  UniqueFd process_;
  bool usable_ = false;
};

}  // namespace unisono::shm
