// A memory handle tells another rank of the host how to read a buffer of its owner in place.
// handle_of() makes one, and open() gives its reader a view of the same memory. For device memory
// ticket_of() and open() do the same (cuda/memory/device_memory.h). Which memory is offered, for
// how long, and when its owner has it back is decided by the users of handles: loan.h for frames,
// native/large_call.h for collectives.
//
// Thread rule: values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace unisono::shm {

class FileView;

/// How a reader gets at the bytes.
enum class MemoryPath : std::uint8_t {
  kNone = 0,    ///< not at all: they go through memory that both share (a ring, a window)
  kInline,      ///< they follow what carries the handle
  kPointer,     ///< `address` holds in the reader's process as well
  kHeap,        ///< `address` is an offset in the owner's heap
  kSingleCopy,  ///< `address` is the owner's, read by a system call
  kRegistered,  ///< `address` is an offset in a range that the owner has registered
};

/// True when others read the memory itself, so that its owner must wait for them.
inline bool is_in_place(MemoryPath path) { return path >= MemoryPath::kPointer; }

/// Names `bytes` bytes of its owner. It comes from peers that may be hostile, so open() checks it.
struct MemoryHandle {
  MemoryPath path : 8 = MemoryPath::kNone;
  std::uint64_t bytes : 56 = 0;
  std::uint64_t address = 0;
};
static_assert(sizeof(MemoryHandle) == 16, "two have to fit a cell's line");

/// MemoryHandle::address of kRegistered has the offset in the range in these low bits, and the
/// number of the range above them.
inline constexpr int kRegisteredOffsetBits = 48;

/// The memory of a handle, as its reader gets at it.
struct MemoryView {
  MemoryPath path = MemoryPath::kNone;
  const std::byte* base = nullptr;  ///< null of kNone and kSingleCopy
  std::uint64_t address = 0;        ///< kSingleCopy; of kNone what its user makes of it
  /// kRegistered: the mapping that `base` lies in. It stays even if the owner gives the range up.
  std::shared_ptr<const FileView> mapping{};
};

}  // namespace unisono::shm
