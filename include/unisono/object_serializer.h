// How values become bytes and bytes become values again, for the typed forms of unisono/objects.h.
// Specialise Serializer<T> for a type of your own, or hand a serializer object to the call.
// Bytes are those of this machine: all ranks have the same byte order and the same layout of T.
// Values only; nothing here is shared between threads.
#pragma once

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <ranges>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "unisono/error.h"
#include "unisono/export.h"
#include "unisono/types.h"

namespace unisono {

/// Collects the bytes of a value.
class ByteWriter {
 public:
  void write(const void* data, std::size_t bytes) {
    if (bytes == 0) return;
    const auto* first = static_cast<const std::byte*>(data);
    bytes_.insert(bytes_.end(), first, first + bytes);
  }
  /// A number of elements or bytes, as ByteReader::read_size() takes it.
  void write_size(std::uint64_t size) { write(&size, sizeof size); }
  /// Overwrites a size that was written at `position`, now that it is known.
  void set_size(std::size_t position, std::uint64_t size) {
    std::memcpy(bytes_.data() + position, &size, sizeof size);
  }
  std::size_t size() const { return bytes_.size(); }
  std::vector<std::byte> take() { return std::exchange(bytes_, {}); }

 private:
  std::vector<std::byte> bytes_;
};

/// Walks over the bytes that rank `source` sent. Trusts none of them: a read past the end throws
/// Error of code kProtocol that names the rank, and nothing is allocated for what is not there.
class UNISONO_API ByteReader {
 public:
  ByteReader(std::span<const std::byte> bytes, Rank source) : bytes_(bytes), source_(source) {}

  /// The next `bytes` bytes, where they lie.
  std::span<const std::byte> take(std::size_t bytes) {
    if (bytes > remaining()) fail_short(bytes);
    const std::span<const std::byte> taken = bytes_.subspan(position_, bytes);
    position_ += bytes;
    return taken;
  }
  void read(void* out, std::size_t bytes) {
    const std::span<const std::byte> taken = take(bytes);
    if (bytes > 0) std::memcpy(out, taken.data(), bytes);
  }
  /// A number of elements that take at least `element_bytes` (1 or more) each: refused when that
  /// is more than what is left, so that it may be allocated for.
  std::size_t read_size(std::size_t element_bytes = 1) {
    std::uint64_t size = 0;
    read(&size, sizeof size);
    if (element_bytes == 0 || size > remaining() / element_bytes) fail_size(size, element_bytes);
    return static_cast<std::size_t>(size);
  }
  std::size_t remaining() const { return bytes_.size() - position_; }
  Rank source() const { return source_; }
  /// Refuses bytes that nobody read.
  void finish() const {
    if (remaining() > 0) fail("bytes are left over after the value");
  }
  /// Throws the Error for bytes that mean nothing; `what` completes "the object of rank 1: ".
  [[noreturn]] void fail(const std::string& what) const;

 private:
  [[noreturn]] void fail_short(std::size_t bytes) const;
  [[noreturn]] void fail_size(std::uint64_t size, std::size_t element_bytes) const;

  std::span<const std::byte> bytes_;
  std::size_t position_ = 0;
  Rank source_;
};

/// The customisation point. A serializer of T has, static or not,
///   void write(ByteWriter& out, const T& value) const;
///   T read(ByteReader& in) const;
/// where read() takes exactly what write() gave, at least one byte where values of T stand in a
/// vector. What either throws reaches the caller of the collective as that rank's failure.
template <typename T>
struct Serializer;

template <typename S, typename T>
concept SerializerOf = requires(const S& serializer, ByteWriter& out, ByteReader& in,
                                const T& value) {
  serializer.write(out, value);
  { serializer.read(in) } -> std::convertible_to<T>;
};

/// Types whose bytes are their value. Pointers and views are not; do not hide any in a struct.
/// Every pattern of bytes is taken: check what a peer could forge (a bool or enum in a struct).
template <typename T>
concept PlainBytes =
    std::is_object_v<T> && std::is_trivially_copyable_v<T> && !std::is_pointer_v<T> &&
    !std::is_member_pointer_v<T> && !std::is_null_pointer_v<T> && !std::same_as<T, bool> &&
    !std::ranges::view<T>;

template <PlainBytes T>
struct Serializer<T> {
  /// Arrays of T may be moved as they lie.
  static constexpr bool kIsPlain = true;
  static void write(ByteWriter& out, const T& value) { out.write(&value, sizeof value); }
  static T read(ByteReader& in) {
    std::array<std::byte, sizeof(T)> bytes;
    in.read(bytes.data(), bytes.size());
    return std::bit_cast<T>(bytes);
  }
};

template <typename S>
concept PlainSerializer = requires {
  requires S::kIsPlain;
};

template <>
struct Serializer<bool> {
  static void write(ByteWriter& out, bool value) {
    const std::uint8_t byte = value ? 1 : 0;
    out.write(&byte, 1);
  }
  static bool read(ByteReader& in) {
    std::uint8_t byte = 0;
    in.read(&byte, 1);
    if (byte > 1) in.fail("a bool is " + std::to_string(byte) + ", neither 0 nor 1");
    return byte == 1;
  }
};

template <>
struct Serializer<std::string> {
  static void write(ByteWriter& out, const std::string& value) {
    out.write_size(value.size());
    out.write(value.data(), value.size());
  }
  static std::string read(ByteReader& in) {
    const std::span<const std::byte> bytes = in.take(in.read_size());
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
};

template <typename T>
struct Serializer<std::vector<T>> {
  static constexpr bool kInOnePiece =
      PlainSerializer<Serializer<T>> && std::default_initializable<T>;

  static void write(ByteWriter& out, const std::vector<T>& value) {
    out.write_size(value.size());
    if constexpr (kInOnePiece) {
      out.write(value.data(), value.size() * sizeof(T));
    } else {
      for (const T& element : value) Serializer<T>{}.write(out, element);
    }
  }
  static std::vector<T> read(ByteReader& in) {
    if constexpr (kInOnePiece) {
      std::vector<T> value(in.read_size(sizeof(T)));
      in.read(value.data(), value.size() * sizeof(T));
      return value;
    } else {
      // Grows with what is really there: a size costs its sender as many bytes at least.
      std::vector<T> value;
      for (std::size_t left = in.read_size(); left > 0; --left) {
        value.push_back(Serializer<T>{}.read(in));
      }
      return value;
    }
  }
};

}  // namespace unisono
