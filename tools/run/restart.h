// Who is started again when a rank fails and restarts are left.
#pragma once

#include <cstdint>

namespace unisono::run {

enum class Restart : std::uint8_t {
  kFailed,  ///< that rank, which rejoins the others; everyone where there is nobody to rejoin
  kAll,     ///< everyone
};

}  // namespace unisono::run
