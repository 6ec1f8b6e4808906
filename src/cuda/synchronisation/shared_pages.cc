#include "cuda/synchronisation/shared_pages.h"

#include <fcntl.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/errno_text.h"
#include "base/peer_fault.h"

namespace unisono::device {
namespace {

constexpr auto kConnectLimit = std::chrono::seconds(5);

Result<std::shared_ptr<shm::Mapping>> open_page(const PageTicket& ticket, std::size_t bytes,
                                                TimePoint deadline) {
  const std::string socket(ticket.socket, strnlen(ticket.socket, sizeof ticket.socket));
  UNISONO_ASSIGN(UniqueFd fd, cuda::request_descriptor(socket, ticket.id, deadline));
  return shm::Mapping::attach(std::move(fd), bytes, bytes);
}

}  // namespace

/// The pieces of all ranks, by rank, as the driver has them.
class SharedPages::Pieces {
 public:
  Pieces(const Device& device, std::size_t bytes)
      : api_(device.shared_api()),
        context_(device.context()),
        device_name_(device.name()),
        bytes_(bytes) {}
  ~Pieces();
  Pieces(const Pieces&) = delete;

  Status connect(std::span<const PageTicket> tickets, Rank self,
                 const std::shared_ptr<shm::Mapping>& own);
  const Piece& of(Rank rank) const { return pieces_[static_cast<std::size_t>(rank)]; }

 private:
  Status add(std::shared_ptr<shm::Mapping> memory);

  const std::shared_ptr<const cuda::CudaApi> api_;
  const CUcontext context_;
  const std::string device_name_;
  const std::size_t bytes_;
  std::vector<Piece> pieces_;
};

SharedPages::Pieces::~Pieces() {
  const cuda::DriverSection section(*api_, context_);
  for (const Piece& piece : pieces_) api_->MemHostUnregister(piece.memory->base());
}

Status SharedPages::Pieces::add(std::shared_ptr<shm::Mapping> memory) {
  void* const base = memory->base();
  UNISONO_TRY(
      api_->check(api_->MemHostRegister(base, bytes_,
                                        CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP),
                  "registering a page of flags with " + device_name_));
  pieces_.push_back({std::move(memory), 0});
  return api_->check(api_->MemHostGetDevicePointer(&pieces_.back().address, base, 0),
                     "addressing a page of flags from " + device_name_);
}

Status SharedPages::Pieces::connect(std::span<const PageTicket> tickets, Rank self,
                                    const std::shared_ptr<shm::Mapping>& own) {
  const cuda::DriverSection section(*api_, context_);
  UNISONO_TRY(section.status());
  const TimePoint deadline = Clock::now() + kConnectLimit;
  for (Rank rank = 0; rank < static_cast<Rank>(tickets.size()); ++rank) {
    if (rank == self) {
      UNISONO_TRY(add(own));
      continue;
    }
    auto memory = open_page(tickets[static_cast<std::size_t>(rank)], bytes_, deadline);
    if (!memory) {
      return peer_fault(rank,
                        "the page of flags of rank " + std::to_string(rank) + " cannot be had",
                        memory.error());
    }
    UNISONO_TRY(add(std::move(*memory)));
  }
  return Status();
}

Result<std::unique_ptr<SharedPages>> SharedPages::make(Device& device, Rank rank,
                                                       std::size_t bytes) {
  std::unique_ptr<SharedPages> pages(new SharedPages(device, rank, bytes));
  UNISONO_ASSIGN(pages->memory_, shm::Mapping::create("unisono-device-flags", bytes));
  UNISONO_TRY(pages->memory_->reserve(0, bytes));
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
  ticket_.id = server_->offer([memory = memory_]() -> Result<UniqueFd> {
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
  cuda::SideWork& side = device_.memory().side_work();
  if (pieces_ != nullptr) side.drop_at_end(std::move(pieces_));
  if (connecting_.valid()) {  // what is being registered, too
    side.drop_at_end(std::make_shared<std::future<Registration>>(std::move(connecting_)));
  }
}

const SharedPages::Piece& SharedPages::piece(Rank rank) const { return pieces_->of(rank); }

Result<bool> SharedPages::connect(std::span<const PageTicket> tickets) {
  if (is_connected()) return true;
  if (!connecting_.valid()) UNISONO_TRY(start_connecting(tickets));
  if (connecting_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return false;
  UNISONO_ASSIGN(pieces_, connecting_.get());
  return true;
}

Status SharedPages::start_connecting(std::span<const PageTicket> tickets) {
  const auto connected = [pieces = std::make_shared<Pieces>(device_, bytes_), self = rank_,
                          own = memory_,
                          all = std::vector<PageTicket>(tickets.begin(), tickets.end())]() mutable {
    const Status status = pieces->connect(all, self, own);
    return status ? Registration(std::move(pieces)) : Registration(status);
  };
  auto task = std::make_shared<std::packaged_task<Registration()>>(connected);
  connecting_ = task->get_future();
  return device_.memory().side_work().run([task = std::move(task)] { (*task)(); });
}

}  // namespace unisono::device
