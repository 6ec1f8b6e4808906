// A rank that lacks what a connection takes: it tries again for a while, and says then that it is
// at fault itself.
#pragma once

#include <fmt/format.h>

#include <cerrno>
#include <string>

#include "base/errno_text.h"
#include "base/result.h"

namespace unisono::tcp {

/// So often in a row nothing was to be had before that is told.
inline constexpr int kShortagesMax = 8;

inline bool is_shortage(int error) {
  return is_out_of_descriptors(error) || error == ENOBUFS || error == ENOMEM;
}

inline Status no_connections(Rank self, const std::string& why) {
  return {ErrorCode::kOutOfResources,
          fmt::format("rank {} can open no more connections: {}", self, why), self};
}

}  // namespace unisono::tcp
