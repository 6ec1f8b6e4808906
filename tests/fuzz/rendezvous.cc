// What rank and arbiter say to each other, and where they meet.
#include <sys/socket.h>

#include <algorithm>
#include <cctype>
#include <optional>

#include "rendezvous/failure/probe.h"
#include "rendezvous/failure/witnesses.h"
#include "rendezvous/meeting/contact.h"
#include "rendezvous/meeting/introduction.h"
#include "rendezvous/meeting/rendezvous_point.h"
#include "rendezvous/messages/control_messages.h"
#include "rendezvous/messages/rejoin_message.h"
#include "rendezvous/messages/shrink_message.h"
#include "rendezvous/sockets/control_stream.h"
#include "rendezvous/sockets/sockets.h"
#include "tests/fuzz/target.h"

namespace unisono::fuzz {
namespace {

using namespace rendezvous;

constexpr std::size_t kHeadBytes = 5;  // of a message: length and type

std::string_view body_of(const std::string& message) {
  return std::string_view(message).substr(kHeadBytes);
}

// ---- Bodies of messages -------------------------------------------------------------------------

void check_fields(const Member& member) {
  require(member.host.size() <= kHostBytesMax && member.host_name.size() <= kHostBytesMax &&
              member.addresses.size() <= kAddressBytesMax &&
              member.settings.size() <= kSettingsBytesMax,
          "a text above its limit");
}

void check_ascending(const std::vector<Rank>& ranks, int size) {
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    require(ranks[i] >= 0 && ranks[i] < size && (i == 0 || ranks[i - 1] < ranks[i]),
            "ranks out of order or beyond the world");
  }
}

void check_members(std::string_view body, int size) {
  std::vector<Member> members;
  const Status status = decode_members(body, size, &members);
  require(members.size() <= static_cast<std::size_t>(size), "more members than ranks");
  for (std::size_t i = 0; i < members.size(); ++i) {
    require(members[i].rank == static_cast<Rank>(i), "members out of order");
    check_fields(members[i]);
  }
  if (status.ok()) require(body_of(encode_members(members)) == body, "other members");
}

void check_wait(std::string_view body, int size) {
  const auto message = decode_wait(body, size);
  if (!message) return;
  check_ascending(message->waiting_for, size);
  check_ascending(message->members, size);
  const std::string text = encode_wait(MessageType::kWaiting, *message, size);
  const auto again = decode_wait(body_of(text), size);
  require(again && again->waiting_for == message->waiting_for &&
              again->members == message->members && again->sequence == message->sequence,
          "another waiting message");
}

void check_decision(std::string_view body, int size) {
  const auto decision = decode_decision(body, size);
  if (!decision) return;
  require(decision->failed_rank >= -1 && decision->failed_rank < size, "a failed_rank of no rank");
  require(decision->code != ErrorCode::kOk, "a decision without a failure");
  require(body_of(encode(MessageType::kDecision, *decision)) == body, "another decision");
}

void check_calls(MessageType type, std::string_view body, int size) {
  const auto message = decode_calls(type, body, size);
  if (!message) return;
  require(message->member >= 0 && message->member < size, "calls of no rank");
  for (const Rank rank : message->members) require(rank >= 0 && rank < size, "a member of no rank");
  // A set of ranks can be written in two ways.
  const std::string text = encode_calls(type, *message, size);
  const auto again = decode_calls(type, body_of(text), size);
  require(again && again->member == message->member && again->members == message->members &&
              again->calls.size() == message->calls.size() &&
              encode_calls(type, *again, size) == text,
          "other calls");
}

void check_shrink(std::string_view body, int size) {
  const auto message = decode_shrink(body, size);
  if (!message) return;
  check_ascending(message->members, size);
  require(message->patience.count() >= 0, "a patience below none");
  require(message->why.rank() >= -1 && message->why.rank() < size, "a reason names no rank");
  const std::string text = encode_shrink(*message, size);
  const auto again = decode_shrink(body_of(text), size);
  require(again && again->step == message->step && again->members == message->members &&
              encode_shrink(*again, size) == text,
          "another word on shrinking");
}

void check_refusal(std::string_view body) {
  const Status status = decode_refusal(body);
  require(!status.ok(), "a refusal that is none");
  require(status.rank() >= -1 && status.rank() < kWorldSizeMax, "a refusal names no rank");
  require(status.message().size() <= kTextBytesMax, "a text above its limit");
}

void check_body(MessageType type, std::string_view body, int size) {
  switch (type) {
    case MessageType::kJoin:
      if (const auto join = decode_join(body)) {
        check_fields(join->member);
        require(check_member(join->member, join->size).ok(), "a member that nobody may send");
        require(body_of(encode(*join)) == body, "another join");
      }
      return;
    case MessageType::kWaiting:
    case MessageType::kTimedOut:
      return check_wait(body, size);
    case MessageType::kFailure:
    case MessageType::kDecision:
      return check_decision(body, size);
    case MessageType::kBrokenLink:
      if (const auto broken = decode_broken_link(body, size)) {
        require(broken->peer >= 0 && broken->peer < size, "a link to no rank");
        require(body_of(encode(*broken)) == body, "another broken link");
      }
      return;
    case MessageType::kRefusal:
    case MessageType::kDecline:
      return check_refusal(body);
    case MessageType::kWaits:
      if (const auto waits = decode_waits(body, size)) {
        require(waits->waits.size() <= kWaitsMax, "more waits than a rank may have");
        for (const WaitMessage& wait : waits->waits) check_ascending(wait.waiting_for, size);
      }
      return;
    case MessageType::kRejoin:
      if (const auto rejoin = decode_rejoin(body, size)) {
        require(rejoin->rank >= 0 && rejoin->rank < size, "a rank beyond the world");
        require(rejoin->decisions.size() <= kDecisionsToldMax, "more decisions than are told");
        check_ascending(rejoin->dead, size);
        check_ascending(rejoin->left, size);
        require(decode_rejoin(body_of(encode_rejoin(*rejoin, size)), size).has_value(),
                "what was read cannot be said");
      }
      return;
    case MessageType::kSight:
      if (const auto told = decode_sight(body, size)) {
        require(told->rank >= 0 && told->rank < size, "a process of no rank");
        require(body_of(encode(*told)) == body, "another sight");
      }
      return;
    case MessageType::kProbed:
      if (const auto told = decode_probed(body, size)) {
        require(told->rank >= 0 && told->rank < size, "a probe of no rank");
        require(body_of(encode(*told)) == body, "another probe");
      }
      return;
    case MessageType::kAskSight:
    case MessageType::kAskProbe:
    case MessageType::kDeparted:
      if (const auto rank = decode_rank(body, size)) {
        require(body_of(encode_rank(MessageType::kDeparted, *rank)) == body, "another rank");
      }
      return;
    case MessageType::kDeposed:
      if (const auto deposed = decode_deposed(body, size)) {
        require(deposed->successor < size, "a rank beyond the world");
        require(body_of(encode_deposed(*deposed)) == body, "another silence");
      }
      return;
    case MessageType::kWelcome:
      if (const auto welcome = decode_welcome(body)) {
        require(body_of(encode(*welcome)) == body, "another welcome");
      }
      return;
    case MessageType::kMembers:
      return check_members(body, size);
    case MessageType::kAwaiting:
      if (const auto rank_zero = decode_awaiting(body)) {
        check_fields(*rank_zero);
        require(rank_zero->rank == 0, "another rank waits for the others");
      }
      return;
    case MessageType::kDiffering:
    case MessageType::kCalls:
      return check_calls(type, body, size);
    case MessageType::kShrink:
      return check_shrink(body, size);
    case MessageType::kAskCalls:
      if (const auto communicator = decode_question(body)) {
        require(body_of(encode_question(*communicator)) == body, "another question");
      }
      return;
    default:
      return;
  }
}

// Worlds of few ranks and of many.
int size_of(std::uint8_t byte) { return byte < 200 ? 1 + byte % 20 : kWorldSizeMax - byte; }

void fuzz_control_messages(std::span<const std::byte> input) {
  Input in(input);
  const int size = size_of(in.byte());
  const auto type = static_cast<MessageType>(in.byte());
  check_body(type, in.text(), size);
}

Member member_of(Rank rank) {
  return {rank, "boot/host", "host", 42, 4000 + rank, 1000, "settings", std::string(3, '\0') + "x"};
}

std::vector<std::string> messages() {
  const WaitMessage wait{7, 1 << 20, {0, 2}, {0, 1, 2, 3}};
  const CallsMessage calls{7, 2, {0, 1, 2, 3}, {ErrorCode::kMismatch, 1, 7, 9, "why"}, {{9, {}}}};
  return {
      encode(JoinMessage{4, member_of(2)}),
      // Once the arbiter's to refuse, with a rank that the others could not read.
      encode(JoinMessage{4, member_of(-77)}), encode(MessageType::kGiveUp),
      encode_wait(MessageType::kWaiting, wait, 4), encode_wait(MessageType::kTimedOut, wait, 4),
      encode(BrokenLinkMessage{3, "connection reset"}),
      encode(WelcomeMessage{2, "0123456789abcdef", SecretText(std::string(64, 'a'))}),
      encode(MessageType::kDecision, FailureDecision{ErrorCode::kMismatch, 1, 7, 9, "why"}),
      encode_refusal({ErrorCode::kRendezvous, "rank 1 is missing", 1}),
      // Once taken as it was: a rank that no world has.
      encode_refusal({ErrorCode::kRendezvous, "rank", -77}),
      encode_refusal({ErrorCode::kUnsupported, "no device", 1}, MessageType::kDecline),
      encode_members({member_of(0), member_of(1)}), encode_calls(MessageType::kDiffering, calls, 4),
      encode_calls(MessageType::kCalls, calls, 4), encode_question(7),
      encode_waits({wait, wait}, 4), encode(MessageType::kAskWaits),
      encode_shrink({ShrinkStep::kAsk, 7, 0, std::chrono::milliseconds(1000), {0, 1, 2, 3}, {}}, 4),
      encode_shrink({ShrinkStep::kRefused, 7, 9, {}, {}, {ErrorCode::kTimeout, "late", 2}}, 4),
      encode_rejoin({"0123456789abcdef",
                     2,
                     {0},
                     {1, 3},
                     {{ErrorCode::kRankFailed, 0, kEveryCommunicator, 0, "rank 0 died"}}},
                    4),
      encode_rank(MessageType::kDeparted, 3), encode_rank(MessageType::kAskSight, 3),
      encode(SightMessage{3, ProcessSight::kStopped}), encode(ProbedMessage{3, true}),
      encode_deposed({1, std::chrono::milliseconds(600)})};
}

std::vector<Bytes> messages_corpus() {
  std::vector<Bytes> inputs;
  for (const std::string& message : messages()) {
    inputs.push_back(bytes_of(std::uint8_t{3}) + to_bytes(message.substr(kHeadBytes - 1)));
  }
  return inputs;
}

// ---- Probes -------------------------------------------------------------------------------------

// The input changes a probe that the job has sent, by pairs of bytes (place, what to combine it
// with), or stands for one.
void fuzz_probe(std::span<const std::byte> input) {
  Input in(input);
  const auto codec = ProbeCodec::make(*JobKey::from_text("the key of this job"), "job");
  require(codec.has_value(), "no codec");
  const Probe sent{in.byte() % 2 == 0 ? Probe::Kind::kQuestion : Probe::Kind::kAnswer,
                   in.number<Rank>(), in.number<Rank>(), ProbeNonce{1, 2, 3}};
  const std::string honest = codec->encode(sent);
  require(honest.size() == kProbeBytes, "a probe of another size");
  require(codec->decode(honest) == sent, "another probe");
  const std::string_view rest = in.text();
  require(!codec->decode(rest), "a stranger's datagram is taken");
  std::string changed = honest;
  for (std::size_t i = 0; i + 1 < rest.size(); i += 2) {
    char& byte = changed[static_cast<unsigned char>(rest[i]) % changed.size()];
    byte = static_cast<char>(byte ^ rest[i + 1]);
  }
  require(codec->decode(changed).has_value() == (changed == honest), "a changed probe is taken");
}

std::vector<Bytes> probe_corpus() {
  const auto codec = ProbeCodec::make(JobKey::random(), "job");
  const Bytes head = bytes_of(std::uint8_t{1}) + bytes_of(Rank{3}) + bytes_of(Rank{5});
  std::vector<Bytes> inputs = {
      {}, head, head + to_bytes(codec->encode({Probe::Kind::kQuestion, 3, 5, *random_nonce()}))};
  // Magic, version, kind, ranks, nonce, proof.
  for (const int place : {0, 8, 10, 12, 16, 20, 36, 67}) {
    inputs.push_back(head + bytes_of(static_cast<std::uint8_t>(place)) + Bytes{std::byte{1}});
  }
  return inputs;
}

// ---- The stream of messages ---------------------------------------------------------------------

std::pair<GuardedFd, GuardedFd> sockets() {
  auto pair = connected_pair();
  require(pair.has_value(), "no sockets");
  return std::move(*pair);
}

void send_all(int fd, std::span<const std::byte> bytes) {
  const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  require(sent == static_cast<ssize_t>(bytes.size()), "an input that no socket holds");
}

// The simple way: the next message of `wire`, or nothing, or an error.
std::optional<std::string_view> cut_message(std::string_view* wire, bool* broken) {
  if (wire->size() < 4) return std::nullopt;
  std::uint32_t length = 0;
  for (int i = 3; i >= 0; --i) length = length << 8 | static_cast<unsigned char>((*wire)[i]);
  *broken = length == 0 || length > kMessageBytesMax;
  if (*broken || wire->size() - 4 < length) return std::nullopt;
  const std::string_view message = wire->substr(4, length);
  wire->remove_prefix(4 + length);
  return message;
}

void fuzz_control_stream(std::span<const std::byte> input) {
  Input in(input);
  Dice dice(in.number<std::uint16_t>());
  const std::span<const std::byte> wire = in.rest();
  auto [near, far] = sockets();
  ControlStream stream(std::move(near));
  std::string_view left = Input::text_of(wire);
  std::size_t sent = 0;
  for (bool open = true; open;) {
    const std::size_t piece = std::min<std::size_t>(wire.size() - sent, 1 + dice.below(300));
    if (piece > 0) send_all(far.get(), wire.subspan(sent, piece));
    sent += piece;
    if (sent == wire.size()) ::shutdown(far.get(), SHUT_WR);
    open = stream.receive(1 + dice.below(500));
    require(stream.input().size() <= kMessageBytesMax + 1000, "an input without a bound");
    for (;;) {
      auto message = stream.next();
      if (message && !*message) break;
      bool broken = false;
      const auto expected = cut_message(&left, &broken);
      require(message.has_value() == !broken, "a length is judged differently");
      if (broken) return;
      require(expected && (*message)->type == static_cast<MessageType>((*expected)[0]) &&
                  (*message)->body == expected->substr(1),
              "another message");
    }
  }
  bool broken = false;
  require(!cut_message(&left, &broken) && !broken, "a message is lost");
}

std::vector<Bytes> stream_corpus() {
  const Bytes seed = bytes_of(std::uint16_t{3});
  std::string all;
  for (const std::string& message : messages()) all += message;
  return {seed, seed + to_bytes(all), seed + to_bytes(messages()[6] + all),
          seed + Bytes(9, std::byte{0}), seed + bytes_of(std::uint32_t{kMessageBytesMax + 1})};
}

// ---- What a joining rank makes of the arbiter's answers -----------------------------------------

void fuzz_introduction(std::span<const std::byte> input) {
  Input in(input);
  const int size = 1 + in.byte() % 8;
  const Member self = member_of(in.byte() % size);
  auto [near, far] = sockets();
  send_all(far.get(), in.rest());
  ::shutdown(far.get(), SHUT_WR);
  const auto result = converse(ControlStream(std::move(near)), {size, self, {}}, JobKey::random(),
                               Clock::now() + std::chrono::minutes(1));
  if (const auto* failure = std::get_if<Failure>(&result)) {
    require(!failure->why.ok(), "a failure without a reason");
    return;
  }
  const World& world = std::get<Joined>(result).world;
  require(world.size == size && world.members.size() == static_cast<std::size_t>(size),
          "a world of another size");
  require(world.rank == self.rank && !world.job_id.empty(), "a world without this rank");
  for (int rank = 0; rank < size; ++rank) {
    const Member& member = world.members[static_cast<std::size_t>(rank)];
    require(member.rank == rank, "members out of order");
    check_fields(member);
  }
}

std::vector<Bytes> introduction_corpus() {
  const Bytes head{std::byte{1}, std::byte{1}};
  const std::string welcome =
      encode(WelcomeMessage{2, "0123456789abcdef", SecretText(std::string(64, 'a'))});
  const std::string one = encode_members({member_of(0)});
  const std::string both = encode_members({member_of(0), member_of(1)});
  return {head + to_bytes(welcome + both), head + to_bytes(welcome + one),
          head + to_bytes(both + welcome), head + to_bytes(welcome + welcome + both),
          head + to_bytes(encode_refusal({ErrorCode::kRendezvous, "rank 1 is missing"}))};
}

// ---- What a joining rank makes of an arbiter that has to prove itself ---------------------------

HandshakeIdentity identity(Rank self, Rank peer) {
  return {"job", self, peer, HandshakePurpose::kControl, 0};
}

void fuzz_authentication(std::span<const std::byte> input) {
  auto [near, far] = sockets();
  send_all(far.get(), input);
  ::shutdown(far.get(), SHUT_WR);
  ControlStream stream(std::move(near));
  const auto failure = authenticate(&stream, *JobKey::from_text("the key of this job"), "job", 1,
                                    Clock::now() + std::chrono::minutes(1));
  require(failure.has_value() && !failure->why.ok(), "a stranger is taken for the arbiter");
  std::string told(4096, '\0');
  const ssize_t bytes = ::recv(far.get(), told.data(), told.size(), MSG_DONTWAIT);
  require(bytes <= static_cast<ssize_t>(kHandshakeBytesMax), "too much for somebody unknown");
}

std::vector<Bytes> authentication_corpus() {
  // An arbiter's hello does not depend on what it answers, so one fits; its proof would not.
  const JobKey key = *JobKey::from_text("the key of this job");
  Handshake rank(key, Handshake::Role::kInitiator, identity(1, 0));
  Handshake arbiter(key, Handshake::Role::kAcceptor, identity(0, -1));
  const Bytes greeting = to_bytes(rank.take_output());
  std::span<const std::byte> view(greeting);
  static_cast<void>(arbiter.consume(&view));
  const Bytes hello = to_bytes(arbiter.take_output());
  return {{}, hello, hello + Bytes(32, std::byte{0}), hello + Bytes(500, std::byte{7}), greeting};
}

// ---- Rendezvous files and URLs
// ---------------------------------------------------------------------

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

void fuzz_contact(std::span<const std::byte> input) {
  const std::string_view text = Input(input).text();
  const auto contact = contact_from_text(text);
  if (!contact) return;
  require(contact->job_id.size() == 32 && contact->tcp.size() <= 16, "a contact beyond its limits");
  for (const auto& [host, port] : contact->tcp) {
    require(!host.empty() && host.size() <= 255 && port != 0, "an address beyond its limits");
  }
  // Whoever reads a file and writes it again has the same; nothing was read that is not there.
  const SecretText written = to_text(*contact);
  const auto again = contact_from_text(written.view());
  require(again && to_text(*again) == written, "another contact");
  if (contact->has_key) {
    require(lower(text).find("key " + std::string(contact->key.to_hex().view()) + "\n") !=
                std::string::npos,
            "a key that is not in the file");
  }
}

std::vector<Bytes> contact_corpus() {
  Contact contact;
  contact.job_id = std::string(32, 'b');
  const Bytes least = to_bytes(to_text(contact).view());
  contact.has_key = true;
  contact.key = *JobKey::from_text(std::string(64, '5'));
  contact.unix_name = "unisono-0123";
  contact.tcp = {{"10.0.0.1", 29501}, {"fd00::1", 1}, {"node-1.cluster", 65535}};
  const std::string text(to_text(contact).view());
  // Once taken for a key, and hashed.
  std::string damaged = text;
  damaged.replace(damaged.find("key 5"), 5, "key x");
  return {least, to_bytes(text), to_bytes(damaged)};
}

void fuzz_rendezvous_point(std::span<const std::byte> input) {
  Input in(input);
  LauncherVariables launcher;
  launcher.rank = in.number<std::int8_t>();
  launcher.world_size = in.number<std::int8_t>();
  launcher.local_world_size = in.number<std::int8_t>();
  launcher.master_port = in.number<std::int16_t>();
  launcher.agent_store = in.byte() % 2 == 1;
  const int port = in.number<std::int16_t>();
  launcher.master_address = Input::text_of(in.piece());
  const std::string job_key(Input::text_of(in.piece()));
  const auto point = rendezvous_point_from_url(in.text(), launcher, port, job_key);
  if (!point) {
    const ErrorCode code = point.error().code();
    require(code == ErrorCode::kInvalidArgument || code == ErrorCode::kAuthentication,
            "an undocumented error");
    return;
  }
  using Kind = RendezvousPoint::Kind;
  if (point->kind == Kind::kTcp) {
    require(point->has_key && point->port != 0, "a rendezvous over TCP without key or port");
    require(!point->name.empty() && point->name.size() <= 255, "a host beyond its limits");
  }
  require(point->name.find('\0') == std::string::npos, "a name that is cut short later");
  require(point->kind != Kind::kFile || point->name.front() == '/', "a relative path");
}

std::vector<Bytes> rendezvous_point_corpus() {
  const auto input = [](std::vector<int> bytes, std::string_view address, std::string_view url) {
    Bytes out;
    for (const int byte : bytes) out.push_back(static_cast<std::byte>(byte));
    return out + as_piece(to_bytes(address)) + as_piece(to_bytes("a key of the job")) +
           to_bytes(url);
  };
  const std::vector<int> ranks{1, 4, 2, 0x39, 0x30, 0, 0, 0};
  return {input(ranks, "node-1", ""),
          input(ranks, "127.0.0.1", "env://"),
          input(ranks, "node-1", "tcp://10.0.0.1:29501"),
          input(ranks, "node-1", "tcp://[fd00::1%eth0]:1"),
          input(ranks, "node-1", "file:///tmp/rendezvous"),
          input(ranks, "node-1", "alone://")};
}

}  // namespace

void add_rendezvous(Targets* targets) {
  targets->push_back({"control_messages", fuzz_control_messages, messages_corpus, 5000});
  targets->push_back({"control_stream", fuzz_control_stream, stream_corpus, 300});
  targets->push_back({"introduction", fuzz_introduction, introduction_corpus, 500});
  targets->push_back({"authentication", fuzz_authentication, authentication_corpus, 300});
  targets->push_back({"probe", fuzz_probe, probe_corpus, 2000});
  targets->push_back({"contact", fuzz_contact, contact_corpus, 5000});
  targets->push_back({"rendezvous_point", fuzz_rendezvous_point, rendezvous_point_corpus, 5000});
}

}  // namespace unisono::fuzz
