#include "tools/run/node_messages.h"

#include <fmt/format.h>

#include "rendezvous/messages/control_wire.h"
#include "rendezvous/store/store_request.h"

namespace unisono::run {
namespace {

using rendezvous::kStoreBytesMax;
using rendezvous::kTextBytesMax;
using rendezvous::Reader;
using rendezvous::Writer;

constexpr int kPortMax = 65535;

Writer writer_of(NodeMessage type) { return Writer(static_cast<rendezvous::MessageType>(type)); }

Status no_message(const char* what) {
  return {ErrorCode::kProtocol, fmt::format("these bytes are no {} of a launcher", what)};
}

void write_failure(Writer* writer, const Failure& failure) {
  writer->number(static_cast<std::int32_t>(failure.exit_status));
  writer->text(failure.what, kTextBytesMax);
}

bool read_failure(Reader* reader, Failure* failure) {
  failure->exit_status = reader->number<std::int32_t>();
  failure->what = reader->text(kTextBytesMax);
  // What a process that has failed can exit with.
  return reader->ok() && failure->exit_status > 0 && failure->exit_status <= 255;
}

}  // namespace

NodeMessage type_of(const rendezvous::Message& message) {
  return static_cast<NodeMessage>(message.type);
}

std::string encode(NodeMessage type) { return writer_of(type).finish(); }

std::string encode_greeting(const JobShape& shape) {
  Writer writer = writer_of(NodeMessage::kGreeting);
  for (const int value : {shape.node_count, shape.local_size, shape.max_restarts}) {
    writer.number(static_cast<std::int32_t>(value));
  }
  writer.number(static_cast<std::uint8_t>(shape.restart));
  return writer.finish();
}

Result<JobShape> decode_greeting(std::string_view body) {
  Reader reader(body);
  JobShape shape;
  for (int* value : {&shape.node_count, &shape.local_size, &shape.max_restarts}) {
    *value = reader.number<std::int32_t>();
  }
  const auto restart = reader.number<std::uint8_t>();
  shape.restart = static_cast<Restart>(restart);
  const bool is_possible = shape.node_count > 0 && shape.local_size > 0 && shape.max_restarts > 0 &&
                           restart <= static_cast<std::uint8_t>(Restart::kAll);
  if (!reader.finished() || !is_possible) return no_message("greeting");
  return shape;
}

std::string encode_refusal(std::string_view why, NodeMessage type) {
  Writer writer = writer_of(type);
  writer.text(why, kTextBytesMax);
  return writer.finish();
}

Result<std::string> decode_refusal(std::string_view body) {
  Reader reader(body);
  std::string why = reader.text(kTextBytesMax);
  if (!reader.finished()) return no_message("refusal");
  return why;
}

std::string encode(const Event& event) {
  Writer writer = writer_of(NodeMessage::kEvent);
  writer.number(static_cast<std::uint8_t>(event.kind));
  writer.number(static_cast<std::int32_t>(event.rank));
  write_failure(&writer, event.failure);
  return writer.finish();
}

Result<Event> decode_event(std::string_view body, const JobShape& shape, int node) {
  Reader reader(body);
  Event event;
  const auto kind = reader.number<std::uint8_t>();
  event.kind = static_cast<Event::Kind>(kind);
  event.rank = reader.number<std::int32_t>();
  const bool is_failure = read_failure(&reader, &event.failure);
  const bool needs_rank = event.kind <= Event::Kind::kFailed;
  const bool is_rank = needs_rank ? shape.has_rank(node, event.rank) : event.rank == -1;
  if (!reader.finished() || kind > static_cast<std::uint8_t>(Event::Kind::kGone) || !is_failure ||
      !is_rank) {
    return no_message("event");
  }
  return event;
}

std::string encode(const Order& order) {
  Writer writer = writer_of(NodeMessage::kOrder);
  writer.number(static_cast<std::uint8_t>(order.kind));
  writer.number(static_cast<std::int32_t>(order.rank));
  writer.text(order.text, 2 * kTextBytesMax);
  write_failure(&writer, order.failure);
  writer.number(static_cast<std::int32_t>(order.meeting.restarts));
  writer.number(static_cast<std::int32_t>(order.meeting.port));
  writer.text(order.meeting.run_id, kRunIdBytesMax);
  return writer.finish();
}

Result<Order> decode_order(std::string_view body, const JobShape& shape, int node) {
  Reader reader(body);
  Order order;
  const auto kind = reader.number<std::uint8_t>();
  order.kind = static_cast<Order::Kind>(kind);
  order.rank = reader.number<std::int32_t>();
  order.text = reader.text(2 * kTextBytesMax);
  const bool is_failure = read_failure(&reader, &order.failure);
  order.meeting.restarts = reader.number<std::int32_t>();
  order.meeting.port = reader.number<std::int32_t>();
  order.meeting.run_id = reader.text(kRunIdBytesMax);
  const bool needs_rank = order.kind == Order::Kind::kStart || order.kind == Order::Kind::kClear;
  // A failure may be that of another node's rank.
  const bool is_rank = order.kind == Order::Kind::kFail || shape.has_rank(node, order.rank) ||
                       (order.rank == -1 && !needs_rank);
  if (!reader.finished() || kind > static_cast<std::uint8_t>(Order::Kind::kAlone) || !is_failure ||
      !is_rank || order.meeting.restarts < 0 || order.meeting.restarts > shape.max_restarts ||
      order.meeting.port < 0 || order.meeting.port > kPortMax) {
    return no_message("order");
  }
  return order;
}

std::string encode(NodeMessage type, const StoreMessage& message) {
  Writer writer = writer_of(type);
  writer.number(message.question);
  writer.text(message.bytes, kStoreBytesMax);
  return writer.finish();
}

Result<StoreMessage> decode_store(std::string_view body) {
  Reader reader(body);
  StoreMessage message;
  message.question = reader.number<std::uint64_t>();
  message.bytes = reader.text(kStoreBytesMax);
  if (!reader.finished()) return no_message("question or answer");
  return message;
}

}  // namespace unisono::run
