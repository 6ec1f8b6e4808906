// The rank's side of the control connection once all have met: reports out, decisions in. See
// arbiter.h for the contract and joiner.h for how the connection comes about. One thread at a time.
#include <utility>

#include "base/log.h"
#include "rendezvous/arbiter.h"
#include "rendezvous/failure_decider.h"
#include "rendezvous/joiner.h"
#include "rendezvous/rank_text.h"
#include "rendezvous/shrink_message.h"

namespace unisono {

using rendezvous::MessageType;

namespace {

// Reports beyond this, unread by a stuck arbiter, are dropped.
constexpr std::size_t kBacklogBytesMax = 1 << 20;
// How long a rank that cannot take part looks for somebody to tell.
constexpr Duration kDeclineTime = std::chrono::seconds(1);
// More at a time is nothing that an arbiter asks.
constexpr std::size_t kQuestionsMax = 4096;
constexpr std::size_t kShrinkWordsMax = 4096;

rendezvous::CallsMessage message_of(std::uint32_t communicator, const CallsOfRank& own) {
  return {communicator, own.member, own.members, {}, own.calls};
}

}  // namespace

// The control connection after the rendezvous; absent in a world of one.
struct ArbiterClient::Connection {
  enum class State : std::uint8_t { kOpen, kFarewell, kLost, kLeft };

  Connection(rendezvous::ControlStream joined, Member first)
      : stream(std::move(joined)), arbiter(std::move(first)) {}

  void send(std::string bytes) {
    if (state != State::kOpen) return;
    if (!stream.queue(std::move(bytes), kBacklogBytesMax)) {
      log::warning("the arbiter reads nothing; a report to it is dropped");
    }
    static_cast<void>(stream.flush());
  }

  void deliver(FailureDecision decision, std::vector<FailureDecision>* decisions) {
    if (ledger.admit(decision)) decisions->push_back(std::move(decision));
  }

  // What this rank says about rank 0 when its arbiter is gone or talks nonsense.
  void lose(ErrorCode code, const char* how, std::vector<FailureDecision>* decisions) {
    state = State::kLost;
    deliver({code, 0, kEveryCommunicator, 0,
             rendezvous::member_text(arbiter) + ", which holds the arbiter, " + how},
            decisions);
    stream.close();
  }

  void take(const rendezvous::Message& message, int size, std::vector<FailureDecision>* decisions) {
    if (message.type == MessageType::kFarewell) {
      state = State::kFarewell;
      return;
    }
    if (message.type == MessageType::kAskCalls) {
      const auto communicator = rendezvous::decode_question(message.body);
      if (communicator && questions.size() < kQuestionsMax)
        return questions.push_back(*communicator);
    }
    if (message.type == MessageType::kAskWaits) {
      asks_for_waits = true;
      return;
    }
    if (message.type == MessageType::kShrink) {
      auto word = rendezvous::decode_shrink(message.body, size);
      if (word && shrink_words.size() < kShrinkWordsMax)
        return shrink_words.push_back(std::move(*word));
    }
    auto decision = rendezvous::decode_decision(message.body, size);
    if (message.type != MessageType::kDecision || !decision) {
      return lose(ErrorCode::kProtocol, "sent what no arbiter sends", decisions);
    }
    deliver(std::move(*decision), decisions);
  }

  rendezvous::ControlStream stream;
  Member arbiter;
  rendezvous::DecisionLedger ledger;
  std::vector<std::uint32_t> questions;  // of the arbiter, not answered yet
  bool asks_for_waits = false;
  std::vector<rendezvous::ShrinkMessage> shrink_words;  // not taken yet
  std::vector<FailureDecision> own;  // found by this rank itself, with no arbiter left to ask
  State state = State::kOpen;
};

ArbiterClient::ArbiterClient() = default;
ArbiterClient::~ArbiterClient() = default;

Result<std::unique_ptr<ArbiterClient>> ArbiterClient::join(const RendezvousPoint& point, int size,
                                                           Member self, TimePoint deadline) {
  UNISONO_TRY(rendezvous::check_member(self, size));
  std::unique_ptr<ArbiterClient> client(new ArbiterClient);
  if (size == 1) {
    client->world_.job_id = random_hex(32);
    client->world_.key = point.has_key ? point.key : JobKey::random();
    client->world_.members.push_back(std::move(self));
    return client;
  }
  if (point.kind == RendezvousPoint::Kind::kAlone) {
    return Status(ErrorCode::kRendezvous,
                  "a world of " + std::to_string(size) +
                      " ranks needs a place to meet: tcp://host:port, file:///path, or the "
                      "variables that torchrun and 'unisono run' set");
  }
  UNISONO_ASSIGN(auto joined, rendezvous::join_rendezvous(point, {size, self, {}}, deadline));
  client->world_ = std::move(joined.world);
  client->connection_ =
      std::make_unique<Connection>(std::move(joined.stream), client->world_.members.front());
  return client;
}

void ArbiterClient::decline(const RendezvousPoint& point, int size, const Member& self,
                            const Status& why) {
  const bool has_others = size > 1 && point.kind != RendezvousPoint::Kind::kAlone;
  if (!has_others || !rendezvous::check_member(self, size)) return;
  // The refusal of all, or that nobody was found: the caller has an error of its own.
  static_cast<void>(
      rendezvous::join_rendezvous(point, {size, self, why}, Clock::now() + kDeclineTime));
}

void ArbiterClient::poll(std::vector<FailureDecision>* decisions) {
  Connection* const connection = connection_.get();
  if (connection == nullptr) return;
  for (FailureDecision& decision : connection->own)
    connection->deliver(std::move(decision), decisions);
  connection->own.clear();
  if (connection->state != Connection::State::kOpen) return;
  if (connection->stream.has_output()) static_cast<void>(connection->stream.flush());
  const bool open = connection->stream.receive();
  while (connection->state == Connection::State::kOpen) {
    auto message = connection->stream.next();
    if (!message) {
      return connection->lose(ErrorCode::kProtocol, "sent what no arbiter sends", decisions);
    }
    if (!*message) break;
    connection->take(**message, world_.size, decisions);
  }
  if (!open && connection->state == Connection::State::kOpen) {
    connection->lose(ErrorCode::kRankFailed, "died: its control connection closed without goodbye",
                     decisions);
  }
}

void ArbiterClient::report_waiting(const RunningWait& wait) {
  if (!connection_) return;
  connection_->send(rendezvous::encode_wait(
      MessageType::kWaiting, {wait.communicator, wait.sequence, wait.waiting_for, {}, {}},
      world_.size));
}

void ArbiterClient::report_timeout(const RunningWait& wait, const std::vector<Rank>& members,
                                   const std::string& call) {
  if (!connection_) return;
  connection_->send(rendezvous::encode_wait(
      MessageType::kTimedOut, {wait.communicator, wait.sequence, wait.waiting_for, members, call},
      world_.size));
}

void ArbiterClient::report_failure(const FailureDecision& decision) {
  if (connection_) connection_->send(rendezvous::encode(MessageType::kFailure, decision));
}

void ArbiterClient::report_differing(const FailureDecision& suspicion, const CallsOfRank& own) {
  if (!connection_) return;
  rendezvous::CallsMessage message = message_of(suspicion.communicator, own);
  message.suspicion = suspicion;
  connection_->send(rendezvous::encode_calls(MessageType::kDiffering, message, world_.size));
}

std::vector<std::uint32_t> ArbiterClient::take_questions() {
  if (!connection_ || connection_->questions.empty()) return {};
  return std::exchange(connection_->questions, {});
}

void ArbiterClient::answer_calls(std::uint32_t communicator, const CallsOfRank& own) {
  if (!connection_) return;
  connection_->send(
      rendezvous::encode_calls(MessageType::kCalls, message_of(communicator, own), world_.size));
}

bool ArbiterClient::take_question_for_waits() {
  return connection_ != nullptr && std::exchange(connection_->asks_for_waits, false);
}

void ArbiterClient::answer_waits(const std::vector<RunningWait>& waits) {
  if (!connection_) return;
  std::vector<rendezvous::WaitMessage> messages;
  for (const RunningWait& wait : waits) {
    messages.push_back({wait.communicator, wait.sequence, wait.waiting_for, {}, {}});
  }
  connection_->send(rendezvous::encode_waits(messages, world_.size));
}

void ArbiterClient::report_broken_link(Rank peer, const Status& cause) {
  if (!connection_) return;
  if (connection_->state == Connection::State::kFarewell) {
    connection_->own.push_back(
        {ErrorCode::kRankFailed, peer, kEveryCommunicator, 0,
         rendezvous::member_text(world_.members[static_cast<std::size_t>(peer)]) +
             " is lost: " + cause.message()});
    return;
  }
  connection_->send(
      rendezvous::encode(rendezvous::BrokenLinkMessage{peer, cause.message(), cause.code()}));
}

void ArbiterClient::say_shrink(const rendezvous::ShrinkMessage& message) {
  if (connection_) connection_->send(rendezvous::encode_shrink(message, world_.size));
}

std::vector<rendezvous::ShrinkMessage> ArbiterClient::take_shrink_words() {
  if (!connection_ || connection_->shrink_words.empty()) return {};
  return std::exchange(connection_->shrink_words, {});
}

bool ArbiterClient::is_lost() const {
  return connection_ != nullptr && connection_->state != Connection::State::kOpen;
}

void ArbiterClient::leave() {
  if (!connection_ || connection_->state == Connection::State::kLeft) return;
  connection_->send(rendezvous::encode(MessageType::kGoodbye));
  connection_->state = Connection::State::kLeft;
  connection_->stream.close();
}

}  // namespace unisono
