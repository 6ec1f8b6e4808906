// How a rank lets the other ranks of its host read a large buffer: a word of UNISONO_ACCESS, of the
// selection table and of native calls alike. Values only; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace unisono {

/// Each owner's own choice, told to the readers with every call; ranks need not agree.
enum class AccessPath : std::uint8_t {
  kAutomatic,   ///< what was measured to be fast; from 1 MiB on in place where that is possible
  kWindow,      ///< copied through shared memory piece by piece
  kSingleCopy,  ///< in place or by process_vm_readv; kWindow where both are refused
  kMapped,      ///< in place where possible, else kWindow
  kStreamed,    ///< as kMapped, but collectives store what others read past the caches
};

inline constexpr std::array<std::string_view, 5> kAccessPathNames{"auto", "window", "single_copy",
                                                                  "mapped", "streamed"};

inline constexpr std::string_view name_of(AccessPath path) {
  return kAccessPathNames[static_cast<std::size_t>(path)];
}

/// Inverse of name_of. False when unknown.
inline constexpr bool parse(std::string_view text, AccessPath* path) {
  for (std::size_t i = 0; i < kAccessPathNames.size(); ++i) {
    if (kAccessPathNames[i] != text) continue;
    *path = static_cast<AccessPath>(i);
    return true;
  }
  return false;
}

}  // namespace unisono
