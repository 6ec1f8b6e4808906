// How the connection comes about is in joiner.h, and what it does then in control_connection.h.
#include "rendezvous/client/arbiter_client.h"

#include <utility>

#include "rendezvous/client/control_connection.h"
#include "rendezvous/client/standby_door.h"
#include "rendezvous/meeting/joiner.h"
#include "rendezvous/messages/shrink_message.h"

namespace unisono {

using rendezvous::MessageType;

namespace {

// How long a rank that cannot take part looks for somebody to tell.
constexpr Duration kDeclineTime = std::chrono::seconds(1);

}  // namespace

ArbiterClient::ArbiterClient() = default;
ArbiterClient::ArbiterClient(World world, std::unique_ptr<rendezvous::ArbiterConnection> connection)
    : world_(std::move(world)), connection_(std::move(connection)) {}
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
  rendezvous::ControlConnection::Doors doors{rendezvous::open_standby(point, size, &self),
                                             rendezvous::open_probe_port(point, size, &self)};
  UNISONO_ASSIGN(auto joined, rendezvous::join_rendezvous(
                                  point, {size, self, {}, point.go_on, point.silence}, deadline));
  client->world_ = std::move(joined.world);
  auto connection = std::make_unique<rendezvous::ControlConnection>(
      std::move(joined.stream), client->world_, std::move(doors), point.silence);
  const Status served = connection->start();
  client->connection_ = std::move(connection);
  if (!served) {  // and the others have met this rank
    const Rank rank = client->world_.rank;
    client->report_failure({served.code(), rank, kEveryCommunicator, 0,
                            "rank " + std::to_string(rank) + ": " + served.message()});
    return served;
  }
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

rendezvous::ArbiterNews ArbiterClient::take_news() {
  if (connection_ == nullptr || !connection_->has_news()) return {};
  return connection_->take_news();
}

void ArbiterClient::catch_up() {
  if (connection_) connection_->catch_up();
}

void ArbiterClient::report_waiting(const rendezvous::WaitMessage& wait) {
  if (connection_) connection_->report_waiting(wait);
}

void ArbiterClient::report_timeout(const rendezvous::WaitMessage& wait) {
  if (connection_) connection_->report_timeout(wait);
}

void ArbiterClient::withdraw_timeout(std::uint32_t communicator, std::uint64_t operation) {
  if (connection_) connection_->withdraw_timeout({communicator, operation, {}});
}

void ArbiterClient::report_failure(const FailureDecision& decision) {
  if (connection_) connection_->report_lasting(rendezvous::encode(MessageType::kFailure, decision));
}

void ArbiterClient::report_differing(const rendezvous::CallsMessage& own) {
  if (!connection_) return;
  connection_->report_lasting(rendezvous::encode_calls(MessageType::kDiffering, own, world_.size));
}

void ArbiterClient::answer_calls(const rendezvous::CallsMessage& own) {
  if (!connection_) return;
  connection_->report(rendezvous::encode_calls(MessageType::kCalls, own, world_.size));
}

void ArbiterClient::answer_waits(const std::vector<rendezvous::WaitMessage>& waits) {
  if (connection_) connection_->report(rendezvous::encode_waits(waits, world_.size));
}

void ArbiterClient::report_broken_link(Rank peer, const Status& cause) {
  if (connection_) connection_->report_broken_link(peer, cause);
}

void ArbiterClient::say_shrink(const rendezvous::ShrinkMessage& message) {
  if (connection_) connection_->say_shrink(message);
}

bool ArbiterClient::is_lost() const { return connection_ != nullptr && connection_->is_lost(); }
bool ArbiterClient::is_last() const { return is_lost() && connection_->is_last(); }
std::chrono::milliseconds ArbiterClient::silence() const {
  return connection_ ? connection_->silence() : std::chrono::milliseconds(0);
}
Status ArbiterClient::partition() const { return is_lost() ? connection_->partition() : Status(); }

void ArbiterClient::leave() {
  if (connection_) connection_->leave();
}

}  // namespace unisono
