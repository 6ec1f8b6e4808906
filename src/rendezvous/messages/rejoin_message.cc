#include "rendezvous/messages/rejoin_message.h"

#include "base/handshake.h"
#include "rendezvous/messages/control_wire.h"
#include "rendezvous/messages/rank_text.h"

namespace unisono::rendezvous {
namespace {

// As that of a join, for the eyes of whatever else connects.
constexpr std::string_view kRejoinMagic = "unisono rejoin";

Status malformed_rejoin() { return {ErrorCode::kProtocol, "malformed rejoin message"}; }

}  // namespace

std::string encode_rank(MessageType type, Rank rank) {
  Writer writer(type);
  writer.number(rank);
  return writer.finish();
}

std::string encode_rejoin(const RejoinMessage& message, int size) {
  Writer writer(MessageType::kRejoin);
  writer.text(kRejoinMagic, kRejoinMagic.size());
  writer.number(kWireVersion);
  writer.text(message.job_id, kHandshakeBytesMax);
  writer.number(message.rank);
  writer.number(message.attempt);
  writer.ranks(message.dead, size);
  writer.ranks(message.left, size);
  writer.ranks(message.ended, size);
  const std::size_t count = std::min(message.decisions.size(), kDecisionsToldMax);
  writer.number(static_cast<std::uint8_t>(count));
  for (auto at = message.decisions.end() - static_cast<std::ptrdiff_t>(count);
       at != message.decisions.end(); ++at) {
    FailureDecision told = *at;
    told.message = shortened(std::move(told.message), kDecisionToldBytesMax);
    write_decision(&writer, told);
  }
  return writer.finish();
}

Result<RejoinMessage> decode_rejoin(std::string_view body, int size) {
  Reader reader(body);
  if (reader.text(kRejoinMagic.size()) != kRejoinMagic ||
      reader.number<std::uint16_t>() != kWireVersion) {
    return malformed_rejoin();
  }
  RejoinMessage message;
  message.job_id = reader.text(kHandshakeBytesMax);
  message.rank = reader.number<Rank>();
  message.attempt = reader.number<std::uint32_t>();
  message.dead = reader.ranks(size);
  message.left = reader.ranks(size);
  message.ended = reader.ranks(size);
  const std::size_t count = reader.number<std::uint8_t>();
  if (!reader.ok() || message.rank < 0 || message.rank >= size || count > kDecisionsToldMax) {
    return malformed_rejoin();
  }
  message.decisions.resize(count);
  for (FailureDecision& decision : message.decisions) {
    if (!read_decision(&reader, size, &decision)) return malformed_rejoin();
  }
  if (!reader.finished()) return malformed_rejoin();
  return message;
}

Result<Rank> decode_rank(std::string_view body, int size) {
  Reader reader(body);
  const auto rank = reader.number<Rank>();
  if (!reader.finished() || rank < 0 || rank >= size) {
    return Status(ErrorCode::kProtocol, "malformed word on a rank");
  }
  return rank;
}

std::string encode_deposed(const DeposedMessage& message) {
  Writer writer(MessageType::kDeposed);
  writer.number(message.successor);
  writer.number(static_cast<std::uint64_t>(message.silence.count()));
  return writer.finish();
}

Result<DeposedMessage> decode_deposed(std::string_view body, int size) {
  Reader reader(body);
  DeposedMessage message;
  message.successor = reader.number<Rank>();
  const auto silence = reader.number<std::uint64_t>();
  if (!reader.finished() || message.successor < -1 || message.successor >= size ||
      silence > static_cast<std::uint64_t>(kToldTimeMax.count())) {
    return Status(ErrorCode::kProtocol, "malformed deposed message");
  }
  message.silence = std::chrono::milliseconds(silence);
  return message;
}

}  // namespace unisono::rendezvous
