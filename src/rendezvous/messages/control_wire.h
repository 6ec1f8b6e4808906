// The fields of a control message as bytes: what encode and decode functions are made of. A length
// of 4 bytes and a type go before the fields, which are little-endian; every length is bounded.
//
// Thread rule: values; one thread at a time.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/assert.h"
#include "base/little_endian.h"
#include "rendezvous/messages/control_messages.h"

namespace unisono::rendezvous {

/// One control message: a length, a type, then fields.
class Writer {
 public:
  explicit Writer(MessageType type) {
    number<std::uint32_t>(0);
    number(static_cast<std::uint8_t>(type));
  }
  template <typename T>
  void number(T value) {
    append_little_endian(value, &bytes_);
  }
  void text(std::string_view text, std::size_t bytes_max) {
    const std::string_view kept = text.substr(0, bytes_max);
    number(static_cast<std::uint32_t>(kept.size()));
    bytes_ += kept;
  }
  /// A set of ranks below `size` as one bit each: bounded by the world's size, never twice the
  /// same.
  void ranks(const std::vector<Rank>& ranks, int size) {
    std::string bits((static_cast<std::size_t>(size) + 7) / 8, '\0');
    for (const Rank rank : ranks) {
      if (rank < 0 || rank >= size) continue;
      char& byte = bits[static_cast<std::size_t>(rank) / 8];
      byte = static_cast<char>(byte | 1 << (rank % 8));
    }
    text(bits, bits.size());
  }
  std::size_t bytes() const { return bytes_.size(); }
  std::string finish() {
    const auto length = static_cast<std::uint32_t>(bytes_.size() - 4);
    UNISONO_ASSERT(length <= kMessageBytesMax, "a control message exceeds its bound");
    for (int i = 0; i < 4; ++i) bytes_[i] = static_cast<char>(length >> (8 * i));
    return std::move(bytes_);
  }

 private:
  std::string bytes_;
};

/// The longest time that a message tells: who hears it adds it to a time.
inline constexpr std::chrono::milliseconds kToldTimeMax = std::chrono::hours(24 * 365);

/// Reads until the first violation; ok() tells whether there was one.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}
  template <typename T>
  T number() {
    return static_cast<T>(read_little_endian(take(sizeof(T))));
  }
  std::string text(std::size_t bytes_max) { return std::string(view(bytes_max)); }
  std::string_view view(std::size_t bytes_max) {
    const auto bytes = number<std::uint32_t>();
    if (bytes > bytes_max) ok_ = false;
    return take(bytes);
  }
  std::vector<Rank> ranks(int size) {
    const std::string bits = text((static_cast<std::size_t>(size) + 7) / 8);
    std::vector<Rank> ranks;
    for (std::size_t rank = 0; rank < 8 * bits.size(); ++rank) {
      if ((bits[rank / 8] >> (rank % 8) & 1) == 0) continue;
      if (rank >= static_cast<std::size_t>(size)) ok_ = false;
      ranks.push_back(static_cast<Rank>(rank));
    }
    return ranks;
  }
  bool empty() const { return bytes_.empty() || !ok_; }
  bool ok() const { return ok_; }
  bool finished() const { return ok_ && bytes_.empty(); }

 private:
  std::string_view take(std::size_t count) {
    if (!ok_ || count > bytes_.size()) {
      ok_ = false;
      return {};
    }
    const std::string_view taken = bytes_.substr(0, count);
    bytes_.remove_prefix(count);
    return taken;
  }

  std::string_view bytes_;
  bool ok_ = true;
};

void write_decision(Writer* writer, const FailureDecision& decision);
/// False where it is none.
bool read_decision(Reader* reader, int size, FailureDecision* decision);

constexpr bool is_code_of_failure(std::uint8_t code) {
  return code > static_cast<std::uint8_t>(ErrorCode::kOk) && code < kErrorCodeCount;
}

}  // namespace unisono::rendezvous
