// The two messages of each side and the checks on them. See handshake.h for what it promises.
//
//   initiator                                   acceptor
//   hello (128 bytes)            ->
//                                <-             hello (128 bytes, names the initiator's rank)
//   proof (32 bytes)             ->             checked; only then
//                                <-             proof (32 bytes)
//
// proof = HMAC-SHA256(HKDF(job key), direction label | initiator's hello | acceptor's hello).
// The initiator proves first: the side that listens to strangers never computes a proof for one.
// A proof is bound to both fresh nonces, both ranks and one direction, so it cannot be replayed,
// sent back to its maker, or used towards a third rank.
#include "base/handshake.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <type_traits>

#include "base/assert.h"
#include "base/hex_text.h"
#include "base/keyed_mac.h"
#include "base/random_bytes.h"

namespace unisono {
namespace {

constexpr std::size_t kJobIdBytesMax = 64;
constexpr std::size_t kProofBytes = KeyedMac::kBytes;
constexpr std::size_t kKeyTextMin = 16;
constexpr char kMagic[8] = {'u', 'n', 'i', 's', 'o', 'n', 'o', '\n'};
constexpr std::uint16_t kByteOrderMark = 0x0102;
constexpr std::uint16_t kByteOrderMarkSwapped = 0x0201;

// Host byte order; magic, mark and version keep their places in every later version.
struct Hello {
  char magic[8];
  std::uint16_t byte_order;
  std::uint16_t version;
  std::uint8_t purpose;
  std::uint8_t role;
  std::uint16_t stream;
  Rank self;
  Rank peer;
  std::uint8_t job_id_bytes;
  std::uint8_t reserved[7];
  char job_id[kJobIdBytesMax];
  std::uint8_t nonce[32];
};
static_assert(sizeof(Hello) == 128 && std::is_trivially_copyable_v<Hello>);
static_assert(sizeof(Hello) + kProofBytes <= kHandshakeBytesMax);

std::string to_bytes(const Hello& hello) {
  return {reinterpret_cast<const char*>(&hello), sizeof hello};
}

Hello to_hello(const std::string& bytes) {
  Hello hello;
  std::memcpy(&hello, bytes.data(), sizeof hello);
  return hello;
}

Hello make_hello(const HandshakeIdentity& identity, Handshake::Role role) {
  Hello hello{};
  std::memcpy(hello.magic, kMagic, sizeof kMagic);
  hello.byte_order = kByteOrderMark;
  hello.version = kWireVersion;
  hello.purpose = static_cast<std::uint8_t>(identity.purpose);
  hello.role = static_cast<std::uint8_t>(role);
  hello.stream = identity.stream;
  hello.self = identity.self;
  hello.peer = identity.peer;
  hello.job_id_bytes = static_cast<std::uint8_t>(identity.job_id.size());
  std::memcpy(hello.job_id, identity.job_id.data(), identity.job_id.size());
  return hello;
}

std::optional<std::uint8_t> hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return std::nullopt;
}

bool parse_hex(std::string_view text, std::span<std::uint8_t, 32> out) {
  if (text.size() != 2 * out.size()) return false;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const auto high = hex_digit(text[2 * i]), low = hex_digit(text[2 * i + 1]);
    if (!high || !low) return false;
    out[i] = static_cast<std::uint8_t>(*high << 4 | *low);
  }
  return true;
}

std::string number(long long value) { return std::to_string(value); }

// What the other side's hello must agree on, apart from the ranks. Ok, or the first disagreement.
Status check_world(const Hello& theirs, Handshake::Role their_role,
                   const HandshakeIdentity& identity) {
  if (theirs.byte_order == kByteOrderMarkSwapped) {
    return {ErrorCode::kMismatch,
            "the peer has the other byte order; all ranks of a job need the "
            "same"};
  }
  if (theirs.byte_order != kByteOrderMark) {
    return {ErrorCode::kProtocol, "the byte order mark of the peer's greeting is damaged"};
  }
  if (theirs.version != kWireVersion) {
    return {ErrorCode::kMismatch, "the peer speaks wire version " + number(theirs.version) +
                                      " and this rank version " + number(kWireVersion) +
                                      "; install the same unisono everywhere"};
  }
  if (theirs.role != static_cast<std::uint8_t>(their_role)) {
    return {ErrorCode::kProtocol, "the peer claims the wrong direction (a reflected greeting?)"};
  }
  if (theirs.purpose != static_cast<std::uint8_t>(identity.purpose)) {
    return {ErrorCode::kMismatch, "the peer wants a connection of purpose " +
                                      number(theirs.purpose) + ", this one has purpose " +
                                      number(static_cast<int>(identity.purpose))};
  }
  if (theirs.job_id_bytes > kJobIdBytesMax ||
      std::string_view(theirs.job_id, theirs.job_id_bytes) != identity.job_id) {
    return {ErrorCode::kMismatch, "the peer belongs to another job than '" + identity.job_id + "'"};
  }
  return {};
}

Status check_ranks(const Hello& theirs, const HandshakeIdentity& identity) {
  if (theirs.self < 0) {
    return {ErrorCode::kProtocol, "the peer claims rank " + number(theirs.self)};
  }
  if (identity.peer >= 0 && theirs.self != identity.peer) {
    return {ErrorCode::kMismatch, "expected rank " + number(identity.peer) +
                                      " at the other end, found rank " + number(theirs.self)};
  }
  if (theirs.peer != identity.self && theirs.peer != -1) {
    return {ErrorCode::kMismatch, "rank " + number(theirs.self) + " wanted rank " +
                                      number(theirs.peer) + " and reached rank " +
                                      number(identity.self)};
  }
  if (theirs.self == identity.self && identity.purpose == HandshakePurpose::kData) {
    return {ErrorCode::kMismatch,
            "the peer claims to be rank " + number(identity.self) + ", as this one is"};
  }
  return {};
}

}  // namespace

JobKey::~JobKey() { OPENSSL_cleanse(bytes_.data(), bytes_.size()); }

JobKey JobKey::random() {
  JobKey key;
  UNISONO_ASSERT(fill_with_random(key.bytes_.data(), key.bytes_.size()),
                 "the system's random generator gives nothing");
  return key;
}

Result<JobKey> JobKey::from_text(std::string_view text) {
  JobKey key;
  if (parse_hex(text, key.bytes_)) return key;
  if (text.size() < kKeyTextMin) {
    return Status(ErrorCode::kInvalidArgument,
                  "a job key of " + number(static_cast<long long>(text.size())) +
                      " characters is too short; at least 16 are needed, best are 64 random hex "
                      "digits (openssl rand -hex 32)");
  }
  unsigned int written = 0;
  if (EVP_Digest(text.data(), text.size(), key.bytes_.data(), &written, EVP_sha256(), nullptr) !=
      1) {
    return Status(ErrorCode::kSystem, "OpenSSL offers no SHA-256");
  }
  return key;
}

SecretText JobKey::to_hex() const {
  SecretText text;
  text.resize(2 * bytes_.size());
  write_hex(std::as_bytes(std::span(bytes_)), text.data());
  return text;
}

std::string random_hex(std::size_t digits) {
  return std::string(JobKey::random().to_hex().view().substr(0, digits));
}

Handshake::Handshake(const JobKey& key, Role role, HandshakeIdentity identity)
    : key_(key), role_(role), identity_(std::move(identity)) {
  if (identity_.job_id.size() > kJobIdBytesMax) {
    fail({ErrorCode::kInvalidArgument,
          "job id '" + identity_.job_id + "' has more than 64 bytes; choose a shorter one"});
    return;
  }
  if (role_ == Role::kInitiator && make_own_hello()) output_ = own_hello_;
}

std::string Handshake::take_output() { return std::exchange(output_, {}); }

Status Handshake::consume(std::span<const std::byte>* bytes) {
  while (state_ == State::kWaitHello || state_ == State::kWaitProof) {
    const bool hello = state_ == State::kWaitHello;
    const std::size_t wanted = hello ? sizeof(Hello) : kProofBytes;
    const std::size_t taken = std::min(wanted - input_.size(), bytes->size());
    input_.append(reinterpret_cast<const char*>(bytes->data()), taken);
    *bytes = bytes->subspan(taken);
    // A stranger of another protocol may never send 128 bytes: refuse at the first wrong one.
    if (hello && !std::equal(input_.begin(),
                             input_.begin() + std::min(input_.size(), sizeof kMagic), kMagic)) {
      return fail({ErrorCode::kProtocol, "the peer does not speak the unisono protocol"});
    }
    if (input_.size() < wanted) return {};
    const Status outcome = hello ? on_hello() : on_proof();
    if (!outcome) return fail(outcome);
    input_.clear();
  }
  return failure_;
}

bool Handshake::make_own_hello() {
  Hello hello = make_hello(identity_, role_);
  if (!fill_with_random(hello.nonce, sizeof hello.nonce)) {
    fail({ErrorCode::kSystem, "the system's random generator gives nothing"});
    return false;
  }
  own_hello_ = to_bytes(hello);
  return true;
}

Status Handshake::on_hello() {
  peer_hello_ = input_;
  const Hello theirs = to_hello(peer_hello_);
  const bool accepts = role_ == Role::kAcceptor;
  Status agreed = check_world(theirs, accepts ? Role::kInitiator : Role::kAcceptor, identity_);
  if (agreed) agreed = check_ranks(theirs, identity_);
  if (!agreed) {
    // The initiator can say why it was refused; a job id it did not know stays unknown to it.
    if (accepts && agreed.code() == ErrorCode::kMismatch) {
      Hello refusal = make_hello(identity_, role_);
      if (std::string_view(theirs.job_id, sizeof theirs.job_id) !=
          std::string_view(refusal.job_id, sizeof refusal.job_id)) {
        refusal.job_id_bytes = 0;
        std::memset(refusal.job_id, 0, sizeof refusal.job_id);
      }
      output_ = to_bytes(refusal);
    }
    return agreed;
  }
  peer_ = theirs.self;
  stream_ = theirs.stream;
  state_ = State::kWaitProof;
  if (accepts) {
    identity_.peer = theirs.self;
    identity_.stream = theirs.stream;
    if (!make_own_hello()) return failure_;
    output_ += own_hello_;
    return {};
  }
  if (theirs.peer != identity_.self || theirs.stream != identity_.stream) {
    return {ErrorCode::kProtocol, "the acceptor answered somebody else's greeting"};
  }
  UNISONO_ASSIGN(const std::string own_proof, proof(role_));
  output_ += own_proof;
  return {};
}

Status Handshake::on_proof() {
  const bool accepts = role_ == Role::kAcceptor;
  UNISONO_ASSIGN(const std::string expected, proof(accepts ? Role::kInitiator : Role::kAcceptor));
  if (CRYPTO_memcmp(expected.data(), input_.data(), kProofBytes) != 0) {
    return {ErrorCode::kAuthentication,
            "the peer that claims " +
                std::string(identity_.purpose == HandshakePurpose::kLauncher ? "node " : "rank ") +
                number(peer_) + " does not know the key of job '" + identity_.job_id + "'",
            peer_};
  }
  if (accepts) {
    UNISONO_ASSIGN(const std::string own_proof, proof(role_));
    output_ += own_proof;
  }
  state_ = State::kDone;
  return {};
}

Result<std::string> Handshake::proof(Role of) const {
  const bool own_is_initiator = role_ == Role::kInitiator;
  const std::string_view label =
      of == Role::kInitiator ? "unisono initiator proof" : "unisono acceptor proof";
  UNISONO_ASSIGN(const KeyedMac mac, KeyedMac::make(key_, identity_.job_id, "unisono handshake 1"));
  return mac.of({label, own_is_initiator ? own_hello_ : peer_hello_,
                 own_is_initiator ? peer_hello_ : own_hello_});
}

const Status& Handshake::fail(Status why) {
  state_ = State::kFailed;
  failure_ = std::move(why);
  return failure_;
}

}  // namespace unisono
