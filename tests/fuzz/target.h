// Fuzz targets: one for each parser of bytes that come from outside. A target is a function of any
// bytes that throws Broken when an invariant does not hold; crashes, hangs and what sanitizers see
// count as well. fuzz_test.cc drives all of them in every build, fuzzer_main.cc one under
// libFuzzer. Thread rule: one thread; targets leave nothing behind.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace unisono::fuzz {

using Bytes = std::vector<std::byte>;

struct Target {
  std::string_view name;
  void (*run)(std::span<const std::byte> input);
  /// Inputs to begin with: what correct peers send, and what once went wrong.
  std::vector<Bytes> (*corpus)();
  /// How many mutations of them fuzz_test tries: of what costs system calls fewer.
  int mutations;
};

/// Each file of targets adds its own.
using Targets = std::vector<Target>;
void add_frames(Targets* targets);
void add_handshake(Targets* targets);
void add_launcher_store(Targets* targets);
void add_rendezvous(Targets* targets);
void add_shared_memory(Targets* targets);
void add_texts(Targets* targets);
void add_verbs(Targets* targets);
void add_objects(Targets* targets);
void add_train(Targets* targets);
Targets all_targets();

struct Broken : std::logic_error {
  using std::logic_error::logic_error;
};
inline void require(bool holds, const char* what) {
  if (!holds) throw Broken(what);
}

inline Bytes to_bytes(std::string_view text) {
  Bytes bytes(text.size());
  if (!text.empty()) std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}
template <typename T>
Bytes bytes_of(const T& value) {
  Bytes bytes(sizeof value);
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}
inline Bytes operator+(Bytes front, const Bytes& back) {
  front.insert(front.end(), back.begin(), back.end());
  return front;
}

/// Walks over an input. What is not there reads as zero: every input means something.
class Input {
 public:
  explicit Input(std::span<const std::byte> bytes) : rest_(bytes) {}
  template <typename T>
  T number() {
    T value{};
    const std::span<const std::byte> part = take(sizeof value);
    if (!part.empty()) std::memcpy(&value, part.data(), part.size());
    return value;
  }
  std::uint8_t byte() { return number<std::uint8_t>(); }
  std::span<const std::byte> take(std::size_t bytes) {
    const std::span<const std::byte> part = rest_.first(std::min(bytes, rest_.size()));
    rest_ = rest_.subspan(part.size());
    return part;
  }
  /// A piece behind its length.
  std::span<const std::byte> piece() { return take(number<std::uint16_t>()); }
  std::span<const std::byte> rest() { return take(rest_.size()); }
  std::string_view text() { return text_of(rest()); }
  bool empty() const { return rest_.empty(); }

  static std::string_view text_of(std::span<const std::byte> bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

 private:
  std::span<const std::byte> rest_;
};

/// As Input::piece() reads it.
inline Bytes as_piece(const Bytes& bytes) {
  return bytes_of(static_cast<std::uint16_t>(bytes.size())) + bytes;
}

/// Small numbers out of one seed, for what an input leaves open: sizes of pieces, placements.
class Dice {
 public:
  explicit Dice(std::uint32_t seed) : state_(seed * 2654435761u + 1) {}
  std::uint32_t below(std::uint32_t bound) {
    state_ = state_ * 1664525u + 1013904223u;
    return (state_ >> 8) % bound;
  }

 private:
  std::uint32_t state_;
};

}  // namespace unisono::fuzz
