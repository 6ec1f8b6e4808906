#include "tools/run/asking_control.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <thread>
#include <utility>

#include "base/unproven_peers.h"
#include "rendezvous/meeting/introduction.h"
#include "rendezvous/sockets/sockets.h"
#include "tools/common/sizes.h"
#include "tools/run/node_messages.h"

namespace unisono::run {
namespace {

using rendezvous::ControlStream;

constexpr Duration kAskAgain = std::chrono::milliseconds(50);
// The launcher in whose place this one is may have vanished with its machine. After so long that is
// known, and who is still refused is one too many.
constexpr std::chrono::seconds kLossTime = rendezvous::kUnansweredTime + std::chrono::seconds(1);
constexpr Duration kAskWhetherLost = std::chrono::milliseconds(500);

struct Attempt {
  std::optional<ControlStream> stream;  // of one that was taken in
  Status why_not{};
  bool is_final = false;
  bool is_proof_refused = false;
  bool is_taken = false;  // its place, by a launcher that may be lost
};

Attempt not_yet(Status why) { return {std::nullopt, std::move(why)}; }

// What the launcher of node 0 says to a greeting.
Attempt introduce(ControlStream stream, const NodeOptions& options, TimePoint deadline) {
  stream.queue(encode_greeting(options.shape));
  static_cast<void>(stream.flush());
  bool is_open = true;
  for (;;) {
    auto message = stream.next();
    if (!message) return not_yet(message.error());
    if (*message && type_of(**message) == NodeMessage::kWelcome) return {std::move(stream)};
    if (*message) {
      const bool is_taken = type_of(**message) == NodeMessage::kTaken;
      auto why = decode_refusal((*message)->body);
      if (!why || (type_of(**message) != NodeMessage::kRefusal && !is_taken)) {
        return not_yet({ErrorCode::kProtocol, "something else than a launcher answers"});
      }
      return {.why_not = {ErrorCode::kRendezvous, "it refuses this one: " + *why},
              .is_final = !is_taken,
              .is_taken = is_taken};
    }
    if (!is_open) return not_yet({ErrorCode::kRendezvous, "it closed the connection"});
    if (!rendezvous::wait_ready(stream.fd(), false, deadline)) {
      return not_yet({ErrorCode::kRendezvous, "it does not answer"});
    }
    is_open = stream.receive();
  }
}

Attempt try_once(const NodeOptions& options, TimePoint deadline) {
  auto fd = rendezvous::connect_tcp(options.address, options.port, deadline);
  if (!fd) return not_yet(fd.error());
  ControlStream stream(*std::move(fd));
  const TimePoint patience = std::min(deadline, Clock::now() + kStrangerTime);
  const auto failure =
      rendezvous::authenticate(&stream, options.key, options.handshake_job_id(), options.node,
                               patience, {}, HandshakePurpose::kLauncher);
  if (!failure) return introduce(std::move(stream), options, deadline);
  if (failure->proof_refused || failure->why.code() == ErrorCode::kAuthentication) {
    return {std::nullopt,
            {ErrorCode::kAuthentication,
             "it has another job key: give all launchers the same, by --job-key-file or "
             "UNISONO_JOB_KEY"},
            failure->final,
            true};
  }
  std::string remedy = failure->why.code() == ErrorCode::kMismatch
                           ? fmt::format("; the run id (--rdzv-id) is '{}' here", options.run_id)
                           : "";
  return {std::nullopt, {failure->why.code(), failure->why.message() + remedy}, failure->final};
}

}  // namespace

Result<std::unique_ptr<JobControl>> AskingControl::join(const NodeOptions& options,
                                                        StoreServer* store) {
  const std::string place = fmt::format("the launcher of node 0 at {}",
                                        rendezvous::tcp_text(options.address, options.port));
  const std::string patience = tools::format_duration(options.patience);
  const TimePoint deadline = later(Clock::now(), options.patience);
  TimePoint taken_until = kNever;
  bool is_told = false, is_told_taken = false;
  for (int refused_proofs = 0;;) {
    Attempt attempt = try_once(options, deadline);
    if (attempt.stream) {
      return std::unique_ptr<JobControl>(
          std::make_unique<AskingControl>(options, store, *std::move(attempt.stream)));
    }
    refused_proofs = attempt.is_proof_refused ? refused_proofs + 1 : 0;
    const std::string why = fmt::format("{}: {}", place, attempt.why_not.message());
    if (attempt.is_taken && taken_until == kNever) taken_until = Clock::now() + kLossTime;
    const bool stays_taken = attempt.is_taken && Clock::now() >= taken_until;
    if (attempt.is_final || stays_taken || refused_proofs >= rendezvous::kRefusedProofsMax) {
      return Status(attempt.why_not.code(), why);
    }
    if (Clock::now() >= deadline) {
      return Status(ErrorCode::kRendezvous,
                    fmt::format("node {} did not reach {} within {} (UNISONO_TIMEOUT)",
                                options.node, why, patience));
    }
    if (!std::exchange(attempt.is_taken ? is_told_taken : is_told, true)) {
      std::fprintf(stderr, "unisono run: waiting up to %s for %s\n",
                   (attempt.is_taken ? tools::format_duration(kLossTime) : patience).c_str(),
                   why.c_str());
    }
    const Duration pause = attempt.is_taken ? kAskWhetherLost : kAskAgain;
    std::this_thread::sleep_for(std::min<Duration>(pause, deadline - Clock::now()));
  }
}

AskingControl::AskingControl(const NodeOptions& options, StoreServer* store, ControlStream stream)
    : shape_(options.shape),
      node_(options.node),
      store_(store),
      stream_(std::move(stream)),
      own_({.shape = options.shape, .self = options.node}, facts_in(store)) {
  if (store_ == nullptr) return;
  store_->pass_on_by([this](std::uint64_t question, const std::string& bytes) {
    const auto type = bytes.empty() ? NodeMessage::kForget : NodeMessage::kAsk;
    stream_->send(encode(type, {question, bytes}));
  });
}

AskingControl::~AskingControl() {
  if (stream_) stream_->close();
  if (store_ != nullptr) store_->pass_on_by(nullptr);
}

void AskingControl::tell(const Event& event) {
  if (!stream_) return own_.on_event(node_, event);
  if (event.rank >= 0) own_.note_exit(event.rank);
  if (event.kind == Event::Kind::kFailed) undecided_[event.rank] = event.failure;
  stream_->send(encode(event));
  if (event.kind == Event::Kind::kEnding) go_alone("");
}

std::optional<Order> AskingControl::next_order() {
  if (orders_.empty() && !stream_) {
    if (auto next = own_.next_order()) orders_.push_back(std::move(next->order));
  }
  if (orders_.empty()) return std::nullopt;
  Order next = std::move(orders_.front());
  orders_.pop_front();
  return next;
}

void AskingControl::list_awaited(std::vector<pollfd>* awaited) const {
  if (store_ != nullptr) awaited->push_back({store_->fd(), POLLIN, 0});
  if (stream_) awaited->push_back(stream_->awaited());
}

void AskingControl::serve(std::span<const pollfd> happened) {
  if (store_ != nullptr && has_happened(happened, store_->fd())) store_->serve();
  if (stream_) hear();
  if (!stream_) own_.look(Clock::now());
}

// What came along with its welcome makes no event of its own.
void AskingControl::hear() {
  const Status heard = stream_->hear([this](const auto& message) { return take(message); });
  if (heard) return;
  const bool has_said_why = heard.code() == ErrorCode::kRankLeft;
  go_alone(has_said_why ? heard.message() : "the launcher of node 0 is lost: " + heard.message());
}

// kRankLeft: it decides nothing any more, and why.
Status AskingControl::take(const rendezvous::Message& message) {
  if (type_of(message) == NodeMessage::kOrder) {
    UNISONO_ASSIGN(Order order, decode_order(message.body, shape_, node_));
    if (order.kind == Order::Kind::kAlone) return {ErrorCode::kRankLeft, order.text};
    on_order(std::move(order));
    return Status();
  }
  if (type_of(message) != NodeMessage::kAnswer || store_ == nullptr) {
    return {ErrorCode::kProtocol, "it spoke out of turn"};
  }
  UNISONO_ASSIGN(const StoreMessage answer, decode_store(message.body));
  store_->answer(answer.question, answer.bytes);
  return Status();
}

void AskingControl::on_order(Order order) {
  // Until it is started again nobody may be left to do so.
  if (order.kind != Order::Kind::kClear) undecided_.erase(order.rank);
  const int restarts = order.meeting.restarts;
  if (order.kind == Order::Kind::kStart) own_.note_start(order.rank, restarts);
  if (order.kind == Order::Kind::kStartAll) own_.note_start_of_all(restarts);
  if (order.kind == Order::Kind::kEndAll) undecided_.clear();
  all_end_ =
      order.kind == Order::Kind::kEndAll || (all_end_ && order.kind != Order::Kind::kStartAll);
  is_over_ = is_over_ || order.kind == Order::Kind::kOver;
  orders_.push_back(std::move(order));
}

void AskingControl::go_alone(const std::string& why) {
  if (store_ != nullptr) store_->pass_on_by(nullptr);
  stream_->close();
  stream_.reset();
  own_.take_over();
  if (is_over_) return;
  if (!why.empty()) say_what_follows(why);
  for (const auto& [rank, failure] : std::exchange(undecided_, {})) {
    own_.on_event(node_, {Event::Kind::kFailed, rank, failure});
  }
}

void AskingControl::say_what_follows(const std::string& why) {
  if (own_.ranks_go_on() && !all_end_) {
    return own_.say(why + "; the ranks go on, and none is started again");
  }
  const bool is_early = shape_.restart == Restart::kFailed && !all_end_;
  const char* const when = is_early ? " before all ranks had met" : "";
  orders_.push_back({.kind = Order::Kind::kFail, .failure = {1, why + when}});
}

}  // namespace unisono::run
