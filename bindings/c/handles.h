// What stands behind the handles of the C API.
#pragma once

#include "unisono/communicator.h"
#include "unisono/unisono.h"

struct unisono_comm {
  unisono::Communicator value;
};

struct unisono_request {
  unisono::Request value;
};

namespace unisono::c {

inline constexpr const char* kNoCommunicator = "the communicator is null";
inline constexpr const char* kNoRequest = "the request is null";

/// A handle of `value`; null where it is empty.
inline unisono_comm* handle_of(Communicator value) {
  return value.empty() ? nullptr : new unisono_comm{std::move(value)};
}

}  // namespace unisono::c
