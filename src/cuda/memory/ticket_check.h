// Tickets come from peers: nothing in them is believed before this. Values only; any thread.
#pragma once

#include "base/result.h"
#include "cuda/memory/device_memory.h"

namespace unisono::cuda {

/// kProtocol, naming the field and its value, for a ticket that no correct peer sends; also where
/// `bytes` do not fit behind its address. kInvalidArgument for one without device memory.
Status check_ticket(const BufferTicket& ticket, Rank peer, std::size_t bytes);

}  // namespace unisono::cuda
