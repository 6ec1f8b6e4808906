// How a rank lets the others read a large buffer, and how they get at it. The owner chooses; the
// choice travels in its cell and the readers obey.
//
// Thread rule: values.
#pragma once

#include <vector>

#include "native/native.h"
#include "transports/shm/fabric_group.h"

namespace unisono::native {

enum class OfferPath : std::uint8_t {
  kWindow = 0,  ///< chunk by chunk through the owner's window
  kCell,        ///< all of it behind the cell's first line
  kPointer,     ///< at an address of this process
  kHeap,        ///< at an offset of the owner's heap
  kSingleCopy,  ///< at an address of the owner's process
};

/// What the cell's line says in a large call.
struct Offer {
  std::uint64_t input = 0;
  std::uint64_t result = 0;
  std::uint64_t input_bytes = 0;
  OfferPath input_path = OfferPath::kWindow;
  OfferPath result_path = OfferPath::kWindow;
  std::uint8_t unused[6] = {};
};
static_assert(sizeof(Offer) == shm::kInlineBytes);

/// True when peers read the buffer itself, so its owner must wait for them before it returns.
inline bool is_direct(OfferPath path) { return path >= OfferPath::kPointer; }

struct Place {
  OfferPath path = OfferPath::kWindow;
  std::uint64_t address = 0;
};

/// The best way to offer [pointer, pointer + bytes) of this rank that `access` allows.
Place choose_path(const shm::FabricGroup& group, AccessPath access, const void* pointer,
                  std::size_t bytes);

/// A member's buffer as this rank reads it.
struct View {
  OfferPath path = OfferPath::kWindow;
  const std::byte* base = nullptr;  ///< kCell, kPointer, kHeap
  std::uint64_t address = 0;        ///< kSingleCopy
};

/// Checks what `member` said; kCell is for the call to resolve. Errors: kProtocol.
Result<View> resolve(shm::FabricGroup& group, int member, OfferPath path, std::uint64_t address,
                     std::size_t bytes);

}  // namespace unisono::native
