// See transport_fixture.h.
#include "tests/verbs/transport_fixture.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <thread>

#include "tests/support/give_way.h"
#include "tests/support/seed.h"
#include "transports/tcp/stream_transport.h"
#include "transports/verbs/world_address.h"

namespace unisono::verbs::test {
namespace {

constexpr auto kWorldPatience = std::chrono::seconds(10);
constexpr std::byte kSpoilt{0xee};

FakeFabricOptions network_of(const WorldShape& shape) {
  FakeFabricOptions options = shape.network;
  if (options.hosts.empty()) options.hosts = fake_world(shape.ranks, shape.ports).hosts;
  options.seed += unisono::test::seed();
  return options;
}

}  // namespace

Result<std::unique_ptr<Transport>> make_side_transport(Rank rank, int size) {
  StreamOptions options;
  options.rank = rank;
  options.size = size;
  options.job_id = "verbs-tests";
  UNISONO_ASSIGN(options.key, JobKey::from_text("the key of the verbs tests, known to all"));
  options.bind_address = "127.0.0.1";
  return make_stream_transport(std::move(options));
}

World::World(WorldShape shape) : network_(std::make_unique<FakeFabric>(network_of(shape))) {
  for (Rank rank = 0; rank < shape.ranks; ++rank) {
    ranks_.push_back(std::make_unique<Member>());
    if (shape.strangers.count(rank) == 0 && !make(rank, shape)) return;
  }
  stands_ = introduce(shape);
}

bool World::make(Rank rank, const WorldShape& shape) {
  Member& member = at(rank);
  auto side = make_side_transport(rank, shape.ranks);
  if (!side) {
    ADD_FAILURE() << side.error().message();
    return false;
  }
  if (std::find(shape.plain.begin(), shape.plain.end(), rank) != shape.plain.end()) {
    member.transport = std::move(*side);
    return true;
  }
  VerbsOptions options = shape.options;
  options.rank = rank;
  options.size = shape.ranks;
  if (std::find(shape.askers.begin(), shape.askers.end(), rank) != shape.askers.end()) {
    options.connect = VerbsConnect::kCm;
    member.cm = std::make_shared<ScriptedCm>();
  }
  auto made =
      VerbsTransport::make(network_->api(rank), std::move(options), std::move(*side), member.cm);
  if (!made) {
    ADD_FAILURE() << "rank " << rank << ": " << made.error().message();
    return false;
  }
  member.verbs = made->get();
  member.transport = std::move(*made);
  return true;
}

bool World::introduce(const WorldShape& shape) {
  for (Rank rank = 0; rank < size(); ++rank) {
    const auto stranger = shape.strangers.find(rank);
    addresses_.push_back(stranger != shape.strangers.end() ? stranger->second
                                                           : at(rank).transport->address());
  }
  for (const auto& member : ranks_) {
    if (member->transport == nullptr) continue;
    std::vector<std::string> addresses = addresses_;
    if (member->verbs == nullptr) {
      for (std::string& address : addresses) address = parse_world_address(address)->side;
    }
    const Status known = member->transport->set_peers(addresses);
    EXPECT_TRUE(known.ok()) << known.message();
    if (!known) return false;
  }
  return true;
}

World::~World() {
  for (const auto& member : ranks_) member->transport.reset();
  for (int host = 0; host < size(); ++host) {
    const FakeCounters left = network_->counters(host);
    EXPECT_EQ(left.live(), 0) << "host " << host << " keeps " << left.qps << " queue pairs, "
                              << left.mrs << " registrations, " << left.cqs << " + " << left.srqs
                              << " queues, " << left.contexts << " contexts";
  }
}

PostResult World::try_send(Rank from, Rank to, const Message& message) {
  Member& member = at(from);
  FrameHeader header;
  header.payload_bytes = static_cast<std::uint32_t>(message.bytes);
  header.kind = message.kind;
  header.communicator = 7;
  header.sequence = member.next_sequence[to];
  header.total_bytes = message.bytes;
  header.record.count = message.bytes;
  header.record.root = from;
  std::vector<std::byte> buffer(message.bytes);
  unisono::test::fill_payload(buffer, from, header.sequence);
  const std::uint64_t token = member.next_token++;
  member.witness.enter_post();
  const PostResult result = member.transport->endpoint(to).post_send(header, buffer, token);
  member.witness.leave_post();
  if (result != PostResult::kFull) ++member.next_sequence[to];
  if (result == PostResult::kPending) {
    member.witness.expect_token(to, token);
    member.lent.emplace(token, Lent{to, std::move(buffer)});
  } else {
    std::fill(buffer.begin(), buffer.end(), kSpoilt);
  }
  return result;
}

bool World::send(Rank from, Rank to, const Message& message) {
  if (try_send(from, to, message) != PostResult::kFull) return true;
  return pump_until([&] { return try_send(from, to, message) != PostResult::kFull; }, "room");
}

void World::send_a_round(int round) {
  for (const Rank from : {0, 1}) {
    const Rank to = 1 - from;
    send(from, to, {.bytes = static_cast<std::size_t>(round % 7) * 300});
    send(from, to, {.bytes = kLarge, .kind = FrameKind::kData});
    send(from, to, {.bytes = 16 * 1024});
    send(from, to, {.bytes = kFramePayloadMax});
  }
}

std::uint64_t World::sent(Rank from, Rank to) const {
  const auto found = at(from).next_sequence.find(to);
  return found == at(from).next_sequence.end() ? 0 : found->second;
}

std::map<std::uint64_t, World::Lent>::iterator World::cancel(
    Member& member, std::map<std::uint64_t, Lent>::iterator lent) {
  member.transport->endpoint(lent->second.peer).cancel(lent->first);
  member.witness.forget_token(lent->second.peer, lent->first);
  std::fill(lent->second.buffer.begin(), lent->second.buffer.end(), kSpoilt);
  return member.lent.erase(lent);
}

std::uint64_t World::cancel_all(Rank from, Rank to) {
  Member& member = at(from);
  std::uint64_t cancelled = 0;
  for (auto lent = member.lent.begin(); lent != member.lent.end();) {
    if (lent->second.peer != to) {
      ++lent;
      continue;
    }
    lent = cancel(member, lent);
    ++cancelled;
  }
  return cancelled;
}

bool World::cancel_one(Rank from, Rank to) {
  Member& member = at(from);
  const auto lent = std::find_if(member.lent.begin(), member.lent.end(),
                                 [to](const auto& each) { return each.second.peer == to; });
  if (lent == member.lent.end()) return false;
  cancel(member, lent);
  return true;
}

void World::free_returned(Member& member) {
  for (auto lent = member.lent.begin(); lent != member.lent.end();) {
    const bool held = member.witness.is_outstanding(lent->second.peer, lent->first);
    lent = held ? std::next(lent) : member.lent.erase(lent);
  }
}

void World::poll(Rank rank) {
  Member& member = at(rank);
  if (member.transport == nullptr) return;
  const std::uint64_t before = member.witness.tokens_returned();
  member.transport->poll(member.witness);
  if (member.witness.tokens_returned() != before) free_returned(member);
}

void World::turn() {
  for (Rank rank = 0; rank < size(); ++rank) {
    if (!at(rank).paused) poll(rank);
  }
  if (stranger) stranger();
}

void World::turns(int count) {
  for (int each = 0; each < count; ++each) turn();
}

bool World::pump_until(const std::function<bool()>& done, const char* what) {
  const TimePoint deadline = Clock::now() + kWorldPatience;
  while (!done()) {
    turn();
    unisono::test::give_way();
    if (Clock::now() < deadline) continue;
    ADD_FAILURE() << "waited 10 s for " << what << describe();
    return false;
  }
  return true;
}

std::string World::describe() {
  std::string text;
  for (Rank from = 0; from < size(); ++from) {
    for (Rank to = 0; to < size(); ++to) {
      if (from == to) continue;
      text += "\nrank " + std::to_string(to) + " has " + std::to_string(witness(to).count(from)) +
              " of " + std::to_string(sent(from, to)) + " frames of rank " + std::to_string(from) +
              ", which has lent " + std::to_string(witness(from).tokens_outstanding(to));
      if (has_ended(from, to)) text += "; ended: " + witness(from).closed_cause(to)->message();
    }
  }
  for (const std::string& words : network_->complaints()) text += "\nnetwork: " + words;
  return text;
}

bool World::has_settled(Rank from, Rank to) {
  return witness(to).count(from) >= sent(from, to) && witness(from).tokens_outstanding(to) == 0;
}

bool World::settle(Rank from, Rank to) {
  return pump_until([&] { return has_settled(from, to); }, "frames and buffers");
}

bool World::settle() {
  for (Rank from = 0; from < size(); ++from) {
    for (Rank to = 0; to < size(); ++to) {
      if (from != to && !settle(from, to)) return false;
    }
  }
  return true;
}

bool World::greet() {
  if (!stands_) return false;
  for (Rank from = 0; from < size(); ++from) {
    for (Rank to = 0; to < size(); ++to) {
      if (from != to && !send(from, to, {.bytes = 8})) return false;
    }
  }
  return settle();
}

Status World::end_of(Rank rank, Rank peer) {
  if (!pump_until([&] { return has_ended(rank, peer); }, "the end of a link")) return Status();
  return *witness(rank).closed_cause(peer);
}

void World::close_all() {
  std::vector<std::thread> closing;
  for (const auto& member : ranks_) {
    if (member->transport == nullptr) continue;
    closing.emplace_back([&member = *member] {
      member.transport->close(Clock::now() + kWorldPatience, member.witness);
    });
  }
  for (std::thread& each : closing) each.join();
  for (const auto& member : ranks_) {
    EXPECT_EQ(member->witness.tokens_outstanding(), 0u) << "close() keeps buffers of the caller";
  }
}

void World::kill(Rank rank) { at(rank).transport.reset(); }

bool has_line(const LogGuard& guard, const std::vector<std::string>& words) {
  const std::vector<std::string> lines = guard.lines();
  return std::any_of(lines.begin(), lines.end(), [&](const std::string& line) {
    return std::all_of(words.begin(), words.end(), [&](const std::string& word) {
      return line.find(word) != std::string::npos;
    });
  });
}

}  // namespace unisono::verbs::test
