#include "bindings/python/src/objects.h"

#include <nanobind/stl/string.h>

#include <cstring>
#include <deque>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

#include "bindings/python/src/calls.h"
#include "bindings/python/src/communicator.h"
#include "bindings/python/src/errors.h"
#include "bindings/python/src/parcel.h"
#include "unisono/objects.h"

namespace nb = nanobind;

namespace unisono::python {
namespace {

constexpr const char* kOperation = "objects";

/// Sections that Python lends: a list of objects with the buffer protocol, or a text that says why
/// the object could not be pickled.
class Lent {
 public:
  explicit Lent(nb::handle given) {
    if (nb::isinstance<nb::str>(given)) {
      failure_ = nb::cast<std::string>(given);
      return;
    }
    for (const nb::handle part : nb::list(nb::borrow(given))) {
      Py_buffer& view = views_.emplace_back();
      if (PyObject_GetBuffer(part.ptr(), &view, PyBUF_SIMPLE) != 0) {
        views_.pop_back();
        throw nb::python_error();
      }
      sections_.push_back(
          {{static_cast<const std::byte*>(view.buf), static_cast<std::size_t>(view.len)},
           view.readonly != 0});
    }
  }
  ~Lent() {
    for (Py_buffer& view : views_) PyBuffer_Release(&view);
  }
  Lent(const Lent&) = delete;

  const std::vector<Section>& sections() const { return sections_; }
  /// Of a failure, what makes the other ranks hear of it.
  ObjectSource source() const {
    if (!failure_.empty()) {
      return {1, [why = failure_](std::uint64_t, std::span<std::byte>) {
                throw std::runtime_error(why);
              }};
    }
    if (sections_.empty()) return {};
    auto writer = std::make_shared<ParcelWriter>(sections_);
    return {writer->size(),
            [writer](std::uint64_t, std::span<std::byte> room) { writer->read(room); }};
  }
  /// For calls that have no streams: the sections joined.
  detail::Encoded encoded() const {
    detail::Encoded encoded;
    if (!failure_.empty()) {
      encoded.failure = std::make_exception_ptr(std::runtime_error(failure_));
      return encoded;
    }
    ParcelWriter writer(sections_);
    encoded.bytes.resize(static_cast<std::size_t>(writer.size()));
    writer.read(encoded.bytes);
    return encoded;
  }

 private:
  std::deque<Py_buffer> views_;  // which stay where they are
  std::vector<Section> sections_;
  std::string failure_;
};

/// The other ranks wait for the root: they are told what it lacks, memory for example.
detail::Encoded encoded_or_failure(nb::handle parts) {
  try {
    return Lent(parts).encoded();
  } catch (...) {
    return {.bytes = {}, .failure = std::current_exception()};
  }
}

nb::list as_list(std::vector<ReceivedSection> sections) {
  nb::list list;
  for (ReceivedSection& section : sections) {
    const nb::object memory = nb::cast(std::move(section.memory));
    nb::object view = nb::steal(PyMemoryView_FromObject(memory.ptr()));
    if (!view.is_valid()) throw nb::python_error();
    list.append(section.is_read_only ? view.attr("toreadonly")() : view);
  }
  return list;
}

/// The objects of all ranks as they arrive. What cannot be read is thrown by take(), because the
/// library's own failure, which may be the reason for it, comes first.
class Inbox {
 public:
  explicit Inbox(int ranks) : readers_(static_cast<std::size_t>(ranks)) {}
  ObjectSink sink() {
    return [this](const ObjectPiece& piece) {
      if (failure_) return;
      try {
        reader(piece.source).write(piece.source, piece.size, piece.bytes);
      } catch (...) {
        failure_ = std::current_exception();
      }
    };
  }
  nb::list take(Rank source) {
    if (failure_) std::rethrow_exception(failure_);
    return as_list(reader(source).take(source));
  }
  nb::list take_all() {
    nb::list objects;
    for (std::size_t r = 0; r < readers_.size(); ++r) objects.append(take(static_cast<Rank>(r)));
    return objects;
  }

 private:
  ParcelReader& reader(Rank source) { return readers_.at(static_cast<std::size_t>(source)); }

  std::vector<ParcelReader> readers_;
  std::exception_ptr failure_;
};

std::uint64_t bytes_of(nb::handle given, const char* what) {
  std::uint64_t bytes = 0;
  if (!nb::try_cast(given, bytes)) refuse(kOperation, std::string(what) + " is no number of bytes");
  return bytes;
}

nb::object gather(Member& member, nb::handle parts, Rank root, nb::handle staging_bytes,
                  nb::handle size_limit, nb::handle timeout) {
  const Lent lent(parts);
  const GivenOptions given(staging_bytes, size_limit, timeout);
  const bool is_root = member.value().rank() == root;  // a body that ends meanwhile takes it away
  Inbox inbox(member.value().size());
  given.make_call([&](const ObjectOptions& options) {
    const Inside inside(member);
    stream_gather_objects(member.value(), lent.source(), root, inbox.sink(), options);
  });
  return is_root ? nb::object(inbox.take_all()) : nb::none();
}

nb::list all_gather(Member& member, nb::handle parts, nb::handle staging_bytes,
                    nb::handle size_limit, nb::handle timeout) {
  const Lent lent(parts);
  const GivenOptions given(staging_bytes, size_limit, timeout);
  Inbox inbox(member.value().size());
  given.make_call([&](const ObjectOptions& options) {
    const Inside inside(member);
    stream_all_gather_objects(member.value(), lent.source(), inbox.sink(), options);
  });
  return inbox.take_all();
}

nb::object broadcast(Member& member, nb::handle parts, Rank root, nb::handle staging_bytes,
                     nb::handle size_limit, nb::handle timeout) {
  const Lent lent(parts);
  const GivenOptions given(staging_bytes, size_limit, timeout);
  const bool is_root = member.value().rank() == root;  // as in gather()
  Inbox inbox(member.value().size());
  given.make_call([&](const ObjectOptions& options) {
    const Inside inside(member);
    stream_broadcast_object(member.value(), lent.source(), root, inbox.sink(), options);
  });
  return is_root ? nb::none() : nb::object(inbox.take(root));
}

nb::list scatter(Member& member, const nb::list& objects, Rank root, nb::handle staging_bytes,
                 nb::handle size_limit, nb::handle timeout) {
  std::vector<detail::Encoded> encoded;
  for (const nb::handle parts : objects) encoded.push_back(encoded_or_failure(parts));
  const GivenOptions given(staging_bytes, size_limit, timeout);
  ObjectBytes bytes;
  given.make_call([&](const ObjectOptions& options) {
    const Inside inside(member);
    bytes = detail::scatter_encoded(member.value(), encoded, root, options);
  });
  return as_list(open_parcel(root, std::move(bytes)));
}

}  // namespace

GivenOptions::GivenOptions(nb::handle staging_bytes, nb::handle size_limit, nb::handle timeout) {
  try {
    options_.staging_bytes = bytes_of(staging_bytes, "staging_bytes");
    options_.size_limit = bytes_of(size_limit, "size_limit");
    options_.call.timeout = milliseconds_of(timeout, kOperation);
  } catch (...) {
    failure_ = std::current_exception();
    options_.call.timeout = std::chrono::milliseconds(-1);
  }
}

void define_objects(nb::module_& module) {
  using nb::literals::operator""_a;
  const auto staging_bytes = "staging_bytes"_a.none();
  const auto size_limit = "size_limit"_a.none();
  const auto timeout = "timeout"_a.none();
  module.def("gather_objects", &gather, "member"_a, "parts"_a, "root"_a, staging_bytes, size_limit,
             timeout);
  module.def("all_gather_objects", &all_gather, "member"_a, "parts"_a, staging_bytes, size_limit,
             timeout);
  module.def("broadcast_object", &broadcast, "member"_a, "parts"_a, "root"_a, staging_bytes,
             size_limit, timeout);
  module.def("scatter_objects", &scatter, "member"_a, "objects"_a, "root"_a, staging_bytes,
             size_limit, timeout);
}

}  // namespace unisono::python
