// Memory of other processes that is mapped into this one: once per device and allocation, however
// many ranks of this process use it, because a legacy IPC handle may be opened by one context per
// device and process, and old drivers refuse to open it twice.
//
// Thread rule: any thread. Opening and closing happen under one lock: a handle must not be closed
// while another rank opens it. What nobody can open again is closed without.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "base/result.h"
#include "cuda/memory/cleanup_report.h"
#include "cuda/memory/device.h"
#include "cuda/memory/device_memory.h"
#include "cuda/memory/side_work.h"
#include "cuda/memory/window.h"

namespace unisono::cuda {

/// Which allocation of which process, mapped for which device.
struct MappingKey {
  const CudaApi* api = nullptr;
  CUdevice device = 0;
  std::uint64_t process_key = 0;
  std::uint64_t base = 0;
  std::uint64_t allocation_id = 0;
  std::uint64_t allocation_bytes = 0;
  BufferTicket::Kind kind = BufferTicket::Kind::kNone;
  std::array<std::uint8_t, 64> ipc_handle = {};
  /// Of a window: what somebody else hands out in the name of this process is another one.
  std::array<char, 48> socket = {};

  auto operator<=>(const MappingKey&) const = default;
};
MappingKey key_of(const Device& device, const BufferTicket& ticket);
/// Of one process: some bytes belong to both.
inline bool overlap(const MappingKey& a, const MappingKey& b) {
  return a.base < b.base + b.allocation_bytes && b.base < a.base + a.allocation_bytes;
}

class MappingCache {
 public:
  /// The process's one; never destroyed, since ranks may end after static destructors.
  static MappingCache& of_process();

  /// Where the allocation's base lies here; held until release(). 0: not yet, for as long as an IPC
  /// handle of memory that lay there before is still being closed.
  Result<CUdeviceptr> acquire(const Device& device, const BufferTicket& ticket);
  void release(const Device& device, const MappingKey& key, CleanupReport& report);
  /// Of memory that its owner has freed, or that was a process's which is gone: nobody asks for it
  /// again. A thread of `side` closes it, since the driver may wait for streams before it does;
  /// never the caller's, who may have what a stream waits for.
  void release(const Device& device, const MappingKey& key, SideWork& side);
  /// As acquire(); held for as long as the result lives, and then released as the latter.
  Result<std::shared_ptr<void>> keep(const Device& device, const BufferTicket& ticket,
                                     SideWork& side);

 private:
  struct Mapping {
    CUdeviceptr base = 0;
    std::unique_ptr<Window> window;  ///< null: legacy IPC
    int holders = 0;
  };
  static Result<Mapping> open_window(const Device& device, const BufferTicket& ticket);
  static Result<Mapping> open_legacy(const Device& device, const BufferTicket& ticket);
  static void close(const Device& device, const Mapping& mapping, CleanupReport& report);
  /// Under the lock: null where others hold it.
  std::shared_ptr<Mapping> let_go(const MappingKey& key);
  bool is_being_closed(const MappingKey& wanted) const;

  std::mutex mutex_;
  std::map<MappingKey, Mapping> mappings_;
  std::multiset<MappingKey> closing_;  // of kLegacyIpc
};

}  // namespace unisono::cuda
