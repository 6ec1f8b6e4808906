// A serializer over cereal, for the typed forms of unisono/objects.h. Needs the headers of cereal
// (Debian: libcereal-dev), nothing to link:
//
//   auto all = unisono::all_gather_values(comm, table, {}, unisono::CerealSerializer<Table>{});
//
// The bytes are those of cereal's portable binary archive. They are read by an archive that trusts
// none of them: containers whose announced size is more than the bytes left are refused before they
// are made, so that every element of a container must take at least one byte. Polymorphic pointers
// are not offered; a type that holds pointers to itself nests as deep as its sender likes.
// Values only; one thread per serializer call.
#pragma once

#include <algorithm>
#include <cereal/archives/portable_binary.hpp>
#include <cereal/cereal.hpp>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <ostream>
#include <string>
#include <type_traits>

#include "unisono/objects.h"

namespace unisono {

namespace detail {

/// An ostream's buffer over a ByteWriter.
class WriterBuffer final : public std::streambuf {
 public:
  explicit WriterBuffer(ByteWriter& out) : out_(out) {}

 protected:
  std::streamsize xsputn(const char* data, std::streamsize count) override {
    out_.write(data, static_cast<std::size_t>(count));
    return count;
  }
  int_type overflow(int_type value) override {
    if (traits_type::eq_int_type(value, traits_type::eof())) return traits_type::not_eof(value);
    const char byte = traits_type::to_char_type(value);
    out_.write(&byte, 1);
    return value;
  }

 private:
  ByteWriter& out_;
};

/// Reads what cereal::PortableBinaryOutputArchive wrote.
class BoundedInputArchive final
    : public cereal::InputArchive<BoundedInputArchive, cereal::AllowEmptyClassElision> {
 public:
  explicit BoundedInputArchive(ByteReader& in)
      : cereal::InputArchive<BoundedInputArchive, cereal::AllowEmptyClassElision>(this), in_(in) {
    std::uint8_t is_little_endian = 0;
    in_.read(&is_little_endian, 1);
    if (is_little_endian > 1) in_.fail("it is no portable binary archive of cereal");
    swaps_ = is_little_endian != cereal::portable_binary_detail::is_little_endian();
  }

  template <std::size_t ElementBytes>
  void load_binary(void* out, std::size_t bytes) {
    in_.read(out, bytes);
    if (!swaps_) return;
    auto* first = static_cast<std::uint8_t*>(out);
    for (std::size_t i = 0; i + ElementBytes <= bytes; i += ElementBytes) {
      cereal::portable_binary_detail::swap_bytes<ElementBytes>(first + i);
    }
  }
  void check_size(std::uint64_t size) const {
    if (size <= in_.remaining()) return;
    in_.fail("a container announces " + std::to_string(size) + " elements and " +
             std::to_string(in_.remaining()) + " bytes are left");
  }
  void load_bool(bool* out) {
    std::uint8_t byte = 0;
    in_.read(&byte, 1);
    if (byte > 1) in_.fail("a bool is " + std::to_string(byte) + ", neither 0 nor 1");
    *out = byte == 1;
  }

 private:
  ByteReader& in_;
  bool swaps_ = false;
};

// What cereal looks up for an archive, beside it.
template <typename T>
std::enable_if_t<std::is_arithmetic_v<T>> CEREAL_LOAD_FUNCTION_NAME(BoundedInputArchive& archive,
                                                                    T& value) {
  static_assert(!std::is_floating_point_v<T> || std::numeric_limits<T>::is_iec559);
  if constexpr (std::is_same_v<T, bool>) {
    archive.load_bool(&value);
  } else {
    archive.load_binary<sizeof(T)>(&value, sizeof value);
  }
}
template <typename T>
void CEREAL_SERIALIZE_FUNCTION_NAME(BoundedInputArchive& archive, cereal::NameValuePair<T>& pair) {
  archive(pair.value);
}
template <typename T>
void CEREAL_SERIALIZE_FUNCTION_NAME(BoundedInputArchive& archive, cereal::SizeTag<T>& tag) {
  archive(tag.size);
  archive.check_size(tag.size);
}
template <typename T>
void CEREAL_LOAD_FUNCTION_NAME(BoundedInputArchive& archive, cereal::BinaryData<T>& data) {
  using Element = std::remove_pointer_t<T>;
  archive.load_binary<sizeof(Element)>(data.data, static_cast<std::size_t>(data.size));
}

}  // namespace detail

/// For every default-constructible T that cereal can serialize.
template <typename T>
struct CerealSerializer {
  static void write(ByteWriter& out, const T& value) {
    detail::WriterBuffer buffer(out);
    std::ostream stream(&buffer);
    cereal::PortableBinaryOutputArchive archive(stream);
    archive(value);
  }
  static T read(ByteReader& in) {
    detail::BoundedInputArchive archive(in);
    T value{};
    archive(value);
    return value;
  }
};

}  // namespace unisono

// Minimal load and save functions of user types are found through the archive they were made for.
template <>
struct cereal::traits::detail::get_output_from_input<unisono::detail::BoundedInputArchive> {
  using type = cereal::PortableBinaryOutputArchive;
};
