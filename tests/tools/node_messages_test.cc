// What launchers say to each other, and what they refuse to hear.
#include "tools/run/node_messages.h"

#include <gtest/gtest.h>

#include <functional>

#include "rendezvous/store/store_request.h"

namespace unisono::run {
namespace {

constexpr JobShape kShape{.node_count = 3, .local_size = 2, .max_restarts = 5};
constexpr int kNode = 1;  // ranks 2 and 3

// What follows length and type.
std::string_view body(const std::string& message) { return std::string_view(message).substr(5); }

TEST(NodeMessages, ReadWhatWasWritten) {
  const auto shape = decode_greeting(body(encode_greeting({3, 2, 5, Restart::kAll})));
  ASSERT_TRUE(shape);
  EXPECT_EQ(shape->node_count, 3);
  EXPECT_EQ(shape->local_size, 2);
  EXPECT_EQ(shape->max_restarts, 5);
  EXPECT_EQ(shape->restart, Restart::kAll);
  const auto event =
      decode_event(body(encode(Event{Event::Kind::kFailed, 3, {137, "why"}})), kShape, kNode);
  ASSERT_TRUE(event);
  EXPECT_EQ(event->rank, 3);
  EXPECT_EQ(event->failure.exit_status, 137);
  EXPECT_EQ(event->failure.what, "why");
  const auto order = decode_order(
      body(encode(Order{Order::Kind::kStart, 2, "text", {1, "why"}, {4, 29501, "id"}})), kShape,
      kNode);
  ASSERT_TRUE(order);
  EXPECT_EQ(order->text, "text");
  EXPECT_EQ(order->meeting.restarts, 4);
  EXPECT_EQ(order->meeting.port, 29501);
  EXPECT_EQ(order->meeting.run_id, "id");
  const auto asked = decode_store(body(encode(NodeMessage::kAsk, {1ull << 40, "bytes"})));
  ASSERT_TRUE(asked);
  EXPECT_EQ(asked->question, 1ull << 40);
  EXPECT_EQ(asked->bytes, "bytes");
  EXPECT_EQ(*decode_refusal(body(encode_refusal("no"))), "no");
}

TEST(NodeMessages, RefuseValuesOutOfBounds) {
  const auto event = [](Event::Kind kind, int rank, int status = 1) {
    return decode_event(body(encode(Event{kind, rank, {status, ""}})), kShape, kNode).has_value();
  };
  EXPECT_TRUE(event(Event::Kind::kExited, 2));
  EXPECT_FALSE(event(Event::Kind::kExited, 1)) << "a rank of another node";
  EXPECT_FALSE(event(Event::Kind::kFailed, 4));
  EXPECT_FALSE(event(Event::Kind::kFailed, -1));
  EXPECT_FALSE(event(Event::Kind::kGone, 2)) << "it is of no rank";
  EXPECT_FALSE(event(Event::Kind::kFailed, 2, 256));
  EXPECT_FALSE(event(Event::Kind::kFailed, 2, 0)) << "that is no failure";
  EXPECT_FALSE(event(static_cast<Event::Kind>(5), -1));
  const auto order = [](Order::Kind kind, int rank, const MeetingPoint& meeting = {}) {
    return decode_order(body(encode(Order{kind, rank, "", {}, meeting})), kShape, kNode)
        .has_value();
  };
  EXPECT_TRUE(order(Order::Kind::kStart, 3, {5, 65535, ""}));
  EXPECT_FALSE(order(Order::Kind::kStart, 4));
  EXPECT_FALSE(order(Order::Kind::kStart, -1));
  EXPECT_FALSE(order(Order::Kind::kClear, -1));
  EXPECT_TRUE(order(Order::Kind::kFail, 0)) << "what failed may be on another node";
  EXPECT_FALSE(order(Order::Kind::kStartAll, -1, {6, 1, ""})) << "more restarts than there are";
  EXPECT_FALSE(order(Order::Kind::kStartAll, -1, {-1, 1, ""}));
  EXPECT_FALSE(order(Order::Kind::kStartAll, -1, {0, 65536, ""}));
  EXPECT_FALSE(order(static_cast<Order::Kind>(8), -1));
  EXPECT_FALSE(decode_greeting(body(encode_greeting({0, 2, 5}))));
  EXPECT_FALSE(decode_greeting(body(encode_greeting({3, 0, 5}))));
  EXPECT_FALSE(decode_greeting(body(encode_greeting({3, 2, -1}))));
  EXPECT_FALSE(decode_greeting(body(encode_greeting({3, 2, 5, static_cast<Restart>(2)}))));
}

TEST(NodeMessages, CutTextsToTheirBounds) {
  const std::string text(100'000, 'x');
  const auto order = decode_order(
      body(encode(Order{Order::Kind::kFail, -1, text, {1, text}, {0, 1, text}})), kShape, kNode);
  ASSERT_TRUE(order);
  EXPECT_EQ(order->text.size(), 2 * rendezvous::kTextBytesMax);
  EXPECT_EQ(order->failure.what.size(), rendezvous::kTextBytesMax);
  EXPECT_EQ(order->meeting.run_id.size(), kRunIdBytesMax);
  const auto asked = decode_store(body(encode(NodeMessage::kAsk, {1, text})));
  ASSERT_TRUE(asked);
  EXPECT_EQ(asked->bytes.size(), rendezvous::kStoreBytesMax);
}

TEST(NodeMessages, RefuseWhatIsTooShortOrTooLong) {
  const std::pair<std::string, std::function<bool(std::string_view)>> messages[]{
      {encode_greeting(kShape), [](auto bytes) { return decode_greeting(bytes).has_value(); }},
      {encode_refusal("no"), [](auto bytes) { return decode_refusal(bytes).has_value(); }},
      {encode(Event{Event::Kind::kFailed, 2, {1, "why"}}),
       [](auto bytes) { return decode_event(bytes, kShape, kNode).has_value(); }},
      {encode(Order{Order::Kind::kStart, 2, "text", {1, "why"}, {4, 29501, "id"}}),
       [](auto bytes) { return decode_order(bytes, kShape, kNode).has_value(); }},
      {encode(NodeMessage::kAnswer, {1, "bytes"}),
       [](auto bytes) { return decode_store(bytes).has_value(); }}};
  for (const auto& [message, decodes] : messages) {
    const std::string_view whole = body(message);
    EXPECT_TRUE(decodes(whole));
    for (std::size_t size = 0; size < whole.size(); ++size) {
      EXPECT_FALSE(decodes(whole.substr(0, size))) << size;
    }
    EXPECT_FALSE(decodes(std::string(whole) + "x"));
  }
}

}  // namespace
}  // namespace unisono::run
