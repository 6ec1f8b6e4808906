// HMAC-SHA256 under a key for one purpose, which is derived (HKDF-SHA256) from the key of a job and
// the job's id: what proves that a sender knows the key of this job, without saying it.
//
// Thread rule: a value; const functions from any thread.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "base/handshake.h"
#include "base/result.h"

namespace unisono {

class KeyedMac {
 public:
  static constexpr std::size_t kBytes = 32;

  /// kSystem where OpenSSL offers none.
  static Result<KeyedMac> make(const JobKey& key, std::string_view job_id,
                               std::string_view purpose);
  KeyedMac(const KeyedMac&) = default;
  KeyedMac& operator=(const KeyedMac&) = default;
  ~KeyedMac();

  /// Of these after each other: kBytes.
  Result<std::string> of(std::initializer_list<std::string_view> parts) const;
  /// Whether `mac` is that, in constant time.
  bool proves(std::string_view mac, std::initializer_list<std::string_view> parts) const;

 private:
  KeyedMac() = default;

  std::array<std::uint8_t, kBytes> key_{};
};

}  // namespace unisono
