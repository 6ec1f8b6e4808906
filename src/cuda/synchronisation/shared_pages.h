// Host memory of every rank of a communicator whose ranks are processes, which the streams of all
// of them may write: each rank's own piece is offered to the others, theirs are mapped here, and
// all are registered with the driver. For that it may wait for streams, and peers are asked over
// sockets: a thread of its own does both. To unregister them it may wait too, so what is closed
// stays registered for a while (SideWork).
//
// Thread rule: the engine's lock.
#pragma once

#include <cstddef>
#include <future>
#include <memory>
#include <span>
#include <vector>

#include "cuda/device/device.h"
#include "cuda/memory/descriptor_server.h"
#include "cuda/synchronisation/page_ticket.h"
#include "transports/shm/segment.h"

namespace unisono::device {

class SharedPages {
 public:
  /// `bytes`: of every rank's piece, the same on all ranks and whole pages. All are zero.
  static Result<std::unique_ptr<SharedPages>> make(Device& device, Rank rank, std::size_t bytes);
  ~SharedPages();
  SharedPages(const SharedPages&) = delete;

  /// What lets a peer map this rank's piece.
  const PageTicket& ticket() const { return ticket_; }
  /// Maps the pieces of the others, and registers all: false while that goes on. `tickets`: by
  /// rank, the same each time. Errors name the rank.
  Result<bool> connect(std::span<const PageTicket> tickets);
  bool is_connected() const { return pieces_ != nullptr; }

  std::byte* own() const { return memory_->base(); }
  /// A rank's piece for the host, once connected, ...
  std::byte* of(Rank rank) const { return piece(rank).memory->base(); }
  /// ... and as the device sees it.
  CUdeviceptr address_of(Rank rank) const { return piece(rank).address; }

 private:
  struct Piece {
    std::shared_ptr<shm::Mapping> memory;
    CUdeviceptr address = 0;
  };
  class Pieces;
  using Registration = Result<std::shared_ptr<Pieces>>;

  SharedPages(Device& device, Rank rank, std::size_t bytes)
      : device_(device), rank_(rank), bytes_(bytes) {}
  Status offer();
  Status start_connecting(std::span<const PageTicket> tickets);
  const Piece& piece(Rank rank) const;

  Device& device_;
  const Rank rank_;
  const std::size_t bytes_;
  std::shared_ptr<shm::Mapping> memory_;  // this rank's own
  std::shared_ptr<cuda::DescriptorServer> server_;
  PageTicket ticket_;
  std::future<Registration> connecting_;
  std::shared_ptr<Pieces> pieces_;  // null before all are here
};

}  // namespace unisono::device
