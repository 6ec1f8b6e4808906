#include "device/flag_page.h"

#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstring>

#include "base/clock.h"

namespace unisono::device {
namespace {

constexpr auto kConnectLimit = std::chrono::seconds(5);
// Far ahead of every sequence that a stream may wait for, as cyclic comparison sees it.
constexpr std::uint32_t kPoison = 1u << 30;

}  // namespace

/// The page: each word is written by one peer's stream, the abort word by the owner.
struct FlagPage::Words {
  struct alignas(64) Line {
    std::uint32_t value;
  };
  Line ready[kRanksMax];
  Line done[kRanksMax];
  Line abort;
};

FlagPage::FlagPage(Device& device, int ranks, Rank rank)
    : device_(device), ranks_(ranks), rank_(rank) {
  static_assert(sizeof(Words) <= shm::kPageBytes);
  pages_.resize(static_cast<std::size_t>(ranks));
}

Result<std::unique_ptr<FlagPage>> FlagPage::make(Device& device, int ranks, Rank rank) {
  std::unique_ptr<FlagPage> flags(new FlagPage(device, ranks, rank));
  UNISONO_ASSIGN(flags->server_, cuda::DescriptorServer::of_process());
  UNISONO_ASSIGN(std::shared_ptr<shm::Mapping> page,
                 shm::Mapping::create("unisono-device-flags", shm::kPageBytes));
  UNISONO_TRY(page->reserve(0, shm::kPageBytes));
  UNISONO_TRY(flags->add(page, &flags->pages_[static_cast<std::size_t>(rank)]));
  flags->ticket_.id = flags->server_->offer([page]() -> Result<UniqueFd> {
    UniqueFd copy(dup(page->fd()));
    if (!copy) return Status(ErrorCode::kSystem, "no descriptor is left for a page of flags");
    return copy;
  });
  const std::string& socket = flags->server_->address();
  if (socket.size() >= sizeof flags->ticket_.socket) {
    return Status(ErrorCode::kSystem, "the socket's name '" + socket + "' is too long");
  }
  std::memcpy(flags->ticket_.socket, socket.data(), socket.size());
  return flags;
}

FlagPage::~FlagPage() {
  if (ticket_.id != 0) server_->withdraw(ticket_.id);
  const DriverScope scope(device_.api(), device_.context());
  for (const Neighbour& neighbour : pages_) {
    if (neighbour.address != 0) device_.api().MemHostUnregister(neighbour.page->base());
  }
}

Status FlagPage::add(std::shared_ptr<shm::Mapping> page, Neighbour* neighbour) {
  const cuda::CudaApi& api = device_.api();
  neighbour->page = std::move(page);
  UNISONO_TRY(
      api.check(api.MemHostRegister(neighbour->page->base(), shm::kPageBytes,
                                    CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP),
                "registering a page of flags with " + device_.name()));
  return api.check(api.MemHostGetDevicePointer(&neighbour->address, neighbour->page->base(), 0),
                   "addressing a page of flags from " + device_.name());
}

Status FlagPage::connect(std::span<const PageTicket> tickets) {
  const TimePoint deadline = Clock::now() + kConnectLimit;
  for (Rank peer = 0; peer < ranks_; ++peer) {
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
    UNISONO_ASSIGN(std::shared_ptr<shm::Mapping> page,
                   shm::Mapping::attach(std::move(*fd), shm::kPageBytes, shm::kPageBytes, true));
    UNISONO_TRY(add(std::move(page), &pages_[static_cast<std::size_t>(peer)]));
  }
  return Status();
}

FlagPage::Words& FlagPage::own() const {
  return *reinterpret_cast<Words*>(pages_[static_cast<std::size_t>(rank_)].page->base());
}

Status FlagPage::enqueue_ready(CUstream stream, std::uint32_t sequence) const {
  return exchange(stream, offsetof(Words, ready), sequence);
}

Status FlagPage::enqueue_done(CUstream stream, std::uint32_t sequence) const {
  return exchange(stream, offsetof(Words, done), sequence);
}

// One batch: writes to all peers, then waits for all of them. A write is ordered behind everything
// that the stream has done.
Status FlagPage::exchange(CUstream stream, std::size_t offset, std::uint32_t sequence) const {
  CUstreamBatchMemOpParams batch[2 * kRanksMax] = {};
  unsigned count = 0;
  const auto word_of = [&](Rank page, Rank writer) {
    return pages_[static_cast<std::size_t>(page)].address + offset +
           static_cast<std::size_t>(writer) * sizeof(Words::Line);
  };
  for (Rank peer = 0; peer < ranks_; ++peer) {
    if (peer == rank_) continue;
    CUstreamBatchMemOpParams& write = batch[count++];
    write.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    write.writeValue.address = word_of(peer, rank_);
    write.writeValue.value = sequence;
    write.writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;
  }
  for (Rank peer = 0; peer < ranks_; ++peer) {
    if (peer == rank_) continue;
    CUstreamBatchMemOpParams& wait = batch[count++];
    wait.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
    wait.waitValue.address = word_of(rank_, peer);
    wait.waitValue.value = sequence;
    wait.waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
  }
  if (count == 0) return Status();
  return device_.api().check(device_.api().StreamBatchMemOp(stream, count, batch, 0),
                             "enqueueing flags on " + device_.name());
}

void FlagPage::waiting_for(std::uint32_t sequence, std::vector<Rank>* ranks) const {
  for (Rank peer = 0; peer < ranks_; ++peer) {
    if (peer == rank_) continue;
    const std::uint32_t seen =
        std::atomic_ref<std::uint32_t>(own().done[peer].value).load(std::memory_order_acquire);
    if (static_cast<std::int32_t>(seen - sequence) < 0) ranks->push_back(peer);
  }
}

void FlagPage::abort() {
  std::atomic_ref<std::uint32_t>(own().abort.value).store(1, std::memory_order_release);
  for (Rank peer = 0; peer < ranks_; ++peer) {
    for (auto* words : {own().ready, own().done}) {
      std::atomic_ref<std::uint32_t>(words[peer].value)
          .store(sequence_ + kPoison, std::memory_order_release);
    }
  }
}

const std::uint32_t* FlagPage::abort_word() const {
  const CUdeviceptr page = pages_[static_cast<std::size_t>(rank_)].address;
  return reinterpret_cast<const std::uint32_t*>(page + offsetof(Words, abort));
}

}  // namespace unisono::device
