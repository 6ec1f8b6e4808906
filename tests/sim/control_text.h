// The parts of a whole control message.
//
// Thread rule: pure functions.
#pragma once

#include <string_view>

#include "rendezvous/messages/control_messages.h"

namespace unisono::sim {

inline rendezvous::MessageType type_of(std::string_view bytes) {
  return static_cast<rendezvous::MessageType>(bytes[4]);  // behind the length
}
inline std::string_view body_of(std::string_view bytes) { return bytes.substr(5); }

}  // namespace unisono::sim
