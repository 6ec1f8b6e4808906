// A rank's device memory and its peers': which pointer is what, buffers that peers can map, and
// peers' buffers mapped here. One per rank and device. Bytes move in src/cuda/kernels. ticket_of()
// and open() are for device memory what handle_of() and open() are for host memory that a host's
// ranks share (transports/shm/memory_handle.h).
//
// Thread rule: any thread; calls of different ranks of one process are independent.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/direct_memory.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "cuda/driver/cuda_api.h"
#include "cuda/memory/side_work.h"
#include "unisono/types.h"

namespace unisono::cuda {

/// What a pointer of the user's is.
struct PointerFacts {
  bool device = false;     ///< device memory (managed memory counts as device)
  int ordinal = -1;        ///< of the device that owns it
  std::uint64_t base = 0;  ///< of its allocation
  std::uint64_t bytes = 0;
  CUcontext context = nullptr;
};

/// Whose ticket it is: as the caller knows, whatever the ticket says.
struct Peer {
  Rank rank = 0;        ///< of the communicator, for messages and errors
  Rank world_rank = 0;  ///< as forget() has it
  bool in_this_process = false;
};

/// What a peer needs in order to read and write a buffer where it lies. Travels in a host
/// collective as it is; every field is checked before use.
struct BufferTicket {
  enum class Kind : std::uint8_t {
    kNone,         ///< no buffer (a null pointer, or no bytes)
    kHost,         ///< host memory: the call is staged
    kUnshareable,  ///< device memory that other processes cannot map: the call is staged
    kLegacyIpc,    ///< cuIpcOpenMemHandle
    kWindow,       ///< a descriptor that the owner hands out over a UNIX socket
  };
  Kind kind = Kind::kNone;
  std::uint8_t reserved[3] = {};
  std::int32_t process = 0;       ///< pid as the owner sees it: for messages
  std::uint64_t process_key = 0;  ///< random, one per process
  std::uint64_t address = 0;      ///< of the buffer, in the owner's address space
  std::uint64_t base = 0;         ///< of its allocation, there
  std::uint64_t allocation_bytes = 0;
  /// Never used again in the owner's process: a window's number, the driver's of other memory. 0,
  /// of kUnshareable alone: nothing tells the memory from what may take its place.
  std::uint64_t allocation_id = 0;
  std::array<std::uint8_t, 16> device_uuid = {};
  std::array<std::uint8_t, 64> ipc_handle = {};  ///< kLegacyIpc
  std::array<char, 48> socket = {};              ///< kWindow: abstract socket that hands it out
};
static_assert(std::is_trivially_copyable_v<BufferTicket> && sizeof(BufferTicket) <= 192);

class DeviceMemory {
 public:
  /// Retains the device's primary context. `ordinal` counts what CUDA_VISIBLE_DEVICES leaves.
  /// kInvalidArgument: no such device, with how many there are.
  static Result<std::unique_ptr<DeviceMemory>> open(std::shared_ptr<const CudaApi> api,
                                                    int ordinal);
  ~DeviceMemory();

  CUcontext context() const;
  CUdevice device() const;
  int ordinal() const;
  const std::array<std::uint8_t, 16>& uuid() const;
  /// "device 0 (NVIDIA H200, 0000:1b:00.0)" for messages.
  const std::string& name() const;

  /// Memory that peers can map: a VMM allocation exported as a descriptor where the device offers
  /// that, plain device memory otherwise. 512-byte aligned at least. kOutOfResources.
  Result<void*> allocate(std::size_t bytes);
  /// kInvalidArgument for a pointer that allocate() did not give. A window stays valid at the peers
  /// that map it until they drop it. Where there are no windows (plain memory, legacy IPC) the
  /// peers must have dropped it before: what the driver does otherwise is undefined.
  Status release(void* pointer);

  /// Host memory answers `device` = false, and so does a null pointer. kInvalidArgument for memory
  /// that was freed (neither the driver nor the host knows it) or that ends before `bytes`.
  Result<PointerFacts> facts(const void* pointer, std::size_t bytes) const;
  /// For peers in other processes and in this one. Registers what has to be registered; kept, so a
  /// repeated call asks the driver nothing that could be remembered safely.
  Result<BufferTicket> ticket_of(const void* pointer, std::size_t bytes);

  /// The buffer's address here: the same one in the owner's own process (peer access is enabled
  /// where the devices differ), a mapping otherwise, made once per allocation and kept until the
  /// owner frees it, the peer is forgotten or this ends. Null: not yet, ask again; memory that lay
  /// there before is still being unmapped. kProtocol for a ticket that no correct peer sends;
  /// kUnsupported with the reason where the devices cannot reach each other.
  Result<void*> open(const BufferTicket& ticket, const Peer& peer, std::size_t bytes);
  /// The devices that this process sees and whose memory this one cannot reach. Of those that
  /// CUDA_VISIBLE_DEVICES hides only open() can tell.
  std::vector<std::array<std::uint8_t, 16>> out_of_reach() const;
  /// Keeps what open() has made of the ticket, beyond forget(), for as long as the result lives,
  /// which must not outlive this. Null where nothing is mapped: memory of the own process.
  Result<std::shared_ptr<void>> keep(const BufferTicket& ticket);
  /// Drops all mappings of a peer's memory: it left or died, and nothing of this rank uses them.
  /// The driver unmaps them a moment later, as it does those of memory that was freed.
  void forget(Rank world_rank);

  /// The buffer for transports that move it where it lies (base/direct_memory.h). kUnsupported
  /// where network devices cannot do that right, kInvalidArgument for what is no buffer here.
  Result<std::shared_ptr<DirectMemory>> direct(const void* pointer, std::size_t bytes);
  /// For calls of the driver that may wait for streams. It ends before this and the context do.
  SideWork& side_work();

  /// Work that is enqueued from here on reads what network devices have written by now.
  Status flush_direct();

 private:
  DeviceMemory();
  struct State;
  std::unique_ptr<State> state_;
};

/// What `pointer` is, without a DeviceMemory: `device` is false on any doubt and before cuInit.
PointerFacts look_at(const CudaApi& api, const void* pointer);

}  // namespace unisono::cuda
