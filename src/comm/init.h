// How a rank becomes part of a job; shared by init() and spawn().
#pragma once

#include "comm/runtime.h"
#include "unisono/communicator.h"

namespace unisono {

/// The only door from the rest of the library into a Communicator.
struct CommunicatorAccess {
  static Communicator make(std::shared_ptr<detail::CommunicatorState> state) {
    return Communicator(std::move(state));
  }
  static detail::CommunicatorState* state(Communicator& communicator) {
    return communicator.state_.get();
  }
};

/// Meets and makes the communicator of all ranks. Throws Error.
Communicator join_job(RuntimeOptions options, const char* operation = "init");

}  // namespace unisono
