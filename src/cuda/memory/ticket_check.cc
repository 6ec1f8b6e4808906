#include "cuda/memory/ticket_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <string_view>

#include "cuda/memory/window.h"

namespace unisono::cuda {
namespace {

using Kind = BufferTicket::Kind;

bool is_zero(std::uint8_t byte) { return byte == 0; }

/// Which field is impossible, with its value; empty: none.
std::string wrong_field(const BufferTicket& t, std::size_t bytes) {
  if (t.kind > Kind::kWindow) return fmt::format("kind {}", static_cast<int>(t.kind));
  if (!std::all_of(std::begin(t.reserved), std::end(t.reserved), is_zero)) {
    return "reserved bytes that are not zero";
  }
  if (t.process <= 0) return fmt::format("process {}", t.process);
  if (t.process_key == 0) return "process key 0";
  if (t.base == 0) return "base 0";
  if (t.allocation_bytes == 0 || t.allocation_bytes > kAllocationBytesMax ||
      t.base > std::numeric_limits<std::uint64_t>::max() - t.allocation_bytes) {
    return fmt::format("an allocation of {} bytes at {:#x}", t.allocation_bytes, t.base);
  }
  const bool begins_inside = t.address >= t.base && t.address - t.base <= t.allocation_bytes;
  if (!begins_inside || bytes > t.allocation_bytes - (t.address - t.base)) {
    return fmt::format("{} bytes at {:#x} in an allocation of {} bytes at {:#x}", bytes, t.address,
                       t.allocation_bytes, t.base);
  }
  if (t.kind == Kind::kLegacyIpc &&
      std::all_of(t.ipc_handle.begin(), t.ipc_handle.end(), is_zero)) {
    return "an empty IPC handle";
  }
  if (t.kind != Kind::kWindow) return "";
  if (t.allocation_id == 0) return "window 0";
  if (std::find(t.socket.begin(), t.socket.end(), '\0') == t.socket.end()) {
    return "a socket name without end";
  }
  const std::string_view socket(t.socket.data());
  if (!socket.starts_with("unisono-"))
    return fmt::format("a socket name of {} bytes", socket.size());
  return "";
}

}  // namespace

Status check_ticket(const BufferTicket& ticket, Rank peer, std::size_t bytes) {
  if (ticket.kind == Kind::kNone || ticket.kind == Kind::kHost) {
    return {ErrorCode::kInvalidArgument,
            fmt::format("rank {}'s buffer is no device memory and cannot be mapped", peer), peer};
  }
  const std::string wrong = wrong_field(ticket, bytes);
  if (wrong.empty()) return {};
  return {ErrorCode::kProtocol, fmt::format("rank {} sent a buffer ticket with {}", peer, wrong),
          peer};
}

}  // namespace unisono::cuda
