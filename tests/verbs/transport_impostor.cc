// See transport_impostor.h.
#include "tests/verbs/transport_impostor.h"

#include <gtest/gtest.h>

#include <cstring>

#include "transports/verbs/world_address.h"

namespace unisono::verbs::test {
namespace {

constexpr std::size_t kMemoryBytes = 512 * 1024;
constexpr std::uint32_t kFirstPacket = 77;

}  // namespace

Impostor::Impostor(Rank rank, int size) : rank_(rank), size_(size) {
  auto made = make_side_transport(rank, size);
  EXPECT_TRUE(made.has_value());
  if (made) transport_ = std::move(*made);
}

std::string Impostor::address() const {
  return world_address_text({{"rocev2-ipv4:7fff"}, transport_->address()});
}

WorldShape Impostor::shape() const {
  WorldShape shape{.ranks = size_};
  shape.strangers[rank_] = address();
  return shape;
}

void Impostor::join(World& world) {
  std::vector<std::string> addresses = world.addresses();
  for (std::string& address : addresses) address = parse_world_address(address)->side;
  EXPECT_TRUE(transport_->set_peers(std::move(addresses)).ok());
  fixture = std::make_unique<Fixture>(world.network().api(rank_), 0, kMemoryBytes);
  fixture->post_receives(60);
  world.stranger = [this] {
    if (transport_ != nullptr) transport_->poll(*this);
  };
}

void Impostor::say(Rank to, std::string_view message) {
  said_.push_back(std::make_unique<std::string>(message));
  FrameHeader header;
  header.kind = FrameKind::kTransport;
  header.payload_bytes = static_cast<std::uint32_t>(message.size());
  header.total_bytes = message.size();
  const auto bytes = std::as_bytes(std::span(*said_.back()));
  EXPECT_NE(transport_->endpoint(to).post_send(header, bytes, 1), PostResult::kFull);
}

void Impostor::leave() { transport_->close(Clock::now() + std::chrono::seconds(5), *this); }

void Impostor::die() { transport_.reset(); }

void Impostor::send_frame(Rank to, FrameHeader header, std::size_t bytes) {
  said_.push_back(std::make_unique<std::string>(bytes, 'x'));
  header.payload_bytes = static_cast<std::uint32_t>(bytes);
  const auto payload = std::as_bytes(std::span(*said_.back()));
  EXPECT_NE(transport_->endpoint(to).post_send(header, payload, 1), PostResult::kFull);
}

Placement Impostor::place(Rank peer, const FrameHeader& header) {
  arriving_[peer].resize(header.payload_bytes);
  return {Placement::Kind::kInto, arriving_[peer].data()};
}

void Impostor::received(Rank peer, const FrameHeader&) {
  const auto& bytes = arriving_[peer];
  const auto message =
      decode_link_message({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  ASSERT_TRUE(message.has_value()) << message.error().message();
  if (message->type == LinkMessageType::kHello) hellos_[peer] = message->hello;
  if (message->type == LinkMessageType::kFailed) failed_[peer] = message->text;
}

bool Impostor::await_hello(World& world, Rank from) {
  world.transport(from).endpoint(rank_);
  return world.pump_until([&] { return hellos_.count(from) > 0; }, "the victim's hello");
}

Hello Impostor::right_hello(World& world, Rank victim) {
  EXPECT_TRUE(await_hello(world, victim));
  const Hello& theirs = hellos_[victim];
  qp_ = fixture->make_qp();
  Hello hello;
  hello.epoch = theirs.epoch;
  hello.ring_address = fixture->address(kMemoryBytes / 2);
  hello.ring_bytes = theirs.ring_bytes;
  hello.ring_keys.fill(fixture->mr->rkey);
  hello.immediates = 64;
  hello.has_sums = theirs.has_sums;
  QueuePairEnd end;
  end.mtu = IBV_MTU_4096;
  end.pkey = 0xffff;
  end.number = qp_->qp_num;
  end.first_packet = kFirstPacket;
  const ibv_gid gid = ipv4_gid(10, 0, 0, static_cast<std::uint8_t>(rank_ + 1));
  std::memcpy(end.gid.data(), gid.raw, end.gid.size());
  hello.queue_pairs = {end};
  return hello;
}

void Impostor::connect(const QueuePairEnd& peer) {
  const Wiring wiring{.psn = kFirstPacket, .mtu = IBV_MTU_4096};
  EXPECT_EQ(to_init(*fixture, qp_, wiring), 0);
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = wiring.mtu;
  attributes.dest_qp_num = peer.number;
  attributes.rq_psn = peer.first_packet;
  attributes.max_dest_rd_atomic = wiring.dest_rd_atomic;
  attributes.min_rnr_timer = 12;
  attributes.ah_attr.port_num = 1;
  attributes.ah_attr.is_global = 1;
  attributes.ah_attr.grh.hop_limit = 64;
  attributes.ah_attr.grh.sgid_index = 3;  // RoCE v2 with the IPv4 address
  std::memcpy(attributes.ah_attr.grh.dgid.raw, peer.gid.data(), peer.gid.size());
  EXPECT_EQ(
      fixture->api->modify_qp(qp_, &attributes,
                              IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                  IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
      0);
  EXPECT_EQ(to_send(*fixture, qp_, wiring), 0);
}

bool Impostor::meet(World& world, Rank victim) {
  const Hello hello = right_hello(world, victim);
  if (hellos_[victim].queue_pairs.empty()) return false;
  connect(hellos_[victim].queue_pairs.front());
  say(victim, encode(hello));
  say(victim, encode_ready(hello.epoch));
  world.turns(50);
  return true;
}

void Impostor::write(std::uint64_t address, std::uint32_t key, std::size_t bytes) {
  EXPECT_EQ(post(*fixture, qp_,
                 {.opcode = IBV_WR_RDMA_WRITE,
                  .pieces = {fixture->piece(0, bytes)},
                  .remote = address,
                  .rkey = key}),
            0);
}

void Impostor::write(std::uint64_t address, std::uint32_t key, std::size_t bytes,
                     std::uint32_t immediate) {
  Request request{.opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .remote = address, .rkey = key};
  if (bytes > 0) request.pieces = {fixture->piece(0, bytes)};
  request.immediate = htobe32(immediate);
  EXPECT_EQ(post(*fixture, qp_, std::move(request)), 0);
}

void Impostor::read(std::uint64_t address, std::uint32_t key, std::size_t bytes) {
  EXPECT_EQ(post(*fixture, qp_,
                 {.opcode = IBV_WR_RDMA_READ,
                  .pieces = {fixture->piece(0, bytes)},
                  .remote = address,
                  .rkey = key}),
            0);
}

}  // namespace unisono::verbs::test
