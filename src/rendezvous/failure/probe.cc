#include "rendezvous/failure/probe.h"

#include <cstring>

#include "base/assert.h"
#include "base/little_endian.h"
#include "base/random_bytes.h"

namespace unisono::rendezvous {
namespace {

// Tells probes from what else may come to a port. The version is that of all that ranks say.
constexpr std::string_view kMagic = "unisonop";
constexpr std::size_t kSignedBytes = kProbeBytes - KeyedMac::kBytes;

bool is_kind(std::uint8_t kind) {
  return kind == static_cast<std::uint8_t>(Probe::Kind::kQuestion) ||
         kind == static_cast<std::uint8_t>(Probe::Kind::kAnswer);
}

}  // namespace

std::optional<ProbeNonce> random_nonce() {
  ProbeNonce nonce;
  if (!fill_with_random(nonce.data(), nonce.size())) return std::nullopt;
  return nonce;
}

Result<ProbeCodec> ProbeCodec::make(const JobKey& key, std::string_view job_id) {
  UNISONO_ASSIGN(const KeyedMac mac, KeyedMac::make(key, job_id, "unisono probe 1"));
  return ProbeCodec(mac);
}

std::string ProbeCodec::encode(const Probe& probe) const {
  std::string bytes(kMagic);
  append_little_endian(kWireVersion, &bytes);
  append_little_endian(static_cast<std::uint16_t>(probe.kind), &bytes);
  append_little_endian(probe.from, &bytes);
  append_little_endian(probe.to, &bytes);
  bytes.append(reinterpret_cast<const char*>(probe.nonce.data()), probe.nonce.size());
  UNISONO_ASSERT(bytes.size() == kSignedBytes, "a probe of another size");
  const auto mac = mac_.of({bytes});
  return mac ? bytes + *mac : std::string();
}

std::optional<Probe> ProbeCodec::decode(std::string_view datagram) const {
  if (datagram.size() != kProbeBytes || !datagram.starts_with(kMagic)) return std::nullopt;
  const std::string_view text = datagram.substr(0, kSignedBytes);
  std::string_view rest = text.substr(kMagic.size());
  const auto take = [&](std::size_t bytes) {
    const std::string_view taken = rest.substr(0, bytes);
    rest.remove_prefix(bytes);
    return taken;
  };
  const auto version = static_cast<std::uint16_t>(read_little_endian(take(2)));
  const auto kind = read_little_endian(take(2));
  Probe probe;
  probe.from = static_cast<Rank>(read_little_endian(take(4)));
  probe.to = static_cast<Rank>(read_little_endian(take(4)));
  std::memcpy(probe.nonce.data(), rest.data(), probe.nonce.size());
  // The proof comes last: it costs more than all else.
  if (version != kWireVersion || kind > 0xff || !is_kind(static_cast<std::uint8_t>(kind)) ||
      !mac_.proves(datagram.substr(kSignedBytes), {text})) {
    return std::nullopt;
  }
  probe.kind = static_cast<Probe::Kind>(kind);
  return probe;
}

}  // namespace unisono::rendezvous
