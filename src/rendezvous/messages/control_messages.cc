#include "rendezvous/messages/control_messages.h"

#include <fmt/format.h>

#include <algorithm>

#include "rendezvous/messages/control_wire.h"
#include "rendezvous/messages/rank_text.h"

namespace unisono::rendezvous {
namespace {

// Tells the greeting of a rank on a UNIX socket, where no handshake goes before it, from anything
// else; the version stays behind it for good.
constexpr std::string_view kJoinMagic = "unisono join";

Status malformed(const char* what) {
  return {ErrorCode::kProtocol, fmt::format("malformed {} message", what)};
}

void write_member(Writer* writer, const Member& member) {
  writer->number(member.rank);
  writer->text(member.host, kHostBytesMax);
  writer->text(member.host_name, kHostBytesMax);
  writer->number(member.network_namespace);
  writer->number(member.pid);
  writer->number(member.pid_namespace);
  writer->number(member.uid);
  writer->text(member.addresses, kAddressBytesMax);
}

Member read_member(Reader* reader) {
  Member member;
  member.rank = reader->number<Rank>();
  member.host = reader->text(kHostBytesMax);
  member.host_name = reader->text(kHostBytesMax);
  member.network_namespace = reader->number<std::uint64_t>();
  member.pid = reader->number<std::int64_t>();
  member.pid_namespace = reader->number<std::uint64_t>();
  member.uid = reader->number<std::uint32_t>();
  member.addresses = reader->text(kAddressBytesMax);
  return member;
}

void write_call(Writer* writer, const NumberedCall& call) {
  writer->number(call.sequence);
  writer->number(call.record.collective);
  writer->number(call.record.type);
  writer->number(call.record.op);
  writer->number(call.record.algorithm);
  writer->number(call.record.root);
  writer->number(call.record.count);
  writer->number(call.record.history);
  writer->number(call.record.details);
}

NumberedCall read_call(Reader* reader) {
  NumberedCall call;
  call.sequence = reader->number<std::uint64_t>();
  call.record.collective = reader->number<std::uint8_t>();
  call.record.type = reader->number<std::uint8_t>();
  call.record.op = reader->number<std::uint8_t>();
  call.record.algorithm = reader->number<std::uint8_t>();
  call.record.root = reader->number<std::int32_t>();
  call.record.count = reader->number<std::uint64_t>();
  call.record.history = reader->number<std::uint32_t>();
  call.record.details = reader->number<std::uint32_t>();
  return call;
}

}  // namespace

void write_decision(Writer* writer, const FailureDecision& decision) {
  writer->number(static_cast<std::uint8_t>(decision.code));
  writer->number(decision.failed_rank);
  writer->number(decision.communicator);
  writer->number(decision.sequence);
  writer->text(shortened(decision.message, kTextBytesMax), kTextBytesMax);
}

bool read_decision(Reader* reader, int size, FailureDecision* decision) {
  const auto code = reader->number<std::uint8_t>();
  decision->failed_rank = reader->number<Rank>();
  decision->communicator = reader->number<std::uint32_t>();
  decision->sequence = reader->number<std::uint64_t>();
  decision->message = reader->text(kTextBytesMax);
  if (!reader->ok() || !is_code_of_failure(code) || decision->failed_rank < -1 ||
      decision->failed_rank >= size) {
    return false;
  }
  decision->code = static_cast<ErrorCode>(code);
  return true;
}

std::string encode(const JoinMessage& message) {
  Writer writer(MessageType::kJoin);
  writer.text(kJoinMagic, kJoinMagic.size());
  writer.number(kWireVersion);
  writer.number(static_cast<std::int32_t>(message.size));
  write_member(&writer, message.member);
  writer.text(message.member.settings, kSettingsBytesMax);
  writer.number(static_cast<std::uint8_t>(message.member.is_newcomer));
  return writer.finish();
}

std::string encode(MessageType type) { return Writer(type).finish(); }

std::string encode_wait(MessageType type, const WaitMessage& message, int size) {
  Writer writer(type);
  writer.number(message.communicator);
  writer.number(message.sequence);
  writer.ranks(message.waiting_for, size);
  writer.ranks(message.members, size);
  writer.text(shortened(message.call, kCallBytesMax), kCallBytesMax);
  return writer.finish();
}

std::string encode_waits(const std::vector<WaitMessage>& waits, int size) {
  const std::size_t wait_bytes = 16 + (static_cast<std::size_t>(size) + 7) / 8;
  const std::size_t count =
      std::min({waits.size(), kWaitsMax, (kMessageBytesMax - 16) / wait_bytes});
  Writer writer(MessageType::kWaits);
  writer.number(static_cast<std::uint8_t>(count == waits.size()));
  for (std::size_t i = 0; i < count; ++i) {
    writer.number(waits[i].communicator);
    writer.number(waits[i].sequence);
    writer.ranks(waits[i].waiting_for, size);
  }
  return writer.finish();
}

std::string encode(const BrokenLinkMessage& message) {
  Writer writer(MessageType::kBrokenLink);
  writer.number(message.peer);
  writer.number(static_cast<std::uint8_t>(message.code));
  writer.text(message.reason, kTextBytesMax);
  return writer.finish();
}

std::string encode_calls(MessageType type, const CallsMessage& message, int size) {
  UNISONO_ASSERT(message.calls.size() <= kCallsMax, "more calls than a message takes");
  Writer writer(type);
  writer.number(message.communicator);
  writer.number(message.member);
  writer.ranks(message.members, size);
  if (type == MessageType::kDiffering) write_decision(&writer, message.suspicion);
  writer.number(static_cast<std::uint8_t>(message.calls.size()));
  for (const NumberedCall& call : message.calls) write_call(&writer, call);
  return writer.finish();
}

std::string encode_question(std::uint32_t communicator) {
  Writer writer(MessageType::kAskCalls);
  writer.number(communicator);
  return writer.finish();
}

std::string encode(const WelcomeMessage& message) {
  Writer writer(MessageType::kWelcome);
  writer.number(static_cast<std::int32_t>(message.size));
  writer.text(message.job_id, kHandshakeBytesMax);
  // The last, so that it lies in the final buffer alone.
  writer.text(message.key_hex.view(), kHandshakeBytesMax);
  return writer.finish();
}

std::string encode(MessageType type, const FailureDecision& decision) {
  Writer writer(type);
  write_decision(&writer, decision);
  return writer.finish();
}

std::string encode_refusal(const Status& status, MessageType type) {
  Writer writer(type);
  writer.number(static_cast<std::uint8_t>(status.code()));
  writer.number(status.rank());
  writer.text(shortened(status.message(), kTextBytesMax), kTextBytesMax);
  return writer.finish();
}

std::string encode_members(const std::vector<Member>& members) {
  constexpr std::size_t kMemberBytesMax = 2 * kHostBytesMax + kAddressBytesMax + 64;
  std::string all;
  for (std::size_t next = 0; next < members.size();) {
    Writer writer(MessageType::kMembers);
    while (next < members.size() && writer.bytes() + kMemberBytesMax <= kMessageBytesMax) {
      write_member(&writer, members[next++]);
    }
    all += writer.finish();
  }
  return all;
}

std::string encode_awaiting(const Member& rank_zero) {
  Member told = rank_zero;
  told.addresses.clear();
  Writer writer(MessageType::kAwaiting);
  write_member(&writer, told);
  return writer.finish();
}

Status check_member(const Member& member, int size) {
  const auto refuse = [](std::string message) {
    return Status(ErrorCode::kInvalidArgument, std::move(message));
  };
  if (size < 1 || size > kWorldSizeMax) {
    return refuse(fmt::format("world size {} is not within 1 to {}", size, kWorldSizeMax));
  }
  if (member.rank < 0 || member.rank >= size) {
    return refuse(
        fmt::format("rank {} is not within 0 to {} (world size {})", member.rank, size - 1, size));
  }
  const auto too_long = [&](const char* field, const std::string& text, std::size_t bytes_max) {
    return text.size() <= bytes_max
               ? Status()
               : refuse(fmt::format("rank {}: {} has {} bytes, at most {} are allowed", member.rank,
                                    field, text.size(), bytes_max));
  };
  UNISONO_TRY(too_long("host identity", member.host, kHostBytesMax));
  UNISONO_TRY(too_long("host name", member.host_name, kHostBytesMax));
  UNISONO_TRY(too_long("settings text", member.settings, kSettingsBytesMax));
  return too_long("address text", member.addresses, kAddressBytesMax);
}

Result<JoinMessage> decode_join(std::string_view body) {
  Reader reader(body);
  if (reader.text(kJoinMagic.size()) != kJoinMagic) return malformed("join");
  const auto version = reader.number<std::uint16_t>();
  if (reader.ok() && version != kWireVersion) {
    return Status(ErrorCode::kMismatch,
                  fmt::format("a rank speaks wire version {} and the arbiter version {}; install "
                              "the same unisono everywhere",
                              version, kWireVersion));
  }
  JoinMessage message;
  message.size = reader.number<std::int32_t>();
  message.member = read_member(&reader);
  message.member.settings = reader.text(kSettingsBytesMax);
  message.member.is_newcomer = reader.number<std::uint8_t>() != 0;
  if (!reader.finished() || !check_member(message.member, message.size)) return malformed("join");
  return message;
}

Result<WaitMessage> decode_wait(std::string_view body, int size) {
  Reader reader(body);
  WaitMessage message;
  message.communicator = reader.number<std::uint32_t>();
  message.sequence = reader.number<std::uint64_t>();
  message.waiting_for = reader.ranks(size);
  message.members = reader.ranks(size);
  message.call = reader.text(kCallBytesMax);
  if (!reader.finished()) return malformed("waiting");
  return message;
}

Result<WaitsMessage> decode_waits(std::string_view body, int size) {
  Reader reader(body);
  WaitsMessage message;
  message.is_all = reader.number<std::uint8_t>() != 0;
  while (!reader.empty()) {
    WaitMessage wait;
    wait.communicator = reader.number<std::uint32_t>();
    wait.sequence = reader.number<std::uint64_t>();
    wait.waiting_for = reader.ranks(size);
    if (!reader.ok() || message.waits.size() == kWaitsMax) return malformed("waits");
    message.waits.push_back(std::move(wait));
  }
  if (!reader.finished()) return malformed("waits");
  return message;
}

Result<BrokenLinkMessage> decode_broken_link(std::string_view body, int size) {
  Reader reader(body);
  BrokenLinkMessage message;
  message.peer = reader.number<Rank>();
  const auto code = reader.number<std::uint8_t>();
  message.reason = reader.text(kTextBytesMax);
  if (!reader.finished() || message.peer < 0 || message.peer >= size || !is_code_of_failure(code)) {
    return malformed("broken link");
  }
  message.code = static_cast<ErrorCode>(code);
  return message;
}

Result<CallsMessage> decode_calls(MessageType type, std::string_view body, int size) {
  Reader reader(body);
  CallsMessage message;
  message.communicator = reader.number<std::uint32_t>();
  message.member = reader.number<Rank>();
  message.members = reader.ranks(size);
  const bool suspects = type == MessageType::kDiffering;
  if (suspects && !read_decision(&reader, size, &message.suspicion)) return malformed("calls");
  const std::size_t count = reader.number<std::uint8_t>();
  if (!reader.ok() || count > kCallsMax || message.member < 0 || message.member >= size ||
      message.suspicion.communicator != (suspects ? message.communicator : kEveryCommunicator)) {
    return malformed("calls");
  }
  for (std::size_t i = 0; i < count; ++i) message.calls.push_back(read_call(&reader));
  if (!reader.finished()) return malformed("calls");
  return message;
}

Result<std::uint32_t> decode_question(std::string_view body) {
  Reader reader(body);
  const auto communicator = reader.number<std::uint32_t>();
  if (!reader.finished()) return malformed("question");
  return communicator;
}

Result<WelcomeMessage> decode_welcome(std::string_view body) {
  Reader reader(body);
  WelcomeMessage message;
  message.size = reader.number<std::int32_t>();
  message.job_id = reader.text(kHandshakeBytesMax);
  message.key_hex = SecretText(reader.view(kHandshakeBytesMax));
  if (!reader.finished()) return malformed("welcome");
  return message;
}

Result<FailureDecision> decode_decision(std::string_view body, int size) {
  Reader reader(body);
  FailureDecision decision;
  if (!read_decision(&reader, size, &decision) || !reader.finished()) return malformed("decision");
  return decision;
}

Status decode_refusal(std::string_view body) {
  Reader reader(body);
  const auto code = reader.number<std::uint8_t>();
  const auto rank = reader.number<Rank>();
  std::string message = reader.text(kTextBytesMax);
  if (!reader.finished() || !is_code_of_failure(code) || rank < -1 || rank >= kWorldSizeMax) {
    return malformed("refusal");
  }
  return {static_cast<ErrorCode>(code), std::move(message), rank};
}

Status decode_decline(Rank rank, std::string_view body) {
  const Status why = decode_refusal(body);
  return {why.code(), fmt::format("rank {} cannot take part: {}", rank, why.message()), rank};
}

Result<Member> decode_awaiting(std::string_view body) {
  Reader reader(body);
  Member member = read_member(&reader);
  if (!reader.finished() || member.rank != 0) return malformed("word on rank 0");
  return member;
}

Status decode_members(std::string_view body, int size, std::vector<Member>* members) {
  Reader reader(body);
  if (reader.empty()) return malformed("members");
  while (!reader.empty()) {
    Member member = read_member(&reader);
    if (!reader.ok() || members->size() >= static_cast<std::size_t>(size) ||
        member.rank != static_cast<Rank>(members->size())) {
      return malformed("members");
    }
    members->push_back(std::move(member));
  }
  return reader.finished() ? Status() : malformed("members");
}

}  // namespace unisono::rendezvous
