// Object collectives on bytes that come and go in pieces.
#include <nanobind/nanobind.h>

#include <exception>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>

#include "bindings/python/src/callbacks.h"
#include "bindings/python/src/communicator.h"
#include "bindings/python/src/objects.h"
#include "bindings/python/src/shown.h"

namespace unisono::python {
namespace {

/// Bytes that Python lends.
class LentBytes {
 public:
  explicit LentBytes(nb::handle object) {
    if (PyObject_GetBuffer(object.ptr(), &view_, PyBUF_SIMPLE) != 0) throw nb::python_error();
  }
  ~LentBytes() { PyBuffer_Release(&view_); }
  LentBytes(const LentBytes&) = delete;

  std::span<const std::byte> bytes() const {
    return {static_cast<const std::byte*>(view_.buf), static_cast<std::size_t>(view_.len)};
  }

 private:
  Py_buffer view_{};
};

/// What a rank gives to a stream: `data`, or where there is a `fill` the `size` bytes that
/// fill(offset, room) makes; and sink(source, offset, size, bytes). None where there is none.
struct Ends {
  nb::handle data;
  std::uint64_t size;
  nb::handle fill, sink;
};

/// The ends as the library takes them. They run on the thread that makes the call.
class Stream {
 public:
  Stream(Member& member, const Ends& ends) : member_(member), ends_(ends) {
    try {
      lent_.emplace(ends.data);
    } catch (nb::python_error& error) {
      callbacks_.keep(error.value());
      why_not_lent_ = text_of(error.value());
    }
  }

  /// Makes the call; what an end raises is raised.
  template <typename F>
  void run(const F& call) {
    try {
      const Inside inside(member_);
      call(member_.value(), source(), sink());
    } catch (const std::exception&) {
      callbacks_.raise_failure();
      throw;
    }
    callbacks_.raise_failure();  // of bytes that nobody wanted
  }

 private:
  ObjectSource source() {
    if (!lent_) {
      // The others wait for this rank's part: they are told.
      return {1, [this](std::uint64_t, std::span<std::byte>) {
                throw std::runtime_error(why_not_lent_);
              }};
    }
    if (ends_.fill.is_none()) return lent_->bytes();
    return {ends_.size, [this](std::uint64_t offset, std::span<std::byte> room) {
              show(room, false, [&](const nb::object& block) { ends_.fill(offset, block); });
            }};
  }
  ObjectSink sink() {
    if (ends_.sink.is_none()) return {};
    return [this](const ObjectPiece& piece) {
      show(piece.bytes, true, [&](const nb::object& block) {
        ends_.sink(piece.source, piece.offset, piece.size, block);
      });
    };
  }
  template <typename F>
  void show(std::span<const std::byte> bytes, bool is_read_only, const F& function) {
    callbacks_.run([&] {
      const InCallback inside(member_);
      const Shown shown(bytes.data(), bytes.size(), is_read_only);
      function(shown.object());
      shown.check_is_free();
    });
  }

  Member& member_;
  const Ends ends_;
  std::optional<LentBytes> lent_;
  std::string why_not_lent_;
  Callbacks callbacks_;
};

void gather(Member& member, nb::handle data, std::uint64_t size, nb::handle fill, nb::handle sink,
            Rank root, nb::handle staging_bytes, nb::handle size_limit, nb::handle timeout) {
  const GivenOptions given(staging_bytes, size_limit, timeout);
  Stream stream(member, {data, size, fill, sink});
  stream.run([&](Communicator& communicator, const ObjectSource& source, const ObjectSink& taker) {
    given.make_call([&](const ObjectOptions& options) {
      stream_gather_objects(communicator, source, root, taker, options);
    });
  });
}

void all_gather(Member& member, nb::handle data, std::uint64_t size, nb::handle fill,
                nb::handle sink, nb::handle staging_bytes, nb::handle size_limit,
                nb::handle timeout) {
  const GivenOptions given(staging_bytes, size_limit, timeout);
  Stream stream(member, {data, size, fill, sink});
  stream.run([&](Communicator& communicator, const ObjectSource& source, const ObjectSink& taker) {
    given.make_call([&](const ObjectOptions& options) {
      stream_all_gather_objects(communicator, source, taker, options);
    });
  });
}

void broadcast(Member& member, nb::handle data, std::uint64_t size, nb::handle fill,
               nb::handle sink, Rank root, nb::handle staging_bytes, nb::handle size_limit,
               nb::handle timeout) {
  const GivenOptions given(staging_bytes, size_limit, timeout);
  Stream stream(member, {data, size, fill, sink});
  stream.run([&](Communicator& communicator, const ObjectSource& source, const ObjectSink& taker) {
    given.make_call([&](const ObjectOptions& options) {
      stream_broadcast_object(communicator, source, root, taker, options);
    });
  });
}

}  // namespace

void define_object_streams(nb::module_& module) {
  using nb::literals::operator""_a;
  const auto fill = "fill"_a.none();
  const auto sink = "sink"_a.none();
  const auto staging_bytes = "staging_bytes"_a.none();
  const auto size_limit = "size_limit"_a.none();
  const auto timeout = "timeout"_a.none();
  module.def("stream_gather_objects", &gather, "member"_a, "data"_a, "size"_a, fill, sink, "root"_a,
             staging_bytes, size_limit, timeout);
  module.def("stream_all_gather_objects", &all_gather, "member"_a, "data"_a, "size"_a, fill, sink,
             staging_bytes, size_limit, timeout);
  module.def("stream_broadcast_object", &broadcast, "member"_a, "data"_a, "size"_a, fill, sink,
             "root"_a, staging_bytes, size_limit, timeout);
}

}  // namespace unisono::python
