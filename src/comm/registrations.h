// The memory that a rank's user has registered, by range; what became of a registration.
//
// Thread rule: any thread; one lock.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <string>

#include "base/result.h"
#include "unisono/registered_memory.h"

namespace unisono {

/// Of a range: how peers reach it. Values.
struct RegistrationFacts {
  PeerAccess access = PeerAccess::kCopied;
  std::string reason;      ///< why not kMapped
  int shared_number = -1;  ///< in the shared segment; -1: not there
  Status pinned{ErrorCode::kUnsupported, ""};
};

/// "16 bytes at 0x7f0000000000" for people.
std::string range_text(std::span<const std::byte> memory);

class Registrations {
 public:
  /// kInvalidArgument where another one overlaps, kOutOfResources where there are too many.
  Status add(std::span<const std::byte> memory);
  void remove(std::span<const std::byte> memory);

 private:
  std::mutex mutex_;
  std::map<const std::byte*, std::size_t, std::less<>> bytes_by_begin_;
};

}  // namespace unisono
