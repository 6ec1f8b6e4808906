// The user's own memory, made known to the library once instead of with every call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "unisono/communicator.h"
#include "unisono/export.h"

namespace unisono {

/// Where registered memory comes from, so that other processes of the host can access it directly:
/// its first byte is the byte at `offset` of the file `fd`, which the program has mapped with
/// MAP_SHARED. The file is a memfd (memfd_create with MFD_ALLOW_SEALING) sealed with F_SEAL_SHRINK,
/// because reading beyond the end of a file that has shrunk would end the reader with SIGBUS.
struct MemorySource {
  int fd = -1;  ///< -1: none. It may be closed after the registration.
  std::uint64_t offset = 0;
};

/// How the other processes of the host read it.
enum class PeerAccess : std::uint8_t {
  kMapped,      ///< in place where that is fastest: large calls move each byte once
  kSingleCopy,  ///< copied by the kernel, because UNISONO_ACCESS=single_copy
  kCopied,      ///< as other memory: through what all share, or as first calls show
};

/// Memory of this rank that stays known to the library until this is destroyed. Local: other ranks
/// need not do the same. Calls on buffers within it are faster, on every communicator of the rank:
/// between hosts it stays registered with the RDMA adapters, and within the host other processes
/// read it in place where they can (kMapped).
///
/// Destroy it before the memory is unmapped and when no call is using it. It may outlive its
/// communicator. Other processes keep the file's pages until they map another range or give one up.
/// Move-only. Thread rule: that of the communicator; the queries from any thread.
class UNISONO_API RegisteredMemory {
 public:
  /// `bytes` bytes of host memory at `data`. With a source its pages are reserved. Throws Error:
  /// kInvalidArgument (null, 0 or more than 2^47 bytes, overlapping another registration of this
  /// rank, no open descriptor, beyond the end of the file, not that file's memory at that offset),
  /// kOutOfResources (more than 64 registrations of a rank, descriptors, memory, locked memory: the
  /// limit and the remedy), kUnsupported (device memory), kClosed.
  RegisteredMemory(Communicator& communicator, void* data, std::size_t bytes,
                   MemorySource source = {});
  RegisteredMemory(RegisteredMemory&& other) noexcept;
  RegisteredMemory& operator=(RegisteredMemory&& other) noexcept;
  ~RegisteredMemory();

  /// The way that all other processes of the host can take and UNISONO_ACCESS allows. Ranks that
  /// are threads of this process can always read in place.
  PeerAccess peer_access() const;
  /// Why not kMapped, for people; empty where it is.
  const std::string& reason() const;
  /// Registered with the RDMA adapters.
  bool pinned() const;
  /// Why not pinned, for people; empty where it is.
  const std::string& pinned_reason() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The same as a function.
UNISONO_API RegisteredMemory register_memory(Communicator& communicator, void* data,
                                             std::size_t bytes, MemorySource source = {});

}  // namespace unisono
