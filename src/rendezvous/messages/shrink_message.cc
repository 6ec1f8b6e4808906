#include "rendezvous/messages/shrink_message.h"

#include "rendezvous/messages/control_messages.h"
#include "rendezvous/messages/control_wire.h"
#include "rendezvous/messages/rank_text.h"

namespace unisono::rendezvous {
namespace {

Status malformed_shrink() { return {ErrorCode::kProtocol, "malformed shrink message"}; }

bool says_why(ShrinkStep step) {
  return step == ShrinkStep::kLeftOut || step == ShrinkStep::kCannot ||
         step == ShrinkStep::kRefused;
}

}  // namespace

std::string encode_shrink(const ShrinkMessage& message, int size) {
  Writer writer(MessageType::kShrink);
  writer.number(static_cast<std::uint8_t>(message.step));
  writer.number(message.communicator);
  writer.number(message.id);
  writer.number(static_cast<std::uint64_t>(
      std::clamp(message.patience, std::chrono::milliseconds(0), kToldTimeMax).count()));
  writer.ranks(message.members, size);
  writer.number(static_cast<std::uint8_t>(message.why.code()));
  writer.number(message.why.rank());
  writer.text(shortened(message.why.message(), kTextBytesMax), kTextBytesMax);
  writer.ranks(message.made, size);
  return writer.finish();
}

Result<ShrinkMessage> decode_shrink(std::string_view body, int size) {
  Reader reader(body);
  ShrinkMessage message;
  const auto step = reader.number<std::uint8_t>();
  message.communicator = reader.number<std::uint32_t>();
  message.id = reader.number<std::uint32_t>();
  const auto patience = reader.number<std::uint64_t>();
  message.members = reader.ranks(size);
  const auto code = reader.number<std::uint8_t>();
  const auto rank = reader.number<Rank>();
  std::string text = reader.text(kTextBytesMax);
  message.made = reader.ranks(size);
  if (!reader.finished() || step < static_cast<std::uint8_t>(ShrinkStep::kAsk) ||
      step > static_cast<std::uint8_t>(ShrinkStep::kRefused) ||
      patience > static_cast<std::uint64_t>(kToldTimeMax.count())) {
    return malformed_shrink();
  }
  message.step = static_cast<ShrinkStep>(step);
  message.patience = std::chrono::milliseconds(patience);
  if (!says_why(message.step)) return message;
  if (!is_code_of_failure(code) || rank < -1 || rank >= size) return malformed_shrink();
  message.why = Status(static_cast<ErrorCode>(code), std::move(text), rank);
  return message;
}

}  // namespace unisono::rendezvous
