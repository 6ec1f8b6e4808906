#include "tools/run/deciding_control.h"

#include <fmt/format.h>

#include <utility>

#include "base/unproven_peers.h"
#include "tools/run/node_messages.h"

namespace unisono::run {
namespace {

// The first thing that a launcher and that of node 0 were told differently.
Status agree(int node, const JobShape& theirs, const JobShape& ours) {
  const auto differs = [node](const char* flag, const auto& their_value, const auto& our_value) {
    return Status(ErrorCode::kMismatch,
                  fmt::format("node {} has {} {} and node 0 has {}: give all launchers the same",
                              node, flag, their_value, our_value));
  };
  const auto name_of = [](Restart who) { return who == Restart::kAll ? "all" : "failed"; };
  if (theirs.node_count != ours.node_count) {
    return differs("--nnodes", theirs.node_count, ours.node_count);
  }
  if (theirs.local_size != ours.local_size) {
    return differs("--nproc-per-node", theirs.local_size, ours.local_size);
  }
  if (theirs.max_restarts != ours.max_restarts) {
    return differs("--max-restarts", theirs.max_restarts, ours.max_restarts);
  }
  if (theirs.restart != ours.restart) {
    return differs("--restart", name_of(theirs.restart), name_of(ours.restart));
  }
  return Status();
}

}  // namespace

DecidingControl::DecidingControl(JobDecisions::Setup setup, StoreServer* store)
    : self_(setup.self),
      shape_(setup.shape),
      decisions_(std::move(setup), facts_in(store)),
      store_(store) {}

Result<std::unique_ptr<JobControl>> DecidingControl::listen(JobDecisions::Setup setup,
                                                            StoreServer* store,
                                                            const NodeOptions& options) {
  auto listener = rendezvous::listen_tcp(options.address, options.port, options.interface_address);
  if (!listener) {
    return Status(ErrorCode::kRendezvous,
                  fmt::format("the launcher of node 0 {}; another job or launcher may use the "
                              "port: give all launchers another --master-port",
                              listener.error().message()));
  }
  auto control = std::make_unique<DecidingControl>(std::move(setup), store);
  control->open(options, *std::move(listener));
  return std::unique_ptr<JobControl>(std::move(control));
}

DecidingControl::~DecidingControl() {
  for (auto& [node, stream] : peers_) stream.close();
  if (store_ != nullptr) store_->answer_others_by(nullptr);
}

void DecidingControl::open(const NodeOptions& options, rendezvous::Listener listener) {
  rendezvous::Strangers::Host host{.job_id = options.handshake_job_id(), .key = options.key};
  host.purpose = HandshakePurpose::kLauncher;
  host.say = [this](const std::string& line) { decisions_.say(line); };
  door_.emplace(Door{std::move(listener), rendezvous::Strangers(std::move(host))});
  if (store_ == nullptr) return;
  store_->answer_others_by([this](const Asker& asker, const std::string& bytes) {
    send(asker.node, encode(NodeMessage::kAnswer, {asker.question, bytes}));
  });
}

std::optional<Order> DecidingControl::next_order() {
  while (auto next = decisions_.next_order()) {
    if (next->node == self_) return std::move(next->order);
    send(next->node, encode(next->order));
    if (next->order.kind != Order::Kind::kAlone) continue;
    if (const auto peer = peers_.find(next->node); peer != peers_.end()) {
      peer->second.close();
      peers_.erase(peer);
      if (store_ != nullptr) store_->forget_node(next->node);
    }
  }
  return std::nullopt;
}

void DecidingControl::list_awaited(std::vector<pollfd>* awaited) const {
  if (store_ != nullptr) awaited->push_back({store_->fd(), POLLIN, 0});
  if (door_ && door_->strangers.accepting(Clock::now())) {
    awaited->push_back({door_->listener.fd.get(), POLLIN, 0});
  }
  for (const int fd : door_ ? door_->strangers.held() : std::vector<int>()) {
    awaited->push_back({fd, POLLIN, 0});
  }
  for (const auto& [node, stream] : peers_) awaited->push_back(stream.awaited());
}

TimePoint DecidingControl::next_due() const {
  const TimePoint due = decisions_.next_due();
  return door_ ? std::min(due, door_->strangers.next_due(Clock::now())) : due;
}

void DecidingControl::serve(std::span<const pollfd> happened) {
  if (store_ != nullptr && has_happened(happened, store_->fd())) store_->serve();
  // The loss of a launcher before another one comes in its place.
  serve_peers(happened);
  if (door_) serve_door(happened);
  decisions_.look(Clock::now());
  // Before anybody hears that the job is over, so that who is started for the next one does not
  // come to this one.
  if (door_ && !decisions_.takes_launchers()) door_.reset();
}

void DecidingControl::serve_door(std::span<const pollfd> happened) {
  rendezvous::Strangers& strangers = door_->strangers;
  const TimePoint now = Clock::now();
  for (const int fd : strangers.held()) {
    if (!strangers.holds(fd) || !has_happened(happened, fd)) continue;
    if (auto arrival = strangers.read(fd, now)) on_arrival(*std::move(arrival));
  }
  if (has_happened(happened, door_->listener.fd.get())) {
    for (std::size_t i = 0; i < kStrangersMax && strangers.accepting(now); ++i) {
      if (strangers.accept(door_->listener, now) < 0) break;
    }
  }
  strangers.expire(now);
}

void DecidingControl::on_arrival(Arrival arrival) {
  const int node = arrival.peer;
  // It comes again to the next job's.
  if (!decisions_.takes_launchers()) return arrival.stream.close();
  if (const Status admitted = admit(arrival); !admitted) {
    return refuse(std::move(arrival), admitted);
  }
  refused_.reset();
  peers_.emplace(node, std::move(arrival.stream));
  decisions_.on_come(node);
  send(node, encode(NodeMessage::kWelcome));
}

// One whose node has a launcher comes again and again.
void DecidingControl::refuse(Arrival arrival, const Status& why) {
  const std::pair said(arrival.peer, why.message());
  if (std::exchange(refused_, said) != said) {
    decisions_.say(fmt::format("refused a launcher of node {} (at {}): {}", arrival.peer,
                               rendezvous::peer_text(arrival.stream.fd()), why.message()));
  }
  const bool is_taken = why.code() == ErrorCode::kRendezvous;
  arrival.stream.queue(
      encode_refusal(why.message(), is_taken ? NodeMessage::kTaken : NodeMessage::kRefusal));
  arrival.stream.close();
}

Status DecidingControl::admit(const Arrival& arrival) const {
  UNISONO_ASSIGN(const JobShape theirs, decode_greeting(arrival.launcher));
  UNISONO_TRY(agree(arrival.peer, theirs, shape_));
  if (arrival.peer < shape_.node_count) return decisions_.may_come(arrival.peer);
  return {ErrorCode::kProtocol, "there is no such node"};
}

void DecidingControl::serve_peers(std::span<const pollfd> happened) {
  for (auto next = peers_.begin(); next != peers_.end();) {
    const auto at = next++;
    auto& [node, stream] = *at;
    if (!has_happened(happened, stream.fd())) continue;
    const Status heard =
        stream.hear([&, node = node](const auto& message) { return take(node, message); });
    if (heard) continue;
    if (store_ != nullptr) store_->forget_node(node);
    decisions_.on_lost(node, heard.message());
    peers_.erase(at);
  }
}

Status DecidingControl::take(int node, const rendezvous::Message& message) {
  if (type_of(message) == NodeMessage::kEvent) {
    UNISONO_ASSIGN(const Event event, decode_event(message.body, shape_, node));
    decisions_.on_event(node, event);
    return Status();
  }
  const bool is_question = type_of(message) == NodeMessage::kAsk;
  if (store_ == nullptr || (!is_question && type_of(message) != NodeMessage::kForget)) {
    return {ErrorCode::kProtocol, "it spoke out of turn"};
  }
  UNISONO_ASSIGN(const StoreMessage asked, decode_store(message.body));
  const Asker asker{node, asked.question};
  if (is_question) return store_->ask(asker, asked.bytes);
  store_->forget(asker);
  return Status();
}

void DecidingControl::send(int node, std::string bytes) {
  const auto peer = peers_.find(node);
  if (peer == peers_.end()) return;
  if (peer->second.send(std::move(bytes))) return;
  decisions_.say(fmt::format("the launcher of node {} has left {} bytes unread: it is given up",
                             node, LauncherStream::kUnreadBytesMax));
}

}  // namespace unisono::run
