// Host memory of every rank of a communicator whose ranks are processes, which the streams of all
// of them may write: each rank's own piece is registered with the driver and offered to the others,
// theirs are mapped and registered here.
//
// Thread rule: the engine's lock.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "cuda/collectives/descriptor.h"
#include "cuda/device/device.h"
#include "cuda/memory/descriptor_server.h"
#include "transports/shm/segment.h"

namespace unisono::device {

class SharedPages {
 public:
  /// `bytes`: of every rank's piece, the same on all ranks and whole pages. All are zero.
  static Result<std::unique_ptr<SharedPages>> make(Device& device, int ranks, Rank rank,
                                                   std::size_t bytes);
  ~SharedPages();
  SharedPages(const SharedPages&) = delete;

  /// What lets a peer map this rank's piece.
  const PageTicket& ticket() const { return ticket_; }
  /// Maps and registers the pieces of the others, by rank. Errors name the rank.
  Status connect(std::span<const PageTicket> tickets);
  bool is_connected() const { return is_connected_; }

  /// A rank's piece for the host; of a peer once connected.
  std::byte* of(Rank rank) const { return pieces_[static_cast<std::size_t>(rank)].memory->base(); }
  std::byte* own() const { return of(rank_); }
  /// A rank's piece as the device sees it.
  CUdeviceptr address_of(Rank rank) const {
    return pieces_[static_cast<std::size_t>(rank)].address;
  }

 private:
  struct Piece {
    std::shared_ptr<shm::Mapping> memory;
    CUdeviceptr address = 0;
  };

  SharedPages(Device& device, int ranks, Rank rank, std::size_t bytes);
  Status offer();
  Status add(std::shared_ptr<shm::Mapping> memory, Rank rank);

  Device& device_;
  const Rank rank_;
  const std::size_t bytes_;
  std::shared_ptr<cuda::DescriptorServer> server_;
  PageTicket ticket_;
  std::vector<Piece> pieces_;  // by rank
  bool is_connected_ = false;
};

}  // namespace unisono::device
