// The tickets of this rank's buffers: made once per allocation, kept until it is freed. Owned and
// guarded by DeviceMemory.
#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "base/result.h"
#include "cuda/memory/descriptor_server.h"
#include "cuda/memory/device.h"
#include "cuda/memory/device_memory.h"
#include "cuda/memory/own_memory.h"
#include "cuda/memory/pointer_query.h"
#include "cuda/memory/process_identity.h"

namespace unisono::cuda {

/// Allocations that are remembered; with more, the one unused for longest is forgotten. Windows are
/// not: peers that map them would take them for freed.
inline constexpr std::size_t kTicketsMax = 1024;

class TicketBook {
 public:
  TicketBook(const Device& device, const ProcessIdentity& process, const OwnMemory& own)
      : device_(device), process_(process), own_(own) {}
  ~TicketBook();

  Result<BufferTicket> ticket_of(const void* pointer, std::size_t bytes);
  /// Before the memory goes: peers that still ask for it are refused.
  void drop(CUdeviceptr base);
  std::size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    BufferTicket ticket;          ///< of the whole allocation
    std::uint64_t buffer_id = 0;  ///< the driver's; 0 of own windows, whose end is known
    std::uint64_t offered = 0;    ///< the server's number, 0: none
    std::uint64_t last_use = 0;
  };
  using Entries = std::map<CUdeviceptr, Entry>;

  BufferTicket without_number(const PointerRecord& record, CUdeviceptr address) const;
  Entry* find(CUdeviceptr address, std::uint64_t buffer_id);
  Result<Entry*> add_window(const Window& window);
  Result<Entry*> add_foreign(const PointerRecord& record, CUdeviceptr address);
  Status describe_foreign(const PointerRecord& record, CUdeviceptr address, Entry* entry);
  Status describe_legacy(Entry* entry) const;
  Status offer(Entry* entry, DescriptorServer::Exporter exporter,
               DescriptorServer::Existence exists = {});
  Entry* insert(Entry entry);
  void make_room();
  Entries::iterator erase(Entries::iterator entry);
  BufferTicket blank(BufferTicket::Kind kind) const;

  const Device& device_;
  const ProcessIdentity& process_;
  const OwnMemory& own_;
  std::shared_ptr<DescriptorServer> server_;
  Entries entries_;  ///< by the allocation's base
  std::uint64_t use_ = 0;
};

}  // namespace unisono::cuda
