// How a role of the rendezvous tests says that it failed.
#pragma once

#include <cstdio>
#include <string>

#include "unisono/error.h"

namespace unisono::test {

/// The exit status of a role whose call failed.
inline constexpr int kFailed = 3;

inline int report(const Error& error) {
  std::printf("failed with %s: %s\n", std::string(name_of(error.code())).c_str(), error.what());
  return kFailed;
}

}  // namespace unisono::test
