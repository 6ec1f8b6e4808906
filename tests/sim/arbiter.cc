#include "tests/sim/arbiter.h"

#include <utility>

#include "rendezvous/control_messages.h"

namespace unisono::sim {

using namespace rendezvous;

namespace {

constexpr std::size_t kLengthBytes = 4;

std::string bytes_of(const FailureDecider::Outgoing& outgoing) {
  switch (outgoing.type) {
    case MessageType::kAskCalls:
      return encode_question(outgoing.decision.communicator);
    case MessageType::kAskWaits:
      return encode(MessageType::kAskWaits);
    default:
      return encode(MessageType::kDecision, outgoing.decision);
  }
}

}  // namespace

Arbiter::Arbiter(std::vector<Member> members, Rank holder,
                 std::function<void(Rank, std::string)> send)
    : size_(static_cast<int>(members.size())),
      send_(std::move(send)),
      decider_(std::move(members)),
      shrinks_(size_, holder) {}

void Arbiter::on_message(Rank from, std::string_view bytes, TimePoint now) {
  const auto type = static_cast<MessageType>(bytes[kLengthBytes]);
  const Status outcome = take(from, type, bytes.substr(kLengthBytes + 1), now);
  if (!outcome) decider_.on_violation(from, outcome.message());
}

Status Arbiter::take(Rank from, MessageType type, std::string_view body, TimePoint now) {
  switch (type) {
    case MessageType::kWaiting: {
      UNISONO_ASSIGN(WaitMessage wait, decode_wait(body, size_));
      decider_.on_waiting(from, std::move(wait));
      return {};
    }
    case MessageType::kTimedOut: {
      UNISONO_ASSIGN(WaitMessage wait, decode_wait(body, size_));
      decider_.on_timed_out(from, std::move(wait), now);
      return {};
    }
    case MessageType::kWaits: {
      UNISONO_ASSIGN(WaitsMessage waits, decode_waits(body, size_));
      decider_.on_waits(from, std::move(waits), now);
      return {};
    }
    case MessageType::kFailure: {
      UNISONO_ASSIGN(FailureDecision decision, decode_decision(body, size_));
      decider_.on_failure(std::move(decision));
      return {};
    }
    case MessageType::kBrokenLink: {
      UNISONO_ASSIGN(const BrokenLinkMessage link, decode_broken_link(body, size_));
      decider_.on_broken_link(from, link, now);
      return {};
    }
    case MessageType::kShrink: {
      UNISONO_ASSIGN(ShrinkMessage shrink, decode_shrink(body, size_));
      return shrinks_.on_message(from, std::move(shrink), now);
    }
    case MessageType::kBeat:
      return {};
    default:
      return {ErrorCode::kProtocol, "a message of unknown type"};
  }
}

void Arbiter::on_closed(Rank rank) {
  shrinks_.on_gone(rank, {ErrorCode::kRankFailed, "the rank is lost to the job", rank});
  decider_.on_closed(rank, "closed without goodbye");
}

void Arbiter::on_goodbye(Rank rank) {
  shrinks_.on_gone(rank, {ErrorCode::kRankLeft, "the rank left the job", rank});
  decider_.on_goodbye(rank);
}

void Arbiter::say(TimePoint now) {
  const std::vector<FailureDecider::Outgoing> decided = decider_.take(now);
  for (const FailureDecider::Outgoing& outgoing : decided) {
    if (outgoing.type == MessageType::kDecision && outgoing.target == -1) {
      shrinks_.on_decision(outgoing.decision);
    }
  }
  const std::vector<ShrinkAgreements::Outgoing> agreed = shrinks_.take(now);
  for (FailureDecision& decision : shrinks_.take_decisions()) {
    decider_.on_failure(std::move(decision));
  }
  for (const FailureDecider::Outgoing& outgoing : decided) {
    if (outgoing.target == -1) {
      send_to_all(bytes_of(outgoing));
    } else {
      send_(outgoing.target, bytes_of(outgoing));
    }
  }
  for (const ShrinkAgreements::Outgoing& outgoing : agreed) {
    send_(outgoing.target, encode_shrink(outgoing.message, size_));
  }
}

TimePoint Arbiter::next_due() const { return std::min(decider_.next_due(), shrinks_.next_due()); }

void Arbiter::send_to_all(const std::string& bytes) {
  for (Rank rank = 0; rank < size_; ++rank) send_(rank, bytes);
}

}  // namespace unisono::sim
