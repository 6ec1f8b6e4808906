#include "cuda/synchronisation/shared_pages.h"

#include <fcntl.h>

#include <cerrno>
#include <cstring>

#include "base/clock.h"
#include "base/errno_text.h"

namespace unisono::device {
namespace {

constexpr auto kConnectLimit = std::chrono::seconds(5);

}  // namespace

SharedPages::SharedPages(Device& device, int ranks, Rank rank, std::size_t bytes)
    : device_(device), rank_(rank), bytes_(bytes), pieces_(static_cast<std::size_t>(ranks)) {}

Result<std::unique_ptr<SharedPages>> SharedPages::make(Device& device, int ranks, Rank rank,
                                                       std::size_t bytes) {
  std::unique_ptr<SharedPages> pages(new SharedPages(device, ranks, rank, bytes));
  UNISONO_ASSIGN(std::shared_ptr<shm::Mapping> memory,
                 shm::Mapping::create("unisono-device-flags", bytes));
  UNISONO_TRY(memory->reserve(0, bytes));
  UNISONO_TRY(pages->add(std::move(memory), rank));
  UNISONO_TRY(pages->offer());
  return pages;
}

Status SharedPages::offer() {
  UNISONO_ASSIGN(server_, cuda::DescriptorServer::of_process());
  const std::string& socket = server_->address();
  if (socket.size() >= sizeof ticket_.socket) {
    return Status(ErrorCode::kSystem, "the socket's name '" + socket + "' is too long");
  }
  std::memcpy(ticket_.socket, socket.data(), socket.size());
  const std::shared_ptr<shm::Mapping> memory = pieces_[static_cast<std::size_t>(rank_)].memory;
  ticket_.id = server_->offer([memory]() -> Result<UniqueFd> {
    UniqueFd copy(fcntl(memory->fd(), F_DUPFD_CLOEXEC, 0));
    if (!copy) {
      return Status(ErrorCode::kOutOfResources,
                    "no descriptor for a page of flags: " + errno_text(errno));
    }
    return copy;
  });
  return Status();
}

SharedPages::~SharedPages() {
  if (ticket_.id != 0) server_->withdraw(ticket_.id);
  const cuda::DriverSection section(device_.api(), device_.context());
  for (const Piece& piece : pieces_) {
    if (piece.address != 0) device_.api().MemHostUnregister(piece.memory->base());
  }
}

Status SharedPages::add(std::shared_ptr<shm::Mapping> memory, Rank rank) {
  const cuda::CudaApi& api = device_.api();
  Piece& piece = pieces_[static_cast<std::size_t>(rank)];
  piece.memory = std::move(memory);
  UNISONO_TRY(
      api.check(api.MemHostRegister(piece.memory->base(), bytes_,
                                    CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP),
                "registering a page of flags with " + device_.name()));
  return api.check(api.MemHostGetDevicePointer(&piece.address, piece.memory->base(), 0),
                   "addressing a page of flags from " + device_.name());
}

Status SharedPages::connect(std::span<const PageTicket> tickets) {
  const TimePoint deadline = Clock::now() + kConnectLimit;
  for (Rank peer = 0; peer < static_cast<Rank>(pieces_.size()); ++peer) {
    if (peer == rank_) continue;
    const PageTicket& ticket = tickets[static_cast<std::size_t>(peer)];
    const std::string socket(ticket.socket, strnlen(ticket.socket, sizeof ticket.socket));
    Result<UniqueFd> fd = cuda::request_descriptor(socket, ticket.id, deadline);
    if (!fd) {
      return Status(fd.error().code(),
                    "the page of flags of rank " + std::to_string(peer) +
                        " cannot be had: " + fd.error().message(),
                    peer);
    }
    UNISONO_ASSIGN(std::shared_ptr<shm::Mapping> memory,
                   shm::Mapping::attach(std::move(*fd), bytes_, bytes_));
    UNISONO_TRY(add(std::move(memory), peer));
  }
  is_connected_ = true;
  return Status();
}

}  // namespace unisono::device
