#include "cuda/memory/ticket_book.h"

#include <fmt/format.h>

#include <cstring>

#include "base/log.h"
#include "cuda/driver/driver_section.h"

namespace unisono::cuda {
namespace {

using Kind = BufferTicket::Kind;

/// For a buffer that begins in `whole`; false where it ends behind it.
bool cut_out(const BufferTicket& whole, CUdeviceptr address, std::size_t bytes,
             BufferTicket* ticket) {
  *ticket = whole;
  ticket->address = address;
  return bytes <= whole.allocation_bytes - (address - whole.base);
}

/// Its owner is the application, which frees it without telling. What cannot be asked is there.
bool is_there(const CudaApi& api, CUcontext context, CUdeviceptr base, std::uint64_t buffer_id) {
  const DriverSection section(api, context);
  const auto now = query_pointer(api, reinterpret_cast<const void*>(base));
  return !section.status().ok() || !now || (now->mapped && now->buffer_id == buffer_id);
}

}  // namespace

TicketBook::~TicketBook() {
  for (auto entry = entries_.begin(); entry != entries_.end();) entry = erase(entry);
}

BufferTicket TicketBook::blank(Kind kind) const {
  BufferTicket ticket;
  ticket.kind = kind;
  ticket.process = process_.pid;
  ticket.process_key = process_.key;
  ticket.device_uuid = device_.uuid;
  return ticket;
}

Result<BufferTicket> TicketBook::ticket_of(const void* pointer, std::size_t bytes) {
  if (pointer == nullptr || bytes == 0) return blank(Kind::kNone);
  const auto address = reinterpret_cast<CUdeviceptr>(pointer);
  BufferTicket ticket;
  if (const Window* window = own_.window_at(address); window != nullptr) {
    Entry* entry = find(address, 0);
    if (entry == nullptr) {
      UNISONO_ASSIGN(entry, add_window(*window));
    }
    if (cut_out(entry->ticket, address, bytes, &ticket)) return ticket;
    return Status(ErrorCode::kInvalidArgument,
                  fmt::format("{} of {} go beyond its allocation of {} bytes",
                              buffer_text(pointer, bytes), device_.name, window->bytes()));
  }
  UNISONO_ASSIGN(const PointerRecord record, check_buffer(device_, pointer, bytes));
  if (!record.facts.device) {
    ticket = blank(Kind::kHost);
    ticket.address = address;
    return ticket;
  }
  if (record.facts.ordinal != device_.ordinal && !record.managed) {
    return Status(ErrorCode::kInvalidArgument,
                  fmt::format("{} lie on device {}, but this rank uses {}",
                              buffer_text(pointer, bytes), record.facts.ordinal, device_.name));
  }
  if (record.buffer_id == 0) {
    log::debug(
        "CUDA: a buffer cannot be mapped by other processes: no number tells it from other "
        "memory that may take its place");
    return without_number(record, address);
  }
  Entry* entry = find(address, record.buffer_id);
  if (entry == nullptr) {
    UNISONO_ASSIGN(entry, add_foreign(record, address));
  }
  if (cut_out(entry->ticket, address, bytes, &ticket)) return ticket;
  // It goes on in the next piece of its address range: each piece has a handle of its own.
  return without_number(record, address);
}

// Nothing that is remembered of such memory can be trusted: it may have been mapped anew since.
BufferTicket TicketBook::without_number(const PointerRecord& record, CUdeviceptr address) const {
  BufferTicket ticket = blank(Kind::kUnshareable);
  ticket.address = address;
  ticket.base = record.facts.base;
  ticket.allocation_bytes = record.facts.bytes;
  return ticket;
}

TicketBook::Entry* TicketBook::find(CUdeviceptr address, std::uint64_t buffer_id) {
  auto after = entries_.upper_bound(address);
  if (after == entries_.begin()) return nullptr;
  Entry& entry = std::prev(after)->second;
  if (address - entry.ticket.base >= entry.ticket.allocation_bytes) return nullptr;
  // The driver gives every allocation a number of its own: another one means that this was freed.
  if (entry.buffer_id != buffer_id) return nullptr;
  entry.last_use = ++use_;
  return &entry;
}

Result<TicketBook::Entry*> TicketBook::add_window(const Window& window) {
  Entry entry;
  entry.ticket = blank(Kind::kWindow);
  entry.ticket.base = window.address();
  entry.ticket.allocation_bytes = window.bytes();
  const CudaApi& api = *device_.api;
  const CUcontext context = device_.context;
  UNISONO_TRY(offer(&entry, [&api, context, &window]() -> Result<UniqueFd> {
    const DriverSection section(api, context);
    UNISONO_TRY(section.status());
    return window.export_descriptor();
  }));
  return insert(std::move(entry));
}

Result<TicketBook::Entry*> TicketBook::add_foreign(const PointerRecord& record,
                                                   CUdeviceptr address) {
  const DriverSection section(*device_.api, device_.context);
  UNISONO_TRY(section.status());
  Entry entry;
  entry.buffer_id = record.buffer_id;
  if (const Status shareable = describe_foreign(record, address, &entry); !shareable) {
    log::debug("CUDA: a buffer cannot be mapped by other processes: " + shareable.message());
    entry.ticket = blank(Kind::kUnshareable);
    entry.ticket.base = record.facts.base;
    entry.ticket.allocation_bytes = record.facts.bytes;
    entry.ticket.allocation_id = record.buffer_id;
  }
  return insert(std::move(entry));
}

Status TicketBook::describe_foreign(const PointerRecord& record, CUdeviceptr address,
                                    Entry* entry) {
  if (record.managed) return {ErrorCode::kUnsupported, "managed memory has no handle"};
  const CudaApi& api = *device_.api;
  if (device_.windows_missing.empty() && has_handle(api, address)) {
    UNISONO_ASSIGN(const ForeignPiece piece, exportable_piece(api, address));
    entry->ticket = blank(Kind::kWindow);
    entry->ticket.base = piece.base;
    entry->ticket.allocation_bytes = piece.bytes;
    const CUcontext context = device_.context;
    const auto exists = [&api, context, id = record.buffer_id, base = piece.base] {
      return is_there(api, context, base, id);
    };
    const auto exporter = [&api, context, exists, base = piece.base]() -> Result<UniqueFd> {
      if (!exists()) return Status(ErrorCode::kInvalidArgument, "the memory was freed");
      const DriverSection section(api, context);
      UNISONO_TRY(section.status());
      return export_piece(api, base);
    };
    return offer(entry, exporter, exists);
  }
  if (!record.ipc_capable) return {ErrorCode::kUnsupported, "the driver offers no handle of it"};
  entry->ticket = blank(Kind::kLegacyIpc);
  entry->ticket.base = record.facts.base;
  entry->ticket.allocation_bytes = record.facts.bytes;
  entry->ticket.allocation_id = record.buffer_id;
  return describe_legacy(entry);
}

Status TicketBook::describe_legacy(Entry* entry) const {
  const CudaApi& api = *device_.api;
  if (api.IpcGetMemHandle == nullptr) {
    return {ErrorCode::kUnsupported, "the driver has no cuIpcGetMemHandle"};
  }
  // A handle names the whole allocation, whatever address it is asked for: the base's will do.
  CUipcMemHandle handle;
  UNISONO_TRY(api.check(api.IpcGetMemHandle(&handle, entry->ticket.base),
                        "getting an IPC handle on " + device_.name));
  static_assert(sizeof handle == sizeof entry->ticket.ipc_handle);
  std::memcpy(entry->ticket.ipc_handle.data(), &handle, sizeof handle);
  return {};
}

Status TicketBook::offer(Entry* entry, DescriptorServer::Exporter exporter,
                         DescriptorServer::Existence exists) {
  if (server_ == nullptr) {
    UNISONO_ASSIGN(server_, DescriptorServer::of_process());
  }
  const std::string& address = server_->address();
  UNISONO_ASSERT(address.size() < entry->ticket.socket.size(), "a socket name fits its ticket");
  std::memcpy(entry->ticket.socket.data(), address.c_str(), address.size() + 1);
  entry->offered = server_->offer(std::move(exporter), std::move(exists));
  entry->ticket.allocation_id = entry->offered;
  return {};
}

TicketBook::Entry* TicketBook::insert(Entry entry) {
  const CUdeviceptr begin = entry.ticket.base;
  const CUdeviceptr end = begin + entry.ticket.allocation_bytes;
  // What lay there before has been freed.
  for (auto at = entries_.begin(); at != entries_.end() && at->first < end;) {
    at = at->first + at->second.ticket.allocation_bytes > begin ? erase(at) : std::next(at);
  }
  make_room();
  entry.last_use = ++use_;
  return &(entries_[begin] = std::move(entry));
}

void TicketBook::make_room() {
  if (entries_.size() < kTicketsMax) return;
  auto oldest = entries_.end();
  for (auto at = entries_.begin(); at != entries_.end(); ++at) {
    if (at->second.offered != 0) continue;
    if (oldest == entries_.end() || at->second.last_use < oldest->second.last_use) oldest = at;
  }
  if (oldest != entries_.end()) entries_.erase(oldest);
}

TicketBook::Entries::iterator TicketBook::erase(Entries::iterator entry) {
  if (entry->second.offered != 0) server_->withdraw(entry->second.offered);
  return entries_.erase(entry);
}

void TicketBook::drop(CUdeviceptr base) {
  const auto found = entries_.find(base);
  if (found != entries_.end()) erase(found);
}

}  // namespace unisono::cuda
