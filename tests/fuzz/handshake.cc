// What comes from the other end before it is authenticated: anything, or what an honest peer says
// with bytes changed on the way. Nobody is let in by it, and nobody is sent more than is promised.
#include "base/handshake.h"

#include <sys/socket.h>

#include <boost/asio/io_context.hpp>
#include <memory>
#include <optional>

#include "tests/fuzz/target.h"
#include "transports/frame.h"
#include "transports/tcp/handshake_session.h"

namespace unisono::fuzz {
namespace {

using Role = Handshake::Role;

// First byte of an input.
constexpr int kInitiates = 1;  // who is tried: the side that connects
constexpr int kHonest = 2;     // the other side is an honest rank, and its bytes are changed
constexpr int kAnyPeer = 4;
constexpr int kControl = 8;
constexpr int kOtherKey = 16;
constexpr int kOtherJob = 32;

JobKey key(const char* text) { return *JobKey::from_text(text); }

struct Ends {
  JobKey own_key = key("the key of this job");
  JobKey peer_key = own_key;
  HandshakeIdentity own, peer;
  Role role = Role::kAcceptor;
  bool honest = false;
  bool same_job = true;
  std::size_t piece = 1;  // bytes that arrive at once
};

Ends ends_of(Input* in) {
  const int flags = in->byte();
  Ends ends;
  ends.role = (flags & kInitiates) != 0 ? Role::kInitiator : Role::kAcceptor;
  ends.honest = (flags & kHonest) != 0;
  ends.same_job = (flags & (kOtherKey | kOtherJob)) == 0;
  if ((flags & kOtherKey) != 0) ends.peer_key = key("the key of another job");
  ends.own = {"job", 3, (flags & kAnyPeer) != 0 && ends.role == Role::kAcceptor ? -1 : 5,
              (flags & kControl) != 0 ? HandshakePurpose::kControl : HandshakePurpose::kData, 1};
  ends.peer = {(flags & kOtherJob) != 0 ? "job2" : "job", 5, 3, ends.own.purpose, 1};
  if (ends.role == Role::kInitiator) ends.peer.peer = -1;
  ends.piece = 1 + in->byte();
  return ends;
}

// What the other side sends: an honest handshake's output changed by pairs of bytes (place, what to
// combine it with), or the input as it is.
class OtherSide {
 public:
  OtherSide(const Ends& ends, std::span<const std::byte> script) {
    if (!ends.honest) {
      out_.assign(script.begin(), script.end());
      return;
    }
    honest_.emplace(ends.peer_key,
                    ends.role == Role::kInitiator ? Role::kAcceptor : Role::kInitiator, ends.peer);
    for (std::size_t i = 0; i + 1 < script.size(); i += 2) {
      changes_[static_cast<std::size_t>(script[i]) % kBytes] ^= script[i + 1];
    }
    collect();
  }

  void hear(std::string_view bytes) {
    if (!honest_) return;
    const Bytes copy = to_bytes(bytes);
    std::span<const std::byte> view(copy);
    static_cast<void>(honest_->consume(&view));
    collect();
  }
  /// The next bytes, at most `bytes` of them.
  Bytes say(std::size_t bytes) {
    const auto end = out_.begin() + static_cast<std::ptrdiff_t>(std::min(bytes, out_.size()));
    Bytes said(out_.begin(), end);
    out_.erase(out_.begin(), end);
    return said;
  }
  /// Follows what it has said so far.
  void add(const Bytes& bytes) { out_.insert(out_.end(), bytes.begin(), bytes.end()); }
  bool has_more() const { return !out_.empty(); }
  bool is_done() const { return honest_ && honest_->done(); }
  /// All that it said was its own.
  bool is_true() const {
    return honest_ && std::all_of(changes_.begin(), changes_.end(),
                                  [](std::byte change) { return change == std::byte{0}; });
  }

 private:
  static constexpr std::size_t kBytes = 160;  // a hello and a proof

  void collect() {
    for (const std::byte byte : to_bytes(honest_->take_output())) {
      out_.push_back(byte ^ (at_ < kBytes ? changes_[at_] : std::byte{0}));
      ++at_;
    }
  }

  std::optional<Handshake> honest_;
  std::array<std::byte, kBytes> changes_{};
  std::size_t at_ = 0;
  Bytes out_;
};

// Who may be let in: nobody who does not know the key, and of those who do, none whose bytes were
// changed: all of them are under the proof.
bool may_enter(const Ends& ends, const OtherSide& other) {
  return ends.same_job && other.is_true();
}

void fuzz_handshake(std::span<const std::byte> input) {
  Input in(input);
  const Ends ends = ends_of(&in);
  Handshake handshake(ends.own_key, ends.role, ends.own);
  OtherSide other(ends, in.rest());
  const Bytes behind(3, std::byte{0x77});
  std::size_t told = 0;
  Status status;
  std::size_t left = 0;
  for (bool said_behind = false;;) {
    const std::string output = handshake.take_output();
    told += output.size();
    require(handshake.done() || told <= kHandshakeBytesMax, "too much for somebody unknown");
    other.hear(output);
    if (!status.ok() || handshake.done()) break;
    if (!other.has_more() && std::exchange(said_behind, true)) break;
    if (!other.has_more()) other.add(behind);
    const Bytes piece = other.say(ends.piece);
    std::span<const std::byte> view(piece);
    status = handshake.consume(&view);
    left = view.size();
    require(!status.ok() || handshake.done() || view.empty(), "bytes are left without an end");
  }
  require(handshake.done() == (may_enter(ends, other) && status.ok()), "somebody got in");
  if (may_enter(ends, other)) require(handshake.done(), "an honest peer is kept out");
  if (handshake.done()) {
    require(handshake.peer() == 5 && handshake.stream() == 1, "somebody else got in");
    require(left <= behind.size() || ends.piece > 1, "bytes behind the handshake are taken");
  }
  if (status.ok()) return;
  std::span<const std::byte> more(behind);
  require(handshake.consume(&more).code() == status.code(), "an error is not final");
  require(handshake.take_output().empty(), "words after an error");
}

// The same over a socket and Asio.
struct Session {
  int far = -1;
  std::shared_ptr<tcp::HandshakeSession> session;
  std::optional<Status> outcome;
};

std::string take_all(int fd) {
  std::string text(1024, '\0');
  const ssize_t got = ::recv(fd, text.data(), text.size(), MSG_DONTWAIT);
  text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  return text;
}

void fuzz_handshake_session(std::span<const std::byte> input) {
  Input in(input);
  const Ends ends = ends_of(&in);
  OtherSide other(ends, in.rest());
  int ends_of_pair[2];
  require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends_of_pair) == 0, "no sockets");
  const UniqueFd far(ends_of_pair[1]);
  boost::asio::io_context context;
  tcp::Socket socket(context);
  require(tcp::adopt(UniqueFd(ends_of_pair[0]), AF_UNIX, &socket).ok(), "no socket");
  int told_outcome = 0;
  Status outcome;
  const auto session = std::make_shared<tcp::HandshakeSession>(
      std::move(socket), ends.own_key, ends.role, ends.own, [&](const Status& status) {
        ++told_outcome;
        outcome = status;
      });
  session->start();
  const Bytes behind = bytes_of(FrameHeader{}) + Bytes(3, std::byte{0x77});
  std::size_t told = 0;
  for (bool said_behind = false; told_outcome == 0;) {
    context.poll();
    context.restart();
    const std::string output = take_all(far.get());
    told += output.size();
    other.hear(output);
    if (told_outcome > 0) break;
    if (!other.has_more() && std::exchange(said_behind, true)) {
      ::shutdown(far.get(), SHUT_WR);
      context.poll();
      break;
    }
    if (!other.has_more() && output.empty()) other.add(behind);
    const Bytes piece = other.say(ends.piece);
    require(tcp::send_now(far.get(), piece.data(), piece.size()), "the socket is full");
  }
  told += take_all(far.get()).size();
  require(told <= kHandshakeBytesMax, "too much for somebody unknown");
  require(told_outcome == 1, "no outcome, or several");
  require(outcome.ok() == may_enter(ends, other), "somebody got in, or an honest peer did not");
  const std::string rest = session->take_rest();
  require(rest.size() <= kHandshakeBytesMax + sizeof(FrameHeader), "a stranger fills the memory");
  if (outcome.ok()) require(static_cast<bool>(session->release()), "no socket in the end");
  session->cancel();
  context.poll();
  require(told_outcome == 1, "an outcome after the end");
}

std::vector<Bytes> corpus() {
  const auto input = [](int flags, std::uint8_t piece, const Bytes& script) {
    return bytes_of(static_cast<std::uint8_t>(flags)) + bytes_of(piece) + script;
  };
  std::vector<Bytes> inputs;
  for (const int role : {0, kInitiates}) {
    for (const int flags :
         {0, kAnyPeer, kControl, kAnyPeer | kControl, kOtherKey, kOtherJob | kAnyPeer}) {
      inputs.push_back(input(role | kHonest | flags, 255, {}));
    }
    // Magic, byte order, version, purpose, direction, stream, ranks, job id, nonce, proof.
    for (const int place : {0, 8, 10, 12, 13, 14, 16, 20, 24, 25, 32, 127, 128, 159}) {
      inputs.push_back(input(role | kHonest, 40,
                             bytes_of(static_cast<std::uint8_t>(place)) + Bytes{std::byte{1}}));
    }
    // A hello as it is on the wire, and more.
    HandshakeIdentity peer{"job", 5, 3, HandshakePurpose::kData, 1};
    Handshake honest(key("the key of this job"), Role::kInitiator, peer);
    inputs.push_back(input(role, 63, to_bytes(honest.take_output()) + Bytes(40, std::byte{1})));
  }
  return inputs;
}

}  // namespace

void add_handshake(Targets* targets) {
  targets->push_back({"handshake", fuzz_handshake, corpus, 1500});
  targets->push_back({"handshake_session", fuzz_handshake_session, corpus, 300});
}

}  // namespace unisono::fuzz
