// A question that goes past the arbiter, from the process of one rank to that of another: are you
// there? One datagram each way, of equal size, so that nobody is flooded by way of an answer; both
// prove that their sender knows the job's key, and an answer holds the question's nonce. So a rank
// can say of another one, of which the arbiter hears nothing, whether it is reached from here (the
// indirect probe of SWIM: Das, Gupta and Motivala, DSN 2002).
//
// Thread rule: values; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/keyed_mac.h"
#include "base/result.h"
#include "unisono/types.h"

namespace unisono::rendezvous {

using ProbeNonce = std::array<std::uint8_t, 16>;
/// Nothing where OpenSSL fails.
std::optional<ProbeNonce> random_nonce();

struct Probe {
  enum class Kind : std::uint8_t { kQuestion = 1, kAnswer };
  Kind kind = Kind::kQuestion;
  Rank from = 0, to = 0;
  ProbeNonce nonce{};
  bool operator==(const Probe&) const = default;
};

/// Of all probes.
inline constexpr std::size_t kProbeBytes = 68;

/// Writes the probes of a job, and reads them.
class ProbeCodec {
 public:
  static Result<ProbeCodec> make(const JobKey& key, std::string_view job_id);
  /// kProbeBytes; empty where OpenSSL fails.
  std::string encode(const Probe& probe) const;
  /// Nothing for what nobody has sent that knows the key of this job.
  std::optional<Probe> decode(std::string_view datagram) const;

 private:
  explicit ProbeCodec(const KeyedMac& mac) : mac_(mac) {}

  KeyedMac mac_;
};

}  // namespace unisono::rendezvous
