// Which process a buffer lies in: no secret, and no proof. A pid alone does not say: containers on
// one host reuse them. Thread rule: any thread.
#pragma once

#include <cstdint>

namespace unisono::cuda {

struct ProcessIdentity {
  std::int32_t pid = 0;
  std::uint64_t key = 0;  ///< random, never 0

  friend bool operator==(const ProcessIdentity&, const ProcessIdentity&) = default;
};

/// This process's: always the same, and another one in a forked child. Takes a lock and asks the
/// system: whoever needs it for calls keeps it.
ProcessIdentity process_identity();

}  // namespace unisono::cuda
