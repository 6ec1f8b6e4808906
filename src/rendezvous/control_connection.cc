#include "rendezvous/control_connection.h"

#include <utility>

#include "base/log.h"
#include "rendezvous/rank_text.h"

namespace unisono::rendezvous {
namespace {

// Reports beyond this, unread by a stuck arbiter, are dropped.
constexpr std::size_t kReportBytesMax = 1 << 20;
// More at a time is nothing that an arbiter asks.
constexpr std::size_t kQuestionsMax = 4096;
constexpr std::size_t kShrinkWordsMax = 4096;

}  // namespace

ControlConnection::ControlConnection(ControlStream joined, const World& world)
    : world_(world), stream_(std::move(joined)) {}

ControlConnection::~ControlConnection() { remove_from_control_thread(this); }

Status ControlConnection::start() {
  {
    // What came along with the table of members makes no event of its own.
    const std::lock_guard lock(mutex_);
    read();
  }
  return add_to_control_thread(this);
}

ArbiterNews ControlConnection::take_news() {
  const std::lock_guard lock(mutex_);
  has_news_.store(false, std::memory_order_relaxed);
  return std::exchange(news_, {});
}

void ControlConnection::catch_up() {
  const std::lock_guard lock(mutex_);
  if (state_ == State::kOpen) read();
}

bool ControlConnection::send(std::string bytes) {
  if (state_ != State::kOpen) return false;
  if (!stream_.queue(std::move(bytes), kReportBytesMax)) {
    log::warning("the arbiter reads nothing; a report to it is dropped");
  }
  static_cast<void>(stream_.flush());
  return stream_.has_output();
}

void ControlConnection::report(std::string bytes) {
  bool waits = false;
  {
    const std::lock_guard lock(mutex_);
    waits = send(std::move(bytes));
  }
  if (waits) wake_control_thread();
}

void ControlConnection::report_broken_link(Rank peer, const Status& cause) {
  {
    const std::lock_guard lock(mutex_);
    if (state_ == State::kFarewell) {
      const Member& member = world_.members[static_cast<std::size_t>(peer)];
      return deliver({ErrorCode::kRankFailed, peer, kEveryCommunicator, 0,
                      member_text(member) + " is lost: " + cause.message()});
    }
  }
  report(encode(BrokenLinkMessage{peer, cause.message(), cause.code()}));
}

void ControlConnection::leave() {
  {
    const std::lock_guard lock(mutex_);
    if (state_ == State::kLeft) return;
    static_cast<void>(send(encode(MessageType::kGoodbye)));
    change(State::kLeft);
  }
  // First, so that the thread never waits for a descriptor that means something else by now.
  remove_from_control_thread(this);
  stream_.close();
}

void ControlConnection::list_awaited(std::vector<pollfd>* awaited) {
  const std::lock_guard lock(mutex_);
  if (state_ != State::kOpen) return;
  const int events = stream_.has_output() ? POLLIN | POLLOUT : POLLIN;
  awaited->push_back({stream_.fd(), static_cast<short>(events), 0});
}

void ControlConnection::serve(std::span<const pollfd>, TimePoint) {
  const std::lock_guard lock(mutex_);
  if (state_ == State::kOpen) read();
}

void ControlConnection::read() {
  if (stream_.has_output()) static_cast<void>(stream_.flush());
  const bool open = stream_.receive();
  while (state_ == State::kOpen) {
    auto message = stream_.next();
    if (!message) return lose(ErrorCode::kProtocol, "sent what no arbiter sends");
    if (!*message) break;
    take(**message);
  }
  if (!open && state_ == State::kOpen) {
    lose(ErrorCode::kRankFailed, "died: its control connection closed without goodbye");
  }
}

void ControlConnection::take(const Message& message) {
  switch (message.type) {
    case MessageType::kFarewell:
      change(State::kFarewell);
      return;
    case MessageType::kAskCalls:
      if (const auto communicator = decode_question(message.body);
          communicator && news_.questions.size() < kQuestionsMax) {
        news_.questions.push_back(*communicator);
        return note_news();
      }
      break;
    case MessageType::kAskWaits:
      news_.asks_for_waits = true;
      return note_news();
    case MessageType::kShrink:
      if (auto word = decode_shrink(message.body, world_.size);
          word && news_.shrink_words.size() < kShrinkWordsMax) {
        news_.shrink_words.push_back(std::move(*word));
        return note_news();
      }
      break;
    case MessageType::kDecision:
      if (auto decision = decode_decision(message.body, world_.size)) {
        return deliver(std::move(*decision));
      }
      break;
    default:
      break;
  }
  lose(ErrorCode::kProtocol, "sent what no arbiter sends");
}

void ControlConnection::deliver(FailureDecision decision) {
  if (!ledger_.admit(decision)) return;
  news_.decisions.push_back(std::move(decision));
  note_news();
}

void ControlConnection::lose(ErrorCode code, const char* how) {
  change(State::kLost);
  deliver({code, 0, kEveryCommunicator, 0,
           member_text(world_.members.front()) + ", which holds the arbiter, " + how});
  stream_.close();
}

}  // namespace unisono::rendezvous
