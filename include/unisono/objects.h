// Object collectives: byte blobs, values and lists whose sizes differ from rank to rank, 0 bytes to
// many GiB. Sizes are exchanged and checked first, then the bytes move in rounds.
//
// `*_objects` (and `broadcast_object`) move bytes that are ready to go; `*_values` and
// all_gather_list() are typed: a Serializer<T>, or one that is given, makes bytes of them.
//
//   auto names = gather_values(comm, std::string("ann"), 0);  // at rank 0: everyone's, by rank
//   auto scores = all_gather_list(comm, std::vector<float>{1, 2});  // everyone's, end to end
//   using Table = std::map<std::string, int>;  // no Serializer has it: unisono/objects_cereal.h
//   auto tables = all_gather_values(comm, Table{{"ann", 1}}, {}, CerealSerializer<Table>{});
//
// Agreement. All ranks make the same object calls in the same order, like any collective. Every
// call begins with one exchange of what each rank wants; what is wrong with one rank's part (a
// root that is no rank, the wrong number of blobs, an object above the limit, a serializer that
// throws, different calls) is the same Error on every rank, which names the rank at fault, before
// anything is allocated for objects or sent; where a serializer threw, its own rank gets what it
// threw. The communicator stays usable after it: only failures of the communicator itself
// (status()) are sticky. No rank is left waiting.
//
// Memory. Staging is host memory, at most ObjectOptions::staging_bytes per rank whatever the
// objects' sizes (at least one byte for each rank that sends), and given back before the call
// returns or throws. Objects above 1 MiB are received where they stay, without staging.
//
// Traffic counts the collectives that a call is made of.
//
// Threads. As Communicator: one thread at a time uses a communicator. Callbacks run on the calling
// thread, between the rounds; they must not use the same communicator (abort() is allowed).
//
// Errors, as unisono::Error, but for what this rank's own serializer threw as it wrote, or its
// producer or callback; rank() is the sender or the rank at fault:
//   kInvalidArgument  a wrong argument of some rank, or a serializer or producer of another threw
//   kMismatch         ranks made different object calls
//   kOutOfResources   an object is larger than the limit, or a rank lacks memory: for a result
//                     above 1 MiB all are told so, for less or for staging the communicator is
//                     aborted, and the others get kAborted
//   kProtocol         bytes that no correct rank sends: a malformed announcement, a value that
//                     cannot be decoded (this one on the ranks that decode it)
//   kNotMember        the communicator is empty
// and those of the communicator.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <iterator>
#include <new>
#include <ranges>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "unisono/communicator.h"
#include "unisono/error.h"
#include "unisono/export.h"
#include "unisono/object_serializer.h"
#include "unisono/options.h"
#include "unisono/types.h"

namespace unisono {

struct ObjectOptions {
  /// Bound of this rank's staging memory in bytes. Zero: UNISONO_OBJECT_STAGING (16 MiB). The
  /// smallest bound of all ranks holds for all.
  std::size_t staging_bytes = 0;
  /// The largest object of one rank in bytes, encoded. Zero: UNISONO_OBJECT_LIMIT (64 GiB). The
  /// smallest limit of all ranks holds for all.
  std::uint64_t size_limit = 0;
  /// `timeout` counts for each round, which includes waiting for the slowest rank's callbacks.
  /// `algorithm` must be empty: an object call is several collectives. `order` has no meaning.
  CallOptions call{};
};

// ---- Bytes ----------------------------------------------------------------------------------

/// An object, whole in memory.
using ObjectBytes = std::vector<std::byte>;

/// At `root`: every rank's object, indexed by rank (size() entries). Elsewhere: empty.
UNISONO_API std::vector<ObjectBytes> gather_objects(Communicator& communicator,
                                                    std::span<const std::byte> object, Rank root,
                                                    const ObjectOptions& options = {});

/// On every rank: every rank's object, indexed by rank.
UNISONO_API std::vector<ObjectBytes> all_gather_objects(Communicator& communicator,
                                                        std::span<const std::byte> object,
                                                        const ObjectOptions& options = {});

/// On every rank (a copy at root): root's object. `object` is not looked at elsewhere.
UNISONO_API ObjectBytes broadcast_object(Communicator& communicator,
                                         std::span<const std::byte> object, Rank root,
                                         const ObjectOptions& options = {});

/// Rank r gets root's objects[r]. `objects` has size() entries at root and is not looked at
/// elsewhere.
UNISONO_API ObjectBytes scatter_objects(Communicator& communicator,
                                        std::span<const std::span<const std::byte>> objects,
                                        Rank root, const ObjectOptions& options = {});
template <typename R>
concept RangeOfObjects =
    std::ranges::forward_range<R> && std::same_as<std::ranges::range_value_t<R>, ObjectBytes>;
template <RangeOfObjects R>
ObjectBytes scatter_objects(Communicator& communicator, const R& objects, Rank root,
                            const ObjectOptions& options = {}) {
  const std::vector<std::span<const std::byte>> views(std::ranges::begin(objects),
                                                      std::ranges::end(objects));
  return scatter_objects(communicator, std::span(views), root, options);
}

// ---- Streams --------------------------------------------------------------------------------

/// A part of a rank's object, as it arrives.
struct ObjectPiece {
  Rank source = -1;
  std::uint64_t offset = 0;            ///< of the first byte, in the object
  std::uint64_t size = 0;              ///< of the whole object
  std::span<const std::byte> bytes{};  ///< until the callback returns
};

/// Takes the pieces. Pieces of one source come in order and without gaps; sources take turns, in
/// the order of ranks. An empty object is one empty piece. After a throw the callback is not
/// called again, this rank goes on taking part until the last round, and then the exception is
/// rethrown here; other ranks see nothing of it.
using ObjectSink = std::function<void(const ObjectPiece& piece)>;

/// Fills `room` with the object's bytes from `offset` on. Called in order, without gaps, until
/// the whole object is made. After a throw it is not called again, zeros go out in its place, and
/// when the last round is over the exception is rethrown here, while every other rank gets an
/// Error of code kInvalidArgument that names this rank: what it got of the object is void.
using ObjectProducer = std::function<void(std::uint64_t offset, std::span<std::byte> room)>;

class ObjectSource;

/// What is, or converts to, a span of bytes.
template <typename R>
concept BytesInMemory =
    !std::same_as<R, ObjectSource> && std::convertible_to<const R&, std::span<const std::byte>>;

/// What a rank sends in a stream: bytes in memory, sent from there, or a producer of `size`
/// bytes, so that the object is never in memory as a whole.
class ObjectSource {
 public:
  ObjectSource() = default;
  template <BytesInMemory R>
  ObjectSource(const R& object)  // NOLINT: implicit on purpose
      : bytes_(object), size_(bytes_.size()) {}
  ObjectSource(std::uint64_t size, ObjectProducer producer)
      : size_(size), producer_(std::move(producer)), is_produced_(true) {}

  std::uint64_t size() const { return size_; }
  bool is_produced() const { return is_produced_; }
  std::span<const std::byte> bytes() const { return bytes_; }
  const ObjectProducer& producer() const { return producer_; }

 private:
  std::span<const std::byte> bytes_;
  std::uint64_t size_ = 0;
  ObjectProducer producer_;
  bool is_produced_ = false;
};

/// root's `sink` gets every rank's object, its own included. A rank holds at most one piece per
/// sender, all of them within the staging bound. `sink` is not used elsewhere and may be empty.
UNISONO_API void stream_gather_objects(Communicator& communicator, const ObjectSource& object,
                                       Rank root, const ObjectSink& sink,
                                       const ObjectOptions& options = {});

/// Every rank's `sink` gets every rank's object, its own included.
UNISONO_API void stream_all_gather_objects(Communicator& communicator, const ObjectSource& object,
                                           const ObjectSink& sink,
                                           const ObjectOptions& options = {});

/// The `sink` of every rank but root gets root's object. `object` is used at root only, `sink`
/// everywhere else.
UNISONO_API void stream_broadcast_object(Communicator& communicator, const ObjectSource& object,
                                         Rank root, const ObjectSink& sink,
                                         const ObjectOptions& options = {});

// ---- What the typed forms are made of -------------------------------------------------------

namespace detail {

/// A rank's encoded part, or why it could not be encoded: then the others are told.
struct Encoded {
  ObjectBytes bytes;
  std::exception_ptr failure;
};

/// Encodes by `write(ByteWriter&)`. Throws nothing.
template <typename Write>
Encoded encode(const Write& write) {
  Encoded encoded;
  try {
    ByteWriter writer;
    write(writer);
    encoded.bytes = writer.take();
  } catch (...) {
    encoded.failure = std::current_exception();
  }
  return encoded;
}

/// Throws `failure` as an Error that names `source` and the call, what is no Error by its words.
[[noreturn]] UNISONO_API void throw_undecodable(std::exception_ptr failure, Rank source,
                                                const char* operation);

template <typename T, typename S>
T decode(std::span<const std::byte> bytes, Rank source, const S& serializer,
         const char* operation = "") {
  try {
    ByteReader reader(bytes, source);
    T value = serializer.read(reader);
    reader.finish();
    return value;
  } catch (...) {
    throw_undecodable(std::current_exception(), source, operation);
  }
}

template <typename T, typename S>
std::vector<T> decode_all(const std::vector<ObjectBytes>& objects, const S& serializer,
                          const char* operation) {
  std::vector<T> values;
  values.reserve(objects.size());
  for (std::size_t r = 0; r < objects.size(); ++r) {
    values.push_back(decode<T>(objects[r], static_cast<Rank>(r), serializer, operation));
  }
  return values;
}

UNISONO_API std::vector<ObjectBytes> gather_encoded(Communicator& communicator,
                                                    const Encoded& object, Rank root,
                                                    const ObjectOptions& options);
UNISONO_API std::vector<ObjectBytes> all_gather_encoded(Communicator& communicator,
                                                        const Encoded& object,
                                                        const ObjectOptions& options);
UNISONO_API ObjectBytes broadcast_encoded(Communicator& communicator, const Encoded& object,
                                          Rank root, const ObjectOptions& options);
UNISONO_API ObjectBytes scatter_encoded(Communicator& communicator,
                                        const std::vector<Encoded>& objects, Rank root,
                                        const ObjectOptions& options);

/// A rank's list as it lies in memory, or why there is none: then the others are told.
struct PlainList {
  std::span<const std::byte> bytes;
  std::size_t element_bytes = 1;
  std::exception_ptr failure{};
};

/// The lists' bytes end to end in rank order, written where `allocate(bytes)` says.
UNISONO_API void all_gather_plain(Communicator& communicator, const PlainList& list,
                                  const std::function<std::byte*(std::uint64_t bytes)>& allocate,
                                  const ObjectOptions& options);
/// Each element in `list` stands behind its size in bytes; `take` gets the elements of a rank in
/// order, those of different ranks in turns.
UNISONO_API void all_gather_framed(
    Communicator& communicator, const Encoded& list,
    const std::function<void(Rank source, std::span<const std::byte> element)>& take,
    const ObjectOptions& options);

template <typename T>
std::vector<T> all_gather_plain_list(Communicator& communicator, const PlainList& list,
                                     const ObjectOptions& options) {
  std::vector<T> all;
  all_gather_plain(
      communicator, list,
      [&](std::uint64_t bytes) {
        all.resize(bytes / sizeof(T));
        return reinterpret_cast<std::byte*>(all.data());
      },
      options);
  return all;
}

/// `elements` lie apart, or are of another type than T: they are put together first.
template <typename T, typename R>
std::vector<T> all_gather_copied_list(Communicator& communicator, const R& elements,
                                      const ObjectOptions& options) {
  const Encoded list = encode([&](ByteWriter& writer) {
    for (const T element : elements) writer.write(&element, sizeof element);
  });
  return all_gather_plain_list<T>(
      communicator, {.bytes = list.bytes, .element_bytes = sizeof(T), .failure = list.failure},
      options);
}

template <typename T, typename R, typename S>
std::vector<T> all_gather_framed_list(Communicator& communicator, const R& elements,
                                      const ObjectOptions& options, const S& serializer) {
  const Encoded list = encode([&](ByteWriter& writer) {
    for (const T& element : elements) {
      const std::size_t frame = writer.size();
      writer.write_size(0);
      serializer.write(writer, element);
      writer.set_size(frame, writer.size() - frame - sizeof(std::uint64_t));
    }
  });
  std::vector<std::vector<T>> lists(static_cast<std::size_t>(communicator.size()));
  all_gather_framed(
      communicator, list,
      [&](Rank source, std::span<const std::byte> element) {
        lists[static_cast<std::size_t>(source)].push_back(
            decode<T>(element, source, serializer, "all_gather_list"));
      },
      options);
  std::vector<T> all;
  for (std::vector<T>& part : lists) {
    all.insert(all.end(), std::make_move_iterator(part.begin()),
               std::make_move_iterator(part.end()));
    part = {};
  }
  return all;
}

}  // namespace detail

// ---- Values: as the byte forms, through a serializer of T -------------------------------------

/// At `root`: every rank's value, indexed by rank. Elsewhere: empty.
template <typename T, SerializerOf<T> S = Serializer<T>>
std::vector<T> gather_values(Communicator& communicator, const T& value, Rank root,
                             const ObjectOptions& options = {}, const S& serializer = {}) {
  const auto encoded = detail::encode([&](ByteWriter& out) { serializer.write(out, value); });
  return detail::decode_all<T>(detail::gather_encoded(communicator, encoded, root, options),
                               serializer, "gather_values");
}

/// On every rank: every rank's value, indexed by rank.
template <typename T, SerializerOf<T> S = Serializer<T>>
std::vector<T> all_gather_values(Communicator& communicator, const T& value,
                                 const ObjectOptions& options = {}, const S& serializer = {}) {
  const auto encoded = detail::encode([&](ByteWriter& out) { serializer.write(out, value); });
  return detail::decode_all<T>(detail::all_gather_encoded(communicator, encoded, options),
                               serializer, "all_gather_values");
}

/// root's `value` to everyone's `value`; root's is not touched.
template <typename T, SerializerOf<T> S = Serializer<T>>
void broadcast_value(Communicator& communicator, T& value, Rank root,
                     const ObjectOptions& options = {}, const S& serializer = {}) {
  const bool is_root = communicator.rank() == root;
  detail::Encoded encoded;
  if (is_root) encoded = detail::encode([&](ByteWriter& out) { serializer.write(out, value); });
  const ObjectBytes bytes = detail::broadcast_encoded(communicator, encoded, root, options);
  if (!is_root) value = detail::decode<T>(bytes, root, serializer, "broadcast_value");
}

/// root's values[rank()]. `values` has size() entries at root and is not looked at elsewhere.
template <typename T, SerializerOf<T> S = Serializer<T>>
T scatter_values(Communicator& communicator, const std::vector<T>& values, Rank root,
                 const ObjectOptions& options = {}, const S& serializer = {}) {
  std::vector<detail::Encoded> encoded;
  if (communicator.rank() == root) {
    for (const T& value : values) {
      encoded.push_back(detail::encode([&](ByteWriter& out) { serializer.write(out, value); }));
    }
  }
  return detail::decode<T>(detail::scatter_encoded(communicator, encoded, root, options), root,
                           serializer, "scatter_values");
}

// ---- Lists ----------------------------------------------------------------------------------

/// Every rank's elements in one list, in the order rank, then original; the same list on every
/// rank. Lengths differ freely, none included. `elements`: a std::vector, std::span or any range
/// of T. Elements that are plain bytes arrive where they stay; others are decoded as they arrive,
/// so that beside the lists a rank holds its own encoded list, and of each peer one element.
template <std::ranges::forward_range R, typename T = std::ranges::range_value_t<R>,
          SerializerOf<T> S = Serializer<T>>
std::vector<T> all_gather_list(Communicator& communicator, const R& elements,
                               const ObjectOptions& options = {}, const S& serializer = {}) {
  // The way depends on the type alone: all ranks go the same.
  if constexpr (PlainBytes<T> && std::default_initializable<T> && PlainSerializer<S>) {
    if constexpr (std::ranges::contiguous_range<const R> && std::ranges::sized_range<const R>) {
      const std::span<const T> list(std::ranges::data(elements), std::ranges::size(elements));
      return detail::all_gather_plain_list<T>(
          communicator, {.bytes = std::as_bytes(list), .element_bytes = sizeof(T)}, options);
    } else {
      return detail::all_gather_copied_list<T>(communicator, elements, options);
    }
  } else if constexpr (std::same_as<T, bool> && std::same_as<S, Serializer<bool>>) {
    const auto all = detail::all_gather_copied_list<std::uint8_t>(communicator, elements, options);
    return std::vector<bool>(all.begin(), all.end());
  } else {
    return detail::all_gather_framed_list<T>(communicator, elements, options, serializer);
  }
}

}  // namespace unisono
