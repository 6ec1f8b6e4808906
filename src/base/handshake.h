// Mutual authentication of two ranks over any byte stream, as a state machine without I/O: bytes
// in, bytes out. Version, byte order, job id, both nonces, both ranks, purpose and direction go
// under HMAC-SHA256 with a key derived (HKDF-SHA256) from the job key; compared in constant time.
// It authenticates the connection at its start, not the bytes that follow.
// Neither side sends more than kHandshakeBytesMax before it has authenticated the other.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/secret_text.h"

namespace unisono {

/// The job's secret. Never logged, cleared when destroyed.
class JobKey {
 public:
  JobKey() = default;
  ~JobKey();
  JobKey(const JobKey&) = default;
  JobKey& operator=(const JobKey&) = default;
  static JobKey random();
  /// From any text of at least 16 characters (hashed) or 64 hex digits (taken as they are).
  static Result<JobKey> from_text(std::string_view text);
  SecretText to_hex() const;  ///< to hand it to another local rank; not for logs
  std::span<const std::uint8_t, 32> bytes() const { return bytes_; }

 private:
  std::array<std::uint8_t, 32> bytes_{};
};

/// For names and ids that nobody can guess: `digits` random hex digits, at most 64.
std::string random_hex(std::size_t digits);

inline constexpr std::size_t kHandshakeBytesMax = 512;
/// Of all that ranks say to one another, and of what numbers in it stand for, as an algorithm's
/// place in the catalog.
inline constexpr std::uint16_t kWireVersion = 15;

enum class HandshakePurpose : std::uint8_t {
  kControl = 1,
  kData = 2,
  kLauncher = 3,  ///< between launchers: what a rank is elsewhere is a node there
};

struct HandshakeIdentity {
  std::string job_id;  ///< at most 64 bytes; both sides must have the same
  Rank self = 0;
  Rank peer = -1;  ///< the rank expected at the other end; -1: any (acceptor)
  HandshakePurpose purpose = HandshakePurpose::kData;
  std::uint16_t stream = 0;  ///< of several streams between two ranks; the initiator's counts
};

class Handshake {
 public:
  enum class Role : std::uint8_t { kInitiator, kAcceptor };
  Handshake(const JobKey& key, Role role, HandshakeIdentity identity);

  /// Bytes to send now (empties the internal buffer). The initiator has some at once.
  std::string take_output();
  /// Consumes from the front of `bytes`; leaves what follows the handshake. Errors are final:
  /// kAuthentication (wrong key), kProtocol (garbage), kMismatch (version, byte order, job, rank).
  Status consume(std::span<const std::byte>* bytes);
  bool done() const { return state_ == State::kDone; }
  /// After done(): who is there.
  Rank peer() const { return peer_; }
  std::uint16_t stream() const { return stream_; }

 private:
  enum class State : std::uint8_t { kWaitHello, kWaitProof, kDone, kFailed };
  Result<std::string> proof(Role of) const;
  bool make_own_hello();
  Status on_hello();
  Status on_proof();
  const Status& fail(Status why);

  JobKey key_;
  Role role_;
  HandshakeIdentity identity_;
  State state_ = State::kWaitHello;
  Status failure_;
  std::string input_;
  std::string output_;
  std::string own_hello_;
  std::string peer_hello_;
  Rank peer_ = -1;
  std::uint16_t stream_ = 0;
};

}  // namespace unisono
