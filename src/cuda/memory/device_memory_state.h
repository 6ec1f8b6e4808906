// The parts of a DeviceMemory and the locks that guard them. Internal to this folder.
#pragma once

#include <mutex>
#include <optional>

#include "cuda/memory/device.h"
#include "cuda/memory/device_memory.h"
#include "cuda/memory/direct_buffer.h"
#include "cuda/memory/own_memory.h"
#include "cuda/memory/peer_mappings.h"
#include "cuda/memory/process_identity.h"
#include "cuda/memory/side_work.h"
#include "cuda/memory/ticket_book.h"

namespace unisono::cuda {

struct DeviceMemory::State {
  Device device;
  /// A forked child has neither the driver's state nor the server's thread.
  const ProcessIdentity process = process_identity();
  SideWork side;
  std::mutex own_mutex;  ///< the table of own, tickets
  OwnMemory own{device};
  std::optional<TicketBook> tickets{std::in_place, device, process, own};
  /// Apart from the other: mapping may wait for a peer, and peers must get their tickets meanwhile.
  std::mutex peers_mutex;
  PeerMappings peers{device, process, side};
  std::mutex copy_stream_mutex;
  std::shared_ptr<CopyStream> copy_stream;  ///< made when first needed
};

}  // namespace unisono::cuda
