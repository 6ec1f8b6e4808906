// What a rank asks the launcher's store, and what that answers; and what launchers say to each
// other.
#include "rendezvous/store/store_request.h"
#include "tests/fuzz/target.h"
#include "tools/run/node_messages.h"

namespace unisono::fuzz {
namespace {

using rendezvous::StoreRequest;

void fuzz_store_request(std::span<const std::byte> input) {
  const std::string_view bytes(reinterpret_cast<const char*>(input.data()), input.size());
  if (const auto request = rendezvous::request_from_bytes(bytes); request && *request) {
    const auto again = rendezvous::to_bytes(**request);
    require(again.has_value(), "a key or value above its limit");
    require(*again == bytes, "a question that is another one");
  }
  if (const auto answer = rendezvous::answer_from_bytes(bytes); answer && *answer) {
    require(rendezvous::store_answer(**answer) == bytes, "an answer that is another one");
  }
}

std::vector<Bytes> store_request_corpus() {
  std::vector<Bytes> corpus;
  for (const auto kind :
       {StoreRequest::Kind::kSet, StoreRequest::Kind::kGet, StoreRequest::Kind::kWait}) {
    const std::string value = kind == StoreRequest::Kind::kSet ? "value" : "";
    corpus.push_back(to_bytes(*rendezvous::to_bytes({kind, "key", value})));
  }
  corpus.push_back(to_bytes(rendezvous::store_answer("value")));
  corpus.push_back(to_bytes(rendezvous::store_refusal("it is full")));
  return corpus;
}

constexpr run::JobShape kShape{.node_count = 3, .local_size = 2, .max_restarts = 5};
constexpr int kNode = 1;
constexpr std::size_t kHeadBytes = 5;  // length and type

void fuzz_node_message(std::span<const std::byte> input) {
  const std::string_view body(reinterpret_cast<const char*>(input.data()), input.size());
  const auto check = [&](const auto& decoded, const auto& encode) {
    require(!decoded || encode(*decoded).substr(kHeadBytes) == body, "a message that is another");
  };
  check(run::decode_greeting(body), run::encode_greeting);
  check(run::decode_refusal(body), [](const std::string& why) { return run::encode_refusal(why); });
  const auto encode = [](const auto& value) { return run::encode(value); };
  const auto event = run::decode_event(body, kShape, kNode);
  check(event, encode);
  require(!event || event->rank < 4, "a rank of another node");
  const auto order = run::decode_order(body, kShape, kNode);
  check(order, encode);
  require(!order || order->meeting.restarts <= kShape.max_restarts, "too many restarts");
  check(run::decode_store(body), [](const run::StoreMessage& message) {
    return run::encode(run::NodeMessage::kAsk, message);
  });
}

std::vector<Bytes> node_message_corpus() {
  using run::Event;
  using run::Order;
  std::vector<Bytes> corpus;
  for (const std::string& message :
       {run::encode_greeting(kShape), run::encode_refusal("why"),
        run::encode(Event{Event::Kind::kFailed, 2, {137, "rank 2 failed"}}),
        run::encode(Event{Event::Kind::kGone}),
        run::encode(Order{Order::Kind::kStart, 3, "text", {1, "why"}, {5, 29501, "id"}}),
        run::encode(Order{Order::Kind::kOver}),
        run::encode(run::NodeMessage::kAsk, {7, "bytes of a question"})}) {
    corpus.push_back(to_bytes(message.substr(kHeadBytes)));
  }
  return corpus;
}

}  // namespace

void add_launcher_store(Targets* targets) {
  targets->push_back({"store_request", fuzz_store_request, store_request_corpus, 5000});
  targets->push_back({"node_message", fuzz_node_message, node_message_corpus, 5000});
}

}  // namespace unisono::fuzz
