// What a rank tells others of its host so that they read memory of its where it lies. Who lends
// what, for how long, and what becomes of it is the users' business: loan.h for frames,
// native/large_call.h for collectives. handle_of() makes a handle, open() a view of it: for device
// memory these are ticket() and map() (cuda/memory/device_memory.h).
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

/// `bytes` bytes of its owner. Comes from peers that may be hostile: open() of SharedSegment or
/// SegmentGroup checks it.
struct MemoryHandle {
  MemoryPath path : 8 = MemoryPath::kNone;
  std::uint64_t bytes : 56 = 0;
  std::uint64_t address = 0;
};
static_assert(sizeof(MemoryHandle) == 16, "two have to fit a cell's line");

/// MemoryHandle::address of kRegistered: the number of the range above, the offset in it below.
inline constexpr int kRegisteredOffsetBits = 48;

/// The same memory as its reader has it.
struct MemoryView {
  MemoryPath path = MemoryPath::kNone;
  const std::byte* base = nullptr;  ///< null of kNone and kSingleCopy
  std::uint64_t address = 0;        ///< kSingleCopy
  /// kRegistered: `base` lies in it. The owner may have given the range up meanwhile.
  std::shared_ptr<const FileView> mapping{};
};

}  // namespace unisono::shm
