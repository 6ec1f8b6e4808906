// Who is started again when a rank fails and restarts are left.
#pragma once

#include <cstdint>

namespace unisono::run {

enum class Restart : std::uint8_t {
  kFailed,  ///< that rank, which rejoins the others; everyone where none is left or has met
  kAll,     ///< everyone
};

}  // namespace unisono::run
