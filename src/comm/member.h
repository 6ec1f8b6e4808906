// Which communicators may be used here: neither empty ones nor, in a forked child, its parent's.
#pragma once

#include <memory>
#include <string_view>

#include "comm/communicator_state.h"

namespace unisono::detail {

extern const Status kEmpty;      ///< of a communicator that this rank is no member of
extern const Status kInherited;  ///< of a parent's, in a forked child

[[noreturn]] void refuse_member(bool is_empty, std::string_view operation);

/// The state of a communicator that may be used. Throws kNotMember in the name of `operation`.
inline CommunicatorState& member(CommunicatorState* state, std::string_view operation) {
  if (state == nullptr || state->runtime().is_forked_copy()) {
    refuse_member(state == nullptr, operation);
  }
  return *state;
}
inline CommunicatorState& member(const std::shared_ptr<CommunicatorState>& state,
                                 std::string_view operation) {
  return member(state.get(), operation);
}
inline CommunicatorState& member(const std::shared_ptr<CommunicatorState>& state,
                                 Collective collective) {
  if (state == nullptr || state->runtime().is_forked_copy()) {
    refuse_member(state == nullptr, name_of(collective));
  }
  return *state;
}

}  // namespace unisono::detail
