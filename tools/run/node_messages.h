// What the launchers of a job say to each other once both have proved that they know its key: those
// of the other nodes to that of node 0, and what it answers. On the wire as
// rendezvous/messages/control_messages.h; every length is bounded and every field checked. Values
// only; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "rendezvous/messages/control_messages.h"
#include "tools/run/job_control.h"

namespace unisono::run {

inline constexpr std::size_t kRunIdBytesMax = 1024;

enum class NodeMessage : std::uint8_t {
  kGreeting = static_cast<std::uint8_t>(rendezvous::MessageType::kJoin),
  kEvent,         ///< of its ranks
  kAsk,           ///< a question of one of them to the store
  kForget,        ///< who asked has hung up
  kWelcome = 32,  ///< node 0: it is taken in
  kRefusal,       ///< node 0: it is not, and why
  kOrder,
  kAnswer,  ///< of the store
  kTaken,   ///< a refusal, as its node has a launcher; which may be lost, and that not noticed yet
};
NodeMessage type_of(const rendezvous::Message& message);

/// A question, as bytes of rendezvous/store/store_request.h, or its answer; empty in a kForget.
struct StoreMessage {
  std::uint64_t question = 0;
  std::string bytes;
};

/// Whole messages, length included; texts are cut to their bounds.
std::string encode(NodeMessage type);
std::string encode_greeting(const JobShape& shape);
std::string encode_refusal(std::string_view why, NodeMessage type = NodeMessage::kRefusal);
std::string encode(const Event& event);
std::string encode(const Order& order);
std::string encode(NodeMessage type, const StoreMessage& message);

/// kProtocol where the bytes are none. Ranks are those of `node`.
Result<JobShape> decode_greeting(std::string_view body);
Result<std::string> decode_refusal(std::string_view body);
Result<Event> decode_event(std::string_view body, const JobShape& shape, int node);
Result<Order> decode_order(std::string_view body, const JobShape& shape, int node);
Result<StoreMessage> decode_store(std::string_view body);

}  // namespace unisono::run
